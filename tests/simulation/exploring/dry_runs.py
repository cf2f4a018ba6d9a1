"""Makes some generated documents dry runs, and judges what they report.

Each process reports an eviction once per pod and deadline, when it is due, and says rightly how late it is. At the end,
every pod that is due has been reported. Part of ``generator``, with random generators of its own.
"""

import random
from collections.abc import Callable
from typing import Any

from taint_eviction.core.events import BreakerClosed, BreakerOpened, Event, Evicted
from taint_eviction.core.instants import Moment
from taint_eviction_lab.simulation.virtual_clock import virtual_now

JsonObject = dict[str, Any]

_SHARE = 0.12
_SALT = "dry runs 113"
# Few documents are dry runs of hours: one takes as long as ten others.
_HOURS_SHARE = 0.008
_HOURS = 2.0
_SECONDS = (0, 30, 300, 1200)

# Called with the UID of a pod, how late its eviction is said to be, and when.
Reported = Callable[[str, float, float], None]


def add_dry_run(document: JsonObject, seed: int) -> None:
    """Let a document be a dry run, in a share of the seeds. Where it is one, no control state is lost.

    A dry run writes none again: what it knew stays in force, and nobody can end it.
    """
    if random.Random(f"{_SALT} {seed}").random() < _SHARE:
        document["settings"]["dryRun"] = True
    if "dryRun" in document["settings"]:
        document["timeline"] = [step for step in document["timeline"] if "loseControlState" not in step]


def dry_run_of_hours(seed: int) -> JsonObject | None:
    """Return a document in which a dry run lasts for hours, in a small share of the seeds; None for the others.

    Taints come and go, pods are recreated, replicas are restarted, and lists are made again. Nothing delays evictions.
    """
    rng = random.Random(f"hours {seed}")
    if rng.random() >= _HOURS_SHARE:
        return None
    replicas = rng.choice((1, 2))
    nodes = [f"node-{number}" for number in range(1, 5)]
    pods = [f"web-{number}" for number in range(8)]
    steps: list[JsonObject] = []
    at = 60.0
    while at < _HOURS * 3600.0:
        node, pod, key = rng.choice(nodes), rng.choice(pods), rng.choice("ab")
        act, does = rng.choices(
            (
                ("taint", f"{node} {key}=1:NoExecute"),
                ("untaint", node),
                ("tolerate", {"pod": pod, "tolerations": [f"{key} for {rng.choice(_SECONDS)}"]}),
                ("recreate", {"pod": pod, "node": node}),
                ("restart", {"after": rng.choice((0, 5)), "replica": rng.randint(1, replicas)}),
                ("relist", {"watch": rng.choice(("nodes", "pods"))}),
            ),
            weights=(6, 2, 2, 3, 1, 1),
        )[0]
        steps.append({"at": round(at, 3), act: does})
        at += rng.uniform(20.0, 500.0)
    tolerations = [[f"a for {rng.choice(_SECONDS)}", f"b for {rng.choice(_SECONDS)}"] for _ in pods]
    return {
        "about": f"Generated from seed {seed}: a dry run of {_HOURS:g} hours.",
        "name": f"explored-{seed}",
        "settings": {
            "dryRun": True,
            "replicas": replicas,
            "resyncInterval": rng.choice((60, 300)),
            "wholeClusterFrom": rng.choice((1, 300)),
            "defaultTolerationSeconds": None,
        },
        "given": {
            "nodes": nodes,
            "pods": [
                {"name": pod, "nodeName": rng.choice(nodes), "tolerations": own}
                for pod, own in zip(pods, tolerations, strict=True)
            ],
        },
        "timeline": steps,
        "expect": {},
    }


class DryRunReports:
    """The ``Reporter`` of one process: it tells ``reported`` of each eviction, and notes what is reported twice.

    ``again`` is called with the UID of a pod that was reported before, for the same deadline; ``open_breaker`` when the
    breaker opens or closes, which a dry run writes nowhere.
    """

    def __init__(
        self, reported: Reported, again: Callable[[str, float], None], open_breaker: Callable[[bool], None]
    ) -> None:
        self._reported = reported
        self._again = again
        self._open_breaker = open_breaker
        self._deadlines: set[tuple[str, float]] = set()

    def report(self, effect: Event, now: Moment) -> None:
        """Judge the report of an eviction."""
        if isinstance(effect, BreakerOpened | BreakerClosed):
            self._open_breaker(isinstance(effect, BreakerOpened))
        if not isinstance(effect, Evicted):
            return
        uid, at = effect.ref.uid, virtual_now()
        deadline = uid, round(effect.decision.fire_at, 3)
        if deadline in self._deadlines:
            self._again(uid, at)
        self._deadlines.add(deadline)
        self._reported(uid, effect.late_seconds, at)
