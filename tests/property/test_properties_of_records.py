"""Journals, audit logs and logs that a crash, an editor or some tool has damaged.

Whatever one line contains, the other lines are used, and the result can be drawn and written as a scenario.
"""

import contextlib
import random
from typing import Any

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.outside import EPOCH, any_json, rngs, spoilt
from tests.property.strategies import examples

from taint_eviction.files.marked_yaml import Malformed
from taint_eviction_ctl.picture.page import render_page
from taint_eviction_lab.history.record import RunRecord, looks_like_record, read_record
from taint_eviction_lab.history.to_scenario import scenario_text
from taint_eviction_lab.picture.of_history import picture_of_record
from taint_eviction_lab.simulation.scenario import read_scenario

_TAINT = {"key": "k1", "value": "v", "effect": "NoExecute", "added": EPOCH}
_TOLERATION = {"key": "k1", "operator": "Exists", "tolerationSeconds": 60}
_ABOUT = {"pod": "shop/web", "uid": "a", "node": "n1"}
_WHY = {"taint": "k1=v:NoExecute", "toleration": "k1 for 60 s"}
JOURNAL: tuple[dict[str, Any], ...] = (
    {"t": EPOCH, "what": "journal", "version": 1, "by": "1"},
    {"t": EPOCH, "what": "node", "node": "n1", "uid": "u1", "taints": []},
    {"t": EPOCH + 5, "what": "node", "node": "n1", "uid": "u1", "taints": [_TAINT]},
    {"t": EPOCH + 5, "what": "tainted", "node": "n1"},
    {"t": EPOCH + 5, "what": "pod", **_ABOUT, "on": "n1", "tolerations": [_TOLERATION], "bound": EPOCH - 9},
    {"t": EPOCH + 5, "what": "scheduled", **_ABOUT, **_WHY, "due": EPOCH + 65},
    {"t": EPOCH + 6, "what": "cancelled", **_ABOUT, "reason": "node_clean"},
    {"t": EPOCH + 65, "what": "refused", **_ABOUT, "tries": 1, "error": "no"},
    {"t": EPOCH + 66, "what": "evicted", **_ABOUT, **_WHY, "due": EPOCH + 65, "late_seconds": 1.0},
    {"t": EPOCH + 67, "what": "pod gone", "pod": "shop/web", "uid": "a"},
    {"t": EPOCH + 68, "what": "pod", **_ABOUT, "uid": "b", "on": "n1", "tolerations": [], "mirror": True},
    {"t": EPOCH + 69, "what": "cleared", "node": "n1"},
    {"t": EPOCH + 70, "what": "paused", "scope_kind": "all", "since": EPOCH, "reason": "why"},
    {"t": EPOCH + 71, "what": "node gone", "node": "n1", "uid": "u1"},
)
_AUDIT_TAINT = {"taint": "k1=v:NoExecute", "toleration": "k1 for 60 s", "since": "2030-03-17T17:46:40Z"}
AUDIT: tuple[dict[str, Any], ...] = tuple(
    {
        "time": f"2030-03-17T17:47:{second}.000000Z",
        "action": "evict",
        "outcome": outcome,
        **_ABOUT,
        "taints": [_AUDIT_TAINT],
        "deadline": "2030-03-17T17:47:40.000000Z",
        "late_seconds": 0.1,
        "tries": 1,
        "answer": None,
    }
    for second, outcome in (("40", "refused"), ("41", "blocked"), ("42", "evicted"), ("43", "held"))
)
LOG: tuple[dict[str, Any], ...] = tuple(
    {"time": "2030-03-17T17:46:45Z", **{name: value for name, value in told.items() if name != "t"}}
    for told in JOURNAL
    if told["what"] in ("tainted", "scheduled", "cancelled", "refused", "evicted", "cleared")
)
records = st.sampled_from([JOURNAL, AUDIT, LOG, JOURNAL + AUDIT, LOG + AUDIT])


def written(told: object) -> bytes:
    """Write a line."""
    return orjson.dumps(told) + b"\n"


def assert_usable(record: RunRecord) -> None:
    """Draw a record and write it as a scenario; the scenario may be malformed, but reading it raises nothing else."""
    page = render_page(picture_of_record(record))
    text = scenario_text(record)
    (page + text).encode()
    with contextlib.suppress(Malformed):
        read_scenario(text, "recorded.yaml")


@settings(max_examples=examples(0.2))
@given(records, st.lists(any_json | st.dictionaries(st.sampled_from(["what", "t", "time"]), any_json)), rngs)
@example(
    JOURNAL, [{"what": {}}, {"what": "node", "t": 1e300, "node": "n1"}, {"action": [], "outcome": {}}], random.Random(0)
)
def test_lines_of_any_shape_are_skipped_or_used(
    lines: tuple[dict[str, Any], ...], odd: list[Any], rng: random.Random
) -> None:
    """Odd lines among the real ones do not reduce what is read from the real ones."""
    told = [*lines, *odd]
    rng.shuffle(told)
    whole = read_record([written(each) for each in lines], "record")
    record = read_record([written(each) for each in told], "record")
    assert len(record.happenings) >= len(whole.happenings)
    assert_usable(record)


@settings(max_examples=examples(0.2))
@given(records, rngs, st.lists(any_json, min_size=1, max_size=4))
def test_fields_of_another_type_are_left_out(
    lines: tuple[dict[str, Any], ...], rng: random.Random, values: list[Any]
) -> None:
    """A field of the wrong type is skipped alone or with its whole line; the record stays usable."""
    told = list(lines)
    for value in values:
        at = rng.randrange(len(told))
        told[at] = spoilt(told[at], rng, value)
    assert_usable(read_record([written(each) for each in told], "record"))


@settings(max_examples=examples(0.2))
@given(records, rngs, st.binary(max_size=20))
def test_any_bytes_in_a_record_cost_their_line_at_most(
    lines: tuple[dict[str, Any], ...], rng: random.Random, waste: bytes
) -> None:
    """A record that was cut, or that contains random bytes or an extra line break, loses at most the damaged lines."""
    content = b"".join(map(written, lines))
    at = rng.randrange(len(content) + 1)
    content = rng.choice([content[:at], content[:at] + waste + content[at:], content[:at] + b"\n" + content[at:]])
    looks_like_record(content[:4096])
    found = content.splitlines(keepends=True)
    record, whole = read_record(found, "record"), [raw for raw in found if raw in set(map(written, lines))]
    assert len(record.happenings) >= len(read_record(whole, "record").happenings)
    assert_usable(record)
