"""``taint-eviction status``: what a running controller does, once or repeatedly."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import click
import orjson
from click.core import ParameterSource
from rich.console import Console
from rich.live import Live
from rich.text import Text

from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain, json_text, visible
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered, ask, ask_flags, next_page, put
from taint_eviction_ctl.cli.failover_reads import count_terminating, show_stuck
from taint_eviction_ctl.cli.flags import CONTEXT_SETTINGS, flag
from taint_eviction_ctl.cli.near_pods import absent_object
from taint_eviction_ctl.cli.status_views import MAX_GROUPS, lost_lines, status_lines

# A call that hangs for longer is reported.
_SILENCE_SECONDS = 3.0


@click.command(context_settings=CONTEXT_SETTINGS)
@flag("--namespace", "-n", help="List and count the pods of this namespace only.")
@flag("--all-namespaces", "-A", is_flag=True, help="List and count the pods of all namespaces, as without -n.")
@flag("--stuck", is_flag=True, help="List the pods that stay Terminating instead, what holds them, and what to do.")
@flag("--limit", type=click.IntRange(0), default=1000, help="List at most this many pods.")
@flag("--watch", "-w", is_flag=True, help="Ask repeatedly until interrupted.")
@flag("--interval", type=Seconds(), default=2.0, help="Time between two requests of --watch.")
@ask_flags
def status(**flags: Any) -> None:
    """Show what the controller does and will do.

    Shows which replica leads, what holds evictions back, and which pods are pending eviction, when and why.

    Asks the replica that holds the Lease, through the API server, or the replica at --server. The former needs the
    rights to get leases and pods/proxy. JSON is one document; with --watch, one document a line.

    A line counts the pods that are Terminating on nodes that are not Ready (not with --watch or in JSON). --stuck lists
    these, and others past their grace period, by node. Both read the cluster with your rights: nodes and pods, and
    for --stuck Leases in kube-node-lease, claims and VolumeAttachments, too. --stuck asks no controller.

    Exit codes: 0 answered; 2 wrong usage; 3 no controller answers, or for --stuck no API server.
    """
    namespace = "" if flags["all_namespaces"] else flags["namespace"] or ""
    if flags["stuck"]:
        given = click.get_current_context().get_parameter_source
        if ParameterSource.COMMANDLINE in (given("watch"), given("server")):
            raise click.UsageError("--stuck reads the cluster, once: neither --watch nor --server goes with it")
        show_stuck(namespace, flags["output"], flags)
        return
    query: dict[str, str | int] = {"limit": flags["limit"]}
    if namespace:
        query["namespace"] = namespace
    ask(flags, lambda asking: _watch(asking, query, flags) if flags["watch"] else _show_once(asking, query, flags))


async def whole_status(asking: Ask, query: Mapping[str, str | int]) -> Document:
    """Request the status page by page, until the last page or the query's ``limit`` of pods."""
    return await with_further_pages(asking, query, await asking("/status", query))


async def with_further_pages(asking: Ask, query: Mapping[str, str | int], first: Document) -> Document:
    """Return the first page with the pods of the pages that follow it, up to the query's ``limit`` of pods."""
    page, document = first, {**first}
    while (token := next_page(page)) and (left := int(query["limit"]) - len(document["pending"])) > 0:
        page = await asking("/status", {**query, "limit": left, "continue": token})
        if page["identity"] != document["identity"]:
            raise Unanswered("another replica has become the leader meanwhile; ask again")
        document["pending"] = [*document["pending"], *page["pending"]]
        document["continue"] = page.get("continue")
    return document


async def _show_once(asking: Ask, query: Mapping[str, str | int], flags: Mapping[str, Any]) -> None:
    document = await whole_status(asking, query)
    if flags["output"] == "json":
        click.echo(json_text(document, orjson.OPT_INDENT_2))
    else:
        terminating = await count_terminating(str(query.get("namespace", "")), flags)
        at_terminal = sys.stdout.isatty()
        width = Console().width if at_terminal else None
        clock = [click.style(visible(str(document.get("now"))), dim=True)] if at_terminal else []
        namespace = str(query.get("namespace", ""))
        if (
            namespace
            and not flags["server"]
            and not document.get("pending")
            and (absent := await absent_object("namespace", namespace, flags))
        ):
            complain(absent)
        click.echo("\n".join([*clock, *put(partial(status_lines, more=terminating, width=width), document)]))


async def _watch(asking: Ask, query: Mapping[str, str | int], flags: Mapping[str, Any]) -> None:
    """Show the status repeatedly. After a first answer, a controller that does not answer is asked again."""
    document = await whole_status(asking, query)
    view, show = _view(flags["output"])
    with view:
        show(document, None)
        while True:
            await asyncio.sleep(flags["interval"])
            silence = asyncio.create_task(_say_silence(partial(show, document)))
            try:
                document = await whole_status(asking, query)
            except Unanswered as error:
                show(document, str(error))
            else:
                show(document, None)
            finally:
                silence.cancel()


async def _say_silence(show: Callable[[str], None]) -> None:
    """Report that there is no answer before the call times out: an outdated screen must not look current."""
    await asyncio.sleep(_SILENCE_SECONDS)
    show(f"no answer for {_SILENCE_SECONDS:g} s")


Show = Callable[[Document, str | None], None]


def _view(output: str) -> tuple[AbstractContextManager[Any], Show]:
    """Return how to show a document, or the last one with the reason why there is no newer one."""
    if output == "json":
        return nullcontext(), _show_line
    if not sys.stdout.isatty():
        return nullcontext(), _show_text
    console = Console()
    live = Live(console=console, auto_refresh=False)

    def show(document: Document, failures: str | None) -> None:
        shown = Text("\n").join(screen(document, failures, console))
        live.update(shown, refresh=True)

    return live, show


def screen(document: Document, failures: str | None, console: Console) -> list[Text]:
    """Return what fits on a screen: the pods fill the space that the rest leaves."""
    height, width = console.height - 1, console.width
    groups, pods = max(1, min(MAX_GROUPS, height // 4)), min(height, len(document.get("pending", ())))
    for _ in range(3):  # If a pod is left out, a line says so.
        lines = put(partial(status_lines, max_pods=pods, max_groups=groups, width=width), document)
        if failures is None:
            lines = [click.style(visible(str(document.get("now"))), dim=True), *lines]
        else:
            lines = lost_lines(document, lines, failures)
        shown = _folded(lines, console)
        pods = max(1, pods - max(0, len(shown) - height))
    return shown


def _folded(lines: list[str], console: Console) -> list[Text]:
    """Fold the lines before the tables; a row that is too long is cut."""
    tables = next((number for number, line in enumerate(lines) if not click.unstyle(line)), len(lines))
    head = [part for line in lines[:tables] for part in Text.from_ansi(line).wrap(console, console.width)]
    rows = [Text.from_ansi(line) for line in lines[tables:]]
    for row in rows:
        row.truncate(console.width, overflow="ellipsis")
    return [*head, *rows]


def _show_line(document: Document, failures: str | None) -> None:
    if failures is None:
        click.echo(json_text(document))
    else:
        complain(failures)


def _show_text(document: Document, failures: str | None) -> None:
    if failures is None:
        click.echo("\n".join([visible(str(document.get("now"))), *put(status_lines, document), ""]))
    else:
        complain(failures)
