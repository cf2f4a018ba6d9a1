"""How a verb reaches the API server: as the flags for the kubeconfig and its context say, with the server's time."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from taint_eviction.kube.api_calls import ApiCalls
from taint_eviction.kube.time_calls import ask_time
from taint_eviction.login.credentials import Connection, find_connection
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.time_votes import COMMAND_SECONDS, learn_time

# How long a verb waits for an answer.
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ReachedCluster:
    """A connection to an API server, with its calls, and its time as far as answers have told it."""

    connection: Connection
    calls: ApiCalls
    clock: ServerClock

    @property
    def where(self) -> str:
        """Where the connection was found, and the address of the API server."""
        return f"{self.connection.where}: {self.connection.url}"

    async def learn_time(self) -> None:
        """Let several connections say what time it is."""
        await learn_time(self.clock, partial(ask_time, self.calls, self.connection), COMMAND_SECONDS)


@contextlib.asynccontextmanager
async def reaching(flags: Mapping[str, Any], timeout_seconds: float = TIMEOUT_SECONDS) -> AsyncIterator[ReachedCluster]:
    """Connect for a block; raise ``CredentialsError``. No call is made yet."""
    clock = ServerClock()
    connection = await find_connection(flags.get("kubeconfig"), flags.get("context"), clock)
    try:
        calls = ApiCalls(connection.api_client(), timeout_seconds, clock.heard_date, lambda *_: None)
        yield ReachedCluster(connection, calls, clock)
    finally:
        await connection.close()
