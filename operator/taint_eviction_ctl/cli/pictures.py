"""Writes pages with pictures, and other files, for commands."""

from pathlib import Path

import click

from taint_eviction_ctl.picture.page import render_page
from taint_eviction_ctl.picture.scene import Picture

# No environment variable: each run would overwrite the picture of the one before.
html_option = click.option(
    "--html", metavar="FILE", allow_from_autoenv=False, help="Also write a picture: one self-contained HTML page."
)


def write_page(file: str, picture: Picture) -> None:
    """Write the page; end the command if that fails."""
    write_text(file, render_page(picture))


def write_text(file: str, text: str) -> None:
    """Write a file; end the command if that fails."""
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror or error}") from error
