"""What tests share that run a command against an API server; each module has a fixture ``server`` of its own."""

from pathlib import Path

import pytest
from tests.stage.objects import write_kubeconfig

from fake_apiserver import ApiServer


@pytest.fixture
def config(server: ApiServer, tmp_path: Path) -> str:
    """Write a kubeconfig for the server, and return its path."""
    return str(write_kubeconfig(tmp_path / "config", server))
