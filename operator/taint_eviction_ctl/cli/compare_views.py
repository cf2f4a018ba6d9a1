"""A comparison for people: the verdict in one line, then the differences and their reasons."""

from collections.abc import Mapping
from typing import Any

import click

from taint_eviction.core.text import many
from taint_eviction.kube.api_calls import FIELD_MANAGER
from taint_eviction_ctl.cli.tables import table_lines
from taint_eviction_ctl.planning.wording import span, utc

_HEADER = ("WHEN", "POD", "NODE", "BUILT-IN CONTROLLER")
_MAX_NAMED = 5
_DIFFERENT = ("never", "later", "built_in_only")


def comparison_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a comparison with its differences."""
    lines = [verdict(document), *_notes(document)]
    differences = document["differences"]
    if differences:
        rows = [
            (utc(each["at"]), f"{each['namespace']}/{each['name']}", each["node"], each["text"]) for each in differences
        ]
        lines += ["", *table_lines(_HEADER, rows)]
    left = sum(document["results"][name] for name in _DIFFERENT) - len(differences)
    elsewhere = " or in other namespaces" if document.get("namespace") else ""
    return [*lines, f"  … and {left} older{elsewhere}"] if left > 0 else lines


def verdict(document: Mapping[str, Any]) -> str:
    """Return one line: how many evictions were compared, and with which results."""
    results, observed = document["results"], f"in {span(document['observedSeconds'])}"
    if not document["compared"]:
        return f"{observed} no eviction to compare"
    said = {
        "same": "{} the same",
        "never": "{} that the built-in controller never did",
        "later": f"{{}} that it did later, by {_range(document['laterSeconds'])}",
        "built_in_only": "{} that it alone did",
        "somebody_else": f"{{}} by another client before either{_writers(document)}",
    }
    # Not by ``format``: a client chooses its name, with braces as well.
    parts = [text.replace("{}", str(results[name]), 1) for name, text in said.items() if results[name]]
    different = any(results[name] for name in _DIFFERENT)
    found = f"{observed} {many(document['compared'], 'eviction')}: {'; '.join(parts)}"
    return click.style(found, fg="yellow" if different else "green")


def _writers(document: Mapping[str, Any]) -> str:
    """Return who was first, as far as that is known."""
    said = []
    # A controller of another version may not say it.
    for each in document.get("somebodyElse", ()):
        if each["by"] == FIELD_MANAGER:
            who = "this controller itself, beside its dry run"
        elif each["by"] is None and each["reason"] is None:
            who = "somebody: a deletion names nobody"
        else:
            who = ": ".join(filter(None, (each["by"] or "somebody", each["reason"])))
        said.append(f"{each['pods']} by {who}")
    return f" ({', '.join(said)})" if said else ""


def _range(later: Mapping[str, float] | None) -> str:
    if later is None:
        return "0 s"
    least, most = round(later["min"]), round(later["max"])
    return f"{least} s" if least == most else f"{least}–{most} s"


def _notes(document: Mapping[str, Any]) -> list[str]:
    notes = []
    if document["outstanding"]:
        notes.append(f"{document['outstanding']} more evictions that the built-in controller has not done yet")
    if document["unseen"]:
        notes.append(f"for {document['unseen']} more it is not known what the built-in controller did")
    return notes + _unlisted(document.get("unlisted") or {"pods": [], "problem": None})


def _unlisted(document: Mapping[str, Any]) -> list[str]:
    """Return which pods were gone before they were listed, or why that is not known."""
    pods, problem = [each["pod"] for each in document["pods"]], document["problem"]
    notes = (
        [f"not checked: which pods were gone before the dry run had listed them: events: {problem}"] if problem else []
    )
    if pods:
        named = ", ".join(pods[:_MAX_NAMED]) + (", …" if pods[_MAX_NAMED:] else "")
        were, them = ("was", "it") if len(pods) == 1 else ("were", "them")
        gone = f"{were} gone before the dry run had listed {them}, marked for deletion by its events"
        notes.append(f"{many(len(pods), 'more pod')} {gone}: {named}")
    return notes
