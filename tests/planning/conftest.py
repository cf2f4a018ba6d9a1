"""What the tests share that run a command against an API server; each sets up a ``server`` of its own."""

from pathlib import Path

import pytest
from tests.stage.objects import write_kubeconfig

from fake_apiserver import ApiServer


@pytest.fixture
def config(server: ApiServer, tmp_path: Path) -> str:
    """The way to the server."""
    return str(write_kubeconfig(tmp_path / "config", server))
