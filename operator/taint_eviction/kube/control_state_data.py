"""The data of the state ConfigMap ↔ the control state. Makes no calls (``state_config_map``).

The keys ``pause`` (all evictions), ``pause-node.NAME`` and ``pause-namespace.NAME`` have the value ``true``, ``false``
or an object ``{"since": RFC 3339, "until": RFC 3339, "by": text, "reason": text}``, which pauses. Each field may be
absent; without ``until`` it pauses until somebody resumes. The keys ``pause-selector.ANY`` pause evictions from all
nodes that a label selector matches: such an object with ``selector``, as ``kubectl -l`` takes it. The end of the key is
free; commands derive it from the selector. The key ``breaker`` has the value
``{"open": true, "since": …, "cause": text, "controller": identity}`` or
``{"open": false, "reset": …, "controller": identity}``, with microseconds. Without ``controller`` a person has opened
or closed it. The key ``no-adoption`` has the values of a pause; ``no-adoption-confirmed`` is the holder of the Lease
that has confirmed it, as a string. The key ``adopts`` says who takes countdowns over; while it is there, somebody does.

The key ``format`` has the number of the format. It is 1, and 2 as long as there is a key ``pause-selector.ANY``: a
version that knows format 1 only would ignore that pause, so it must hold everything instead; without such a key it
works on. The leader adds the format, so it also says that a leader has taken the ConfigMap over; ``2-new`` means format
2 where none has.

People also edit the ConfigMap by hand, often in a hurry. So reading never fails, and a value that cannot be parsed
holds the evictions that its key is about: an attempt to pause must not be ignored. A selector that cannot be parsed
holds those from all nodes. A ConfigMap in a newer format, with more than ``MAX_KEYS`` keys or more than
``MAX_SELECTORS`` selectors, is not read at all and holds everything.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope, selector_scope
from taint_eviction.core.text import one_line
from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339, parse_rfc3339
from taint_eviction.kube.json_fields import Unreadable, as_object, as_text, is_object, refuse

BREAKER_KEY = "breaker"
NO_ADOPTION_KEY = "no-adoption"
CONFIRMED_KEY = "no-adoption-confirmed"
ADOPTS_KEY = "adopts"
_SOMEBODY = "somebody"
FORMAT_KEY = "format"
_OTHER_KEYS = (NO_ADOPTION_KEY, CONFIRMED_KEY, ADOPTS_KEY, FORMAT_KEY)

_FORMAT, _SELECTOR_FORMAT, _UNCLAIMED_FORMAT = "1", "2", "2-new"
_FORMATS = (_FORMAT, _SELECTOR_FORMAT, _UNCLAIMED_FORMAT)
# What a leader writes as the format; ``with_format`` makes of it the one that the keys need.
TAKEN_OVER = _FORMAT
# Reading more would keep the event loop busy for too long.
MAX_KEYS = 1000
# Each node's labels are compared with each selector.
MAX_SELECTORS = 100

# New values of keys; None removes the key.
Changes = Mapping[str, str | None]

# The time of a latch for which none is known: the first one that is read as a time.
UNKNOWN_EPOCH = 1.0

_SCOPED = re.compile(r"pause-(selector|node|namespace)\.(.+)", re.DOTALL)
# What a value that does not say which nodes it is about pauses.
_ALL_NODES = PauseScope("selector")
_MAX_KEY = 253
_KEY = re.compile(rf"[-._a-zA-Z0-9]{{1,{_MAX_KEY}}}")
_MAX_EXCERPT = 40
# Added to an instant before it is cut off to whole seconds, so that it is not earlier then.
_ALMOST_A_SECOND = 0.999


def key_of(scope: PauseScope) -> str:
    """Return the key that a pause gets in the ConfigMap."""
    if scope.kind == "all":
        return "pause"
    name = scope.name
    if scope.kind == "selector":  # A key has no room for the characters of a selector.
        name = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"pause-{scope.kind}.{name}"


def problem_of(scope: PauseScope) -> str | None:
    """Return why the ConfigMap cannot have a key for this scope; None if it can."""
    if scope.kind in ("all", "selector") or (scope.name and _KEY.fullmatch(key_of(scope))):
        return None
    room = _MAX_KEY - len(key_of(scope._replace(name="")))
    return (
        f"{scope.kind} {one_line(scope.name)!r} cannot be paused by name: a key of a ConfigMap has room for 1 to"
        f" {room} letters, digits, '-', '_' and '.'"
    )


# Reading


def read_control_state(config_map: Mapping[str, Any]) -> tuple[ControlState, list[str]]:
    """Read the ConfigMap, whatever it contains; return a complaint for each key that is unknown or malformed."""
    if (why := unusable(config_map)) is not None:
        held = Pause(reason=f"the ConfigMap {why}")
        return ControlState(held, no_adoption=held), [f"it {why}: nothing is evicted, and nothing is adopted"]
    pauses: dict[PauseScope, Pause] = {}
    resumed: set[PauseScope] = set()
    breaker: tuple[Latch | None, float | None, str] = None, None, ""
    adoption = _adoption(config_map)
    complaints: list[str] = list(adoption.complaints)
    for key, value in _entries(config_map):
        if key == BREAKER_KEY:
            try:
                breaker = _breaker(_decoded(value))
            except Unreadable as error:
                malformed = _malformed(key, value, error)
                complaints.append(f"{malformed}; it holds evictions")
                breaker = Latch(UNKNOWN_EPOCH, malformed, unreadable=True), None, ""
        elif key not in _OTHER_KEYS and _SCOPED.fullmatch(key) is None and key != key_of(EVERYTHING):
            complaints.append(f"the key {one_line(key)} is unknown to this version and ignored")
    for entry in _pause_entries(config_map):
        if entry.complaint:
            complaints.append(f"{entry.complaint}; it holds evictions")
        if entry.pause is None:
            resumed.add(entry.scope)
        elif entry.scope not in pauses or entry.pause.outlasts(pauses[entry.scope]):
            pauses[entry.scope] = entry.pause
    latch, reset_epoch, closed_by = breaker
    state = ControlState(
        latch=latch,
        reset_epoch=reset_epoch,
        closed_by=closed_by,
        no_adoption=adoption.ended,
        no_adoption_confirmed_by=adoption.confirmed_by,
        adopter=adoption.adopter,
    )
    is_unfit = format_of(config_map) != _fitting_format(keys_of(config_map), has_format(config_map))
    return replace(state.with_pauses(pauses), resumed=frozenset(resumed), unfit=is_unfit), complaints


def unusable(config_map: Mapping[str, Any]) -> str | None:
    """Return why this version can neither read nor write the ConfigMap, as what it has; None if it can."""
    if why := too_many(keys_of(config_map)):
        return f"has {why}"
    if (value := format_of(config_map)) is None or value in _FORMATS:
        return None
    newest = f"formats {_FORMAT} and {_SELECTOR_FORMAT}"
    return f"has format {one_line(value, _MAX_EXCERPT)}, and this version knows {newest} only"


def too_many(keys: Iterable[str]) -> str:
    """Return what there is too much of among the keys of a ConfigMap, "" if nothing is."""
    count, selectors = len(found := set(keys)), sum(map(_is_of_selector, found))
    if count > MAX_KEYS:
        return f"{count} keys, more than {MAX_KEYS}"
    return f"{selectors} pauses by selectors, more than {MAX_SELECTORS}" if selectors > MAX_SELECTORS else ""


def keys_of(config_map: Mapping[str, Any]) -> set[str]:
    """Return all keys of the ConfigMap."""
    return {key for key, _ in _entries(config_map)}


def format_of(config_map: Mapping[str, Any]) -> str | None:
    """Return the format of the ConfigMap as it is written; None if it has none."""
    entries = dict(_entries(config_map))
    return str(entries[FORMAT_KEY]) if FORMAT_KEY in entries else None


def has_format(config_map: Mapping[str, Any]) -> bool:
    """Return whether a leader has taken the ConfigMap over."""
    return format_of(config_map) not in (None, _UNCLAIMED_FORMAT)


def _fitting_format(keys: Iterable[str], claimed: bool) -> str | None:
    """Return the format that a ConfigMap with these keys must have, None for none; ``claimed``: by a leader."""
    if any(map(_is_of_selector, keys)):
        return _SELECTOR_FORMAT if claimed else _UNCLAIMED_FORMAT
    return _FORMAT if claimed else None


def _is_of_selector(key: str) -> bool:
    return (found := _SCOPED.fullmatch(key)) is not None and found[1] == "selector"


class _Adoption(NamedTuple):
    ended: Pause | None
    confirmed_by: str
    adopter: str
    complaints: tuple[str, ...] = ()


def _adoption(config_map: Mapping[str, Any]) -> _Adoption:
    """Return the ConfigMap's settings on adoption; an unreadable value stops adoption, and confirms nothing.

    Whatever ``adopts`` says, it is there because somebody adopts.
    """
    entries = dict(_entries(config_map))
    adopter = one_line(str(entries[ADOPTS_KEY])) or _SOMEBODY if ADOPTS_KEY in entries else ""
    try:
        ended = _pause(_decoded(entries[NO_ADOPTION_KEY])) if NO_ADOPTION_KEY in entries else None
        problems: tuple[str, ...] = ()
    except Unreadable as error:
        malformed = _malformed(NO_ADOPTION_KEY, entries[NO_ADOPTION_KEY], error)
        ended, problems = Pause(reason=malformed), (f"{malformed}; nothing is adopted",)
    try:
        return _Adoption(ended, as_text(_decoded(entries.get(CONFIRMED_KEY, "null")), "its value"), adopter, problems)
    except Unreadable as error:
        return _Adoption(ended, "", adopter, (*problems, _malformed(CONFIRMED_KEY, entries[CONFIRMED_KEY], error)))


def _entries(config_map: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield keys with their values. Data that is not a map counts as a malformed pause of all evictions."""
    for field in ("data", "binaryData"):
        try:
            entries = as_object(config_map.get(field), field)
        except Unreadable:
            yield key_of(EVERYTHING), None
            continue
        for key, value in entries.items():
            yield key, value if field == "data" else None


class _PauseEntry(NamedTuple):
    """What a key says of a scope: its pause, None if it is not paused; ``complaint``: why the value is malformed."""

    key: str
    scope: PauseScope
    pause: Pause | None
    complaint: str = ""


def _pause_entries(config_map: Mapping[str, Any]) -> Iterator[_PauseEntry]:
    """Yield what the keys of pauses say. A selector's key that pauses nothing says nothing of any scope."""
    for key, value in _entries(config_map):
        if (scope := _scope_of(key)) is None:
            continue
        try:
            decoded = _decoded(value)
            if scope is not _ALL_NODES:
                yield _PauseEntry(key, scope, _pause(decoded))
            elif decoded is not False:
                yield _PauseEntry(key, _selector_in(decoded), _pause(decoded))
        except Unreadable as error:
            malformed = _malformed(key, value, error)
            yield _PauseEntry(key, scope, Pause(reason=malformed), malformed)


def _scope_of(key: str) -> PauseScope | None:
    """Return what a key is about if its value does not say more; None if it is no key of a pause."""
    if key == key_of(EVERYTHING):
        return EVERYTHING
    match _SCOPED.fullmatch(key):
        case None:
            return None
        case found if found[1] == "selector":
            return _ALL_NODES
        case found:
            return PauseScope("node" if found[1] == "node" else "namespace", found[2])


def _selector_in(decoded: object) -> PauseScope:
    text = decoded.get("selector") if is_object(decoded) else None
    if not isinstance(text, str):
        refuse("its value is not an object with a selector")
    try:
        return selector_scope(text)
    except ValueError as expected:
        refuse(f"selector is not {expected}")


def _malformed(key: str, value: object, error: Unreadable) -> str:
    # The excerpt is from the text: the decoded value may be nested too deeply to be shown.
    excerpt = f": {one_line(value, _MAX_EXCERPT)}" if isinstance(value, str) else ""
    return f"the key {one_line(key)} is malformed ({error}){excerpt}"


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        refuse("its value is not a string")
    try:
        return orjson.loads(value)
    except ValueError:
        refuse("its value is not JSON")


def _pause(decoded: object) -> Pause | None:
    if isinstance(decoded, bool):
        return Pause() if decoded else None
    if not is_object(decoded):
        refuse("its value is neither true nor false nor an object")
    reason, by = (one_line(as_text(decoded.get(field), field)) for field in ("reason", "by"))
    since, until = _time(decoded, "since"), _time(decoded, "until")
    if since is not None and until is not None and until < since:
        refuse("until is before since")  # One of them is wrong, and it would have ended before it begins.
    return Pause(since, reason, until, by)


def _breaker(decoded: object) -> tuple[Latch | None, float | None, str]:
    if not is_object(decoded) or not isinstance(decoded.get("open"), bool):
        refuse("its value is not an object in which open is true or false")
    if not decoded["open"]:
        return None, _needed_time(decoded, "reset"), one_line(as_text(decoded.get("controller"), "controller"))
    cause, controller = (one_line(as_text(decoded.get(field), field)) for field in ("cause", "controller"))
    out_of_service = decoded.get("outOfService") is True
    latch = Latch(_needed_time(decoded, "since"), cause, out_of_service=out_of_service, controller=controller)
    return latch, None, ""


def _needed_time(fields: Mapping[str, Any], field: str) -> float:
    return _time(fields, field) or refuse(f"{field} is missing")


def _time(fields: Mapping[str, Any], field: str) -> float | None:
    value = fields.get(field)
    return None if value is None else parse_rfc3339(value) or refuse(f"{field} is not a time")


# Writing


def pause_changes(config_map: Mapping[str, Any], wanted: Mapping[PauseScope, Pause | None]) -> Changes:
    """Return the changes of keys that give these scopes these pauses, None for none."""
    changes: dict[str, str | None] = {entry.key: None for entry in _pause_entries(config_map) if entry.scope in wanted}
    for scope, pause in wanted.items():
        if pause is not None:
            changes[key_of(scope)] = pause_text(pause, scope)
    return changes


def with_format(config_map: Mapping[str, Any], changes: Changes) -> Changes:
    """Return the changes with that of the format which they cause; ``FORMAT_KEY`` among them: a leader writes."""
    keys = {*keys_of(config_map), *changes} - {key for key, text in changes.items() if text is None}
    claimed = changes.get(FORMAT_KEY) is not None or has_format(config_map)
    others = {key: text for key, text in changes.items() if key != FORMAT_KEY}
    fitting = _fitting_format(keys, claimed)
    return others if fitting == format_of(config_map) else {**others, FORMAT_KEY: fitting}


def pause_text(pause: Pause, scope: PauseScope = EVERYTHING) -> str:
    """Return a pause as the value of a key. Reading it gives the same pause, in whole seconds: never a shorter one."""
    until_epoch = None if pause.until_epoch is None else pause.until_epoch + _ALMOST_A_SECOND
    times = {"since": pause.since_epoch, "until": until_epoch}
    words = {"reason": pause.reason, "by": pause.by}
    fields = {"selector": scope.name} if scope.kind == "selector" else {}
    fields |= {name: format_rfc3339(epoch) for name, epoch in times.items() if epoch is not None}
    return _encoded(fields | {name: one_line(text) for name, text in words.items() if text} or True)


def latch_text(latch: Latch) -> str:
    """Return the value of the breaker's key while it is open."""
    more: dict[str, object] = {"controller": one_line(latch.controller)} if latch.controller else {}
    more |= {"outOfService": True} if latch.out_of_service else {}
    text = {"open": True, "since": format_micro_time(latch.since_epoch), "cause": one_line(latch.cause), **more}
    return _encoded(text)


def reset_text(reset_epoch: float, closed_by: str = "") -> str:
    """Return the value of the breaker's key after it was closed at this time; ``closed_by``: as in ``ControlState``."""
    more = {"controller": one_line(closed_by)} if closed_by else {}
    return _encoded({"open": False, "reset": format_micro_time(reset_epoch), **more})


def confirmed_text(holder: str) -> str:
    """Return the value of the key that says which holder of the Lease adopts nothing."""
    return _encoded(holder)


def _encoded(value: object) -> str:
    return orjson.dumps(value).decode()
