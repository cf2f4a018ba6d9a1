"""Short forms of taints and tolerations, as people write them on a command line and in scenarios.

Each function raises ``ValueError`` with the valid form.
"""

import re

from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE
from taint_eviction.core.text import JsonObject, did_you_mean, one_line
from taint_eviction.files.durations import parse_seconds

EFFECTS = (NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE)

_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?", re.ASCII)
_TOLERATION = re.compile(r"(?P<what>\S+)(?:\s+(?:for\s+(?P<span>.+)|indefinitely))?")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}", re.ASCII)

# The largest number of objects that a range in a name may stand for.
_MAX_IN_A_RANGE = 20_000


def parse_taint(text: str) -> JsonObject:
    """Read a taint as ``kubectl taint`` takes it: ``key=value:Effect`` or ``key:Effect``."""
    body, colon, effect = text.rpartition(":")
    key, equals, value = body.partition("=")
    if not colon or effect not in EFFECTS or not _KEY.fullmatch(key):
        form = f"a taint (key=value:Effect or key:Effect, where Effect is one of {', '.join(EFFECTS)})"
        raise ValueError(form + meant(text))
    return {"key": key, "value": value, "effect": effect} if equals else {"key": key, "effect": effect}


def parse_taint_removal(text: str) -> tuple[str, str]:
    """Parse which taints to remove: ``key``, ``key:Effect``, or a complete taint, with or without a final ``-``."""
    body, _, effect = text.removesuffix("-").partition(":")
    key = body.partition("=")[0]
    if not _KEY.fullmatch(key) or (effect and effect not in EFFECTS):
        raise ValueError(f"the key of a taint, or key:Effect{meant(text.removesuffix('-'))}")
    return key, effect


def meant(text: str, untaint: str = "untaint ") -> str:
    """Return a suggestion for a taint that cannot be read: for a misspelt effect, or for a removal in kubectl's form;
    "" if there is none. ``untaint``: how a removal is written here.
    """
    effect = text.rpartition(":")[2]
    if effect.removesuffix("-") in EFFECTS:
        return f"; did you mean {untaint}{one_line(text).removesuffix('-')}?" if effect.endswith("-") else ""
    return did_you_mean(effect.removesuffix("-"), EFFECTS)


def parse_toleration(text: str) -> JsonObject:
    """Read a toleration: ``key``, ``key=value``, ``key:Effect`` or ``*``, then perhaps ``for 30`` or ``indefinitely``.

    A key alone tolerates every value, ``*`` every key, a toleration without an effect every effect. ``for`` takes
    seconds or a duration; without it the toleration has no limit. Older files say ``for ever`` instead of
    ``indefinitely``.
    """
    found = _TOLERATION.fullmatch(text.strip())
    what = found["what"] if found else ""
    body, _, effect = what.partition(":")
    key, equals, value = body.partition("=")
    if (key != "*" and not _KEY.fullmatch(key)) or (effect and effect not in EFFECTS):
        form = "a toleration (key, key=value or *, perhaps :Effect, perhaps 'for 30s' or 'indefinitely')"
        raise ValueError(form + (did_you_mean(effect, EFFECTS) if effect not in EFFECTS else ""))
    toleration: JsonObject = {"operator": "Exists"} if key == "*" else {"key": key, "operator": "Exists"}
    if equals:
        toleration |= {"operator": "Equal", "value": value}
    if effect:
        toleration["effect"] = effect
    span = found["span"] if found else None
    if span is not None and span.strip() != "ever":
        toleration["tolerationSeconds"] = _whole(span)
    return toleration


def _whole(span: str) -> int:
    if re.fullmatch(r"-?\d{1,19}", span, re.ASCII):
        return int(span)
    seconds = parse_seconds(span)
    if seconds != int(seconds):
        raise ValueError("whole seconds after 'for'")
    return int(seconds)


def expand_range(name: str) -> list[str]:
    """Return the names that a range like ``web-{0..9}`` stands for; without a range, the name itself."""
    found = _RANGE.search(name)
    if found is None:
        return [name]
    first, last = int(found[1]), int(found[2])
    if not 0 <= last - first < _MAX_IN_A_RANGE:
        raise ValueError(f"a range that goes up, of at most {_MAX_IN_A_RANGE} names")
    return [name[: found.start()] + str(number) + name[found.end() :] for number in range(first, last + 1)]
