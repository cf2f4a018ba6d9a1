"""Which pods a controller says that a release lets go: those that its guards then let go, and no others."""

from dataclasses import replace
from itertools import combinations

import orjson
import pytest
from tests.unit.builders import EPOCH, Stage, epoch, moment, node, pod, taint, tolerates
from tests.unit.test_reporting_status_document import LEADER, stage, status

from taint_eviction.core.control_state import (
    EVERYTHING,
    ControlState,
    Latch,
    Pause,
    PauseScope,
    Release,
    selector_scope,
)
from taint_eviction.core.objects import OUT_OF_SERVICE, ControllerRef
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction.kube.release_query import read_release, release_text

N1, N2, SHOP, BANK = (
    PauseScope("node", "n1"),
    PauseScope("node", "n2"),
    PauseScope("namespace", "shop"),
    PauseScope("namespace", "bank"),
)
POOL, RACK = PauseScope("selector", "pool=gpu"), PauseScope("selector", "rack in (r1,r2)")
RELEASES = (
    Release(frozenset([EVERYTHING])),
    Release(frozenset([N1])),
    Release(frozenset([SHOP])),
    Release(frozenset([EVERYTHING, N1]), only=frozenset([N1])),
    Release(frozenset([EVERYTHING, SHOP]), only=frozenset([SHOP])),
    Release(frozenset([POOL])),
    Release(frozenset([EVERYTHING, POOL]), only=frozenset([POOL])),
    Release(frozenset([EVERYTHING, RACK, POOL]), only=frozenset([RACK, POOL])),
    Release(None),
    Release(reset=True),
    Release(None, reset=True),
)
# Everything that may block evictions at once.
HOLDS = ("pause", "n1", "shop", "breaker", "rule", "pool")
LATCH = Latch(epoch(0), "many")


def crowded(*holds: str, latch: Latch = LATCH) -> Stage:
    """A stage with due pods on two nodes, in two namespaces, and on a node out of service; ``HOLDS`` block some."""
    rules = (PolicyRule("night", namespaces=("mill",), pause=True),) if "rule" in holds else ()
    on = stage(eviction_policy=EvictionPolicy(rules=rules))
    off = taint(OUT_OF_SERVICE)
    on.sees(replace(node(taint()), labels={"pool": "gpu"}), replace(node(taint(), name="n2"), labels={"rack": "r1"}))
    on.sees(node(off, name="n3"))
    for name, where, namespace in (
        ("a", "n1", "shop"),
        ("b", "n2", "shop"),
        ("c", "n1", "bank"),
        ("d", "n2", "bank"),
        ("e", "n2", "mill"),
        ("f", "n3", "bank"),
    ):
        controller = ControllerRef("ReplicaSet", name, "r") if namespace == "bank" else None
        on.sees(pod(name=name, uid=name, on=where, namespace=namespace, controller=controller))
    on.sees(pod(tolerates(90), name="later", uid="later"))
    on.brain.order(
        ControlState(
            Pause() if "pause" in holds else None,
            {"n1": Pause()} if "n1" in holds else {},
            {"shop": Pause()} if "shop" in holds else {},
            latch if "breaker" in holds else None,
            selectors={"pool=gpu": Pause()} if "pool" in holds else {},
        ),
        moment(0),
    )
    return on


def held(on: Stage) -> set[str]:
    """The due pods that a guard blocks."""
    return {row["name"] for row in status(on)["pending"] if row["state"] == "held"}


# ``only`` is for a pause of all evictions.
CASES = [
    (holds, release)
    for count in range(len(HOLDS) + 1)
    for holds in combinations(HOLDS, count)
    for release in RELEASES
    if "pause" in holds or not release.only
]


@pytest.mark.parametrize(("holds", "release"), CASES)
def test_what_a_release_is_said_to_let_go_is_what_is_not_held_after_it(
    holds: tuple[str, ...], release: Release
) -> None:
    """The release is carried out, as commands write it, and the same pods are no longer held."""
    on = crowded(*holds)
    said, before = status(on, release=release_text(release)), held(on)
    state = on.brain.guards.control_state
    assert state is not None
    existing = {N1, N2, PauseScope("node", "n3"), SHOP, BANK, PauseScope("namespace", "mill")}
    after = release.after(state, existing)
    if release.reset and state.latch is not None:
        on.brain.breaker.reset(epoch(1))
    on.brain.order(after, moment(1))
    assert {row["name"] for row in said["pending"]} == before - held(on)
    assert (said["pendingTotal"], said["stillHeld"]) == (len(before - held(on)), len(held(on)))
    assert said["pendingNodes"] == len({row["node"] for row in said["pending"]})
    assert said["withoutOwner"] == sum(row["namespace"] != "bank" for row in said["pending"])


def test_a_breaker_that_holds_nodes_out_of_service_holds_them_until_it_is_reset() -> None:
    """The end of a pause does not release their pods; a reset releases them, and all others."""
    on = crowded("pause", "breaker", latch=Latch(epoch(0), "many are off", out_of_service=True))
    assert status(on, release=release_text(Release(None)))["pending"] == []
    on = crowded("breaker", latch=Latch(epoch(0), "many are off", out_of_service=True))
    assert status(on, release=release_text(Release(reset=True)))["pendingTotal"] == 6


def test_a_breaker_that_others_opened_lets_nodes_out_of_service_pass() -> None:
    """Only the pause holds their pods."""
    on = crowded("pause", "breaker")
    assert [row["name"] for row in status(on, release=release_text(Release(None)))["pending"]] == ["f"]


def test_while_the_control_state_is_not_known_a_release_lets_nobody_go() -> None:
    """The document says that it is not known."""
    on = stage(control_state=None)
    on.sees(node(taint()), pod())
    said = status(on, release=release_text(Release(None, reset=True)))
    assert (said["pending"], said["stillHeld"], said["ordersKnown"]) == ([], 1, False)


def test_pages_of_a_release_and_of_all_pods_do_not_mix() -> None:
    """A question right after another one has its own answer."""
    on = crowded("n1")
    release = release_text(Release(frozenset([N1])))
    assert [status(on)["pendingTotal"], status(on, release=release)["pendingTotal"]] == [7, 2]
    assert status(on, LEADER, release=release, namespace="bank")["pendingTotal"] == 1


def test_others_keep_a_pause_of_their_own() -> None:
    """Only nodes without one are paused in place of all evictions, with the reason that is given."""
    own, instead = Pause(EPOCH, "disk swap"), Pause(EPOCH, "one by one")
    before = ControlState(Pause(), {"n2": own})
    after = Release(frozenset([EVERYTHING, N1]), only=frozenset([N1])).after(
        before, [N1, N2, PauseScope("node", "n3")], instead
    )
    assert (after.cluster, after.nodes) == (None, {"n2": own, "n3": instead})


@pytest.mark.parametrize(
    ("stands", "only", "replaced"),
    [
        ("zone notin (a)", ["zone=a", "zone=b"], True),
        ("zone notin (a,c)", ["zone in (a,b,c)"], True),
        ("zone notin (a)", ["zone=b"], False),
        ("zone notin (a)", ["zone=a"], False),
        ("zone notin (a)", ["pool=a", "pool=b"], False),
        ("zone notin (a),zone", ["zone=a", "zone=b"], False),
        ("zone=c", ["zone=a", "zone=b"], False),
        ("zone notin (a)", ["zone=a,pool=x", "zone=b"], False),
    ],
)
def test_a_release_of_further_nodes_replaces_the_pause_of_all_but_fewer(
    stands: str, only: list[str], replaced: bool
) -> None:
    """No pause is replaced of which the new one would not be a part: it would begin to hold what is not held."""
    standing = selector_scope(stands)
    before = ControlState(selectors={standing.name: Pause()}, nodes={"n1": Pause()})
    release = Release(only=frozenset(map(selector_scope, only)))
    assert release.replaces(before) == ([standing] if replaced else [])
    assert Release(only=frozenset([N1])).replaces(before) == []


# The query


@pytest.mark.parametrize("release", RELEASES, ids=release_text)
def test_a_release_is_read_as_it_was_written(release: Release) -> None:
    """Its text is a parameter of a query."""
    assert read_release(release_text(release)) == release


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "release is malformed: "),
        ("[]", "it is not an object in which reset is true or false"),
        ('{"reset": 1}', "it is not an object in which reset is true or false"),
        ('{"pauses": "all"}', "pauses is not a list"),
        ('{"pauses": [["pod", "a"]]}', "pauses has something other than"),
        ('{"pauses": [["node"]]}', "pauses has something other than"),
        ('{"pauses": [["node", 1]]}', "pauses has something other than"),
        ('{"only": [["node", "a"], ["namespace", "b"]]}', "only has scopes of several kinds"),
        ('{"pauses": [["selector", "pool in a"]]}', "a label selector (key=value, "),
        ('{"only": [["selector", "size>5"]]}', "no selector matches all that size>5 does not"),
        ("[" * 10_000, "release is malformed: "),
    ],
)
def test_a_malformed_release_is_refused_with_its_place(text: str, problem: str) -> None:
    """Anybody may send it."""
    with pytest.raises(ValueError, match=r"^release is malformed") as refused:
        read_release(text)
    assert problem in str(refused.value)


def test_what_a_release_costs_to_read_is_bounded() -> None:
    """Anybody may send it: in the 16 kB of a request's head, a hundred selectors of 782 terms each can be asked for."""
    tens = [["selector", ",".join(f"{key}{number}" for number in range(10))] for key in "jk"]
    text = orjson.dumps({"only": [*tens, *(["selector", f"a=v{number}"] for number in range(780))]}).decode()
    with pytest.raises(ValueError, match="100 selectors with 78200 terms would be needed"):
        read_release(text)
