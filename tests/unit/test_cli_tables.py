"""Tables for people."""

from taint_eviction_ctl.cli.tables import table_lines


def test_a_cell_stays_in_its_line() -> None:
    """Names that strangers choose cannot add rows."""
    lines = table_lines(("POD", "OWNER"), [("web-0", "Set a\nforged row\x1b[2J")])
    assert len(lines) == 2
    assert lines[1] == "  web-0  Set a\\nforged row\\x1b[2J"
