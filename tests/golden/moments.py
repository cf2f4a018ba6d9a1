"""Chosen moments: every state of a pod, all that blocks evictions, dry runs, countdowns that are taken over."""

from typing import NamedTuple


class SecondOfScenario(NamedTuple):
    """The second ``at`` of a scenario of the catalogue."""

    scenario: str
    at: float


# The columns of terminals with 24 lines.
WIDTHS = (60, 80, 120)
# What `status --watch` shows there, of these scenarios.
ON_SCREENS = frozenset(
    {
        "breaker-counts-nodes-that-lose-pods-only",
        "breaker-holds-a-lost-zone",
        "breaker-opens-when-many-pods-are-due",
        "budget-blocks-then-frees",
        "evict-while-sixty-calls-hang",
        "pause-of-all",
    }
)
# What is said later of the pods that have left, of these scenarios.
REMEMBERED = frozenset({"pause-at-night-beside-a-hold-and-a-ceiling"})


MOMENTS = (
    # Nothing to do, and the states of a pod.
    SecondOfScenario("evict-tolerance-of-70-seconds", 5),
    SecondOfScenario("evict-tolerance-of-70-seconds", 30),
    SecondOfScenario("evict-tolerance-of-70-seconds", 100),
    SecondOfScenario("cancel-taint-removed", 60),
    SecondOfScenario("pause-in-the-middle-of-an-eviction", 10.5),
    SecondOfScenario("evict-finalizer-holds-the-pod", 60),
    SecondOfScenario("evict-while-sixty-calls-hang", 15),
    SecondOfScenario("evict-condition-refused", 30),
    SecondOfScenario("retry-delete-refused-for-minutes", 40),
    SecondOfScenario("retry-list-of-pods-refused", 15),
    SecondOfScenario("limit-of-all", 12),
    SecondOfScenario("limit-of-a-node", 12),
    SecondOfScenario("limit-of-a-namespace", 12),
    SecondOfScenario("limit-of-a-rule", 12),
    SecondOfScenario("limit-of-evictions-at-once", 12),
    SecondOfScenario("budget-blocks-then-frees", 30),
    SecondOfScenario("budget-patience-ends-where-a-webhook-refuses", 100),
    SecondOfScenario("budget-patience-leaves-a-moving-virtual-machine-out", 100),
    SecondOfScenario("budget-patience-leaves-a-moving-virtual-machine-out", 1900),
    SecondOfScenario("budget-several-for-one-pod-refuse", 60),
    SecondOfScenario("recreate-statefulset-pod-is-evicted-again", 60),
    # What blocks evictions.
    SecondOfScenario("pause-unknown-at-the-start-holds", 30),
    SecondOfScenario("pause-of-all", 30),
    SecondOfScenario("pool-pause-of-all-but-a-zone", 100),
    SecondOfScenario("pool-pause-of-nodes-by-a-selector", 30),
    SecondOfScenario("pool-pause-that-is-unreadable-holds-all-nodes", 30),
    SecondOfScenario("pause-of-a-node", 30),
    SecondOfScenario("pause-of-a-namespace", 30),
    SecondOfScenario("pause-by-a-rule", 30),
    SecondOfScenario("pause-ends-by-itself", 20),
    SecondOfScenario("pause-at-night-beside-a-hold-and-a-ceiling", 1600),
    SecondOfScenario("pause-unreadable-later-stays-as-known", 60),
    SecondOfScenario("pause-lost-with-its-configmap", 30),
    SecondOfScenario("rules-all-paused-is-paused", 30),
    SecondOfScenario("rules-pause-counts-again-without-the-other-taint", 30),
    SecondOfScenario("breaker-opens-before-anybody-goes", 60),
    SecondOfScenario("breaker-counts-nodes-that-lose-pods-only", 60),
    SecondOfScenario("breaker-opens-when-many-pods-are-due", 60),
    SecondOfScenario("breaker-opened-in-the-middle-of-an-eviction", 30),
    SecondOfScenario("breaker-has-a-threshold-of-its-own-for-lost-nodes", 100),
    SecondOfScenario("breaker-holds-a-lost-zone", 200),
    SecondOfScenario("breaker-few-nodes-stabilize", 11),
    SecondOfScenario("breaker-unreadable-while-it-is-open", 60),
    SecondOfScenario("breaker-latch-without-a-breaker-holds", 60),
    SecondOfScenario("breaker-open-counts-pods-that-it-holds", 60),
    SecondOfScenario("breaker-waits-for-lists-of-pods", 12),
    SecondOfScenario("breaker-is-reset", 200),
    SecondOfScenario("out-of-service-passes-a-breaker-that-others-opened", 60),
    # What moves deadlines.
    SecondOfScenario("hold-for-a-span", 20),
    SecondOfScenario("hold-that-cannot-be-read", 20),
    SecondOfScenario("hold-for-a-default-tolerance", 20),
    SecondOfScenario("ceiling-shortens-the-seconds-of-a-toleration", 20),
    SecondOfScenario("ceiling-shortens-the-seconds-of-a-toleration", 100),
    SecondOfScenario("lost-node-respects-budgets-by-default", 400),
    SecondOfScenario("lost-node-has-not-been-ready-for-five-minutes", 100),
    SecondOfScenario("lost-node-has-not-been-ready-for-five-minutes", 350),
    SecondOfScenario("hold-while-the-node-shuts-down-gracefully", 30),
    SecondOfScenario("lifecycle-silent-node-loses-its-pods", 120),
    SecondOfScenario("outage-goes-on-after-minutes-without-its-taint", 200),
    # Countdowns that are taken over, and dry runs.
    SecondOfScenario("adopt-and-give-back", 70),
    SecondOfScenario("adopt-is-refused", 70),
    SecondOfScenario("adopt-behind-the-breaker", 70),
    SecondOfScenario("shadow-finds-one-of-each-kind", 100),
    SecondOfScenario("shadow-reports-an-eviction-once", 100),
    SecondOfScenario("shadow-finds-an-eviction-that-was-given-up", 200),
)
