"""``taint-eviction plan``: what would happen if, or will happen anyway, from files or from a cluster.

Changes nothing. Not here: what becomes of pods (``core.forecast``), and how it adds up (``planning.plan``).
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import click
import orjson
import yaml

from taint_eviction.adapters.api_calls import ApiCalls
from taint_eviction.adapters.clock_sharpening import sharpen
from taint_eviction.adapters.credentials import CredentialsError, find_connection
from taint_eviction.adapters.state_config_map import StateConfigMap
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.orders import state_flags, still_held
from taint_eviction.cli.pictures import html_option, write_page
from taint_eviction.cli.plan_values import When
from taint_eviction.cli.plan_views import print_plan
from taint_eviction.cli.progress import Progress
from taint_eviction.cli.run_flags import deciding_flags, read_deciding_settings
from taint_eviction.cli.values import Seconds
from taint_eviction.core.instants import Moment
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.policy_file import read_policy_file
from taint_eviction.picture.of_plan import picture_of_plan
from taint_eviction.planning.changes import (
    Changes,
    WrongChange,
    apply_changes,
    read_selector,
    read_taint,
    read_tolerating,
    read_untaint,
)
from taint_eviction.planning.cluster import read_cluster, try_evictions
from taint_eviction.planning.document import plan_document
from taint_eviction.planning.files import STDIN, read_files
from taint_eviction.planning.gates import ANY, Gate, read_gate
from taint_eviction.planning.inventory import Inventory
from taint_eviction.planning.plan import Plan, make_plan
from taint_eviction.planning.wording import skipped_kinds
from taint_eviction.runtime.assembly import decision_policy
from taint_eviction.runtime.clock import ServerClock, read_wall
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings

EXIT_FORESEEN, EXIT_MALFORMED, EXIT_CLUSTER = 1, 2, 3

_flag = partial(click.option, show_envvar=True, show_default=True)
# Given several times: an environment twin could not tell one from two.
_many = partial(click.option, multiple=True, allow_from_autoenv=False)


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@click.argument("files", metavar="[FILE]...", nargs=-1)
@_many("--taint", metavar="NODE=KEY[=VALUE]:EFFECT", help="Add a taint. NODE may be a pattern, as * or 'worker-*'.")
@_many("--untaint", metavar="NODE=KEY[:EFFECT]", help="Remove a taint.")
@_many("--delete-node", metavar="NODE", help="Delete a node.")
@_many(
    "--toleration",
    nargs=2,
    metavar="[NAMESPACE/]SELECTOR TOLERATION",
    help="Let pods tolerate, as in: --toleration app=web 'maintenance:NoExecute for 10m'.",
)
@_flag("--selector", "-l", default="", help="Labels of the nodes that patterns mean.")
@_many("--zone", metavar="ZONE", help="Zones of the nodes that patterns mean.")
@_flag("--at", type=When(), help="When the changes are made: a time, or a span from now.  [default: now]")
@_flag("--now", type=When(), help="When the files were written, for what has passed since.  [default: now]")
@deciding_flags
@state_flags
@_flag("--call-timeout", type=Seconds(), default=30.0, help="Longest wait for any one API call.")
@_flag("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table")
@html_option
@_flag("--exit-code", is_flag=True, help="Exit with 1 if any pod would be evicted.")
@_many("--fail-on", metavar="budget|bare-pod|more-than=N[%]", help="Exit with 1 if the plan breaks this.")
def plan(files: tuple[str, ...], **flags: Any) -> None:
    """See who would leave, when and why, and what that breaks; before anything is changed.

    Reads what `kubectl get nodes,pods,pdb -A -o json` (or yaml) printed, from FILEs or from - for stdin; without FILEs
    it reads the cluster. Without changes it says what is going to happen now. Nothing is ever changed.

    Exit code: 0 fine, 1 foreseen what --exit-code or --fail-on forbid, 2 usage or malformed input, 3 API server
    unreachable.
    """
    set_up_logging("text", "warning")
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    try:
        changes, settings = _read_changes(flags), _read_settings(flags)
        gates = [*map(read_gate, flags["fail_on"]), *([ANY] if flags["exit_code"] else [])]
        making = (changes, settings, flags)
        made = _from_files(files, *making) if files else asyncio.run(_from_cluster(*making))
    except Malformed as malformed:
        _give_up(EXIT_MALFORMED, *map(str, malformed.problems))
    except (ValueError, CredentialsError) as error:
        _give_up(EXIT_MALFORMED, str(error))
    except CallFailed as error:
        _give_up(EXIT_CLUSTER, str(error))
    try:
        _show(made, flags)
    except BrokenPipeError:
        # Who reads has seen enough; what the gates say is not changed by that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_exit_code(made, gates))


def _give_up(code: int, *messages: str) -> NoReturn:
    for message in messages:
        click.echo(f"taint-eviction: {message}", err=True)
    sys.exit(code)


def _read_settings(flags: dict[str, Any]) -> Settings:
    settings = read_deciding_settings(flags)
    if problems := settings.problems():
        raise WrongChange("; ".join(problems))
    return replace(settings, policy=read_policy_file(flags["config"], settings.policy)) if flags["config"] else settings


def _read_changes(flags: dict[str, Any]) -> Changes:
    return Changes(
        tuple(map(read_taint, flags["taint"])),
        tuple(map(read_untaint, flags["untaint"])),
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
        _give_up(EXIT_MALFORMED, *inventory.problems, nothing)
    wall = read_wall()
    epoch = _instant(flags["now"], wall)
    return _plan(inventory, changes, settings, Moment(epoch, epoch), flags)


def _plan(inventory: Inventory, changes: Changes, settings: Settings, now: Moment, flags: dict[str, Any]) -> Plan:
    at = now.instant_of(_instant(flags["at"], now.server_epoch))
    if at < now.at:
        raise WrongChange("--at is in the past: changes can only be made now or later")
    what_if = apply_changes(changes, inventory, at)
    return make_plan(inventory, what_if, changes.described(), now, decision_policy(settings), settings.policy)


def _instant(when: tuple[bool, float] | None, now: float) -> float:
    """Return seconds since the epoch."""
    if when is None:
        return now
    relative, seconds = when
    return now + seconds if relative else seconds


# From a cluster


async def _from_cluster(changes: Changes, settings: Settings, flags: dict[str, Any]) -> Plan:
    if flags["now"] is not None:
        raise WrongChange("--now is for files: a cluster tells its own time")
    clock = ServerClock()
    connection = await find_connection(flags["kubeconfig"], flags["context"], clock)
    progress = Progress()
    try:
        calls = ApiCalls(connection.api_client(), flags["call_timeout"], clock.heard_date, lambda *_: None)
        try:
            inventory = await read_cluster(calls, progress)
        except CallFailed as error:
            raise CallFailed(f"{connection.where}: {connection.url}: {error}", status=error.status) from error
        await sharpen(calls, clock)
        progress.done(len(inventory))
        made = _plan(inventory, changes, settings, clock.now(), flags)
        await try_evictions(calls, made)
        made.notes += await _held_back(StateConfigMap(calls, flags["state_namespace"], flags["state_name"]))
        return made
    finally:
        await connection.close()


async def _held_back(state: StateConfigMap) -> list[str]:
    """Say what holds evictions back at this moment: the plan itself is made as if nothing did."""
    try:
        orders = await state.read()
    except CallFailed as error:
        return [f"whether anybody holds evictions back now is not known: {state}: {error}"]
    held = [] if orders is None else still_held(orders)
    return [f"held back now, whatever is due: {sentence}" for sentence in held]


# What comes out


def _show(made: Plan, flags: dict[str, Any]) -> None:
    match flags["output"]:
        case "json":
            click.echo(orjson.dumps(plan_document(made), option=orjson.OPT_INDENT_2))
        case "yaml":
            for text in _yaml(plan_document(made)):
                click.echo(text, nl=False)
        case output:
            print_plan(made, wide=output == "wide")
    inventory = made.inventory
    for sentences, count in ((inventory.problems, inventory.unread), (inventory.complaints, inventory.complained)):
        more = [f"… and {count - len(sentences)} more like these"] if count > len(sentences) else []
        for sentence in [*sentences, *more]:
            click.echo(f"taint-eviction: {sentence}", err=True)
    if flags["html"]:
        write_page(flags["html"], picture_of_plan(made))


def _yaml(document: dict[str, Any]) -> Iterator[str]:
    """Write a document a pod at a time: as a whole, 30,000 of them would take half a gigabyte."""
    for name, value in document.items():
        if name != "pods" or not value:
            yield _dumped({name: value})
            continue
        yield f"{name}:\n"
        yield from (_dumped([pod]) for pod in value)


def _dumped(part: object) -> str:
    return yaml.dump(part, Dumper=yaml.CSafeDumper, sort_keys=False, width=120)


def _exit_code(made: Plan, gates: list[Gate]) -> int:
    if not made.complete:
        return EXIT_MALFORMED
    failures = [failure for gate in gates if (failure := gate.failure(made)) is not None]
    for failure in failures:
        click.echo(f"taint-eviction: {failure}", err=True)
    return EXIT_FORESEEN if failures else 0
