"""Makes foreign text safe to show on a terminal: names, annotations, answers of servers and webhooks.

In text, control characters are written as Python escapes them; in JSON, as JSON does.
"""

import re
from typing import Any

import click
import orjson

# All control characters except newline and tab, those that change the direction of text, those that some terminals
# treat as the end of a line, and surrogates, which cannot be encoded.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Escape characters that a terminal would interpret instead of showing: ``\x1b``, ``\u202e``."""
    # Nothing invisible is printable; to ask that first is much faster.
    return text if text.isprintable() else _INVISIBLE.sub(_escaped, text)


def visible_in(value: Any) -> Any:
    """Escape all texts of a document in this way."""
    match value:
        case str():
            return visible(value)
        case list():
            return [visible_in(each) for each in value]
        case dict():
            return {visible_in(name): visible_in(each) for name, each in value.items()}
        case _:
            return value


def json_text(document: Any, option: int | None = None) -> str:
    """Return a document as JSON without characters that a terminal would interpret."""
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found.group()):04x}", orjson.dumps(document, option=option).decode())


def complain(message: str) -> None:
    """Print a message on stderr."""
    click.echo(f"taint-eviction: {visible(message)}", err=True)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
