"""The picture of the demo has all that it shows, is small, and loads nothing."""

import html
import json
import re

from tests.docs.demo_picture import PICTURE, drawn

FACTS = [
    {
        "at": 1.0,
        "side": "built-in",
        "what": "evicted",
        "text": "web is evicted",
        "pod": "web",
        "uid": "",
        "due_at": None,
    },
    {
        "at": 22.6,
        "side": "this one",
        "what": "stopped",
        "text": "stops <evicting>",
        "pod": "",
        "uid": "",
        "due_at": None,
    },
    {
        "what": "verdict",
        "as_told": True,
        "lines": ["Built-in 1.36: late", "This controller: in time", "Everything went as expected."],
    },
]


def said(svg: str) -> str:
    """Read the text of a picture."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return " ".join(" ".join(html.unescape(text) for text in texts).split())


def test_the_screen_is_drawn_from_what_the_demo_prints() -> None:
    """The picture has every line, both clusters beside each other, and the verdict."""
    text = said(drawn(json.dumps(fact) for fact in FACTS))
    assert "built-in 1.36 (model) this controller" in text
    assert "1.0 s built-in web is evicted" in text
    assert "stops <evicting>" in text
    assert text.endswith("Built-in 1.36: late This controller: in time Everything went as expected.")


def test_the_picture_of_the_readme_is_small_and_loads_nothing() -> None:
    """A picture on somebody else's page must not load fonts."""
    svg = PICTURE.read_text()
    assert len(svg) < 150_000
    assert "url(http" not in svg
    assert said(svg).endswith("This controller: each pod in its time, none by mistake Everything went as expected.")
