"""What stands in the state ConfigMap ↔ orders. Makes no calls (``state_config_map``).

Keys: ``pause`` (all evictions), ``pause-node.NAME`` and ``pause-namespace.NAME`` have ``true``, ``false``, or an object
``{"since": RFC 3339, "reason": text}``, which pauses. ``breaker`` has ``{"open": true, "since": …, "cause": text}`` or
``{"open": false, "reset": …}``, with microseconds.

People write it by hand as well, most likely in a hurry. So reading never fails, and what can't be understood holds what
its key is about: a switch that somebody has reached for must not be without effect.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import orjson

from taint_eviction.adapters.json_fields import Unreadable, as_object, as_text, is_object, refuse
from taint_eviction.adapters.kubernetes_times import format_micro_time, format_rfc3339, parse_rfc3339
from taint_eviction.core.orders import Latch, Orders, Pause

BREAKER_KEY = "breaker"

# Since when a latch is open for which nobody says so.
UNKNOWN_EPOCH = 0.0

_SCOPED = re.compile(r"pause-(node|namespace)\.(.+)", re.DOTALL)
_LONGEST_KEY = 253
_KEY = re.compile(rf"[-._a-zA-Z0-9]{{1,{_LONGEST_KEY}}}")
_LONGEST_TEXT = 300
_LONGEST_EXCERPT = 40


class PauseScope(NamedTuple):
    """What a pause holds: all evictions, those from a node, or those in a namespace; ``name`` "" for all."""

    kind: Literal["all", "node", "namespace"]
    name: str = ""

    @property
    def key(self) -> str:
        """The key in the ConfigMap."""
        return "pause" if self.kind == "all" else f"pause-{self.kind}.{self.name}"

    def problem(self) -> str | None:
        """Say why there can be no such key, None if there can."""
        if self.kind == "all" or (self.name and _KEY.fullmatch(self.key)):
            return None
        room = _LONGEST_KEY - len(self._replace(name="").key)
        return (
            f"{self.kind} {one_line(self.name)!r} cannot be paused by name: in a ConfigMap's key there is room for 1 to"
            f" {room} letters, digits, '-', '_' and '.'"
        )

    def pause_in(self, orders: Orders) -> Pause | None:
        """Return the pause that is ordered for exactly this, None for none."""
        match self.kind:
            case "all":
                return orders.whole
            case "node":
                return orders.nodes.get(self.name)
            case "namespace":
                return orders.namespaces.get(self.name)


EVERYTHING = PauseScope("all")


def paused_scopes(orders: Orders) -> list[PauseScope]:
    """Name all that is paused, the widest first."""
    return [
        *([EVERYTHING] if orders.whole is not None else []),
        *(PauseScope("node", name) for name in sorted(orders.nodes)),
        *(PauseScope("namespace", name) for name in sorted(orders.namespaces)),
    ]


def one_line(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return what others have written as a line that can be shown and kept: of bounded length, without controls."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * longest]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


# Reading


def read_orders(config_map: Mapping[str, Any]) -> tuple[Orders, list[str]]:
    """Read the ConfigMap's orders, whatever is in it; with a sentence for each key that is unknown or malformed."""
    pauses: dict[PauseScope, Pause] = {}
    breaker: tuple[Latch | None, float | None] = None, None
    complaints: list[str] = []
    for key, value in _entries(config_map):
        scope = _scope_of(key)
        if scope is None and key != BREAKER_KEY:
            complaints.append(f"the key {one_line(key)} means nothing to this version, and is ignored")
            continue
        try:
            if scope is None:
                breaker = _breaker(_decoded(value))
            elif (pause := _pause(_decoded(value))) is not None:
                pauses[scope] = pause
        except Unreadable as error:
            malformed = _malformed(key, value, error)
            complaints.append(f"{malformed}; so it holds evictions")
            if scope is None:
                breaker = Latch(UNKNOWN_EPOCH, malformed, unreadable=True), None
            else:
                pauses[scope] = Pause(reason=malformed)
    nodes, namespaces = (
        {scope.name: pause for scope, pause in pauses.items() if scope.kind == kind} for kind in ("node", "namespace")
    )
    return Orders(pauses.get(EVERYTHING), nodes, namespaces, *breaker), complaints


def _entries(config_map: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield keys with their values; what is not even a map counts as a malformed pause of everything."""
    for field in ("data", "binaryData"):
        try:
            entries = as_object(config_map.get(field), field)
        except Unreadable:
            yield EVERYTHING.key, None
            continue
        for key, value in entries.items():
            yield key, value if field == "data" else None


def _scope_of(key: str) -> PauseScope | None:
    if key == EVERYTHING.key:
        return EVERYTHING
    if (found := _SCOPED.fullmatch(key)) is None:
        return None
    return PauseScope("node" if found[1] == "node" else "namespace", found[2])


def _malformed(key: str, value: object, error: Unreadable) -> str:
    # Of the text itself: what it decodes to may be nested so deeply that it can't be shown.
    excerpt = f": {one_line(value, _LONGEST_EXCERPT)}" if isinstance(value, str) else ""
    return f"the key {one_line(key)} is malformed ({error}){excerpt}"


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        refuse("its value is no text")
    try:
        return orjson.loads(value)
    except ValueError:
        refuse("its value is no JSON")


def _pause(decoded: object) -> Pause | None:
    if isinstance(decoded, bool):
        return Pause() if decoded else None
    if not is_object(decoded):
        refuse("its value is neither true nor false nor an object")
    return Pause(_time(decoded, "since"), one_line(as_text(decoded.get("reason"), "reason")))


def _breaker(decoded: object) -> tuple[Latch | None, float | None]:
    if not is_object(decoded) or not isinstance(decoded.get("open"), bool):
        refuse("its value is no object in which open is true or false")
    if not decoded["open"]:
        return None, _needed_time(decoded, "reset")
    return Latch(_needed_time(decoded, "since"), one_line(as_text(decoded.get("cause"), "cause"))), None


def _needed_time(fields: Mapping[str, Any], field: str) -> float:
    return _time(fields, field) or refuse(f"{field} is missing")


def _time(fields: Mapping[str, Any], field: str) -> float | None:
    value = fields.get(field)
    return None if value is None else parse_rfc3339(value) or refuse(f"{field} is no time")


# Writing


def pause_text(pause: Pause) -> str:
    """Write a pause as a key's value; reading it gives the same, but for fractions of a second."""
    since = {} if pause.since_epoch is None else {"since": format_rfc3339(pause.since_epoch)}
    reason = {"reason": one_line(pause.reason)} if pause.reason else {}
    return _encoded({**since, **reason} or True)


def latch_text(latch: Latch) -> str:
    """Write that the breaker is open."""
    return _encoded({"open": True, "since": format_micro_time(latch.since_epoch), "cause": one_line(latch.cause)})


def reset_text(reset_epoch: float) -> str:
    """Write that the breaker was closed then."""
    return _encoded({"open": False, "reset": format_micro_time(reset_epoch)})


def _encoded(value: object) -> str:
    return orjson.dumps(value).decode()
