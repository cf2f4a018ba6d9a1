"""Gates: conditions under which a plan fails, for checks before a change is made."""

import re
from dataclasses import dataclass

from taint_eviction.core.text import many
from taint_eviction_ctl.planning.plan import Plan

_MORE_THAN = re.compile(r"more-than=(\d{1,9})(%?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlanGate:
    """One condition under which a plan fails; ``max`` (pods, or percent of all) is for ``more-than`` only."""

    kind: str
    max: int = 0
    percent: bool = False

    def failure(self, plan: Plan) -> str | None:
        """Return why the plan fails; None if it does not."""
        leaving = len(plan.leaving)
        match self.kind:
            case "any":
                return f"{many(leaving, 'pod')} would be evicted" if leaving else None
            case "budget":
                names = ", ".join(str(each.budget) for each in plan.broken_budgets)
                if not plan.inventory.budgets_known:
                    return "budgets are not known"
                return f"budgets would be violated or block: {names}" if names else None
            case "bare-pod":
                names = ", ".join(str(pod.ref) for pod in plan.bare[:5])
                return f"{many(len(plan.bare), 'bare pod')} would be gone for good: {names}" if plan.bare else None
            case _:
                return self._too_many(leaving, len(plan.pods))

    def _too_many(self, leaving: int, total: int) -> str | None:
        if self.percent:
            broken = leaving * 100 > self.max * total
            return f"{leaving} of {many(total, 'pod')} would be evicted, more than {self.max} %" if broken else None
        return f"{many(leaving, 'pod')} would be evicted, more than {self.max}" if leaving > self.max else None


ANY = PlanGate("any")


def read_gate(text: str) -> PlanGate:
    """Read ``budget``, ``bare-pod`` or ``more-than=N[%]``; raise ``ValueError`` with the valid forms."""
    if text in ("budget", "bare-pod"):
        return PlanGate(text)
    if found := _MORE_THAN.fullmatch(text):
        return PlanGate("more-than", int(found[1]), bool(found[2]))
    raise ValueError("budget, bare-pod, more-than=N or more-than=N%")
