"""A hook of MkDocs: texts and links of the repository become pages and links of the site.

Texts that live beside what they describe are pages of the site without being copied; the long page about the manifests
becomes a page for each of its sections. A link to another file of the repository leads to a copy of it in the site. So
every link is checked, and none needs an address of the repository.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

# File of the repository: its page.
WHOLE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "manifests/POLICY.md": "reference/policy-file.md",
    "tests/bench/README.md": "benchmarks.md",
    "tests/scenarios/README.md": "reference/scenario-files.md",
    "tests/simulation/MUTANTS.md": "mutants.md",
    "tests/simulation/README.md": "explorations.md",
}
# Sections of MANIFESTS, by the anchors of their headings; "" is what stands before the first.
MANIFESTS = "manifests/README.md"
SECTIONS = {
    "": "install/manifests.md",
    "switch-over": "tasks/switch-over.md",
    "switch-back": "tasks/switch-back.md",
    "holding-evictions-back": "tasks/hold-back.md",
    "see-what-it-does": "tasks/see.md",
    "a-pod-stays-terminating": "tasks/terminating.md",
    "break-glass-nothing-evicts": "tasks/break-glass.md",
    "as-a-static-pod": "install/static-pod.md",
}

_FENCE = re.compile(r"^\s*```")
_HEADING = re.compile(r"^(#+) (.*)$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def sections(text: str) -> dict[str, str]:
    """Return the parts of a page between its headings of level 2, by their anchors, one level higher each."""
    parts: dict[str, list[str]] = {"": []}
    anchor = ""
    for line, is_text in _lines(text):
        heading = _HEADING.match(line) if is_text else None
        if heading and heading[1] == "##":
            anchor = _anchor(heading[2])
            parts[anchor] = []
        parts[anchor].append(line[1:] if heading and anchor else line)
    return {anchor: "\n".join(lines) + "\n" for anchor, lines in parts.items()}


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MkDocs make it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is text rather than code."""
    code = False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        yield line, not (code or fence)
        code ^= fence


def _anchors() -> dict[str, str]:
    """Return the page of each heading of MANIFESTS."""
    found = {}
    for anchor, part in sections((ROOT / MANIFESTS).read_text(encoding="utf-8")).items():
        for line, is_text in _lines(part):
            if is_text and (heading := _HEADING.match(line)):
                # A section without a page is part of none, and its links fail: SECTIONS lacks it.
                found[_anchor(heading[2])] = SECTIONS.get(anchor, "")
    return found


def _source(uri: str) -> str:
    """Return the file of the repository that a page is made from."""
    whole = {page: file for file, page in WHOLE.items()}
    return MANIFESTS if uri in SECTIONS.values() else whole.get(uri, f"docs/{uri}")


def _file(source: str, link: str) -> str:
    """Return the file of the repository that a link leads to."""
    path = link.partition("#")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source


def _target(source: str, link: str) -> str | None:
    """Return where a link leads to, within the site; None for one that leads elsewhere or nowhere."""
    if "://" in link:
        return None
    file, anchor = _file(source, link), link.partition("#")[2]
    if file == MANIFESTS:
        page = _anchors().get(anchor) if anchor else SECTIONS[""]
    elif file in WHOLE:
        page = WHOLE[file]
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
    added = {page: (ROOT / file).read_text(encoding="utf-8") for file, page in WHOLE.items()}
    parts = sections((ROOT / MANIFESTS).read_text(encoding="utf-8"))
    added |= {page: parts[anchor] for anchor, page in SECTIONS.items()}
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

    return "\n".join(_LINK.sub(rewritten, line) if is_text else line for line, is_text in _lines(markdown))
