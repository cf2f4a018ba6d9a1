"""Text from outside becomes one line of bounded length."""

import pytest

from taint_eviction.core.text import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\n  lines\t", "two lines"),
        ("a\x1b[31mb\x00c", "a [31mb c"),
        ("", ""),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 299 + "…"),
        (ValueError("two\nlines"), "two lines"),
        (ValueError(), "ValueError"),
    ],
)
def test_text_becomes_one_line_of_at_most_300_characters(text: str | BaseException, line: str) -> None:
    """Control characters become spaces, and an exception without a message becomes the name of its type."""
    assert one_line(text) == line


def test_a_shorter_line_may_be_requested() -> None:
    """Only the beginning of a long text is read."""
    assert one_line("abcdef", 5) == "abcd…"
    assert one_line("abcde", 5) == "abcde"
    assert one_line(" " * 19 + "abc", 5) == "a"
    assert one_line(" " * 20 + "abc", 5) == ""
