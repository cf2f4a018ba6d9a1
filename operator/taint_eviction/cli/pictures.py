"""Pictures and records at the command line: where pages are written, and how a record becomes a scenario."""

import codecs
from pathlib import Path

import click

from taint_eviction.files.marked_yaml import Malformed, Problem
from taint_eviction.history.record import Record, looks_like_record, read_record
from taint_eviction.history.to_scenario import scenario_text
from taint_eviction.picture.page import render_page
from taint_eviction.picture.scene import Picture

html_option = click.option(
    "--html", metavar="FILE", show_envvar=True, help="Write a picture of it, too: one page that needs nothing else."
)


def write_page(file: str, picture: Picture) -> None:
    """Write the page; end the command where that cannot be done."""
    write_text(file, render_page(picture))


def write_text(file: str, text: str) -> None:
    """Write a file; end the command where that cannot be done."""
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror or error}") from error


def record_in(raw: bytes, name: str) -> Record | None:
    """Read a record; None if this is none, but perhaps a scenario. What cannot be used is told on stderr.

    Raise ``Malformed`` if nothing can be.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if not looks_like_record(raw[:4096]):
        return None
    record = read_record(raw.splitlines(keepends=True), name)
    for problem in record.problems:
        click.echo(f"taint-eviction: {problem}", err=True)
    if record.skipped:
        lines = "1 line is" if record.skipped == 1 else f"{record.skipped} lines are"
        click.echo(f"taint-eviction: {name}: {lines} of no use and skipped", err=True)
    if not record.happenings:
        raise Malformed([Problem(name, 1, "no line of this journal or log can be used")])
    return record


__all__ = ["html_option", "record_in", "scenario_text", "write_page", "write_text"]
