"""/history: filters, pages, and what it refuses."""

import asyncio
from typing import Any

import pytest
from tests.unit.builders import EPOCH, Stage, moment, node, pod, ref, taint
from tests.unit.runtime_fakes import FakeClock
from tests.unit.test_reporting_status_document import LEADER

from taint_eviction.core.events import Evicted
from taint_eviction.core.instants import Moment
from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339
from taint_eviction.reporting.history_endpoint import HistoryEndpoint
from taint_eviction.reporting.outcome_memory import OutcomeMemory
from taint_eviction.reporting.status_endpoints import StatusEndpoints


class SteppedClock:
    """A clock that always shows the same moment."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def now(self) -> Moment:
        """Read the clock."""
        return self._moment


def endpoint(memory: OutcomeMemory) -> HistoryEndpoint:
    """Return an endpoint."""
    return HistoryEndpoint(memory, FakeClock(), lambda: LEADER)


def evict(memory: OutcomeMemory, *names: str, at: float = 0.0, namespace: str = "shop") -> None:
    """Report that these pods were evicted at ``at``; their names are their UIDs."""
    on = Stage()
    on.sees(node(taint()), pod())
    decision = on.take_eviction().decision
    for name in names:
        memory.report(Evicted(ref(name, name, namespace), "n1", decision, 0.0), moment(at))


def asked(on: HistoryEndpoint, **query: str) -> tuple[int, dict[str, Any]]:
    """Query the endpoint."""
    return asyncio.run(on.history(query))


def names(document: dict[str, Any]) -> list[str]:
    """The pods of a page."""
    return [each["name"] for each in document["outcomes"]]


def test_pages_continue_where_the_one_before_ended() -> None:
    """Each outcome is listed once and none is left out, even if a pod is evicted between two pages."""
    memory = OutcomeMemory()
    evict(memory, "a", "b", "c", "d", "e")
    on = endpoint(memory)
    _, first = asked(on, limit="2")
    evict(memory, "later")
    _, second = asked(on, limit="2", **{"continue": first["continue"]})
    _, last = asked(on, limit="2", **{"continue": second["continue"]})
    assert [names(each) for each in (first, second, last)] == [["e", "d"], ["c", "b"], ["a"]]
    assert last["continue"] is None
    assert asked(on, limit="6")[1]["continue"] is None


def test_a_page_that_ends_with_the_last_match_is_the_last_page() -> None:
    """An older outcome follows, which does not match the query."""
    memory = OutcomeMemory()
    evict(memory, "a", "b")
    assert asked(endpoint(memory), limit="1", pod="shop/b")[1]["continue"] is None


def test_a_limit_of_zero_lists_nothing() -> None:
    """The answer still says how many outcomes are remembered."""
    memory = OutcomeMemory()
    evict(memory, "a", "b")
    code, document = asked(endpoint(memory), limit="0")
    assert (code, names(document), document["remembered"]) == (200, [], 2)


@pytest.mark.parametrize(
    ("since", "listed"),
    [(9.0, ["b", "a"]), (10.0, ["b", "a"]), (11.0, ["b"]), (20.0, ["b"]), (21.0, [])],
)
def test_since_lists_outcomes_of_that_instant_or_later(since: float, listed: list[str]) -> None:
    """The parameter is a time in whole seconds."""
    memory = OutcomeMemory()
    evict(memory, "a", at=10.0)
    evict(memory, "b", at=20.0)
    code, document = asked(endpoint(memory), since=format_rfc3339(EPOCH + since))
    assert (code, names(document)) == (200, listed)


@pytest.mark.parametrize("stepped", [-3600.0, 3600.0])
def test_since_follows_the_api_server_whose_clock_is_stepped(stepped: float) -> None:
    """All outcomes of the last minute are listed in order, though the clock was stepped between them."""
    memory = OutcomeMemory()
    evict(memory, "long-ago", at=10.0)
    evict(memory, "a", at=1000.0)
    on = Stage()
    on.sees(node(taint()), pod())
    now = Moment(1030.0, EPOCH + 1030.0 + stepped)
    memory.report(Evicted(ref("b", "b"), "n1", on.take_eviction().decision, 0.0), Moment(1010.0, now.epoch_of(1010.0)))
    endpoint = HistoryEndpoint(memory, SteppedClock(now), lambda: LEADER)
    code, document = asked(endpoint, since=format_rfc3339(now.server_epoch - 60.0))
    assert (code, names(document)) == (200, ["b", "a"])
    times = [each["time"] for each in document["outcomes"]]
    assert times == [format_micro_time(now.server_epoch - ago) for ago in (20.0, 30.0)]
    assert endpoint.recent(now)["total"] == 2


@pytest.mark.parametrize(("namespace", "gone"), [(None, 3), ("shop", 2), ("other", 0)])
def test_a_status_of_one_namespace_counts_recent_evictions_there(namespace: str | None, gone: int) -> None:
    """Else a namespace with one pending pod would show the progress of somebody else's storm."""
    memory, now = OutcomeMemory(), moment(11.0)
    evict(memory, "a", "b", at=10.0)
    evict(memory, "c", at=10.0, namespace="test")
    history = HistoryEndpoint(memory, SteppedClock(now), lambda: LEADER)
    endpoints = StatusEndpoints(Stage().brain.status, SteppedClock(now), lambda: LEADER, recent=history.recent)
    _, document = asyncio.run(endpoints.status({} if namespace is None else {"namespace": namespace}))
    assert (document["evictedLately"]["total"], document["evictedLately"]["storm"]["gone"]) == (gone, gone)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "-1"),
        ("limit", "many"),
        ("limit", "1" * 13),
        ("limit", "٣"),
        ("continue", "x"),
        ("continue", ""),
        ("continue", "-1"),
        ("since", "5m"),
        ("since", "yesterday"),
    ],
)
def test_a_parameter_that_is_malformed_is_refused(name: str, value: str) -> None:
    """The error names the parameter and quotes the value."""
    code, document = asked(endpoint(OutcomeMemory()), **{name: value})
    assert code == 400
    assert document["error"].startswith(name)
    assert repr(value) in document["error"]


def test_too_many_queries_at_once_are_told_to_try_again() -> None:
    """Queries that wait already are answered, and so is a later one."""

    async def crowd() -> list[int]:
        memory = OutcomeMemory()
        evict(memory, *(f"p{number}" for number in range(300)))
        on = endpoint(memory)
        answers = await asyncio.gather(*(on.history({}) for _ in range(20)))
        later, _ = await on.history({})
        return [*(code for code, _ in answers), later]

    codes = asyncio.run(crowd())
    assert (codes.count(200), codes.count(503), codes[-1]) == (18, 3, 200)
