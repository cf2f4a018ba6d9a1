"""The breaker's table of zones: which nodes each figure counts, and which row comes first."""

from dataclasses import replace

from tests.unit.builders import Stage, moment, node, pod, taint, tolerates
from tests.unit.test_core_unready_nodes import POLICY, lost_node, ready

from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.core.breaker_table import ZoneRow
from taint_eviction.core.facts import NodeGone, NodesHeard
from taint_eviction.core.objects import EXEMPT_LABEL, UNREACHABLE, ZONE_LABEL, Node


def figures(on: Stage) -> dict[str | None, tuple[int, int, int, int]]:
    """Per zone, in the table's order: nodes not ready, newly not ready, newly tainted, and counted."""
    return {
        row.zone: (row.not_ready, row.newly_not_ready, row.newly_tainted, row.counted)
        for row in on.brain.status.zones(moment(on.now))
    }


def up(name: str, zone: str, *, tainted: bool = False) -> Node:
    """A node that is ready."""
    return replace(node(*([taint()] if tainted else []), name=name), ready=ready("True"), labels={ZONE_LABEL: zone})


def test_a_node_that_was_lost_when_the_window_began_is_not_new() -> None:
    """The node still counts as not ready; a node that was lost a second later is new."""
    on = Stage(breaker=POLICY)
    on.at(20).sees(lost_node("n1", since=9, tainted=False), lost_node("n2", since=10, tainted=False))
    on.sees(up("n3", "east"))
    assert figures(on.at(109.9))[None] == (2, 2, 0, 0)
    assert figures(on.at(110)) == {None: (2, 1, 0, 0), "east": (2, 1, 0, 0)}


def test_the_worst_zone_comes_first() -> None:
    """The order is by nodes that count, then newly not ready, then newly tainted, then not ready, then by name."""
    on = Stage(breaker=POLICY)
    on.at(5).sees(lost_node("old", zone="old", since=0, tainted=False))
    on.at(300).sees(lost_node("new", zone="new", since=250, tainted=False))
    on.sees(up("n1", "tainted", tainted=True), up("n2", "b"), up("n3", "a"))
    on.sees(pod(on="n1", bound_at=-50))
    assert list(figures(on).items()) == [
        (None, (2, 1, 1, 0)),
        ("new", (1, 1, 0, 0)),
        ("tainted", (0, 0, 1, 0)),
        ("old", (1, 0, 0, 0)),
        ("a", (0, 0, 0, 0)),
        ("b", (0, 0, 0, 0)),
    ]


def test_an_outage_that_evicts_no_pod_counts_no_node() -> None:
    """The smaller outage counts, because it evicts a pod; its zone comes before the one with more lost nodes."""
    on = Stage(breaker=POLICY)
    on.at(5).sees(*(lost_node(f"a{number}", zone="a", since=0, tainted=False) for number in range(3)))
    on.at(200).sees(lost_node("b1", zone="b", since=195))
    assert figures(on)[None] == (4, 1, 0, 0)
    on.sees(pod(tolerates(300, UNREACHABLE), on="b1", bound_at=-50))
    assert list(figures(on).items()) == [(None, (4, 1, 0, 1)), ("b", (1, 1, 0, 1)), ("a", (3, 0, 0, 0))]


def test_a_node_without_a_zone_has_a_row() -> None:
    """The row has an empty name, which comes first among equals."""
    on = Stage(breaker=POLICY)
    on.sees(up("n1", "a"), up("n2", ""))
    threshold = POLICY.lifecycle_nodes
    assert on.brain.status.zones(moment(0)) == [
        ZoneRow(None, 2, 0, 0, 0, 0, threshold, ()),
        ZoneRow("", 1, 0, 0, 0, 0, None, ()),
        ZoneRow("a", 1, 0, 0, 0, 0, None, ()),
    ]


def test_a_deleted_node_is_in_no_row() -> None:
    """The node does not count as lost either."""
    on = Stage(breaker=POLICY)
    on.at(20).sees(lost_node("n1", since=9, tainted=False), up("n2", "west"))
    on.observe(NodeGone("n1", "uid-n1"))
    assert figures(on) == {None: (0, 0, 0, 0), "west": (0, 0, 0, 0)}


def test_a_node_was_not_lost_before_the_watch_was_last_heard() -> None:
    """Until then the node was ready, so it is newly lost, although its condition has an old date."""
    on = Stage(breaker=POLICY)
    on.at(20).sees(up("n1", "east"))
    on.at(90).observe(NodesHeard(5))
    on.at(95).sees(replace(lost_node("n1", since=1, tainted=False), resource_version=6))
    assert figures(on.at(189.9))["east"] == (1, 1, 0, 0)
    assert figures(on.at(190))["east"] == (1, 0, 0, 0)


def test_of_the_zones_the_worst_one_that_loses_nodes_may_open_the_breaker() -> None:
    """Each row names its own nodes; without a threshold for zones, or a lost node in one, no zone is judged."""
    policy = replace(POLICY, zone=NodeThreshold(percent=50.0, min_nodes=1))
    for breaker, zones in ((policy, [("a", 1, 2)]), (POLICY, [])):
        on = Stage(breaker=breaker)
        on.sees(lost_node("a1", zone="a", since=0), lost_node("n0", zone="", since=0))
        on.sees(up("a2", "a"), up("b1", "b", tainted=True))
        assert "zone" not in {each.kind for each in on.brain.status.criteria(moment(0))}
        for name in ("a1", "n0", "b1"):
            on.sees(pod(tolerates(300, UNREACHABLE), tolerates(300), name=name, uid=name, on=name, bound_at=-50))
        rows = on.brain.status.zones(moment(0))
        named = [(None, ("a1", "n0")), ("", ("n0",)), ("a", ("a1",)), ("b", ())]
        assert [(row.zone, row.names) for row in rows] == named
        found = on.brain.status.criteria(moment(0))
        assert [(each.zone, each.counted, each.total) for each in found if each.kind == "zone"] == zones


def test_an_exempt_node_is_in_no_figure() -> None:
    """The node counts neither in its zone nor in total."""
    on = Stage(breaker=POLICY)
    on.sees(replace(up("n1", "east", tainted=True), labels={EXEMPT_LABEL: ""}), up("n2", "east", tainted=True))
    on.sees(pod(on="n1"), pod(name="other", uid="b", on="n2"))
    assert figures(on) == {None: (0, 0, 1, 0), "east": (0, 0, 1, 0)}
