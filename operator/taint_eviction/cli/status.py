"""``taint-eviction status``: how a running controller stands, once or again and again."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import click
import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from taint_eviction.cli.asking import Ask, Document, Unanswered, ask, ask_flags, put
from taint_eviction.cli.status_views import status_lines
from taint_eviction.cli.values import Seconds

# Lines of a screen that are no pods.
_OTHER_LINES = 12


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@click.option("--namespace", "-n", help="List and count the pods of this namespace only.", show_envvar=True)
@click.option("--limit", type=click.IntRange(0), default=1000, show_default=True, help="List so many pods at most.")
@click.option("--watch", "-w", is_flag=True, help="Ask again and again, until it is interrupted.")
@click.option("--interval", type=Seconds(), default=2.0, show_default=True, help="How often.")
@ask_flags
def status(**flags: Any) -> None:
    """See how the controller stands: who leads, what holds evictions back, which pods are to go, when and why.

    Asks the replica that holds the Lease, through the API server (it takes the rights to get leases and pods/proxy), or
    the one at --server. JSON is one document; with --watch one a line.

    Exit code: 0 fine, 2 usage, 3 nobody answered.
    """
    query: dict[str, str | int] = {"limit": flags["limit"]}
    if flags["namespace"]:
        query["namespace"] = flags["namespace"]
    ask(flags, lambda asking: _watch(asking, query, flags) if flags["watch"] else _show_once(asking, query, flags))


async def _show_once(asking: Ask, query: Mapping[str, str | int], flags: Mapping[str, Any]) -> None:
    document = await asking("/status", query)
    if flags["output"] == "json":
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(put(status_lines, document)))


async def _watch(asking: Ask, query: Mapping[str, str | int], flags: Mapping[str, Any]) -> None:
    """Show it again and again; who could be asked once is waited for, whoever leads then."""
    document = await asking("/status", query)
    view, show = _view(flags["output"])
    with view:
        show(document, None)
        while True:
            await asyncio.sleep(flags["interval"])
            try:
                document = await asking("/status", query)
            except Unanswered as error:
                show(document, str(error))
            else:
                show(document, None)


Show = Callable[[Document, str | None], None]


def _view(output: str) -> tuple[AbstractContextManager[Any], Show]:
    """Choose how to show a document, or the last one and why there is no newer."""
    if output == "json":
        return nullcontext(), _show_line
    if not sys.stdout.isatty():
        return nullcontext(), _show_text
    console = Console()
    live = Live(console=console, auto_refresh=False)

    def show(document: Document, trouble: str | None) -> None:
        lines = put(partial(status_lines, most_pods=max(1, console.height - _OTHER_LINES)), document)
        lines += [] if trouble is None else ["", click.style(f"as of {document.get('now')}; {trouble}", fg="red")]
        live.update(Text.from_ansi("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

    return live, show


def _show_line(document: Document, trouble: str | None) -> None:
    if trouble is None:
        click.echo(orjson.dumps(document))
    else:
        click.echo(f"taint-eviction: {trouble}", err=True)


def _show_text(document: Document, trouble: str | None) -> None:
    if trouble is None:
        click.echo("\n".join([str(document.get("now")), *put(status_lines, document), ""]))
    else:
        click.echo(f"taint-eviction: {trouble}", err=True)
