"""Tables for people."""

import io

import pytest

from taint_eviction_ctl.cli.tables import table_lines, wrapped


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
