"""Texts by others are shown, not obeyed by the terminal: in the text log, and in what commands print for people."""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner
from tests.planning.shop import run
from tests.unit.builders import pod, tolerates
from tests.unit.test_reporting_explanation_document import explained
from tests.unit.test_reporting_status_document import fail, one_due, status

from taint_eviction.cli.logs import LogFormat, set_up_logging
from taint_eviction.cli.visible import complain, json_text, visible
from taint_eviction_ctl.cli.asking import put
from taint_eviction_ctl.cli.explain import explanation_lines
from taint_eviction_ctl.cli.status_views import status_lines
from taint_eviction_lab.cli.replay import replay

EVIL = "denied\x1b[2J\x1b]0;mine\x07\r\x9b31m\u202eton si"
SHOWN = r"denied\x1b[2J\x1b]0;mine\x07\r\x9b31m\u202eton si".replace(r"\r", r"\x0d")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x07\x08\x00", r"\x07\x08\x00"),
        ("over\rwritten", r"over\x0dwritten"),
        ("\x7f\x80\x9f", r"\x7f\x80\x9f"),
        ("\x85\u2028\u2029", r"\x85\u2028\u2029"),
        ("\u202e\u2066\u2069\u200e\u061c", r"\u202e\u2066\u2069\u200e\u061c"),
        ("\ud800", r"\ud800"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("schön 日本語 👩‍🚀 \\x1b", "schön 日本語 👩‍🚀 \\x1b"),
    ],
)
def test_characters_that_a_terminal_would_obey_are_escaped(text: str, shown: str) -> None:
    """These are the control characters of both sets and those that turn the writing direction; all else stays."""
    assert visible(text) == shown


def logged(log_format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the log says of an evil answer, with the traceback of an evil error."""
    root, written = logging.getLogger(), StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    set_up_logging(log_format, "info")
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("x").warning("it said: %s", EVIL, exc_info=True)
    return written.getvalue()


def test_the_text_log_escapes_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages and tracebacks are escaped, and the lines of a traceback stay lines."""
    text = logged("text", monkeypatch)
    assert text.count(SHOWN) == 2
    assert "\x1b" not in text
    assert "\nTraceback (most recent call last):\n" in text


def test_the_text_log_has_the_full_date_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is on a laptop in another zone: people read it beside the log of a pod."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        line = logged("text", monkeypatch)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC WARNING ", line)


def test_the_json_log_keeps_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON escapes by itself, so that its reader gets the original text."""
    text = logged("json", monkeypatch)
    assert json.loads(text)["message"] == f"it said: {EVIL}"
    assert "\x1b" not in text


def test_complaints_escape_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Complaints are printed on stderr."""
    complain(EVIL)
    assert capsys.readouterr().err == f"taint-eviction: {SHOWN}\n"


def poisoned(document: dict[str, Any]) -> dict[str, Any]:
    """Replace the server's words in the document by an evil text."""
    return dict(orjson.loads(orjson.dumps(document).replace(b"no (HTTP 429)", json.dumps(EVIL)[1:-1].encode())))


def test_the_status_escapes_control_characters() -> None:
    """The words of a webhook cannot change the screen; only our own styles can."""
    on = one_due()
    fail(on, None)
    on.sees(pod(tolerates(30), name="b", uid="b"))
    text = "\n".join(put(status_lines, poisoned(status(on))))
    assert SHOWN in text
    for evil in ("\x1b[2J", "\x1b]0", "\x07", "\r", "\x9b", "\u202e"):
        assert evil not in text


def test_an_explanation_escapes_control_characters() -> None:
    """The same answer is part of the explanation of a pod."""
    on = one_due()
    fail(on, None)
    text = "\n".join(put(explanation_lines, poisoned(explained(on))))
    assert SHOWN in text
    assert "\x1b]0" not in text


def evil_cluster() -> str:
    """Return a file with evil names: anybody may have written it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"a{EVIL}"}}
    guest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{EVIL}", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": node["metadata"]["name"], "containers": []},  # type: ignore[index]
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, guest]})


def test_a_plan_escapes_control_characters() -> None:
    """Names are escaped in its tables, and in what it could not read."""
    result = run("-", "--taint", "a*=k:NoExecute", stdin=evil_cluster())
    assert f"default/p{SHOWN}" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    assert "\r" not in result.stdout


@pytest.mark.parametrize("expected", ["evicted: {at: 0}", "notEvicted: true"])
def test_a_replay_escapes_control_characters(tmp_path: Path, expected: str) -> None:
    """The scenario's texts appear in its heading, its timeline and its verdicts, broken or held."""
    file = tmp_path / "evil.yaml"
    taint = "{node: n1, taints: ['k:NoExecute']}"
    file.write_text(
        'about: "x\\e[2J\\u202e"\ngiven: {nodes: [n1], pods: [{name: "p\\e[2J", nodeName: n1}]}\n'
        f'timeline: [{{at: 0, taint: {taint}}}]\nexpect: {{"p\\e[2J": {{{expected}}}}}\n'
    )
    result = CliRunner().invoke(replay, [str(file)], catch_exceptions=False)
    assert r"p\x1b[2J" in result.output
    assert r"x\x1b[2J\u202e" in result.output
    assert not {"\x1b", "\u202e"} & set(result.output)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_document_escapes_control_characters_and_keeps_values(output: str, read: Callable[[str], Any]) -> None:
    """The second set of control characters and those that turn the direction, which JSON allows, are escaped, too."""
    result = run("-", "--taint", "a*=k:NoExecute", "-o", output, stdin=evil_cluster())
    assert visible(result.stdout) == result.stdout
    assert [pod["name"] for pod in read(result.stdout)["pods"]] == [f"p{EVIL}"]


def test_an_answer_as_json_escapes_control_characters_and_keeps_values() -> None:
    """The commands status and explain print such answers."""
    text = json_text({"error": EVIL}, orjson.OPT_INDENT_2)
    assert visible(text) == text
    assert json.loads(text) == {"error": EVIL}
