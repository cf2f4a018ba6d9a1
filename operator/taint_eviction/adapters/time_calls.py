"""Asks for the time on a connection of its own, so that a balancer chooses an API server for it."""

from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.adapters.credentials import Connection

_VERSION = ApiRequest("get", "version", url_path="/version")


async def ask_time(calls: ApiCalls, connection: Connection) -> None:
    """Open a connection, make one call on it, and close it; only the ``Date`` of the answer matters."""
    async with connection.separate_session() as session:
        await calls.make(_VERSION, session=session)
