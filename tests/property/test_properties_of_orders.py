"""Whatever stands in the state ConfigMap, it can be read, and holds rather too much than too little."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import KEYS

from taint_eviction.adapters.orders_data import (
    BREAKER_KEY,
    EVERYTHING,
    PauseScope,
    latch_text,
    pause_text,
    paused_scopes,
    read_orders,
    reset_text,
)
from taint_eviction.core.orders import Latch, Pause

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
keys = scopes.map(lambda scope: scope.key) | st.just(BREAKER_KEY) | st.text()
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
    """Tell whether a key's value says in so many words that nothing is paused."""
    try:
        return isinstance(value, str) and json.loads(value) is False
    except (ValueError, RecursionError):
        return False


@given(any_json | maps, any_json | maps, any_json)
def test_anything_can_be_read(data: object, binary: object, metadata: object) -> None:
    """JSON of any shape, in either map; what is said about it is short."""
    orders, complaints = read_orders({"data": data, "binaryData": binary, "metadata": metadata})
    if not all(isinstance(entries, dict | None) for entries in (data, binary)):
        assert orders.whole is not None
    assert all(len(complaint) < 400 and complaint.isprintable() for complaint in complaints)


@given(scopes, values | any_json)
def test_whatever_does_not_say_false_pauses_its_scope(scope: PauseScope, value: object) -> None:
    """And no other."""
    orders, complaints = read_orders({"data": {scope.key: value}})
    assert paused_scopes(orders) == ([] if is_false(value) else [scope])
    assert (orders.latch, orders.reset_epoch) == (None, None)
    assert all("malformed" in complaint for complaint in complaints)


@given(values | any_json)
def test_whatever_does_not_say_when_it_was_closed_opens_the_breaker(value: object) -> None:
    """And pauses nothing."""
    orders, complaints = read_orders({"data": {BREAKER_KEY: value}})
    assert (orders.latch is None) == (orders.reset_epoch is not None)
    assert paused_scopes(orders) == []
    if complaints:
        assert orders.latch is not None
        assert "malformed" in orders.latch.cause


@given(maps, st.dictionaries(scopes, st.just("true")))
def test_a_pause_is_seen_among_anything_else(others: dict[str, Any], paused: dict[PauseScope, str]) -> None:
    """Keys don't depend on each other."""
    orders, _ = read_orders({"data": {**others, **{scope.key: value for scope, value in paused.items()}}})
    assert all(scope.pause_in(orders) == Pause() for scope in paused)


@given(st.none() | epochs, st.text(), epochs)
def test_what_was_written_is_read(since_epoch: float | None, text: str, epoch: float) -> None:
    """Pauses to the second, cut off; the breaker to the microsecond."""
    data = {"pause": pause_text(Pause(since_epoch, text)), BREAKER_KEY: latch_text(Latch(epoch, text))}
    orders, complaints = read_orders({"data": data})
    assert complaints == []
    assert orders.whole is not None
    assert orders.whole.since_epoch == (None if since_epoch is None else float(int(since_epoch)))
    assert orders.latch is not None
    assert abs(orders.latch.since_epoch - epoch) < 2e-6
    assert orders.latch.cause == orders.whole.reason
    closed, _ = read_orders({"data": {BREAKER_KEY: reset_text(epoch)}})
    assert closed.reset_epoch == orders.latch.since_epoch
