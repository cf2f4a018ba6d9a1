"""What holds pods that are Terminating, for people: the first step comes first."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import click

from taint_eviction.core.objects import OUT_OF_SERVICE
from taint_eviction.core.text import many
from taint_eviction_ctl.cli.tables import table_lines, wrapped
from taint_eviction_ctl.failover.cluster import Terminating
from taint_eviction_ctl.failover.wording import ends
from taint_eviction_ctl.planning.wording import span, utc

_HEADER = ("SINCE", "POD", "CAUSES")
# How many different first steps are shown per node.
_MAX_STEPS = 5
_MAX_NODES = 10

PodJson = Mapping[str, Any]


def failover_lines(held: PodJson) -> list[str]:
    """Return lines on what holds one pod; none if its deletion was not requested."""
    if held["terminating"] is None:
        return _not_checked([f"whether the pod is Terminating, and what holds it: {why}" for why in held["unchecked"]])
    if not held["terminating"]:
        return []
    since = f" for {span(held['terminatingSeconds'])}" if held["terminatingSeconds"] is not None else ""
    lines = ["", click.style(f"it has been Terminating{since}, asked to go at {utc(held['askedToGoAt'])}:", bold=True)]
    for number, finding in enumerate(held["findings"], 1):
        lines += _step(finding, f"  {number}. ")
    return [*lines, *_not_checked(held["unchecked"])]


def stuck_lines(document: Mapping[str, Any]) -> list[str]:
    """Return lines on the pods that are stuck, by node."""
    pods = document["pods"]
    if not pods:
        return ["no pod is stuck Terminating", *_left_tainted(document), *_not_checked(document["unchecked"])]
    by_node = [(node, list(held)) for node, held in groupby(pods, key=lambda pod: pod["node"])]
    lines = [click.style(f"{many(len(pods), 'pod')} stuck Terminating on {many(len(by_node), 'node')}", bold=True)]
    for node, held in by_node:
        lines += ["", click.style(f"{node or 'no node'}: {many(len(held), 'pod')}", bold=True)]
        rows = [(span(pod["terminatingSeconds"] or 0), _pod(pod), _causes(pod["findings"])) for pod in held]
        lines += [*table_lines(_HEADER, rows), *_first_steps(held)]
    return [*lines, *_left_tainted(document), *_not_checked(document["unchecked"])]


def _left_tainted(document: Mapping[str, Any]) -> list[str]:
    """Return how it ends with nodes with the taint out-of-service on which no pod is stuck (any more)."""
    stuck = {pod["node"] for pod in document["pods"]}
    lines = []
    for node in (node for node in document["outOfServiceNodes"] if node not in stuck):
        lines += ["", *wrapped(f"{node} has the taint {OUT_OF_SERVICE}", "", "  ")]
        lines += [line for step in ends(node) for line in _step_lines(str(step), step.command, "  ")]
    return lines


def terminating_line(found: Terminating) -> str:
    """Count pods Terminating on nodes that are not Ready, and name those that are left out of service; "" if there are
    none, and everything was read.
    """
    unchecked = "".join(f"; {sentence}" for sentence in found.unchecked)
    if out := found.out_of_service:
        named = ", ".join(out[:_MAX_NODES]) + (", …" if out[_MAX_NODES:] else "")
        has = "has" if len(out) == 1 else "have"
        unchecked = f"; {named} {has} the taint {OUT_OF_SERVICE}: status --stuck says how that ends{unchecked}"
    if not found.by_node:
        return unchecked.removeprefix("; ")
    most = sorted(found.by_node.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{node} ({count})" for node, count in most[:_MAX_NODES]) + (", …" if most[_MAX_NODES:] else "")
    pods = many(sum(found.by_node.values()), "pod")
    return f"{pods} Terminating on nodes that are not Ready: {named}; see status --stuck{unchecked}"


def _pod(pod: PodJson) -> str:
    return f"{pod['namespace']}/{pod['name']}"


def _causes(findings: Sequence[PodJson]) -> str:
    """Return the names of causes, as in ``kubelet silent``."""
    return ", ".join(dict.fromkeys(re.sub(r"(?=[A-Z])", " ", finding["cause"]).lower() for finding in findings))


def _first_steps(held: Sequence[PodJson]) -> list[str]:
    """Return the first step of each pod, only once if several pods have the same."""
    steps = {(first["next"], first["command"], first["text"]): first for pod in held for first in pod["findings"][:1]}
    lines = [line for step in list(steps.values())[:_MAX_STEPS] for line in _step(step, "  - ")]
    left = len(steps) - _MAX_STEPS
    return [*lines, f"  … and {many(left, 'other first step')}; see explain NAMESPACE/POD"] if left > 0 else lines


def _step(finding: PodJson, head: str) -> list[str]:
    """Return the lines of a finding: the text, then each thing to do."""
    indent = " " * len(head)
    steps = [(f"{step['when']}: {step['text']}", step["command"]) for step in finding["steps"]]
    return [
        *wrapped(finding["text"], head, indent),
        *(line for text, command in steps for line in _step_lines(text, command, indent)),
    ]


def _step_lines(text: str, command: str | None, indent: str) -> list[str]:
    """Return the lines of one thing to do, with its command on a line of its own."""
    said = wrapped(text, indent, f"{indent}  ")
    return [*said, f"{indent}  {click.style(command, fg='cyan')}"] if command else said


def _not_checked(sentences: Sequence[str]) -> list[str]:
    return [line for each in sentences for line in wrapped(f"not checked: {each}", "  ", "    ")]
