"""``taint-eviction plan``: which pods leave, now or after hypothetical changes, from files or from a cluster.

Changes nothing. ``core.forecast`` decides what happens to each pod; ``planning.plan`` adds it up.
"""

import asyncio
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.run_flags import deciding_flags
from taint_eviction.cli.run_settings import read_deciding_settings
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.instants import Moment
from taint_eviction.core.text import did_you_mean, many
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.policy_file import read_policy_file
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.runtime.clock import read_wall
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction_ctl.cli.asking import located
from taint_eviction_ctl.cli.control_state import held_back, state_flags
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import NO_HEADERS_FLAG, output_flag, repeated_flag, verb
from taint_eviction_ctl.cli.pictures import html_option, write_page
from taint_eviction_ctl.cli.plan_views import print_plan
from taint_eviction_ctl.cli.progress import Progress
from taint_eviction_ctl.cli.reaching import reaching
from taint_eviction_ctl.cli.values import NODE_KINDS, ZONE_KINDS, When
from taint_eviction_ctl.picture.of_plan import picture_of_plan
from taint_eviction_ctl.planning.adoption import add_adoption
from taint_eviction_ctl.planning.changes import (
    Changes,
    WrongChange,
    apply_changes,
    read_selector,
    read_taint,
    read_tolerating,
    read_untaint,
    with_chosen_nodes,
)
from taint_eviction_ctl.planning.cluster import read_cluster, try_evictions
from taint_eviction_ctl.planning.document import plan_document
from taint_eviction_ctl.planning.files import STDIN, read_files
from taint_eviction_ctl.planning.gates import ANY, PlanGate, read_gate
from taint_eviction_ctl.planning.holding import add_holders
from taint_eviction_ctl.planning.inventory import Inventory
from taint_eviction_ctl.planning.plan import Plan, make_plan
from taint_eviction_ctl.planning.rehearsal import Conditions
from taint_eviction_ctl.planning.wording import moment, skipped_kinds

# Arguments that kubectl taint takes where plan takes files.
_TAINT = re.compile(r"[^=:]+(=[^:]*)?:(NoExecute|NoSchedule|PreferNoSchedule)-?")
_NODE = re.compile(r"(?!.*\.(json|ya?ml)$)[a-z0-9][a-z0-9.-]*")


@verb()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(allow_dash=True))
@repeated_flag(
    "--taint", metavar="NODE=KEY[=VALUE]:EFFECT", help="Add a taint. NODE may be a pattern like * or 'worker-*'."
)
@repeated_flag("--untaint", metavar="NODE=KEY[:EFFECT]", help="Remove a taint.")
@repeated_flag("--delete-node", metavar="NODE", help="Delete a node.")
@repeated_flag(
    "--toleration",
    nargs=2,
    metavar="[NAMESPACE/]SELECTOR TOLERATION",
    help="Give pods a toleration, as in: --toleration app=web 'maintenance:NoExecute for 10m'.",
)
@flag("--namespace", "-n", help="Plan for the pods of this namespace only.")
@flag("--all-namespaces", "-A", is_flag=True, help="Plan for the pods of all namespaces, as without -n.")
@flag(
    "--selector",
    "-l",
    default="",
    help="Patterns match only nodes with these labels. Beside it, --taint KEY[=VALUE]:EFFECT means all of these.",
)
@repeated_flag("--zone", metavar="ZONE", help="Patterns match only nodes in this zone; may be given again.")
@flag("--at", type=When(), help="When the changes are made: a time, or a duration from now.  [default: now]")
@flag(
    "--now", type=When(), help="When the files were written; running tolerances are counted from then.  [default: now]"
)
@flag(
    "--adopt", is_flag=True, help="Say whose countdowns are taken over, and which pods the built-in controller evicts."
)
@flag("--adopt-from", type=Seconds(), default=10.0, help="Leave shorter tolerances to the built-in one.")
@deciding_flags
@state_flags
@flag("--call-timeout", type=Seconds(), default=30.0, help="Timeout of each API call.")
@output_flag("table", "wide", "json", "yaml", text="wide: every pod.")
@NO_HEADERS_FLAG
@html_option
@flag("--exit-code", is_flag=True, help="Exit with 1 if any pod would be evicted.")
@repeated_flag(
    "--fail-on",
    metavar="budget|bare-pod|more-than=N[%]",
    help="Exit with 1 if the plan violates this; may be given again.",
)
def plan(files: tuple[str, ...], **flags: Any) -> None:
    """Show which pods would leave, and when.

    Also shows why, and which PodDisruptionBudgets that would violate. Changes nothing.

    Reads FILEs (- is stdin) with the output of `kubectl get nodes,pods,pdb -A -o json`; without FILEs, reads the
    cluster. YAML is read, too, about ten times slower. Without changes, shows what will happen as things are.

    What `kubectl taint nodes -l pool=web maintenance=now:NoExecute` would do is shown by
    `taint-eviction plan -l pool=web --taint maintenance=now:NoExecute`.

    Exit codes: 0 fine; 1 the plan has what --exit-code or --fail-on forbid; 2 wrong usage or malformed input; 3 the API
    server cannot be reached.
    """
    set_up_logging("text", "warning")
    try:
        changes, settings = _read_changes(flags), _read_settings(flags)
        gates = [*map(read_gate, flags["fail_on"]), *([ANY] if flags["exit_code"] else [])]
        making = (changes, settings, flags)
        made = _from_files(files, *making) if files else asyncio.run(_from_cluster(*making))
    except Malformed as malformed:
        give_up(ExitCode.USAGE, *map(str, malformed.problems))
    except (ValueError, CredentialsError) as error:
        give_up(ExitCode.USAGE, str(error))
    except CallFailed as error:
        give_up(ExitCode.UNREACHABLE, str(error))
    try:
        _show(made, flags)
    except BrokenPipeError:
        # The reader has closed the pipe; the gates still count.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_exit_code(made, gates))


def _read_settings(flags: dict[str, Any]) -> Settings:
    settings = read_deciding_settings(flags)
    if problems := settings.problems():
        raise WrongChange("; ".join(problems))
    return replace(settings, policy=read_policy_file(flags["config"], settings.policy)) if flags["config"] else settings


def _read_changes(flags: dict[str, Any]) -> Changes:
    chosen = bool(flags["selector"] or flags["zone"])
    return Changes(
        tuple(read_taint(text, chosen) for text in flags["taint"]),
        tuple(read_untaint(text, chosen) for text in flags["untaint"]),
        tuple(flags["delete_node"]),
        tuple(read_tolerating(chosen, text) for chosen, text in flags["toleration"]),
        read_selector(flags["selector"]),
        frozenset(flags["zone"]),
    )


# From files


def _from_files(files: tuple[str, ...], changes: Changes, settings: Settings, flags: dict[str, Any]) -> Plan:
    if files.count(STDIN) > 1:
        raise WrongChange("- is stdin, which can be read only once")
    progress = Progress()
    inventory = read_files(files, sys.stdin.buffer, progress)
    progress.done(len(inventory))
    if not len(inventory):
        skipped = f" (skipped: {kinds})" if (kinds := skipped_kinds(inventory)) else ""
        nothing = f"there is no node, pod or budget in {', '.join(files)}{skipped}"
        give_up(ExitCode.USAGE, *inventory.problems, nothing, *_meant(files))
    wall = read_wall()
    epoch = _instant(flags["now"], wall)
    made = _plan(inventory, changes, settings, Moment(epoch, epoch), flags)
    _say_who_holds(made, ControlState(), settings, flags)
    made.asked = _asked(made, ", ".join("stdin" if file == STDIN else file for file in files), flags)
    return made


def _meant(files: tuple[str, ...]) -> list[str]:
    """Return how to count the pods of a zone, or how to plan a taint, where nodes and taints were given as
    `kubectl taint` takes them.
    """
    if zones := [name for name in files if name.partition("/")[0] in ZONE_KINDS]:
        return [f"how many pods would leave if it were let go: taint-eviction resume {' '.join(zones)} --dry-run"]
    taints = [name.removesuffix("-") for name in files if _TAINT.fullmatch(name)]
    others = [name for name in files if not _TAINT.fullmatch(name) and not Path(name).exists()]
    nodes = [node for name in others if _NODE.fullmatch(node := name.rpartition("/")[2]) and node not in NODE_KINDS]
    if not nodes and not taints:
        return []
    node, taint = nodes[0] if nodes else "NODE", taints[0] if taints else "KEY=VALUE:NoExecute"
    of_some = f", or -l SELECTOR --taint '{taint}'" if not nodes else ""
    return [f"to plan a taint: --taint '{node}={taint}'{of_some}"]


def _plan(inventory: Inventory, changes: Changes, settings: Settings, now: Moment, flags: dict[str, Any]) -> Plan:
    at = now.instant_of(_instant(flags["at"], now.server_epoch))
    if at < now.at:
        raise WrongChange("--at is in the past: changes can only be made now or later")
    if namespace := _namespace(flags):
        present = sorted({key.namespace for key in inventory.pods})
        inventory.keep_namespace(namespace)
        inventory.notes.append(f"only namespace {namespace} is planned")
        if not inventory.pods and not inventory.problems:
            raise WrongChange(f"there is no pod in namespace {namespace!r}{did_you_mean(namespace, present)}")
    if not inventory.pods and not inventory.problems:
        nodes = f"{many(len(inventory.nodes), 'node')} and {many(len(inventory.budgets), 'budget')}"
        raise WrongChange(f"there is no pod among the objects that were read ({nodes}): a plan of none says nothing")
    changes = with_chosen_nodes(changes, inventory)
    what_if = apply_changes(changes, inventory, at)
    made = make_plan(inventory, what_if, changes.described(), now, settings.decisions, settings.policy)
    return made


def _asked(made: Plan, source: str, flags: dict[str, Any]) -> str:
    """Return the question of the plan, and its input, in words."""
    parts = ["; ".join(made.described) or "what happens as things are"]
    parts += [f"on nodes with the labels {flags['selector']}"] if flags["selector"] else []
    parts += [f"in {many(len(flags['zone']), 'zone')}: {', '.join(flags['zone'])}"] if flags["zone"] else []
    parts += [f"at {moment(made.what_if.at, made.now)}"] if flags["at"] is not None else []
    nodes, pods = many(len(made.inventory.nodes), "node"), many(len(made.inventory.pods), "pod")
    parts += [f"with --eviction-mode={made.mode.value}", f"in {source} ({nodes}, {pods})"]
    return "; ".join(parts)


def _namespace(flags: dict[str, Any]) -> str:
    return "" if flags["all_namespaces"] else flags["namespace"] or ""


def _instant(when: tuple[bool, float] | None, now: float) -> float:
    """Return seconds since the epoch."""
    if when is None:
        return now
    relative, seconds = when
    return now + seconds if relative else seconds


# From a cluster


async def _from_cluster(changes: Changes, settings: Settings, flags: dict[str, Any]) -> Plan:
    if flags["now"] is not None:
        raise WrongChange("--now is for files: a cluster has its own clock")
    progress = Progress()
    async with reaching(flags, flags["call_timeout"]) as cluster:
        try:
            keys = settings.policy.label_keys | changes.label_keys
            inventory = await read_cluster(cluster.calls, progress, _namespace(flags), keys)
        except CallFailed as error:
            raise located(cluster.where, error) from error
        await cluster.learn_time()
        progress.done(len(inventory))
        made = _plan(inventory, changes, settings, cluster.clock.now(), flags)
        made.asked = _asked(made, cluster.where, flags)
        await try_evictions(cluster.calls, made)
        state = StateConfigMap(cluster.calls, flags["lease_namespace"], flags["lease_name"])
        await _add_holds(made, state, settings, flags)
        return made


async def _add_holds(made: Plan, state: StateConfigMap, settings: Settings, flags: dict[str, Any]) -> None:
    """Note the pauses and an open breaker, and what they hold."""
    try:
        control_state = (await state.read() or ControlState()).at(made.now.server_epoch)
    except CallFailed as error:
        made.notes.append(f"whether evictions are paused is not known: {state}: {error}")
        _say_who_holds(made, ControlState(), settings, flags)
        return
    before = len(made.notes)
    _say_who_holds(made, control_state, settings, flags)
    passing = any(pod.out_of_service and not pod.holders for pod in made.leaving)
    held = held_back(control_state, passing="from nodes that are out of service" if passing else "")
    made.notes[before:before] = held


def _say_who_holds(made: Plan, control_state: ControlState, settings: Settings, flags: dict[str, Any]) -> None:
    """Note which pods the built-in controller evicts, and what holds pods that would leave."""
    if flags["adopt"]:
        add_adoption(made, flags["adopt_from"], stopped=control_state.no_adoption is not None)
    add_holders(made, Conditions(settings.decisions, settings.policy, settings.breaker, control_state))


# Output


def _show(made: Plan, flags: dict[str, Any]) -> None:
    # Before anything is printed: `| head` may close the pipe.
    if flags["html"]:
        write_page(flags["html"], picture_of_plan(made))
    match flags["output"]:
        case "json" | "yaml" as output:
            echo_document(plan_document(made), output)
        case output:
            print_plan(made, wide=output == "wide")
    inventory = made.inventory
    for sentences, count in ((inventory.problems, inventory.unread), (inventory.complaints, inventory.complained)):
        more = [f"… and {count - len(sentences)} more like these"] if count > len(sentences) else []
        for sentence in [*sentences, *more]:
            complain(sentence)


def _exit_code(made: Plan, gates: list[PlanGate]) -> ExitCode:
    if not made.complete:
        return ExitCode.USAGE
    failures = [failure for gate in gates if (failure := gate.failure(made)) is not None]
    for failure in failures:
        complain(failure)
    return ExitCode.FAILED if failures else ExitCode.OK
