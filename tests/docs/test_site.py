"""The site builds without a warning, and neither building nor reading it asks the internet for anything."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("material", reason="the site needs the extra docs: pip install --editable '.[docs]'")

from tests.docs.repository_pages import indented, with_terms

ROOT = Path(__file__).parents[2]

# Attributes of elements that a browser follows by itself.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# Relations of <link> that load nothing.
_NAMED_ONLY = {"canonical", "next", "prev"}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, without a way to the internet."""
    target = tmp_path_factory.mktemp("site")
    nowhere = "http://127.0.0.1:9"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "http_proxy": nowhere, "https_proxy": nowhere}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


class _Loads(HTMLParser):
    """Collects what a page makes the browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the address, if the element has one."""
        values = dict(attrs)
        address = values.get(_LOADED.get(tag, ""))
        if address and not (tag == "link" and values.get("rel") in _NAMED_ONLY):
            self.addresses.append(address)


def pages(site: Path) -> Iterator[Path]:
    """Yield the pages of the site."""
    yield from site.glob("**/*.html")


def test_the_site_has_every_page_of_the_menu(site: Path) -> None:
    """A strict build fails at a link, an anchor or an entry of the menu that leads nowhere."""
    assert len(list(pages(site))) > 30


def test_links_of_alerts_lead_to_their_sections(site: Path) -> None:
    """A pager has the link alone: with the site's address before it, it opens the page at the alert."""
    rules = (ROOT / "manifests/components/monitoring/prometheus-rule.yaml").read_text(encoding="utf-8")
    links = re.findall(r"runbook_url: https://site.invalid/(\S+)#(\S+)", rules)
    assert len(links) > 20
    for page, anchor in links:
        assert f'id="{anchor}"' in (site / page).read_text(encoding="utf-8"), anchor


def test_steps_with_commands_continue_counting(site: Path) -> None:
    """The code of a step is inside the step, so that the next step is not number 1 again."""
    page = (site / "install/static-pod.html").read_text(encoding="utf-8")
    steps = re.findall(r"<ol>.*?</ol>", page, re.DOTALL)
    assert [(step.count("<li>"), step.count("<code>") > 0) for step in steps] == [(3, True)]


def test_code_in_lists_is_indented_as_the_site_wants_it() -> None:
    """A block is moved as a whole; code outside of lists is left alone."""
    text = [
        "- a",
        "",
        "  ```sh",
        "  x \\",
        "    --y",
        "  ```",
        "",
        "1. b",
        "   c",
        "d",
        "```yaml",
        "- e:",
        "  f",
        "```",
    ]
    moved = ["- a", "", "    ```sh", "    x \\", "      --y", "    ```", "", "1. b", "    c", *text[9:]]
    assert list(indented(text)) == moved


def test_terms_lead_to_the_glossary(site: Path) -> None:
    """Each where it first stands in a page; the glossary has an anchor for each, and does not link to itself."""
    glossary = (site / "glossary.html").read_text(encoding="utf-8")
    anchors = set(re.findall(r'id="(term-[^"]*)"', glossary))
    assert "#term-" not in glossary.replace('href="#term-', "")
    links = [
        (page, found)
        for page in pages(site)
        for found in re.findall(r'href="[^"]*glossary.html#(term-[^"]*)"', page.read_text(encoding="utf-8"))
    ]
    assert {found for _, found in links} <= anchors
    assert len(links) == len(set(links))
    assert len(links) > 100


def test_a_term_is_linked_once_and_never_in_code() -> None:
    """Nor in a heading, a table, a line that has a link already, or a longer word."""
    lines = ["# A leader", "`the leader` of leaders", "see [x](y) leader", "the leader, a leader", "leader"]
    assert list(with_terms([(line, True) for line in lines], {"leader": "term-leader"}, "g.md")) == [
        *lines[:3],
        "the [leader](g.md#term-leader), a leader",
        "leader",
    ]


def test_every_page_leads_to_the_next(site: Path) -> None:
    """The pages can be read one after the other."""
    assert 'rel="next"' in (site / "quick-start.html").read_text(encoding="utf-8")
    assert "md-footer__link--next" in (site / "quick-start.html").read_text(encoding="utf-8")


def test_commands_wrap_and_are_not_cut(site: Path) -> None:
    """The style names the languages whose long lines go on below, and a block says its language."""
    style = (site / "site.css").read_text(encoding="utf-8")
    for page, language in (("tasks/break-glass.html", "sh"), ("tasks/alerts.html", "promql")):
        assert f".language-{language}" in style
        assert f'class="language-{language} highlight"' in (site / page).read_text(encoding="utf-8")


def test_outputs_wrap_where_there_is_room(site: Path) -> None:
    """The step after a sentence of 200 characters is seen without scrolling; a phone keeps the columns of tables."""
    style = (site / "site.css").read_text(encoding="utf-8")
    [wide] = re.findall(r"@media screen and \(min-width: 60em\) \{\n(.*?)\n\}", style, re.DOTALL)
    assert ".language-text code { white-space: pre-wrap;" in wide
    assert 'class="language-text highlight"' in (site / "tasks/terminating.html").read_text(encoding="utf-8")


def test_commands_wrap_between_their_words(site: Path) -> None:
    """On a phone a table of commands fits; a flag stays whole, since it is an element of its own."""
    text = (site / "tasks" / "terminating.html").read_text()
    assert "<code><span>aws</span> <span>ec2</span> <span>describe-instances</span>" in text
    text = (site / "tasks" / "see.html").read_text()
    assert '<span class="flag">--since</span>' in text
    assert '<code><span class="flag">--watch</span></code>' in text
    style = (site / "site.css").read_text()
    assert "code span, .md-typeset .flag { white-space: nowrap; }" in style
    assert "code:has(span) { white-space: normal; }" in style


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """No page loads a font, a script or a picture from another host."""
    for page in pages(site):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [address for address in loads.addresses if re.match(r"(https?:)?//", address)] == [], page


def test_styles_load_nothing_from_elsewhere(site: Path) -> None:
    """No style loads anything from another host."""
    for style in site.glob("**/*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", style.read_text(encoding="utf-8")) == []


def test_no_diagram_makes_the_theme_load_a_script(site: Path) -> None:
    """The theme would load mermaid for elements of the class mermaid."""
    for page in pages(site):
        assert not re.search(r"class=\"[^\"]*\bmermaid\b", page.read_text(encoding="utf-8")), page
