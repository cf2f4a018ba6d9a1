"""Tables for people."""

import io

import click
import pytest

from taint_eviction_ctl.cli.tables import about_lines, fact_lines, table_lines, wrapped


def test_a_cell_stays_in_its_line() -> None:
    """Names that strangers choose cannot add rows."""
    lines = table_lines(("POD", "OWNER"), [("web-0", "Set a\nforged row\x1b[2J")])
    assert len(lines) == 2
    assert lines[1] == "  web-0  Set a\\nforged row\\x1b[2J"


class _Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_sentence_goes_on_under_its_beginning(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; a flag or a name is not broken in two. In a pipe it is one line."""
    text = "append ,-taint-eviction-controller to --controllers of kube-controller-manager on every control-plane node"
    assert wrapped(text, "wrong  ", "       ") == [f"wrong  {text}"]
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", _Terminal())
    first, *more = wrapped(text, "wrong  ", "       ")
    assert first.startswith("wrong  append ,-taint-eviction-controller ")
    assert all(line.startswith("       ") for line in more)
    assert max(map(len, (first, *more))) <= width
    assert " ".join([first[7:], *(line.strip() for line in more)]) == text


def test_facts_go_on_beside_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels stand alone in their column, so that the eye finds them."""
    fact = "maintenance=now:NoExecute is tolerated by [maintenance:NoExecute for 300 s]"
    assert [click.unstyle(line) for line in fact_lines("because", fact)] == [f"  because   {fact}"]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout", _Terminal())
    assert [click.unstyle(line) for line in fact_lines("because", fact)] == [
        "  because   maintenance=now:NoExecute is tolerated by",
        "            [maintenance:NoExecute for 300 s]",
    ]
    sentence = "leaves node worker-7-of-the-first-pool in 4 m 12 s, at 2030-01-01 00:05:00 UTC"
    assert [click.unstyle(line) for line in about_lines("shop/db-1", sentence)] == [
        "shop/db-1 leaves node worker-7-of-the-first-pool in 4 m 12",
        "  s, at 2030-01-01 00:05:00 UTC",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_row_goes_on_in_its_last_column(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal no line is too long, and no name is cut; in a pipe a row is one line."""
    row = (
        "at once",
        "2030-01-01 00:00:00 UTC",
        "shop/web-6b8f7d9c5d-x2x4z",
        "worker-3",
        "not tolerated: " + "why " * 30,
    )
    header = ("", "AT", "POD", "NODE", "BECAUSE")
    assert len(table_lines(header, [row])) == 2
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", _Terminal())
    lines = [click.unstyle(line) for line in table_lines(header, [row])]
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join((*header, *row)).split())
    assert [click.unstyle(line) for line in table_lines(("A", "B"), [("a", "b")])] == ["  A  B", "  a  b"]
