"""``taint-eviction doctor``: what an installation needs and lacks."""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from taint_eviction.cli.connection import KUBECONFIG_FLAGS, PORT_FLAG, flag, with_flags
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.visible import visible
from taint_eviction.kube.preflight import reach
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import located
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import DOCTOR_LEASE_FLAGS, output_flag, verb
from taint_eviction_ctl.cli.reaching import reaching
from taint_eviction_ctl.cli.tables import wrapped
from taint_eviction_ctl.installation.checks import CheckResult, Installation, State

_COLOURS = {State.FINE: "green", State.WRONG: "red", State.UNCHECKED: "yellow"}
# These say nothing about an installation, and anybody may read them.
_OF_THE_CLUSTER = frozenset({"versions", "time"})
_FLAGS = (
    *KUBECONFIG_FLAGS,
    *DOCTOR_LEASE_FLAGS,
    PORT_FLAG,
    output_flag("table", "json", "yaml"),
    flag("--strict", is_flag=True, help="Exit with 1 if something is unchecked, too."),
)


@verb()
@partial(with_flags, flags=_FLAGS)
def doctor(**flags: Any) -> None:
    """Check what an installation needs: versions, replicas, leader, rights, clock, metrics, alerts.

    Also checks whether the circuit breaker is open, and whether the built-in controller is active as well. Says what to
    do about everything that is wrong. Reads with your rights and changes nothing. What you may not read is unchecked,
    and counts as neither right nor wrong, unless --strict says otherwise.

    Exit codes: 0 nothing is wrong; 1 something is, or with --strict something is unchecked; 2 wrong usage; 3 the API
    server cannot be reached, or nothing of the installation could be checked.
    """
    set_up_logging("text", "error")
    try:
        findings = asyncio.run(_examine(flags))
    except CredentialsError as error:
        give_up(ExitCode.USAGE, str(error))
    except CallFailed as error:
        give_up(ExitCode.UNREACHABLE, str(error))
    if flags["output"] == "table":
        click.echo("\n".join(_table(findings)))
    else:
        echo_document(_document(findings), flags["output"])
    sys.exit(_exit_code(findings, flags["strict"]))


def _exit_code(findings: Sequence[CheckResult], strict: bool) -> ExitCode:
    if any(finding.state is State.WRONG for finding in findings):
        return ExitCode.FAILED
    if all(each.state is State.UNCHECKED for each in findings if each.check not in _OF_THE_CLUSTER):
        return ExitCode.UNREACHABLE
    unchecked = any(finding.state is State.UNCHECKED for finding in findings)
    return ExitCode.FAILED if strict and unchecked else ExitCode.OK


async def _examine(flags: Mapping[str, Any]) -> list[CheckResult]:
    async with reaching(flags) as cluster:
        try:
            await reach(cluster.calls)
            namespace, name, port = flags["lease_namespace"], flags["lease_name"], flags["port"]
            await cluster.learn_time()
            return await Installation(cluster.calls, namespace, name, port, cluster.clock).examine()
        except CallFailed as error:
            raise located(cluster.where, error) from error


def _document(findings: Sequence[CheckResult]) -> dict[str, Any]:
    found = [
        {"check": each.check, "state": each.state.value, "found": each.found, "advice": each.advice}
        for each in findings
    ]
    return {"findings": found, "summary": _counts(findings)}


def _table(findings: Sequence[CheckResult]) -> list[str]:
    lines = []
    for each in findings:
        head = f"{each.state.value:<10}{each.check:<21}"
        [first, *more] = wrapped(visible(each.found), head, " " * len(head))
        lines += [click.style(each.state.value, fg=_COLOURS[each.state]) + first.removeprefix(each.state.value), *more]
        if each.advice:
            lines += wrapped(visible(each.advice), f"{'':<{len(head)}}→ ", f"{'':<{len(head)}}  ")
    lines.append(", ".join(f"{count} {state}" for state, count in _counts(findings).items()))
    return lines


def _counts(findings: Sequence[CheckResult]) -> dict[str, int]:
    counts = Counter(each.state.value for each in findings)
    return {state.value: counts[state.value] for state in State}
