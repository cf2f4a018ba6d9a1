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
    "SECURITY.md": "reporting.md",
    "manifests/chart/README.md": "reference/chart-values.md",
    "manifests/POLICY.md": "reference/policy-file.md",
    "manifests/README.md": "install/manifests.md",
    "tests/bench/README.md": "benchmarks.md",
    "tests/scenarios/README.md": "reference/scenario-files.md",
    "tests/simulation/MUTANTS.md": "mutants.md",
    "tests/simulation/README.md": "explorations.md",
}

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


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Make links of the repository links of the site."""
    uri = page.file.src_uri

    def rewritten(match: re.Match[str]) -> str:
        target = _target(_source(uri), match[1])
        if target is None:
            return match[0]
        path, hash_, anchor = target.partition("#")
        return f"]({posixpath.relpath(path, posixpath.dirname(uri) or '.')}{hash_}{anchor})"

    lines = [_LINK.sub(rewritten, line) if is_text else line for line, is_text in _lines(markdown)]
    return "\n".join(indented(lines))
