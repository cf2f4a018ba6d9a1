"""``taint-eviction compare``: how the built-in controller differs from a dry run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.reporting.comparisons import JournalComparisons, comparison_fields
from taint_eviction.reporting.status_document import API_VERSION
from taint_eviction_ctl.cli.asking import Ask, Document, ask, ask_shadow_flags, put
from taint_eviction_ctl.cli.compare_views import comparison_lines
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import verb


@verb()
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    allow_from_autoenv=False,
    help="Read the file that the dry run wrote, and ask nobody.",
)
@flag("--limit", type=click.IntRange(0), default=100, help="List at most this many differences, the newest.")
@flag("--namespace", "-n", help="List the differences of this namespace only; the verdict is on all.")
@flag("--all-namespaces", "-A", is_flag=True, help="List the differences of all namespaces, as without -n.")
@ask_shadow_flags
def compare(**flags: Any) -> None:
    """Compare the built-in controller with this one, which runs beside it with --dry-run.

    Prints a verdict on all evictions since the dry run began, and each that differs with the reason. Two evictions are
    the same if they are no more than 2 s apart.

    Asks the replica that holds the dry run's Lease, through the API server, or the replica at --server. The former
    needs the rights to get leases and pods/proxy. --journal reads the file of `run --dry-run --journal` instead.

    Exit codes: 0 answered; 2 wrong usage, or no such file; 3 no dry run answers.
    """
    if flags["journal"] is None:
        ask(flags, lambda asking: _show_answer(asking, flags))
        return
    if click.get_current_context().get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--journal asks nobody: --server does not go with it")
    _show(_of_journal(flags["journal"]), flags)


async def _show_answer(asking: Ask, flags: Mapping[str, Any]) -> None:
    _show(await asking("/compare", {}), flags)


def _of_journal(path: Path) -> Document:
    try:
        found = JournalComparisons(path)
    except OSError as error:
        give_up(ExitCode.USAGE, f"{path}: {error.strerror or error}")
    if found.until_epoch is None or found.totals.since_epoch is None:
        give_up(ExitCode.USAGE, f"{path}: this is no journal of a dry run (run --dry-run --journal)")
    totals, still_open = found.totals, len(found.evicted_epochs)
    return {
        "apiVersion": API_VERSION,
        "kind": "Comparison",
        **comparison_fields(totals, still_open, totals.unseen, found.until_epoch),
    }


def _show(document: Document, flags: Mapping[str, Any]) -> None:
    namespace = "" if flags["all_namespaces"] else flags["namespace"] or ""
    found = [each for each in document["differences"] if namespace in ("", each["namespace"])]
    document["namespace"] = namespace or None
    document["differences"] = found[-flags["limit"] :] if flags["limit"] else []
    if flags["output"] == "table":
        click.echo("\n".join(put(comparison_lines, document)))
    else:
        echo_document(document, flags["output"])
