"""Reading a pod costs little more than decoding its JSON, whatever a tenant has written into it."""

import resource
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.property.hostile_pods import HOSTILE, MOST_BYTES

from taint_eviction.core.decision import DecisionPolicy, SeenTaint, judge
from taint_eviction.core.instants import Sighting, TimeSource
from taint_eviction.core.matching import discouraging, matching, repelling
from taint_eviction.core.objects import NO_EXECUTE, Taint
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.kopf_shell.watch_filter import WatchFilter
from taint_eviction.kube.answers import read_refusal, refusal_text
from taint_eviction.kube.kubernetes_objects import read_pod

# What a list, or the line of a watch, may cost beside decoding its JSON alone. It is 1 to 4 where the reading takes
# linear time, and thousands where it takes quadratic time.
MOST = 15.0

PARTS = {"all parts": ALL_PARTS, "the parts of default flags": PodParts(frozenset(), holds=False)}


def seconds(work: Callable[[], Any]) -> float:
    """Return the least CPU time of three tries."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF)
        work()
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


@pytest.mark.parametrize("parts", PARTS.values(), ids=list(PARTS))
@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_pod_of_the_most_bytes_is_read_as_fast_as_json(kind: str, parts: PodParts) -> None:
    """From a list and from a watch. The API server stores no larger pod."""
    body = HOSTILE[kind](MOST_BYTES)
    whole, line = orjson.dumps(body), orjson.dumps({"type": "MODIFIED", "object": body})
    bare = max(seconds(lambda: orjson.loads(whole)), 0.002)
    assert seconds(lambda: read_pod(orjson.loads(whole), parts)) < MOST * bare
    assert seconds(lambda: WatchFilter("Pod", parts=parts).filter([line])) < MOST * bare


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if "tolerations" in kind])
def test_a_decision_on_a_pod_of_the_most_bytes_costs_as_much_as_reading_it(kind: str) -> None:
    """However many tolerations have the key of the taint."""
    body = HOSTILE[kind](MOST_BYTES)
    whole = orjson.dumps(body)
    tolerations = read_pod(body, PARTS["the parts of default flags"]).value.tolerations
    bare = max(seconds(lambda: orjson.loads(whole)), 0.002)
    assert seconds(lambda: list(matching(tolerations, Taint("maintenance", NO_EXECUTE, "now")))) < MOST * bare


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if "tolerations" in kind])
def test_deciding_on_a_pod_of_the_most_bytes_costs_a_small_part_of_reading_it(kind: str) -> None:
    """A change of a node decides on all its pods at once. So does an explanation, as often as somebody asks for it."""
    body = HOSTILE[kind](MOST_BYTES)
    whole = orjson.dumps(body)
    tolerations = read_pod(body, PARTS["the parts of default flags"]).value.tolerations
    which, since = Taint("maintenance", NO_EXECUTE, "now"), Sighting(5.0, TimeSource.FIRST_SIGHT, None)

    def decide_often() -> None:
        for _ in range(10):
            judge(tolerations, SeenTaint(which, since), since, DecisionPolicy())
            repelling(tolerations, [which])
            discouraging(tolerations, [which])

    bare = max(seconds(lambda: orjson.loads(whole)), 0.002)
    assert seconds(decide_often) < MOST * bare


@pytest.mark.parametrize(
    "words", ["ValidatingAdmissionPolicy '", "ValidatingAdmissionPolicy ''", 'admission webhook "']
)
def test_a_refusal_of_a_webhooks_words_is_read_in_linear_time(words: str) -> None:
    """A webhook chooses the message and as many causes as it likes."""

    def cost(text: str) -> float:
        status = {"kind": "Status", "message": text, "details": {"causes": [{"message": text}] * 20}}
        body = orjson.dumps(status)
        return seconds(lambda: refusal_text(403, read_refusal(body)))

    hostile = (words * 400)[:10_000]
    assert cost(hostile) < MOST * max(cost("x" * len(hostile)), 0.002)
