"""The reference says what the code does: its pages are made from the code, or their names are compared with it."""

import re

import pytest
from tests.docs.reference import MAKERS, ROOT

from taint_eviction.files.policy_file import LIMITS, MATCH, RULE, TOP


@pytest.mark.parametrize("name", MAKERS)
def test_pages_made_from_the_code_are_up_to_date(name: str) -> None:
    """If this fails: run ``python -m tests.docs.reference``, and look at the difference."""
    assert (ROOT / name).read_text(encoding="utf-8") == MAKERS[name]()


def test_the_page_about_http_has_every_path() -> None:
    """The page has the paths that the controller serves, and no others."""
    served = re.findall(r'"(/\w+)"', (ROOT / "operator/taint_eviction/wiring.py").read_text(encoding="utf-8"))
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## `(/\w+)", page, re.MULTILINE)) == {*served, "/metrics"}


@pytest.mark.parametrize("key", sorted({*TOP, *RULE, *MATCH, *LIMITS}))
def test_the_page_about_the_policy_file_has_every_key(key: str) -> None:
    """These are the keys of the file, of a rule, of what a rule matches, and of its limits."""
    page = (ROOT / "manifests/POLICY.md").read_text(encoding="utf-8")
    assert re.search(rf"`{key}`|^[- ]*{key}:", page, re.MULTILINE)
