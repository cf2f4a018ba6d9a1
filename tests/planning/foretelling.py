"""Compares plans with what the controller then does: ``python -m tests.planning.foretelling``, from the project's root.

A plan is made of a random cluster just before its nodes are tainted; then the controller's own code plays what happens,
on a virtual clock. Each pod has to leave when the plan says, or to stay if the plan says that, or that something holds
it. A plan says what it does not know.
"""

import asyncio
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import click
from tests.planning.random_clusters import MACHINE, MOVES_AWAY, PLANNED_AT, random_cluster
from tests.simulation.exploring.playing import read_document, silenced

from fake_apiserver.records import Selection
from fake_apiserver.resources import RESOURCES
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.instants import Moment
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, tier_in
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.planning.changes import Changes, apply_changes, read_taint
from taint_eviction_ctl.planning.cluster import try_evictions
from taint_eviction_ctl.planning.holding import add_holders
from taint_eviction_ctl.planning.inventory import Inventory
from taint_eviction_ctl.planning.plan import Plan, make_plan
from taint_eviction_ctl.planning.planned_pod import PlannedPod
from taint_eviction_ctl.planning.reading import InventoryReader
from taint_eviction_ctl.planning.rehearsal import Conditions
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.virtual_clock import server_time
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

# Dates are whole seconds, and a plan learns when something began from them alone.
EARLY_SECONDS, LATE_SECONDS = 1.1, 1.6
# The eviction API is asked again every 30 s at most while a virtual machine moves away, and up to 45 s apart.
_MOVING_SECONDS = 45.0
_TRIES = (What.EVICTED, What.BLOCKED, What.CALL_FAILED)


@dataclass(frozen=True)
class Foretold:
    """One cluster: the ``differences`` between plan and replay, one sentence each; how many pods left, and stayed."""

    seed: int
    differences: tuple[str, ...]
    left: int
    stayed: int


def foretell(seed: int) -> Foretold:
    """Plan and play the cluster of a seed, and compare pod by pod."""
    document = random_cluster(seed)
    scenario = read_document(document)
    with silenced():
        plan, seen, turns = run_virtually(_PlanAndReplay(scenario).run(), 0.0)
        differences = tuple(_differences(plan, seen, scenario.settings.policy))
        if differences:
            # Whose turn comes first decides for how long others wait: plan again, with the turns that were taken.
            plan, seen, _ = run_virtually(_PlanAndReplay(scenario, turns).run(), 0.0)
            differences = tuple(_differences(plan, seen, scenario.settings.policy))
    return Foretold(seed, differences, len(seen), len(plan.pods) - len(seen))


class _PlanAndReplay:
    """Plays one cluster, and plans in it.

    ``turns``: of pods that are due together, the plan lets those go first that come first here.
    """

    def __init__(self, scenario: Scenario, turns: Mapping[str, int] | None = None) -> None:
        self._scenario, self._turns = scenario, turns or {}
        self._timeline = Timeline()
        self._stage = ReplayStage(
            self._timeline,
            scenario.settings,
            production_parsing(),
            seed=scenario.name,
            default_toleration_seconds=scenario.default_toleration_seconds,
        )

    async def run(self) -> tuple[Plan, dict[str, float], dict[str, int]]:
        """Return the plan; when each pod that left did so, by its name; and in which order pods were first tried."""
        stage, scenario = self._stage, self._scenario
        stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
        stage.start_controllers()
        past = [step for step in scenario.steps if step.at < PLANNED_AT]
        for step in past:
            await sleep_until(step.at)
            await step.perform(stage)
        await sleep_until(PLANNED_AT)
        await asyncio.sleep(0)
        plan = await self._plan()
        for step in scenario.steps[len(past) :]:
            await step.perform(stage)
        await sleep_until(scenario.until or PLANNED_AT)
        stage.busy()
        await stage.kill_controllers()
        seen, tried = dict[str, float](), dict[str, int]()
        for entry in self._timeline:
            if entry.what in _TRIES and entry.at >= PLANNED_AT:
                tried.setdefault(entry.subject, len(tried))
            if entry.what is What.EVICTED and entry.at >= PLANNED_AT:
                seen.setdefault(entry.subject, entry.at)
        return plan, seen, tried

    async def _plan(self) -> Plan:
        """Plan for the taints that come now, as the command does with a cluster."""
        settings, reader = self._scenario.settings, InventoryReader(Inventory())
        for plural, kind in (("nodes", "Node"), ("pods", "Pod"), ("poddisruptionbudgets", "PodDisruptionBudget")):
            for body in self._stage.cluster.bodies(Selection(RESOURCES[plural])):
                reader.read({"apiVersion": "policy/v1" if "budget" in plural else "v1", **body, "kind": kind}, "here")()
        now = Moment(PLANNED_AT, server_time(PLANNED_AT))
        inventory, taints = reader.inventory, list[tuple[str, Any]]()
        in_turn = sorted(inventory.pods.items(), key=lambda each: self._turns.get(str(each[0]), math.inf))
        inventory.pods = dict(in_turn)
        for step in self._scenario.steps:
            if step.at == PLANNED_AT:
                node, taint = step.text.removeprefix("taint ").split()
                taints.append(read_taint(f"{node}={taint}"))
        changes = Changes(tuple(taints))
        what_if = apply_changes(changes, inventory, now.at)
        control_state = (self._stage.control_state.control_state or ControlState()).at(now.server_epoch)
        plan = make_plan(inventory, what_if, changes.described(), now, settings.decisions, settings.policy)
        await try_evictions(cast(ApiCalls, _Webhook(self._scenario)), plan)
        add_holders(plan, Conditions(settings.decisions, settings.policy, settings.breaker, control_state))
        return plan


class _Webhook:
    """Answers dry-run evictions: it refuses those of virtual machines, and lets the arithmetic judge the others."""

    def __init__(self, scenario: Scenario) -> None:
        bodies = [pod["metadata"] for pod in scenario.pods if pod["metadata"]["labels"]["app"] == MACHINE]
        self._moving = {(metadata["namespace"], metadata["name"]) for metadata in bodies}

    async def make(self, request: ApiRequest) -> ApiAnswer:
        """Answer one request."""
        if (request.namespace, request.name) not in self._moving:
            return ApiAnswer(Outcome.DONE, 201, {}, None)
        failure = CallFailed(MOVES_AWAY, denied=True, evacuates=True)
        return ApiAnswer(Outcome.REFUSED, 429, None, failure)


def _differences(plan: Plan, seen: Mapping[str, float], policy: EvictionPolicy) -> Iterator[str]:
    """Yield what is different.

    Of pods that are due together, limits and budgets let any go first, and a plan says so: for these, numbers and times
    have to be right, not names.
    """
    foretold = {str(pod.ref.key): pod.goes_at for pod in plan.pods}
    early_seconds, late_seconds = _unknown_seconds(plan, policy)
    groups: dict[str, list[str]] = {}
    for pod in plan.pods:
        if _is_raced(pod, plan):
            continue
        name = str(pod.ref.key)
        groups.setdefault("all" if plan.limited else str(pod.budgets[0]) if pod.budgets else name, []).append(name)
    for group, names in groups.items():
        expected = sorted(max(PLANNED_AT, at) for name in names if (at := foretold[name]) is not None)
        found = sorted(seen[name] for name in names if name in seen)
        same = len(expected) == len(found) and all(
            -early_seconds <= at - planned <= late_seconds for at, planned in zip(found, expected, strict=True)
        )
        if not same:
            yield f"{group}: at {_listed(found)}; the plan: at {_listed(expected)}"


def _is_raced(pod: PlannedPod, plan: Plan) -> bool:
    """Return whether the budget that refuses a pod does so only if a DELETE of another pod arrives first.

    Both are sent at once. A DELETE asks no budget, so it is not only the names that depend on which of them is first.
    """
    if not pod.blocked or pod.leaves_at is None:
        return False
    covered = {budget.key for budget in pod.budgets}
    return any(
        abs(other.goes_at - pod.leaves_at) <= EARLY_SECONDS
        for other in plan.leaving
        if other.handling is not None
        and other.handling.mode is EvictionMode.DELETE
        and other.goes_at is not None
        and any(budget.key in covered for budget in other.budgets)
    )


def _unknown_seconds(plan: Plan, policy: EvictionPolicy) -> tuple[float, float]:
    """Return by how much pods may leave earlier and later than planned, for reasons that a plan cannot know."""
    # In an order, machines of one tier begin to move away when those of the tier before have gone.
    moving = {tier_in(pod.facts.pod, pod.handling) for pod in plan.pods if pod.moves_away and pod.handling is not None}
    moving_seconds = _MOVING_SECONDS * (len(moving) if plan.ordered else bool(moving))
    limited_seconds = 0.0
    if any(pod.deletes_at is not None for pod in plan.pods):
        # The patience with a budget begins with the first try, when a limit lets that pass, and stands still while the
        # limit is used up: by at most the pods that it lets go.
        limits = (policy.total, policy.per_node, policy.per_namespace, *(rule.limit for rule in policy.rules))
        limited_seconds = len(plan.leaving) * sum(1 / limit.per_second for limit in limits if limit.per_second)
    # It stands still, too, while the pod waits for one of an earlier tier that comes within sight between two tries.
    waiting_seconds = policy.order_wait_seconds * any(_comes_to_wait(pod, plan, policy) for pod in plan.leaving)
    return EARLY_SECONDS + limited_seconds, LATE_SECONDS + moving_seconds + limited_seconds + waiting_seconds


def _comes_to_wait(pod: PlannedPod, plan: Plan, policy: EvictionPolicy) -> bool:
    """Return whether a pod that its budget refuses waits, from a later try on, for one that is due after the wait."""
    if not plan.ordered or pod.deletes_at is None or pod.leaves_at is None or pod.handling is None:
        return False
    ends_at, tier = pod.leaves_at + policy.order_wait_seconds, tier_in(pod.facts.pod, pod.handling)
    until = pod.deletes_at + policy.order_wait_seconds
    return any(
        other.facts.pod.node_name == pod.facts.pod.node_name
        and other.leaves_at is not None
        and ends_at < other.leaves_at <= until
        and other.handling is not None
        and tier_in(other.facts.pod, other.handling) < tier
        for other in plan.leaving
    )


def _listed(instants: list[float]) -> str:
    return ", ".join(f"{at:.2f}" for at in instants) or "no time"


@click.command()
@click.option("--from", "first", type=int, default=0, help="The first seed.")
@click.option("--runs", type=int, default=300, show_default=True, help="How many seeds.")
def main(first: int, runs: int) -> None:
    """Compare plans and replays of random clusters, and print each difference."""
    results = []
    for seed in range(first, first + runs):
        results.append(result := foretell(seed))
        for difference in result.differences:
            click.echo(f"seed {seed}: {difference}")
    wrong = [result.seed for result in results if result.differences]
    left, stayed = sum(result.left for result in results), sum(result.stayed for result in results)
    click.echo(f"{runs} clusters, {left} pods left, {stayed} stayed: the plan was wrong in {len(wrong)} clusters")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
