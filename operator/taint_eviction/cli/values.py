"""The types of flags and arguments."""

import math
import re
from typing import Any

import click
from yarl import URL

from taint_eviction.adapters.kubernetes_times import parse_rfc3339
from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.core.objects import NamespacedName
from taint_eviction.files.durations import parse_seconds

_SHARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%", re.ASCII)
_INSTANT_FORMS = "a time (2030-01-31T14:00:00Z) or a duration from now (30m, 1h30m)"
_UID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
# kubectl's names of pods and nodes.
_POD_KINDS, _NODE_KINDS = ("pod", "pods", "po"), ("node", "nodes", "no")
KINDS = (*_POD_KINDS, *_NODE_KINDS)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


class Seconds(click.ParamType[float]):
    """A duration in seconds, written as in Kubernetes' own flags (``1m30s``, ``500ms``) or as a number."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the duration; fail with a valid example."""
        try:
            return parse_seconds(value)
        except ValueError as expected:
            self.fail(f"{value!r} is not a duration; write {expected}", param, ctx)


class HostPort(click.ParamType[tuple[str, int]]):
    """Where to listen: ``HOST:PORT``, or ``:PORT`` for every address; IPv6 hosts in brackets."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Split into host ("" for every address) and port."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, as in 127.0.0.1:8080 or :8080", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


class HoldSpan(Seconds):
    """A duration, or ``forever``: infinite seconds."""

    name = "duration|forever"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the duration."""
        return math.inf if value in ("forever", math.inf) else super().convert(value, param, ctx)


class Threshold(click.ParamType[NodeThreshold | None]):
    """A threshold of nodes: ``25%``, ``40``, or ``25%,40`` for whichever is exceeded first.
    ``exempt`` is the word for no threshold (None); "": no word is accepted.
    """

    name = "nodes"

    def __init__(self, exempt: str = "") -> None:
        self._exempt = exempt

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NodeThreshold | None:
        """Read number and share."""
        if isinstance(value, NodeThreshold):
            return value
        text = str(value).strip()
        if self._exempt and text == self._exempt:
            return None
        number, percent = None, None
        for part in text.split(","):
            share = _SHARE.fullmatch(part.strip())
            if share and percent is None:
                percent = float(share[1])
            elif _NUMBER.fullmatch(part.strip()) and number is None:
                number = int(part)
            else:
                words = f", or {self._exempt}" if self._exempt else ""
                self.fail(f"{text!r} is not a number of nodes; write 25%, 40, or 25%,40{words}", param, ctx)
        return NodeThreshold(number, percent)


class HttpUrl(click.ParamType[str]):
    """The URL of a replica; a final slash is dropped."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the URL."""
        text = str(value).strip().rstrip("/")
        try:
            url = URL(text)
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
            self.fail(f"{value!r} is not the URL of a controller; write it like http://127.0.0.1:8080", param, ctx)
        return text


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
            if _UID.fullmatch(value) or (kind in _NODE_KINDS and name):
                return value
            if kind in ("", *_POD_KINDS) and name and not value.startswith("/"):
                return NamespacedName("", name)
        return super().convert(value, param, ctx)


def one_object(context: click.Context, argument: click.Parameter, words: tuple[str, ...]) -> Any:
    """Return one pod or node, in one word (pod/web-0) or two (pod web-0) as in kubectl; None if there is none."""
    if len(words) > 2 or (len(words) == 2 and words[0] not in KINDS):
        raise click.BadParameter("give one pod, or node/NAME for all pods that left a node")
    return PodOrNode().convert("/".join(words), argument, context) if words else None


class When(click.ParamType[tuple[bool, float]]):
    """An instant: (True, seconds from now) or (False, seconds since the epoch)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bool, float]:
        """Read a time or a duration."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        epoch = parse_rfc3339(text)
        if epoch is not None:
            return False, epoch
        if not re.match(r"\+?\d", text, re.ASCII) or "T" in text:
            self.fail(f"{text!r} is not {_INSTANT_FORMS}", param, ctx)
        return True, Seconds().convert(text.removeprefix("+"), param, ctx)
