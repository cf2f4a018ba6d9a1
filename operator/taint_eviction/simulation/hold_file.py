"""Reads what holds evictions back in a scenario: budgets, pauses, holds of pods, the rules of a policy.

``given`` has budgets and orders that are there from the beginning; the actions change them. Rules are written as in the
configuration file (``files.policy_file``).
"""

from collections.abc import Callable

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.core.policy import PolicyRule
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction.files.policy_file import PolicyReading
from taint_eviction.simulation import hold_actions as hold
from taint_eviction.simulation import kubernetes_fields as known
from taint_eviction.simulation.actions import Action, SetHold
from taint_eviction.simulation.budgets import Budget
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.object_file import DEFAULT_NAMESPACE, named, written
from taint_eviction.simulation.trouble_file import TroubleReading
from taint_eviction.simulation.virtual_clock import server_time

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_UNHEALTHY_POLICIES = ("IfHealthyBudget", "AlwaysAllow")


class HoldReading(TroubleReading):
    """Reads them; None where a problem leaves nothing to hold."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._budget_names: set[NamespacedName] = set()
        self._budgets_used: list[tuple[NamespacedName, int]] = []

    def check_names(self) -> None:
        """Note a problem for every name that no object of the scenario has."""
        super().check_names()
        names = {written(key) for key in self._budget_names}
        for key, line in self._budgets_used:
            if key not in self._budget_names:
                nearest = self._nearest(written(key), names)
                self.problem(line, f"no budget of this scenario is called {written(key)!r}{nearest}")

    # Budgets

    def budget(self, at: Marked) -> Budget | None:
        """Read a PodDisruptionBudget."""
        before = len(self.problems)
        parts = self._parts(at, known.BUDGET_SHORT, "a budget", known.BUDGET_SPEC, known.BUDGET_STATUS)
        metadata, spec = parts["metadata"], parts["spec"]
        if not self.only(metadata, ("name",), at.line, "a budget") or not self.only(
            spec, ("selector",), at.line, "a budget"
        ):
            return None
        if ("minAvailable" in spec) is ("maxUnavailable" in spec):
            self.problem(at.line, "a budget has either 'minAvailable' or 'maxUnavailable'")
        namespace = self.text(metadata["namespace"], "namespace") if "namespace" in metadata else DEFAULT_NAMESPACE
        key = NamespacedName(namespace, self.text(metadata["name"], "name"))
        budget = Budget(
            key,
            self._selector(spec["selector"]),
            self._pods(spec, "minAvailable"),
            self._pods(spec, "maxUnavailable"),
            self._always_allows(spec),
        )
        self._budget_names.add(key)
        return budget if len(self.problems) == before else None

    def _selector(self, at: Marked) -> JsonObject:
        """Read labels that a pod must have, or a selector in Kubernetes' own shape."""
        if not isinstance(at.value, dict) or not set(at.value) & {"matchLabels", "matchExpressions"}:
            return {"matchLabels": self._texts(at, "selector"), "matchExpressions": []}
        fields = self.fields(at, ("matchLabels", "matchExpressions"), "a selector")
        labels = self._texts(fields["matchLabels"], "matchLabels") if "matchLabels" in fields else {}
        terms: list[JsonObject] = []
        for item in self.items(fields.get("matchExpressions"), "matchExpressions"):
            term = self.needed(item, ("key", "operator", "values"), ("key", "operator"), "a match expression")
            if term is not None:
                values = [self.text(value, "a value") for value in self.items(term.get("values"), "values")]
                operator = self.text(term["operator"], "operator", _OPERATORS)
                key = self.text(term["key"], "key")
                terms.append({"key": key, "operator": operator, "values": values})
        return {"matchLabels": labels, "matchExpressions": terms}

    def _pods(self, spec: dict[str, Marked], name: str) -> int | str | None:
        at = spec.get(name)
        if at is None:
            return None
        if isinstance(at.value, str) and at.value.endswith("%") and at.value[:-1].isascii() and at.value[:-1].isdigit():
            return at.value
        if isinstance(at.value, int) and not isinstance(at.value, bool) and at.value >= 0:
            return at.value
        self.problem(at.line, f"{name} must be a number of pods or a percentage (50%), not {described(at)}")
        return 0

    def _always_allows(self, spec: dict[str, Marked]) -> bool:
        name = "unhealthyPodEvictionPolicy"
        return name in spec and self.text(spec[name], name, _UNHEALTHY_POLICIES) == _UNHEALTHY_POLICIES[1]

    def use_budget(self, at: Marked) -> NamespacedName:
        """Read the name of a budget: ``name`` or ``namespace/name``."""
        key = named(self.text(at, "a budget"))
        self._budgets_used.append((key, at.line))
        return key

    def create_budget(self, at: Marked) -> Action | None:
        """Read ``createBudget``."""
        budget = self.budget(at)
        return None if budget is None else hold.CreateBudget(budget)

    def change_budget(self, at: Marked) -> Action | None:
        """Read ``changeBudget``."""
        budget = self.budget(at)
        return None if budget is None else hold.ChangeBudget(budget)

    def delete_budget(self, at: Marked) -> Action | None:
        """Read ``deleteBudget``."""
        return hold.DeleteBudget(self.use_budget(at))

    # Orders

    def orders(self, at: Marked) -> Orders:
        """Read what stands in the ConfigMap."""
        fields = self.fields(at, ("pause", "nodes", "namespaces", "breaker"), "orders")
        whole = Pause() if "pause" in fields and self.boolean(fields["pause"], "pause") else None
        nodes = {self.use_node(item): Pause() for item in self.items(fields.get("nodes"), "nodes")}
        names = [self.text(item, "a namespace") for item in self.items(fields.get("namespaces"), "namespaces")]
        latch = self._latch(fields["breaker"]) if "breaker" in fields else None
        return Orders(whole, nodes, dict.fromkeys(names, Pause()), latch)

    def _latch(self, at: Marked) -> Latch:
        fields = self.fields(at, ("openSince",), "breaker")
        self.only(fields, ("openSince",), at.line, "breaker")
        since = self.seconds(fields["openSince"], "openSince") if "openSince" in fields else 0.0
        return Latch(server_time(since), "given")

    def pause(self, at: Marked) -> Action | None:
        """Read ``pause``: ``{}`` for all, or a node, or a namespace."""
        fields = self._scope(at, ("node", "namespace", "reason"), "pause")
        if fields is None:
            return None
        reason = self.text(fields["reason"], "reason") if "reason" in fields else ""
        return hold.PauseEvictions(*self._names(fields), reason)

    def resume(self, at: Marked) -> Action | None:
        """Read ``resume``: as ``pause``, or ``all`` for every pause there is."""
        if at.value == "all":
            return hold.ResumeEvictions(every=True)
        fields = self._scope(at, ("node", "namespace"), "resume")
        return None if fields is None else hold.ResumeEvictions(*self._names(fields))

    def _scope(self, at: Marked, scopes: tuple[str, ...], what: str) -> dict[str, Marked] | None:
        fields = self.needed(at, scopes, (), what)
        if fields is not None and "node" in fields and "namespace" in fields:
            self.problem(at.line, f"'node' and 'namespace' do not go together: {what} takes one of them")
            return None
        return fields

    def _names(self, fields: dict[str, Marked]) -> tuple[str | None, str | None]:
        node = self.use_node(fields["node"]) if "node" in fields else None
        return node, self.text(fields["namespace"], "namespace") if "namespace" in fields else None

    def reset_breaker(self, at: Marked) -> Action | None:
        """Read ``resetBreaker``, which takes nothing."""
        return self._alone(at, "resetBreaker", hold.ResetBreaker)

    def lose_orders(self, at: Marked) -> Action | None:
        """Read ``loseOrders``, which takes nothing."""
        return self._alone(at, "loseOrders", hold.LoseOrders)

    def scribble(self, at: Marked) -> Action | None:
        """Read ``scribble``."""
        fields = self.needed(at, ("key", "value"), ("key", "value"), "scribble")
        if fields is None:
            return None
        return hold.Scribble(self.text(fields["key"], "key"), self.text(fields["value"], "value"))

    def _alone(self, at: Marked, what: str, make: Callable[[], Action]) -> Action | None:
        if at.value not in (None, {}):
            self.problem(at.line, f"{what} takes nothing, not {described(at)}")
            return None
        return make()

    # Holds

    def set_hold(self, at: Marked) -> Action | None:
        """Read ``setHold``."""
        fields = self.needed(at, ("pod", "hold"), ("pod", "hold"), "setHold")
        if fields is None:
            return None
        value = None if fields["hold"].value is None else self._hold(fields["hold"])
        return SetHold(self.use_pod(fields["pod"]), value)

    # The policy

    def rules(self, at: Marked) -> tuple[PolicyRule, ...]:
        """Read the rules of a policy, as they stand in the configuration file."""
        reading = PolicyReading(self.file)
        rules = reading.rules(at)
        self.problems += reading.problems
        return rules

    def change_policy(self, at: Marked) -> Action | None:
        """Read ``changePolicy``."""
        return hold.ChangePolicy(self.rules(at))
