"""Whatever stands in the ConfigMap that keeps outcomes, it is read within bounds, or refused."""

import base64
import gzip
import random
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import any_json, rngs, spoilt
from tests.unit.builders import moment
from tests.unit.test_kube_outcome_record import KEY, OUTCOME, packed

from taint_eviction.kube.json_fields import Unreadable
from taint_eviction.kube.outcome_record import OutcomePacker, read_record
from taint_eviction.reporting.outcome_memory import OutcomeMemory
from taint_eviction_ctl.cli.asking import put
from taint_eviction_ctl.cli.history import history_lines

ROW = {**OUTCOME, "toldBy": "replica-1"}


def restored(config_map: dict[str, Any]) -> OutcomeMemory:
    """Restore what can be read, as a leader does."""
    memory = OutcomeMemory()
    try:
        record = read_record(config_map)
    except Unreadable:
        return memory
    if record is not None:
        readable = [each for each in record.outcomes() if each is not None]
        memory.restore(readable, record.since_epoch, moment(0.0))
    return memory


def shown_and_packed(memory: OutcomeMemory) -> None:
    """Show the outcomes to people, and pack them again."""
    documents = [each.document(moment(0.0)) for each in memory.newest()]
    assert put(history_lines, {"outcomes": [{**each, "dryRun": False} for each in documents]})
    assert OutcomePacker(True, "replica-2").add(documents)


@given(st.dictionaries(st.sampled_from(["data", "binaryData", "metadata"]), any_json))
def test_any_object_is_read_or_refused(config_map: dict[str, Any]) -> None:
    """Nothing but a refusal is raised."""
    shown_and_packed(restored(config_map))


@given(st.lists(st.tuples(rngs, any_json), min_size=1, max_size=3))
def test_outcomes_that_others_have_changed_are_shown_or_left_out(spoilings: list[tuple[random.Random, Any]]) -> None:
    """A field of another type, or text of any length, does not keep the others from being shown."""
    lines = [orjson.dumps(spoilt(ROW, *spoiling)) for spoiling in spoilings] + [orjson.dumps(ROW)]
    data = {**packed(OUTCOME), "binaryData": {KEY: base64.b64encode(gzip.compress(b"\n".join([*lines, b""]))).decode()}}
    memory = restored(data)
    assert len(memory) >= 1
    shown_and_packed(memory)
