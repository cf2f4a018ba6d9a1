"""The times of the journal's lines, and the pods that the journal records as gone."""

from pathlib import Path

import orjson
from tests.unit.builders import node, pod, taint

from taint_eviction.core.facts import NodeSeen, PodGone, PodSeen, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Toleration
from taint_eviction.reporting.journal import Journal


def told(path: Path) -> list[str]:
    """List the field ``what`` of all lines."""
    return [orjson.loads(line)["what"] for line in path.read_bytes().splitlines()]


def test_later_lines_have_later_times_while_the_servers_clock_settles(tmp_path: Path) -> None:
    """The journal ignores a clock that moves by less than a second, and follows one that is stepped."""
    journal = Journal(tmp_path / "journal")
    moments = [Moment(10.0, 1000.0), Moment(10.1, 999.7), Moment(10.2, 1000.9), Moment(11.0, 1100.0)]
    for number, now in enumerate(moments):
        journal.observed(PodSeen(pod(name=f"web-{number}", uid=f"uid-{number}")), now)
    journal.close()
    lines = [orjson.loads(line) for line in (tmp_path / "journal").read_bytes().splitlines()]
    assert [line["t"] for line in lines if line["what"] == "pod"] == [1000.0, 1000.1, 1000.2, 1100.0]


def test_a_pod_that_a_newer_list_lacks_is_gone_though_it_was_seen_after_the_request(tmp_path: Path) -> None:
    """The pod was seen at a version older than the list's, so the list counts, as in the core."""
    journal = Journal(tmp_path / "journal")
    journal.observed(PodSeen(pod(uid="old", version=5)), Moment(1.0, 1.0))
    journal.observed(PodSeen(pod(name="b", uid="new", version=9)), Moment(1.0, 1.0))
    journal.observed(PodsSwept("n1", frozenset(), 0.9, 8), Moment(1.1, 1.1))
    journal.close()
    assert told(tmp_path / "journal") == ["journal", "pod", "pod", "pod gone"]


def test_what_comes_late_is_not_recorded(tmp_path: Path) -> None:
    """A watch that lags brings an older node than a live read, and a pod that is gone; the core takes neither."""
    journal = Journal(tmp_path / "journal")
    journal.observed(NodeSeen(node(taint(), version=8)), Moment(1.0, 1.0))
    journal.observed(NodeSeen(node(version=10), asked_at=2.0), Moment(2.1, 2.1))
    journal.observed(NodeSeen(node(taint(), version=9)), Moment(3.0, 3.0))
    journal.observed(PodSeen(pod(version=5)), Moment(4.0, 4.0))
    journal.observed(PodGone(pod().ref), Moment(5.0, 5.0))
    journal.observed(PodSeen(pod(version=5)), Moment(6.0, 6.0))
    journal.close()
    assert told(tmp_path / "journal") == ["journal", "node", "node", "pod", "pod gone"]


def test_of_very_long_lists_of_tolerations_the_first_are_recorded(tmp_path: Path) -> None:
    """A tenant may write a hundred thousand of them; the line says how many it leaves out."""
    journal = Journal(tmp_path / "journal")
    tolerations = tuple(Toleration(f"k{number}", "Exists") for number in range(70))
    journal.observed(PodSeen(pod(*tolerations)), Moment(1.0, 1.0))
    journal.close()
    line = orjson.loads((tmp_path / "journal").read_bytes().splitlines()[1])
    assert [each["key"] for each in line["tolerations"]] == [f"k{number}" for number in range(64)]
    assert line["tolerations_left_out"] == 6
