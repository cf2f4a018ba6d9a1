"""Answers that ``status`` and ``explain`` receive are shown, or refused as no answer of this version."""

import contextlib
import random
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import any_json, rngs, spoilt
from tests.unit.builders import node, pod, taint, tolerates
from tests.unit.test_reporting_explanation_document import explained
from tests.unit.test_reporting_status_document import fail, one_due, stage, status

from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.reporting.status_document import API_VERSION
from taint_eviction_ctl.cli.asking import Unanswered, put
from taint_eviction_ctl.cli.explain import explanation_lines
from taint_eviction_ctl.cli.status_views import status_lines


def answers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a status and an explanation with as many of their fields as possible."""
    failed = one_due(eviction_policy=EvictionPolicy(EvictionMode.EVICT))
    fail(failed, Block(BlockReason.BUDGET, "web"))
    failed.sees(pod(tolerates(90), name="longer-name", uid="b"))
    waiting = stage()
    waiting.sees(node(taint()), pod(tolerates(300), tolerates(3600), hold_seconds=60.0))
    return orjson.loads(orjson.dumps(status(failed))), explained(waiting)


STATUS, EXPLANATION = answers()
anything = st.just({"apiVersion": API_VERSION}) | st.dictionaries(st.sampled_from([*STATUS, *EXPLANATION]), any_json)


def test_answers_of_this_version_are_shown() -> None:
    """A status and an explanation of this version are shown; otherwise the other test would prove nothing."""
    assert put(status_lines, STATUS)
    assert put(explanation_lines, EXPLANATION)


@given(anything, rngs, any_json)
@example({}, random.Random(0), {})
def test_any_answer_is_shown_or_refused(told: dict[str, Any], rng: random.Random, value: Any) -> None:
    """An answer of another version or program, or one with a malformed field, is shown or refused."""
    for document in (told, spoilt(STATUS, rng, value)):
        with contextlib.suppress(Unanswered):
            assert all(isinstance(line, str) for line in put(status_lines, document))
    for document in (told, spoilt(EXPLANATION, rng, value)):
        with contextlib.suppress(Unanswered):
            assert all(isinstance(line, str) for line in put(explanation_lines, document))
