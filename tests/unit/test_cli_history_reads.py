"""The histories of several replicas are merged: each pod once, as the best informed replica has it, newest first."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from taint_eviction_ctl.cli import history_reads
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered
from taint_eviction_ctl.cli.history_sources import Source

UNREAD = Source("elsewhere", problem="not read")
FLAGS = {"server": None, "lease_name": "lease"}


def row(uid: str, outcome: str, second: int) -> Document:
    """One outcome."""
    named = {"namespace": "shop", "name": uid, "node": "n1", "taint": "k1:NoExecute"}
    return {"uid": uid, "outcome": outcome, "time": f"2030-01-01T00:00:{second:02}Z", **named}


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


def asked(
    monkeypatch: pytest.MonkeyPatch,
    *replicas: FakeReplica,
    limit: int = 10,
    kept: Source = UNREAD,
    events: Source = UNREAD,
    query: Mapping[str, str] | None = None,
    are_all: bool = True,
) -> history_reads.Remembered:
    """Return what is made of the answers of these replicas, of what is kept, and of events."""

    async def read(source: Source) -> Source:
        return source

    monkeypatch.setattr(history_reads, "kept_outcomes", lambda *_: read(kept))
    monkeypatch.setattr(history_reads, "event_outcomes", lambda *_: read(events))

    @contextlib.asynccontextmanager
    async def asking_all(*_: object) -> AsyncIterator[tuple[list[Ask], bool]]:
        yield list(replicas), are_all

    monkeypatch.setattr(history_reads, "asking_all", asking_all)
    return asyncio.run(history_reads.remembered(FLAGS, {"limit": limit, **(query or {})}))


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


STRANGE = [
    {**page("strange"), "outcomes": None},
    {**page("strange"), "outcomes": [[]]},
    {**page("strange"), "lease": "lease"},
    {**page("strange"), "identity": None},
    *(page("strange", {**row("b", "evicted", 1), name: {"a": 1}}) for name in row("b", "evicted", 1)),
    page("strange", row("b", "of another version", 1)),
    {},
]


@pytest.mark.parametrize("strange", STRANGE, ids=str)
def test_the_answer_of_another_program_keeps_nobody_from_the_others(
    monkeypatch: pytest.MonkeyPatch, strange: Document
) -> None:
    """Whoever may label a pod may answer; what it says counts as no answer."""
    found = asked(monkeypatch, FakeReplica(page("leader", row("a", "evicted", 1))), FakeReplica(strange))
    assert [each["uid"] for each in found.outcomes] == ["a"]
    assert found.answered == ["leader"]
    assert found.unanswered == ["this is not the answer of a taint-eviction controller of this version"]


@pytest.mark.parametrize(
    ("are_all", "others", "is_former"),
    [
        (True, [page("standby")], True),
        (False, [page("standby")], None),
        # It may be this one, which does not answer.
        (True, [Unanswered("pod kube-system/other does not answer")], None),
    ],
)
def test_a_replica_is_a_former_one_where_all_that_run_have_answered(
    monkeypatch: pytest.MonkeyPatch, are_all: bool, others: list[Document | Unanswered], is_former: bool | None
) -> None:
    """None: that is not known; without the right to list pods, only the leader is asked."""
    restored = {**row("a", "evicted", 1), "toldBy": "before"}
    replicas = [FakeReplica(page("new", row("b", "evicted", 9), restored)), *map(FakeReplica, others)]
    told = {each["uid"]: each for each in asked(monkeypatch, *replicas, are_all=are_all).outcomes}
    assert [(told[uid]["toldByFormer"], told[uid]["keptBy"]) for uid in ("a", "b")] == [
        (is_former, "new"),
        (False, None),
    ]


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


def test_an_event_older_than_all_that_a_replica_lists_within_the_limit_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a higher limit the replica lists that pod, too, with its node and how late it left."""
    replica = FakeReplica(page("one", row("c", "evicted", 9), row("b", "evicted", 8)))
    told = [{**row(uid, "evicted", second), "node": None, "toldBy": None} for uid, second in (("d", 11), ("a", 8))]
    found = asked(monkeypatch, replica, limit=2, events=Source("events", outcomes=told, lasting=False))
    assert [each["uid"] for each in found.outcomes] == ["d", "c"]
    problems = " ".join(source.problem or "" for source in found.sources)
    assert "that only events tell" not in problems


def test_a_dry_run_that_is_not_asked_hides_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many outcomes it has, none of them is of a pod that was evicted."""
    dry_run = FakeReplica(page("dry", row("z", "evicted", 20), dryRun=True, lease={"name": "another"}))
    events = Source("events", outcomes=[{**row("a", "evicted", 8), "node": None, "toldBy": None}], lasting=False)
    found = asked(monkeypatch, FakeReplica(page("one")), dry_run, limit=1, events=events)
    assert [each["uid"] for each in found.outcomes] == ["a"]


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


def told(found: history_reads.Remembered) -> list[tuple[str, str]]:
    """The pods with who told of them."""
    return [(each["uid"], each["toldBy"]) for each in found.outcomes]


def kept(*rows: Document) -> Source:
    """What the leader has kept."""
    return Source("ConfigMap", [{**each, "toldBy": "before"} for each in rows], since="2030-01-01T00:00:00Z")


def events(*rows: Document) -> Source:
    """What events tell."""
    return Source("events", [{**each, "toldBy": "an event", "node": None} for each in rows], lasting=False)


def test_where_no_replica_answers_what_is_kept_and_events_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events fill in what is newer than the last write; of a pod that both tell, what is kept says more."""
    silent = FakeReplica(Unanswered("away"))
    told_by_events = events(row("a", "evicted", 1), row("b", "evicted", 2))
    found = asked(monkeypatch, silent, kept=kept(row("a", "evicted", 1)), events=told_by_events)
    assert told(found) == [("b", "an event"), ("a", "before")]
    assert (found.answered, found.unanswered) == ([], ["away"])


def test_events_alone_answer_for_a_pod_that_they_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one they answer nothing: that nobody keeps anything must not look like that nothing has happened."""
    silent = FakeReplica(Unanswered("away"))
    assert told(asked(monkeypatch, silent, events=events(row("b", "evicted", 2)))) == [("b", "an event")]
    with pytest.raises(Unanswered, match="away; elsewhere: not read"):
        asked(monkeypatch, FakeReplica(Unanswered("away")), events=events())


def test_invented_events_push_out_nothing_that_a_controller_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may create events fills at most half of the list with them, if there are others; the source says how many."""
    invented = events(*(row(f"x{second}", "evicted", second) for second in range(10, 59)))
    real = kept(*(row(f"r{second}", "evicted", second) for second in range(9, 0, -1)))
    found = asked(monkeypatch, FakeReplica(Unanswered("away")), limit=6, kept=real, events=invented)
    assert [each["uid"] for each in found.outcomes] == ["x58", "x57", "x56", "r9", "r8", "r7"]
    problems = [source.problem for source in found.sources]
    assert problems == [
        "46 older outcomes that only events tell are not listed: anybody may create events (--limit)",
        "",
    ]
    few = asked(
        monkeypatch, FakeReplica(Unanswered("away")), limit=6, kept=kept(row("r", "evicted", 1)), events=invented
    )
    assert [each["uid"] for each in few.outcomes] == ["x58", "x57", "x56", "x55", "x54", "r"]


def test_an_event_of_one_namespace_says_nothing_of_a_pod_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may write any UID into an event about its own namespace."""
    forged = events({**row("a", "evicted", 2), "namespace": "tenant"})
    found = asked(monkeypatch, FakeReplica(page("one", row("a", "refused", 1))), events=forged)
    assert [(each["namespace"], each["outcome"]) for each in found.outcomes] == [
        ("tenant", "evicted"),
        ("shop", "refused"),
    ]


def test_what_is_kept_is_read_unless_the_leader_has_restored_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby has not."""
    of_leader = page("one", row("b", "evicted", 2), leading=True, restoredFrom="kube-system/history")
    of_standby = page("two", row("b", "gone", 2), leading=False, restoredFrom="kube-system/history")
    found = asked(monkeypatch, FakeReplica(of_leader), kept=kept(row("a", "evicted", 1)))
    assert [each["uid"] for each in found.outcomes] == ["b"]
    found = asked(monkeypatch, FakeReplica(of_standby), kept=kept(row("a", "evicted", 1)))
    assert told(found) == [("b", "two"), ("a", "before")]


@pytest.mark.parametrize(
    ("query", "listed"),
    [
        ({"since": "2030-01-01T00:00:02Z"}, ["b"]),
        ({"until": "2030-01-01T00:00:01Z"}, ["a"]),
        ({"uid": "a"}, ["a"]),
        ({"pod": "shop/b"}, ["b"]),
        ({"node": "n1"}, ["b", "a"]),
        ({"node": "n2"}, []),
        ({"taint": "k1"}, ["b", "a"]),
        ({"taint": "k"}, []),
        ({"namespace": "bank"}, []),
    ],
)
def test_what_is_kept_is_filtered_as_what_replicas_tell(
    monkeypatch: pytest.MonkeyPatch, query: dict[str, str], listed: list[str]
) -> None:
    """A replica of another version may not know a filter, either."""
    source = kept(row("b", "evicted", 2), row("a", "evicted", 1))
    found = asked(monkeypatch, FakeReplica(page("one")), kept=source, query=query)
    assert [each["uid"] for each in found.outcomes] == listed
