"""The histories of several replicas are merged: each pod once, as the best informed replica has it, newest first."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from taint_eviction_ctl.cli import history_reads
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered

FLAGS = {"server": None, "lease_name": "lease"}


def row(uid: str, outcome: str, second: int) -> Document:
    """One outcome."""
    return {"uid": uid, "outcome": outcome, "time": f"2030-01-01T00:00:{second:02}Z"}


def page(identity: str, *rows: Document, more: str | None = None, **head: Any) -> Document:
    """What a replica answers."""
    lease = {"name": "lease"}
    return {"identity": identity, "dryRun": False, "lease": lease, "outcomes": list(rows), "continue": more, **head}


class FakeReplica:
    """Answers with its pages, one after the other."""

    def __init__(self, *pages: Document | Unanswered) -> None:
        self.pages = list(pages)
        self.queries: list[dict[str, Any]] = []

    async def __call__(self, path: str, query: Mapping[str, str | int]) -> Document:
        self.queries.append(dict(query))
        page = self.pages.pop(0)
        if isinstance(page, Unanswered):
            raise page
        return page


def asked(monkeypatch: pytest.MonkeyPatch, *replicas: FakeReplica, limit: int = 10) -> history_reads.Remembered:
    """Return what is made of the answers of these replicas."""

    @contextlib.asynccontextmanager
    async def asking_all(*_: object) -> AsyncIterator[list[Ask]]:
        yield list(replicas)

    monkeypatch.setattr(history_reads, "asking_all", asking_all)
    return asyncio.run(history_reads.remembered(FLAGS, {"limit": limit}))


@pytest.mark.parametrize("leader_first", [True, False])
def test_the_replica_that_evicted_counts_over_a_watcher(monkeypatch: pytest.MonkeyPatch, leader_first: bool) -> None:
    """The order of the answers does not matter, nor that the standby saw the pod go later."""
    leader = FakeReplica(page("leader", row("a", "evicted", 1)))
    standby = FakeReplica(page("standby", row("a", "gone", 2)))
    found = asked(monkeypatch, *((leader, standby) if leader_first else (standby, leader)))
    assert [(each["outcome"], each["toldBy"]) for each in found.outcomes] == [("evicted", "leader")]


def test_a_new_leader_answers_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has what the new leader saw as a standby and what it did itself, and names the dead replica."""
    gone = FakeReplica(Unanswered("pod kube-system/old does not answer"))
    new = FakeReplica(page("new", row("b", "evicted", 9), row("a", "deleted", 1)))
    found = asked(monkeypatch, gone, new)
    assert [(each["uid"], each["outcome"]) for each in found.outcomes] == [("b", "evicted"), ("a", "deleted")]
    assert (found.answered, found.unanswered) == (["new"], ["pod kube-system/old does not answer"])


def test_a_pod_that_was_evicted_after_a_refusal_counts_as_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader before was refused, and the new leader evicted the pod."""
    before = FakeReplica(page("before", row("a", "refused", 1)))
    new = FakeReplica(page("new", row("a", "evicted", 5)))
    assert [each["outcome"] for each in asked(monkeypatch, before, new).outcomes] == ["evicted"]


def test_outcomes_of_all_replicas_are_ordered_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest outcome comes first, whichever replica has it."""
    one = FakeReplica(page("one", row("d", "evicted", 4), row("a", "evicted", 1)))
    two = FakeReplica(page("two", row("c", "evicted", 3), row("b", "evicted", 2)))
    assert [each["uid"] for each in asked(monkeypatch, one, two, limit=3).outcomes] == ["d", "c", "b"]


def test_pages_are_followed_until_there_are_enough_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further page is asked for with the token of the page before."""
    replica = FakeReplica(
        page("one", row("c", "evicted", 3), row("b", "evicted", 2), more="2"), page("one", row("a", "evicted", 1))
    )
    assert [each["uid"] for each in asked(monkeypatch, replica, limit=3).outcomes] == ["c", "b", "a"]
    assert replica.queries == [{"limit": 3}, {"limit": 1, "continue": "2"}]


def test_without_a_usable_answer_each_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run and a replica with another Lease do not count as answers."""
    dry_run = FakeReplica(page("dry", row("a", "evicted", 1), dryRun=True, lease=None))
    other = FakeReplica(page("other", row("a", "evicted", 1), lease={"name": "another"}))
    with pytest.raises(Unanswered, match=r"away; dry is a dry run: .*; other belongs to another Lease: "):
        asked(monkeypatch, FakeReplica(Unanswered("away")), dry_run, other)
