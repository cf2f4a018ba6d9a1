"""Reads PodDisruptionBudgets of a scenario: in Kubernetes' own shape, or with a selector that is only labels."""

from taint_eviction.core.objects import NamespacedName
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction_lab.simulation import kubernetes_fields as known
from taint_eviction_lab.simulation import suspension_actions as suspend
from taint_eviction_lab.simulation.actions import Action
from taint_eviction_lab.simulation.fault_file import FaultReading
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.object_file import DEFAULT_NAMESPACE, named, written

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NUMBERS = ("minAvailable", "maxUnavailable")
_UNHEALTHY_POLICIES = ("IfHealthyBudget", "AlwaysAllow")


class BudgetReading(FaultReading):
    """Reads budgets; returns None if a problem leaves nothing to perform."""

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

    def budget(self, at: Marked) -> JsonObject | None:
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
        selector, always = self._selector(spec["selector"]), self._always_allows(spec)
        written = {"selector": selector} | {name: self._pods(spec[name], name) for name in _NUMBERS if name in spec}
        self._budget_names.add(key)
        if len(self.problems) > before:
            return None
        policy = {"unhealthyPodEvictionPolicy": _UNHEALTHY_POLICIES[1]} if always else {}
        return {"metadata": {"namespace": key.namespace, "name": key.name}, "spec": written | policy}

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

    def _pods(self, at: Marked, name: str) -> int | str:
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
        return None if budget is None else suspend.CreateBudget(budget)

    def change_budget(self, at: Marked) -> Action | None:
        """Read ``changeBudget``."""
        budget = self.budget(at)
        return None if budget is None else suspend.ChangeBudget(budget)

    def delete_budget(self, at: Marked) -> Action | None:
        """Read ``deleteBudget``."""
        return suspend.DeleteBudget(self.use_budget(at))
