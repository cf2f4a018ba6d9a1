"""The state ConfigMap can be read whatever it contains; malformed content pauses too much rather than too little."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import KEYS

from taint_eviction.core.control_state import EVERYTHING, Latch, Pause, PauseScope, selector_scope
from taint_eviction.kube.control_state_data import (
    BREAKER_KEY,
    key_of,
    latch_text,
    pause_changes,
    pause_text,
    read_control_state,
    reset_text,
    with_format,
)

any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
times = st.sampled_from(
    ["2030-03-17T17:46:40Z", "2030-03-17T17:46:40.5+02:00", "0001-01-01T00:00:00+14:00", "soon", ""]
)
scopes = st.just(EVERYTHING) | st.builds(
    PauseScope, st.sampled_from(["node", "namespace"]), st.sampled_from(KEYS) | st.text(min_size=1)
)
keys = scopes.map(key_of) | st.just(BREAKER_KEY) | st.text()
nearly_ours = st.fixed_dictionaries(
    {},
    optional={
        "open": st.booleans() | any_json,
        "since": times | any_json,
        "reset": times | any_json,
        "cause": any_json,
        "reason": any_json,
    },
)
values = st.text() | (nearly_ours | any_json).map(json.dumps)
maps = st.dictionaries(keys, values | any_json)
epochs = st.floats(1.0, 4e9)


def is_false(value: object) -> bool:
    """Return whether a key's value is the JSON ``false``, which says that nothing is paused."""
    try:
        return isinstance(value, str) and json.loads(value) is False
    except (ValueError, RecursionError):
        return False


@given(any_json | maps, any_json | maps, any_json)
def test_any_content_of_the_config_map_can_be_read(data: object, binary: object, metadata: object) -> None:
    """``data`` and ``binaryData`` may be JSON of any shape; each complaint about them is short."""
    control_state, complaints = read_control_state({"data": data, "binaryData": binary, "metadata": metadata})
    if not all(isinstance(entries, dict | None) for entries in (data, binary)):
        assert control_state.cluster is not None
    assert all(len(complaint) < 400 and complaint.isprintable() for complaint in complaints)


@given(scopes, values | any_json)
def test_any_value_but_false_pauses_its_scope(scope: PauseScope, value: object) -> None:
    """The value pauses no other scope, and does not open the breaker."""
    control_state, complaints = read_control_state({"data": {key_of(scope): value}})
    assert list(control_state.pauses()) == ([] if is_false(value) else [scope])
    assert (control_state.latch, control_state.reset_epoch) == (None, None)
    assert all("malformed" in complaint for complaint in complaints)


selectors = st.sampled_from(["pool=gpu", "pool notin (a,b)", "!pool", "zone=a,pool", ""])


@given(values | any_json | st.builds(lambda text: json.dumps({"selector": text}), selectors | st.text()))
def test_any_value_but_false_pauses_some_nodes_by_a_selector(value: object) -> None:
    """Where the selector cannot be read, these are all nodes; no other scope is paused."""
    control_state, complaints = read_control_state({"data": {"pause-selector.x": value, "format": "2"}})
    assert len(control_state.pauses()) == (0 if is_false(value) else 1)
    assert {scope.kind for scope in control_state.pauses()} <= {"selector"}
    if complaints:
        assert list(control_state.selectors) == [""]


@given(selectors.map(selector_scope), st.none() | epochs, st.text(), st.none() | st.floats(0.0, 4e9))
def test_a_written_pause_by_a_selector_is_read_back(
    scope: PauseScope, since_epoch: float | None, text: str, lasts_seconds: float | None
) -> None:
    """The key is a valid one, and the same for the same nodes."""
    until_epoch = None if lasts_seconds is None else (since_epoch or 1.0) + lasts_seconds
    pause = Pause(since_epoch, text, until_epoch)
    (key,) = changes = pause_changes({}, {scope: pause})
    assert re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key)
    control_state, complaints = read_control_state({"data": with_format({}, changes)})
    assert complaints == []
    assert list(control_state.pauses()) == [scope]
    assert not control_state.unfit


@given(values | any_json)
def test_any_breaker_value_without_the_time_of_a_reset_opens_the_breaker(value: object) -> None:
    """The value pauses nothing."""
    control_state, complaints = read_control_state({"data": {BREAKER_KEY: value}})
    assert (control_state.latch is None) == (control_state.reset_epoch is not None)
    assert control_state.pauses() == {}
    if complaints:
        assert control_state.latch is not None
        assert "malformed" in control_state.latch.cause


@given(maps, st.dictionaries(scopes, st.just("true")))
def test_a_pause_is_read_whatever_the_other_keys_contain(others: dict[str, Any], paused: dict[PauseScope, str]) -> None:
    """Keys of the ConfigMap do not depend on each other."""
    control_state, _ = read_control_state(
        {"data": {**others, **{key_of(scope): value for scope, value in paused.items()}}}
    )
    assert all(control_state.pauses()[scope] == Pause() for scope in paused)


@given(st.none() | epochs, st.text(), epochs)
def test_a_written_control_state_is_read_back(since_epoch: float | None, text: str, epoch: float) -> None:
    """The time of a pause is cut off to the second, the times of the breaker are kept to about a microsecond."""
    data = {"pause": pause_text(Pause(since_epoch, text)), BREAKER_KEY: latch_text(Latch(epoch, text))}
    control_state, complaints = read_control_state({"data": data})
    assert complaints == []
    assert control_state.cluster is not None
    assert control_state.cluster.since_epoch == (None if since_epoch is None else float(int(since_epoch)))
    assert control_state.latch is not None
    assert abs(control_state.latch.since_epoch - epoch) < 2e-6
    assert control_state.latch.cause == control_state.cluster.reason
    closed, _ = read_control_state({"data": {BREAKER_KEY: reset_text(epoch)}})
    assert closed.reset_epoch == control_state.latch.since_epoch
