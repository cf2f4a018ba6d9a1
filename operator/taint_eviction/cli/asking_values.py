"""Kinds of values that only commands take which ask a running controller."""

from typing import Any

import click
from yarl import URL

from taint_eviction.core.objects import NamespacedName


class HttpUrl(click.ParamType[str]):
    """Where somebody listens; without a slash at its end."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        text = str(value).strip().rstrip("/")
        try:
            url = URL(text)
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
            self.fail(f"{value!r} is no URL of a controller, as in http://127.0.0.1:8080", param, ctx)
        return text


class PodName(click.ParamType[NamespacedName]):
    """A pod: ``NAMESPACE/NAME``."""

    name = "namespace/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamespacedName:
        """Split it."""
        if isinstance(value, NamespacedName):
            return value
        namespace, _, name = str(value).partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r} is no pod; write NAMESPACE/NAME, as in default/web-0", param, ctx)
        return NamespacedName(namespace, name)
