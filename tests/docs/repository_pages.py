"""A hook of MkDocs: texts and links of the repository become pages and links of the site.

Texts that live beside what they describe are pages of the site without being copied. A link to another file of the
repository leads to a copy of it in the site. So every link is checked, and none needs an address of the repository.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

# File of the repository: its page.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ROADMAP.md": "roadmap.md",
    "SECURITY.md": "reporting.md",
    "manifests/chart/README.md": "reference/chart-values.md",
    "manifests/POLICY.md": "reference/policy-file.md",
    "manifests/README.md": "install/manifests.md",
    "operator/fake_apiserver/README.md": "fake-apiserver.md",
    "tests/bench/README.md": "benchmarks.md",
    "tests/scenarios/README.md": "reference/scenario-files.md",
    "tests/simulation/MUTANTS.md": "mutants.md",
    "tests/simulation/README.md": "explorations.md",
}

GLOSSARY = "glossary.md"
# Terms that are also words of other meanings, or in nearly every sentence.
_TOO_COMMON = {"open", "late", "due", "hold", "guard", "to evict", "to mark", "to cancel", "budget"}

_FENCE = re.compile(r"^\s*```")
_ITEM = re.compile(r"(?:-|\d+\.) ")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is text rather than code."""
    code = False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        yield line, not (code or fence)
        code ^= fence


def indented(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line, with list items' further lines indented by four spaces, as MkDocs wants; GitHub takes fewer."""
    missing, code = 0, False
    for line in lines:
        top = not line.startswith(" ")
        if line and top and not code:
            item = _ITEM.match(line)
            missing = 4 - len(item[0]) if item else 0
        if _FENCE.match(line):
            code ^= True
        yield line if top else " " * missing + line


def terms(glossary: str) -> dict[str, str]:
    """Return the anchor of each term of the glossary, by the term as texts write it."""
    rows = re.findall(r"^\| (?:<a id=\"[^\"]*\"></a>)?\*\*(.*?)\*\* \|", glossary, re.MULTILINE)
    named = {term.strip(): row for row in rows for term in row.split(",")}
    return {term: anchor(row) for term, row in named.items() if term not in _TOO_COMMON and not term.startswith("to ")}


def anchor(row: str) -> str:
    """Return the anchor of a row of the glossary."""
    return "term-" + re.sub(r"\W+", "-", row.partition(",")[0])


def with_terms(lines: Sequence[tuple[str, bool]], known: dict[str, str], glossary: str) -> Iterator[str]:
    """Yield lines, in which each term is a link to the glossary where it first stands in a paragraph's text."""
    left = dict(known)
    for line, is_text in lines:
        changed = line
        if is_text and line and not line.startswith(("#", "|", "    ", "<", "!")) and "](" not in line:
            for term in list(left):
                # Neither inside code, emphasis or another link, nor a part of a longer word.
                found = re.search(rf"(?<![\w`*/.\[-]){term}(?![\w`*/\]-])", re.sub(r"`[^`]*`", _blank, changed))
                if found:
                    linked = f"[{term}]({glossary}#{left[term]})"
                    changed = f"{changed[: found.start()]}{linked}{changed[found.end() :]}"
                    left = {other: at for other, at in left.items() if at != left[term]}
                    break
        yield changed


def _blank(code: re.Match[str]) -> str:
    return " " * len(code[0])


def _source(uri: str) -> str:
    """Return the file of the repository that a page is made from."""
    return {page: file for file, page in PAGES.items()}.get(uri, f"docs/{uri}")


def _file(source: str, link: str) -> str:
    """Return the file of the repository that a link leads to."""
    path = link.partition("#")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source


def _target(source: str, link: str) -> str | None:
    """Return where a link leads to, within the site; None for one that leads elsewhere or nowhere."""
    if "://" in link:
        return None
    file, anchor = _file(source, link), link.partition("#")[2]
    page: str | None
    if file in PAGES:
        page = PAGES[file]
    elif file.startswith("docs/"):
        page = file.removeprefix("docs/")
    else:
        page = _copy(file) if (ROOT / file).is_file() else None
    return f"{page}#{anchor}" if page and anchor else page


def _copy(file: str) -> str:
    """Return the page that shows a file as it is. MkDocs leaves out names that begin with a dot."""
    return "source/" + file.replace("/.", "/").removeprefix(".") + ".txt"


def _links(text: str) -> Iterator[str]:
    for line, is_text in _lines(text):
        if is_text:
            yield from _LINK.findall(line)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the files that any page links to."""
    texts = {file.src_uri: file.content_string for file in files if file.is_documentation_page()}
    added = {page: (ROOT / file).read_text(encoding="utf-8") for file, page in PAGES.items()}
    for uri, text in (texts | added).items():
        source = _source(uri)
        for link in _links(text):
            file = _file(source, link)
            if _target(source, link) == _copy(file):
                added[_copy(file)] = (ROOT / file).read_text(encoding="utf-8")
    for uri, text in added.items():
        files.append(File.generated(config, uri, content=text))
    return files


def _with_anchor(row: re.Match[str]) -> str:
    return f'| <a id="{anchor(row[1])}"></a>**{row[1]}**'


_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_COMMAND = re.compile(r"<code>([^<]* [^<]*)</code>")
_CODE = re.compile(r"<code>.*?</code>", re.DOTALL)
# Not in a tag, nor the rest of a longer word.
_FLAG = re.compile(r"(?<![\w<-])--[a-z][\w-]*(?![^<]*>)")


def on_page_content(html: str, **_: Any) -> str:
    """Let a command go on in the next line between its words, in tables, too, and never within a flag."""

    def with_words(command: re.Match[str]) -> str:
        return f"<code>{' '.join(f'<span>{word}</span>' for word in command[1].split(' '))}</code>"

    html = _CELL.sub(lambda cell: _COMMAND.sub(with_words, cell[0]), html)
    return _CODE.sub(lambda code: _FLAG.sub(r'<span class="flag">\g<0></span>', code[0]), html)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Make links of the repository links of the site."""
    uri = page.file.src_uri

    def rewritten(match: re.Match[str]) -> str:
        target = _target(_source(uri), match[1])
        if target is None:
            return match[0]
        path, hash_, anchor = target.partition("#")
        return f"]({posixpath.relpath(path, posixpath.dirname(uri) or '.')}{hash_}{anchor})"

    rewritten_lines = [(_LINK.sub(rewritten, line) if is_text else line, is_text) for line, is_text in _lines(markdown)]
    if uri == GLOSSARY:
        lines = [re.sub(r"^\| \*\*(.*?)\*\*", _with_anchor, line) for line, _ in rewritten_lines]
    else:
        glossary = (ROOT / "docs" / GLOSSARY).read_text(encoding="utf-8")
        to_glossary = posixpath.relpath(GLOSSARY, posixpath.dirname(uri) or ".")
        lines = list(with_terms(rewritten_lines, terms(glossary), to_glossary))
    return "\n".join(indented(lines))
