"""The types of what names a pod, a node, a replica or an instant."""

import re
from typing import Any, NamedTuple

import click

from taint_eviction.cli.values import Seconds
from taint_eviction.core.objects import NamespacedName
from taint_eviction.files.kubernetes_times import parse_rfc3339

DAY_SECONDS = 86_400.0

_INSTANT_FORMS = "a time (2030-01-31T14:00:00Z) or a duration from now (30m, 1h30m)"
_PAST_FORMS = "a duration (5m), a time of day in UTC (03:12), or a time (2030-01-31T14:00:00Z, 2030-01-31 14:00:00 UTC)"
_TIME_OF_DAY = re.compile(r"(\d\d?):(\d\d)(?::(\d\d))?(?: UTC)?", re.ASCII)
# As commands print it; people leave the seconds out.
_PRINTED = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)? UTC", re.ASCII)
_UID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
# kubectl's names of pods and nodes, and those of zones.
_POD_KINDS, NODE_KINDS, ZONE_KINDS = ("pod", "pods", "po"), ("node", "nodes", "no"), ("zone", "zones")
KINDS = (*_POD_KINDS, *NODE_KINDS)
# kubectl's names of what owns pods; ``explain`` itself prints ReplicaSet/NAME.
_OWNER_KINDS = frozenset(
    f"{kind}{plural}"
    for kind in ("replicaset", "deployment", "statefulset", "daemonset", "job", "cronjob")
    for plural in ("", "s")
) | {"rs", "deploy", "sts", "ds", "cj"}


class PodName(click.ParamType[NamespacedName]):
    """A pod: ``NAMESPACE/NAME``."""

    name = "namespace/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamespacedName:
        """Split into namespace and name."""
        if isinstance(value, NamespacedName):
            return value
        namespace, _, name = str(value).partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r} is not a pod; write NAMESPACE/NAME, as in default/web-0", param, ctx)
        return NamespacedName(namespace, name)


class PodOrNode(PodName):
    """A pod by NAME, pod/NAME (both with the namespace ""), NAMESPACE/NAME or UID (text), or node/NAME (text)."""

    name = "pod"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave UIDs and nodes as they are written."""
        if isinstance(value, str):
            kind, _, name = value.rpartition("/")
            if _UID.fullmatch(value) or (kind in NODE_KINDS and name):
                return value
            if kind in ("", *_POD_KINDS) and name and not value.startswith("/"):
                return NamespacedName("", name)
            if _owns_pods(kind) and name:
                self.fail(_name_a_pod(kind, name), param, ctx)
        return super().convert(value, param, ctx)


def _owns_pods(kind: str) -> bool:
    return kind.lower().partition(".")[0] in _OWNER_KINDS


def _name_a_pod(kind: str, name: str) -> str:
    """Return what to ask instead of an owner of pods."""
    is_namespace = f"; a pod of a namespace {kind}: -n {kind} {name}" if kind == kind.lower() else ""
    return (
        f"{kind}/{name} is no pod: name one of its pods, which kubectl get pods lists, and those that are gone"
        f" taint-eviction history{is_namespace}"
    )


def one_object(context: click.Context, argument: click.Parameter, words: tuple[str, ...]) -> Any:
    """Return one pod or node, in one word (pod/web-0) or two (pod web-0) as in kubectl; None if there is none."""
    if len(words) == 2 and _owns_pods(words[0]):
        raise click.BadParameter(_name_a_pod(*words))
    if len(words) > 2 or (len(words) == 2 and words[0] not in KINDS):
        raise click.BadParameter("give one pod, or node/NAME for all pods that left a node")
    return PodOrNode().convert("/".join(words), argument, context) if words else None


def _instant(text: str) -> float | None:
    """Read a time in RFC 3339 or as commands print it; return seconds since the epoch, None for other text."""
    if printed := _PRINTED.fullmatch(text):
        day, minute, second = printed.groups(":00")
        text = f"{day}T{minute}{second}Z"
    return parse_rfc3339(text)


class TimeOfDay(NamedTuple):
    """The last time at which the day in UTC had so many seconds; a function of now, in seconds since the epoch."""

    seconds: int

    def __call__(self, now: float) -> float:
        """Return the instant."""
        return now - (now - self.seconds) % DAY_SECONDS


class PastTime(click.ParamType[Any]):
    """An instant in the past: seconds before now (float), a time of day in UTC, or seconds since the epoch.

    The latter two are functions of now, in seconds since the epoch: a time of day is its last occurrence.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a duration, a time of day or an instant (``_PAST_FORMS``); return a function from now to the instant."""
        if callable(value):
            return value
        text = str(value).strip()
        if found := _TIME_OF_DAY.fullmatch(text):
            hours, minutes, seconds = (int(part or 0) for part in found.groups())
            if hours > 23 or minutes > 59 or seconds > 59:
                self.fail(f"{text!r} is no time of day", param, ctx)
            of_day = 3600 * hours + 60 * minutes + seconds
            return TimeOfDay(of_day)
        epoch = _instant(text)
        if epoch is not None:
            return lambda _now: epoch
        if ":" in text or "T" in text:
            self.fail(f"{text!r} is not {_PAST_FORMS}", param, ctx)
        seconds_ago = Seconds().convert(text, param, ctx)
        return lambda now: max(0.0, now - seconds_ago)


class When(click.ParamType[tuple[bool, float]]):
    """An instant: (True, seconds from now) or (False, seconds since the epoch)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bool, float]:
        """Read a time or a duration."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        epoch = _instant(text)
        if epoch is not None:
            return False, epoch
        if not re.match(r"\+?\d", text, re.ASCII) or "T" in text:
            self.fail(f"{text!r} is not {_INSTANT_FORMS}", param, ctx)
        return True, Seconds().convert(text.removeprefix("+"), param, ctx)
