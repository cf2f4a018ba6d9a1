"""Generates environments in which the eviction API refuses pods, and the patience with that must end all the same.

A webhook refuses for as long as the faults last, or a budget does, while in each patience one answer is no refusal, or
the process stands still for a moment. Or a webhook moves the virtual machine in a pod away, which succeeds later, or
never does. Part of ``generator``, with a random generator of its own, so that the rest of a
document is the same as without.
"""

import random

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import JsonObject

_SHARE = 0.75
# With this one, the seeds that show older mistakes in the tests keep their documents.
_SALT = "refusals 2046"
_TO_THE_END = 600
# After the last step, there is a leader again within this time.
_CALM_SECONDS = 35.0
# The pods of this namespace have a rule of their own, and nothing but budgets and webhooks holds them back.
NAMESPACE = "refused"
_DENIALS = (
    (400, 'admission webhook "guard.example.com" denied the request: not during business hours'),
    (403, 'admission webhook "guard.example.com" denied the request: ask the owner'),
    (429, 'admission webhook "guard.example.com" denied the request: later'),
    (422, "ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request: no"),
)
_WEBHOOK = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
_EVACUATIONS = (
    f'{_WEBHOOK}Eviction triggered evacuation of VMI "refused/vm"',
    f'{_WEBHOOK}Evacuation in progress: Eviction triggered evacuation of VMI "refused/vm"',
)


class RefusalWorlds(Quarters):
    """The environments of one document in which evictions need not be punctual."""

    def __init__(self, seed: int, settings: JsonObject) -> None:
        super().__init__(seed, settings)
        self._rng = random.Random(f"{_SALT} {seed}")

    def quarter(self, last: float) -> Quarter:
        """Generate the environment, in most documents; ``last``: nothing else happens after that second."""
        rng, quarter = self._rng, Quarter()
        if rng.random() >= _SHARE:
            return quarter
        begin, patience = round(rng.uniform(1.0, 30.0), 3), rng.choice((8, 12, 20))
        quarter += self._denied(begin)
        if rng.random() < 0.6:
            patience, begin = 8, round(last + _CALM_SECONDS, 3)
        quarter += self._interrupted(begin, patience)
        if rng.random() < 0.8:
            quarter += self.moving(begin)
        if rng.random() < 0.5:
            quarter += self._stalled(begin, patience)
        rule: JsonObject = {"name": NAMESPACE, "match": {"namespaces": [NAMESPACE]}, "mode": "evict-then-delete"}
        quarter.rules.append({**rule, "evictTimeout": patience})
        return quarter

    def _denied(self, begin: float) -> Quarter:
        """Let a webhook refuse all evictions of a pod."""
        node = "denied-1"
        status, message = self._rng.choice(_DENIALS)
        denial: JsonObject = {"call": "evict", "pod": f"{NAMESPACE}/{node}", "status": status, "message": message}
        steps: list[JsonObject] = [
            {"at": 0.0, "refuse": {**denial, "for": _TO_THE_END}},
            {"at": begin, "taint": f"{node} a=1:NoExecute"},
        ]
        return Quarter([node], [self._pod(node)], steps=steps)

    def _interrupted(self, begin: float, patience: int) -> Quarter:
        """Let a budget refuse a pod, and one answer in each patience be an error."""
        node = "interrupted-1"
        error: JsonObject = {"call": "evict", "pod": f"{NAMESPACE}/{node}", "times": 1}
        error |= self._rng.choice(({"status": 504}, {"status": 500}, {}))
        steps: list[JsonObject] = [{"at": begin, "taint": f"{node} a=1:NoExecute"}]
        steps += [{"at": at, "refuse": error} for at in self._often(begin, patience)]
        budget: JsonObject = {"name": "all", "namespace": NAMESPACE, "selector": {"matchLabels": {}}}
        return Quarter([node], [self._pod(node)], [{**budget, "maxUnavailable": 0}], steps=steps)

    def moving(self, begin: float) -> Quarter:
        """Let a webhook move virtual machines away: one of them arrives elsewhere, the other one never does.

        The budget of ``_interrupted`` refuses their pods as well.
        """
        rng, node, background = self._rng, "moving-1", self._rng.choice((20, 40))
        self._settings["backgroundTimeout"] = background
        names = [f"vm-{number}" for number in range(2)]
        steps: list[JsonObject] = [{"at": begin, "taint": f"{node} a=1:NoExecute"}]
        for name in names:
            refused: JsonObject = {"call": "evict", "pod": f"{NAMESPACE}/{name}", "times": rng.choice((1, 1, 3))}
            refused |= {"status": 429, "message": rng.choice(_EVACUATIONS)}
            steps.append({"at": 0.0, "refuse": refused})
        arrives = {"pod": f"{NAMESPACE}/{names[0]}", "force": True}
        steps.append({"at": round(begin + rng.uniform(3.0, background), 3), "delete": arrives})
        return Quarter([node], [{**self._pod(name), "nodeName": node} for name in names], steps=steps)

    def _stalled(self, begin: float, patience: int) -> Quarter:
        """Let all processes stand still for a moment in each patience."""
        replicas = range(1, self._settings["replicas"] + 1)
        instants = self._often(begin, patience)
        return Quarter(
            steps=[{"at": at, "freeze": {"for": 2.6, "replica": one}} for at in instants for one in replicas]
        )

    def _often(self, begin: float, patience: int) -> list[float]:
        instants, at = list[float](), begin
        while (at := round(at + patience * self._rng.uniform(0.4, 0.8), 3)) < begin + 4.0 * patience:
            instants.append(at)
        return instants

    def _pod(self, node: str) -> JsonObject:
        return {"name": node, "namespace": NAMESPACE, "nodeName": node}
