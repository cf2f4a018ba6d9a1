"""What keeps pods Terminating, as people read it at a terminal and in a pipe."""

from typing import Any

import click
import pytest

from taint_eviction_ctl.cli.failover_views import failover_lines, stuck_lines, terminating_line
from taint_eviction_ctl.failover.cluster import Terminating

COMMAND = "kubectl taint nodes ip-10-0-3-17.eu-central-1.compute.internal node.kubernetes.io/out-of-service=x:NoExecute"


def step(number: int = 1, command: str | None = None) -> dict[str, Any]:
    """Make a finding."""
    does = f"step {number}"
    steps = [{"when": "next", "text": does, "command": command}]
    return {"cause": "kubeletSilent", "text": f"text {number}", "next": does, "command": command, "steps": steps}


def held(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make the document of a pod with these findings."""
    known = {"terminating": True, "terminatingSeconds": 430, "askedToGoAt": "2030-01-01T00:00:00Z", "unchecked": []}
    return {**known, "namespace": "shop", "name": "db-0", "node": "n1", "findings": list(findings), **more}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be at a terminal of 80 columns."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")


def test_findings_are_numbered_and_the_command_has_a_line_of_its_own() -> None:
    """In a pipe each sentence is one line, however long it is."""
    long = {**step(1, COMMAND), "text": "text " * 40 + "end"}
    assert failover_lines(held(long, step(2))) == [
        "",
        click.style("it has been Terminating for 7 m 10 s, asked to go at 2030-01-01 00:00:00 UTC:", bold=True),
        f"  1. {'text ' * 40}end",
        "     next: step 1",
        f"       {click.style(COMMAND, fg='cyan')}",
        "  2. text 2",
        "     next: step 2",
    ]


@pytest.mark.usefixtures("terminal")
def test_a_terminal_wraps_sentences_but_never_a_command() -> None:
    """A command on one line can be copied as a whole."""
    lines = [click.unstyle(line) for line in failover_lines(held({**step(1, COMMAND), "text": "text " * 40}))]
    assert lines.count(f"       {COMMAND}") == 1
    assert max(len(line) for line in lines if COMMAND not in line) <= 80
    assert lines[3].startswith("     text text")


def test_nothing_is_said_of_a_pod_that_is_not_terminating() -> None:
    """Such a pod may not exist at all."""
    assert failover_lines(held(terminating=False)) == []


def test_a_pod_that_could_not_be_read_has_a_line() -> None:
    """The line says why the pod could not be read."""
    [line] = failover_lines(held(terminating=None, unchecked=["Pods: you may not get them"]))
    assert line == "  not checked: whether the pod is Terminating, and what holds it: Pods: you may not get them"


def test_a_step_for_many_pods_is_shown_once_and_many_steps_are_cut() -> None:
    """The steps that are left out are counted."""
    same = stuck_lines({"pods": [held(step()), held(step(), name="db-1")], "outOfServiceNodes": [], "unchecked": []})
    assert [line for line in same if "step" in line] == ["    next: step 1"]
    pods = [held(step(number), name=f"db-{number}") for number in range(9)]
    lines = stuck_lines({"pods": pods, "outOfServiceNodes": [], "unchecked": ["Nodes: you may not list them"]})
    assert sum("next: " in line for line in lines) == 5
    assert lines[-2:] == [
        "  … and 4 other first steps; see explain NAMESPACE/POD",
        "  not checked: Nodes: you may not list them",
    ]


def test_the_last_step_is_to_remove_the_taint_or_the_node() -> None:
    """Both are named where nothing is stuck any more; for other nodes the first steps say it."""
    command = "kubectl taint nodes n1 node.kubernetes.io/out-of-service-"
    lines = stuck_lines({"pods": [], "outOfServiceNodes": ["n1"], "unchecked": []})
    assert [click.unstyle(line) for line in lines] == [
        "no pod is stuck Terminating",
        "",
        "n1 has the taint node.kubernetes.io/out-of-service",
        "  if the machine returns: remove the taint once n1 is Ready again, not before: PodGC would no longer end the"
        " pods that are Terminating there",
        f"    {command}",
        "  if it is lost: delete the node once no pod is Terminating there",
        "    kubectl delete node n1",
    ]
    stuck = stuck_lines({"pods": [held(step())], "outOfServiceNodes": ["n1"], "unchecked": []})
    assert not any(command in line for line in stuck)


def test_the_line_of_the_status_names_the_nodes_with_most_pods() -> None:
    """The line also says what could not be read."""
    assert terminating_line(Terminating({}, ())) == ""
    assert terminating_line(Terminating({"a": 1, "b": 3}, ())) == (
        "4 pods Terminating on nodes that are not Ready: b (3), a (1); see status --stuck"
    )
    many = terminating_line(Terminating({f"n{number:02}": 1 for number in range(12)}, ("Nodes: not all",)))
    assert many.endswith("n09 (1), …; see status --stuck; Nodes: not all")
    assert terminating_line(Terminating({}, ("Nodes: not all",))) == "Nodes: not all"


def test_the_line_of_the_status_names_the_nodes_that_are_left_out_of_service() -> None:
    """Once all pods are gone, somebody still has to end it."""
    left = "a has the taint node.kubernetes.io/out-of-service: status --stuck says how that ends"
    assert terminating_line(Terminating({}, (), ("a",))) == left
    some = terminating_line(Terminating({"b": 3}, ("Nodes: not all",), ("a",)))
    assert some == f"3 pods Terminating on nodes that are not Ready: b (3); see status --stuck; {left}; Nodes: not all"
