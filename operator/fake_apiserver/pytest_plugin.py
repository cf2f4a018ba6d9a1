"""Fixtures for pytest, with pytest-asyncio: `pytest_plugins = ["fake_apiserver.pytest_plugin"]` in a conftest.py.

Nothing is loaded by itself: a project that installs this one gets no fixture that it has not asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from .resources import ResourceType
from .server import ApiServer


@pytest.fixture
def fake_apiserver_custom() -> Sequence[ResourceType]:
    """The custom kinds of `fake_apiserver`: none. Override it in your conftest.py or test module."""
    return ()


@pytest_asyncio.fixture
async def fake_apiserver(fake_apiserver_custom: Sequence[ResourceType]) -> AsyncIterator[ApiServer]:
    """An API server that listens on loopback, empty but for the namespaces of every cluster; stopped after the test."""
    async with ApiServer(custom=fake_apiserver_custom) as server:
        yield server
