"""``taint-eviction status``: what a running controller does, once or repeatedly."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.live import Live
from rich.text import Text

from taint_eviction.cli.connection import flag
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain, visible
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered, ask, ask_flags, next_page, put
from taint_eviction_ctl.cli.documents import echo_document, stream_document
from taint_eviction_ctl.cli.failover_reads import count_terminating, show_stuck
from taint_eviction_ctl.cli.flags import verb
from taint_eviction_ctl.cli.near_pods import absent_object
from taint_eviction_ctl.cli.status_views import MAX_GROUPS, group_lines, head_lines, lost_lines, pod_lines, status_lines
from taint_eviction_ctl.planning.wording import utc

# A call that hangs for longer is reported.
_SILENCE_SECONDS = 3.0
# How many lines there are before the tables of a terminal, and how many more say that there is no answer.
MAX_HEAD = 6
_MAX_LOST = 2
# A screen of 24 lines has at least so many pods.
_MIN_PODS = 5


@verb()
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
    rights to get leases and pods/proxy. JSON and YAML are one document; with --watch there are several, in JSON one
    a line.

    A line counts the pods that are Terminating on nodes that are not Ready (not with --watch, nor in documents).
    --stuck lists these, and others past their grace period, by node. Both read the cluster with your rights: nodes and
    pods, and for --stuck Leases in kube-node-lease, claims and VolumeAttachments, too. --stuck asks no controller.

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
    ask(
        flags,
        lambda asking: show_repeatedly(asking, query, flags) if flags["watch"] else _show_once(asking, query, flags),
    )


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
    if flags["output"] != "table":
        echo_document(document, flags["output"])
    else:
        terminating = await count_terminating(str(query.get("namespace", "")), flags)
        namespace = str(query.get("namespace", ""))
        if (
            namespace
            and not flags["server"]
            and not document.get("pending")
            and (absent := await absent_object("namespace", namespace, flags))
        ):
            complain(absent)
        if sys.stdout.isatty():
            console = Console()
            lines = put(partial(for_terminal, more=terminating, console=console), document)
            console.print(Text("\n").join(lines), soft_wrap=True)
        else:
            click.echo("\n".join(put(partial(status_lines, more=terminating), document)))


async def show_repeatedly(asking: Ask, query: Mapping[str, str | int], flags: Mapping[str, Any]) -> None:
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
    if output != "table":
        return nullcontext(), partial(_show_document, output)
    if not sys.stdout.isatty():
        return nullcontext(), _show_text
    console = Console()
    live = Live(console=console, auto_refresh=False)

    def show(document: Document, failures: str | None) -> None:
        shown = Text("\n").join(screen(document, failures, console))
        live.update(shown, refresh=True)

    return live, show


def for_terminal(document: Document, more: str, console: Console) -> list[Text]:
    """Return a status in any number of lines; ``more``: see ``status_lines``."""
    lines = status_lines(document, more=more, width=console.width)[len(head_lines(document)) :]
    return [*_head(document, console, cut=False), *map(Text.from_ansi, lines)]


def screen(document: Document, failures: str | None, console: Console) -> list[Text]:
    """Return what fits on a screen: at least a few pods, where the screen has the usual 24 lines."""
    return put(partial(_screen, failures=failures, console=console), document)


def _screen(document: Document, failures: str | None, console: Console) -> list[Text]:
    height, width = console.height - 1, console.width
    head = _head(document, console, cut=True)
    if failures is not None:
        why, last = lost_lines(document, failures)
        head = [*_folded(why, console)[:_MAX_LOST], Text(last), *(Text(line.plain, "dim") for line in head)]
    known = len(document["pending"])
    for groups in range(max(1, min(MAX_GROUPS, height // 4)), -1, -1):
        table = group_lines(document, groups, width) if groups else []
        pods, listed = _pods(document, height - len(head) - len(table), width)
        if listed >= min(_MIN_PODS, known):
            break
    rows = [Text.from_ansi(line) for line in (*table, *pods)]
    for row in rows:
        row.truncate(width, overflow="ellipsis")
        if failures is not None:
            row.stylize("dim")
    return [*head, *rows][:height]


def _pods(document: Document, room: int, width: int) -> tuple[list[str], int]:
    """Return the lines of as many pods as there is room for, and their number."""
    listed = max(0, min(len(document["pending"]), room))
    while True:
        lines = pod_lines(document, listed, width)
        if len(lines) <= room or listed == 0:
            return lines, listed
        listed = max(0, listed - (len(lines) - room))


def _head(document: Document, console: Console, *, cut: bool) -> list[Text]:
    """Return the lines before the tables, with the time. If they are more than ``MAX_HEAD``, long ones are cut instead
    of folded; ``cut``: and the last ones are left out.
    """
    lines = head_lines(document, console.width, utc(document["now"]))
    folded = [part for line in lines for part in _folded(line, console)]
    if len(folded) <= MAX_HEAD:
        return folded
    short = [Text.from_ansi(line) for line in lines]
    for line in short:
        line.truncate(console.width, overflow="ellipsis")
    left = len(short) - MAX_HEAD + 1
    if not cut or left <= 1:
        return short
    return [*short[: MAX_HEAD - 1], Text(f"… and {left} more lines: taint-eviction status")]


def _folded(line: str, console: Console) -> list[Text]:
    return list(Text.from_ansi(line).wrap(console, console.width))


def _show_document(output: str, document: Document, failures: str | None) -> None:
    if failures is None:
        stream_document(document, output)
    else:
        complain(failures)


def _show_text(document: Document, failures: str | None) -> None:
    if failures is None:
        click.echo("\n".join([visible(str(document.get("now"))), *put(status_lines, document), ""]))
    else:
        complain(failures)
