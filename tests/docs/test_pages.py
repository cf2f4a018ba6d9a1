"""Pages that people read first are short, and what they refer to is linked."""

import re
from pathlib import Path

import pytest
from tests.docs.outputs import PAGES, with_outputs

from taint_eviction.core.breaker_policy import BreakerPolicy

ROOT = Path(__file__).parents[2]
FRONT_PAGE = ROOT / "README.md"

_MAX_LINES = 130


def test_the_front_page_is_short() -> None:
    """A topic that needs more room has a page of its own."""
    assert len(FRONT_PAGE.read_text(encoding="utf-8").splitlines()) <= _MAX_LINES


def test_the_index_of_the_manifests_is_short() -> None:
    """Each task has a page of its own in docs/."""
    assert len((ROOT / "manifests/README.md").read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.parametrize("page", sorted((ROOT / "docs/tasks").glob("*.md")), ids=lambda page: str(page.name))
def test_a_task_is_read_in_a_few_minutes(page: Path) -> None:
    """A page is about one task, and has at most 100 lines."""
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_issue_is_a_link(page: Path) -> None:
    """Readers need not find out to which repository a number belongs."""
    assert re.findall(r"(?<![\[\w/ ])#\d{4,}|(?<!PR) #\d{4,}", page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_show_what_commands_print(page: Path) -> None:
    """If this fails: run ``python -m tests.docs.outputs``, and look at the difference."""
    text = page.read_text(encoding="utf-8")
    assert with_outputs(text) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_stand_without_comments(page: Path) -> None:
    """What is said of a command is text, which wraps; beside a long command it would be cut."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if re.search(r"\S\s+# ", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_outputs_have_full_dates(page: Path) -> None:
    """Commands print no time without its day, so no page shows one."""
    assert re.findall(r"(?<![T\d-])\d\d:\d\d:\d\d(?:\.\d+)?Z", page.read_text(encoding="utf-8")) == []


def test_each_answer_to_an_approver_has_its_proof() -> None:
    """The last cell of each row is a link, or a dash where there is nothing to prove."""
    page = (ROOT / "docs/approve.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 40
    assert [row for row in rows if len(row) != 3 or not ("](" in row[2] or row[2] in ("–", "proof"))] == []


def test_why_answers_ten_objections_with_links() -> None:
    """Readers can check each answer."""
    page = (ROOT / "docs/why.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*.*\* \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 10
    assert all("](" in row for row in rows)


def test_the_first_page_leads_into_an_incident() -> None:
    """Somebody who is on call finds the page of the three usual questions in the first table."""
    rows = [line for line in (ROOT / "docs/index.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for question, page in (
        ("a pod disappeared", "tasks/see.md#why-was-it-evicted-at-312"),
        ("stuck Terminating", "tasks/terminating.md"),
        ("many nodes tainted", "runbook.md#let-one-zone-go-first"),
    ):
        assert any(question in row and f"({page})" in row for row in rows)


def test_the_page_about_deadlines_names_the_wait_of_the_breaker() -> None:
    """A pod that is due leaves later by it, as a rule."""
    settle = BreakerPolicy().settle_seconds
    page = (ROOT / "docs/concepts/deadlines.md").read_text(encoding="utf-8")
    assert f"waits {settle:g} s after its deadline\n(`--breaker-settle`)" in page


def test_an_approver_reads_the_shares_that_open_the_breaker() -> None:
    """A lost node counts towards another share than a tainted one: what holds for one need not hold for the other."""
    breaker = BreakerPolicy()
    assert breaker.lifecycle_nodes is not None
    tainted, lost = breaker.nodes.percent, breaker.lifecycle_nodes.percent
    shares = f"{tainted:g} % are newly tainted or more than {lost:g} % are lost"
    assert f"more than {shares}, nothing is evicted" in (ROOT / "docs/approve.md").read_text(encoding="utf-8")


def test_an_approver_reads_what_the_admission_policy_costs_others() -> None:
    """The API server looks at everybody's writes of these kinds, to find those of one account."""
    [row] = [
        line
        for line in (ROOT / "docs/approve.md").read_text(encoding="utf-8").splitlines()
        if "operations slower?" in line
    ]
    assert "security.md#what-the-policy-costs" in row
    assert "\n### What the policy costs\n" in (ROOT / "docs/security.md").read_text(encoding="utf-8")
