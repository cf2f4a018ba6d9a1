"""The types of flags."""

from typing import Any

import click
from yarl import URL

from taint_eviction.files.setting_forms import Form, Nodes, Span, Words


class Written(click.ParamType[Any]):
    """A value in the form of a setting."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.name, self._noun = _NAMES[type(form)]
        if form == Span(forever=True):
            self.name += "|forever"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the value; fail with a valid example."""
        try:
            return self._form.parse(value)
        except ValueError as expected:
            self.fail(f"{value!r} is not {self._noun}; write {expected}", param, ctx)


_NAMES = {Span: ("duration", "a duration"), Nodes: ("nodes", "a number of nodes")}


class Seconds(Written):
    """A duration in seconds, written as in Kubernetes' own flags (``1m30s``, ``500ms``) or as a number."""

    def __init__(self) -> None:
        super().__init__(Span())


class Word(click.Choice[str]):
    """One of some words: the value that it stands for."""

    def __init__(self, form: Words) -> None:
        super().__init__(list(form.words))
        self._form = form

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the word."""
        return self._form.parse(super().convert(value, param, ctx))


class Off(click.types.BoolParamType):
    """A flag that sets something to false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the opposite."""
        return not super().convert(value, param, ctx)


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
