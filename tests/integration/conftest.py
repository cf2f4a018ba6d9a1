"""For all integration tests: the machine's certificates are not loaded."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_roots() -> Iterator[None]:
    """Nothing here trusts the machine, and loading its roots costs each client and each process 30 ms of CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield
