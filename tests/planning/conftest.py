"""What the tests share that run a command against an API server; each sets up a ``server`` of its own."""

import json
from pathlib import Path

import pytest

from taint_eviction.simulation.apiserver import ApiServer, kubeconfig


@pytest.fixture
def config(server: ApiServer, tmp_path: Path) -> str:
    """The way to the server."""
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig(server)))
    return str(path)
