"""Asks for the time on a connection of its own, so that a balancer chooses an API server for it."""

from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.login.credentials import Connection
from taint_eviction.runtime.ports import CallFailed, FailureReason

_VERSION = ApiRequest("get", "version", url_path="/version")


async def ask_time(calls: ApiCalls, connection: Connection) -> None:
    """Open a connection, make one call on it, and close it; only the ``Date`` of the answer matters.

    A refusal has one as well. Raises ``CallFailed`` if no API server answers: a balancer that knows none answers with a
    5xx.
    """
    async with connection.separate_session() as session:
        try:
            answer = await calls.make(_VERSION, session=session)
        except CallFailed as failure:
            if failure.reason is FailureReason.NO_ANSWER:
                raise
        else:
            if answer.failure is not None and answer.failure.may_pass:
                raise answer.failure
