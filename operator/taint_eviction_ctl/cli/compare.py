"""``taint-eviction compare``: how the built-in controller differs from a dry run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.reporting.comparisons import MAX_NAMES, JournalComparisons, comparison_fields
from taint_eviction.reporting.status_document import API_VERSION
from taint_eviction_ctl.cli.asking import NOT_OURS, Ask, Document, Unanswered, ask, ask_shadow_flags, put
from taint_eviction_ctl.cli.compare_views import comparison_lines
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import verb
from taint_eviction_ctl.cli.history_sources import event_outcomes


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

    With your rights it also reads Kubernetes' events, which tell of pods that the built-in controller deleted before
    the dry run had listed them.

    Exit codes: 0 answered; 2 wrong usage, or no such file; 3 no dry run answers.
    """
    if flags["journal"] is None:
        ask(flags, lambda asking: _show_answer(asking, flags))
        return
    if click.get_current_context().get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--journal asks nobody: --server does not go with it")
    _show(_of_journal(flags["journal"]), flags)


async def _show_answer(asking: Ask, flags: Mapping[str, Any]) -> None:
    document = await asking("/compare", {})
    # The dry run at --server may be of another cluster than the events.
    if not flags["server"]:
        document["unlisted"] = await _unlisted(asking, document, flags)
    _show(document, flags)


async def _unlisted(asking: Ask, document: Document, flags: Mapping[str, Any]) -> Document:
    """Return the pods that the built-in controller has marked for deletion, by its events, and the dry run never saw.

    They were gone before the pods of their node had been listed, as a pod without a grace period may be.
    """
    # A controller of another version cannot say which pods it has followed.
    if (since := document.get("followedSince")) is None:
        return {"pods": [], "problem": "the dry run does not say which pods it has followed"}
    events = await event_outcomes(flags, {}, dry_run=False)
    marked = {
        f"{each['namespace']}/{each['name']}": each["time"]
        for each in sorted(events.outcomes, key=lambda each: str(each["time"]))
        if each["outcome"] == "marked" and (parse_rfc3339(each["time"]) or 0.0) >= (parse_rfc3339(since) or 0.0)
    }
    newest = list(marked)[-MAX_NAMES:]
    answer = await asking("/compare", {"pods": ",".join(newest)}) if newest else {"notFollowed": []}
    try:
        unlisted = [{"pod": name, "at": marked[name]} for name in answer["notFollowed"]]
    except (LookupError, TypeError):
        raise Unanswered(NOT_OURS) from None
    return {"pods": unlisted, "problem": events.problem or None}


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
    try:
        found = [each for each in document["differences"] if namespace in ("", each["namespace"])]
    except (LookupError, TypeError):
        raise Unanswered(NOT_OURS) from None
    document["namespace"] = namespace or None
    document["differences"] = found[-flags["limit"] :] if flags["limit"] else []
    if flags["output"] == "table":
        click.echo("\n".join(put(comparison_lines, document)))
    else:
        echo_document(document, flags["output"])
