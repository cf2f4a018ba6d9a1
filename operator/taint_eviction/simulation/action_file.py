"""Reads the actions of a scenario's timeline: which keyword takes what.

Most take a short form, as a command line would have it (``taint: node-1 maintenance=now:NoExecute``), or a mapping.
"""

from collections.abc import Callable, Collection

from taint_eviction.simulation import actions as do
from taint_eviction.simulation import short_forms
from taint_eviction.simulation.faults import Call, Picked, Trouble
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.marked_yaml import Marked, described
from taint_eviction.simulation.object_file import ObjectReading, named

_CALLS = {
    **{call.value: frozenset({call}) for call in Call},
    "all": frozenset(Call),
    "writes": frozenset({Call.MARK, Call.UNMARK, Call.DELETE}),
    "reads": frozenset({Call.LIST_NODES, Call.LIST_PODS, Call.READ_NODE, Call.READ_POD}),
}
_WATCHES = {"nodes": do.Watches(True, False), "pods": do.Watches(False, True), "all": do.Watches(True, True)}
_MANAGER = "kubectl-taint"


class ActionReading(ObjectReading):
    """Reads actions; None where a problem leaves nothing to do."""

    def action(self, keyword: str, at: Marked) -> do.Action | None:
        """Read what stands behind a keyword of ``ACTIONS``."""
        return _READERS[keyword](self, at)

    def words(self, at: Marked, least: int, what: str) -> list[Marked]:
        """Read a text of at least so many words."""
        words = [Marked(word, at.line, {}) for word in str(at.value).split()]
        if not isinstance(at.value, str) or len(words) < least:
            self.problem(at.line, f"{what}, not {described(at)}")
            return []
        return words

    def needed(
        self, at: Marked, known: Collection[str], needed: Collection[str], what: str
    ) -> dict[str, Marked] | None:
        """Read a mapping; None if one of the ``needed`` keys is missing."""
        before = len(self.problems)
        fields = self.fields(at, known, what)
        if not isinstance(at.value, dict) or not self.only(fields, needed, at.line, what):
            return None
        return fields if len(self.problems) == before else None

    def manager(self, fields: dict[str, Marked]) -> str:
        """Read who writes."""
        return self.text(fields["by"], "by") if "by" in fields else _MANAGER

    # Nodes

    def add_taints(self, at: Marked) -> do.Action | None:
        """Read ``taint``."""
        if not isinstance(at.value, dict):
            words = self.words(at, 2, "taint takes 'NODE KEY=VALUE:EFFECT', or a mapping")
            if not words:
                return None
            return do.AddTaints(self.use_node(words[0]), tuple(self.taint(word) for word in words[1:]), _MANAGER)
        return self._taints(at, "taint", do.AddTaints)

    def set_taints(self, at: Marked) -> do.Action | None:
        """Read ``setTaints``."""
        return self._taints(at, "setTaints", do.SetTaints)

    def _taints(
        self,
        at: Marked,
        what: str,
        make: Callable[[str, tuple[JsonObject, ...], str], do.AddTaints | do.SetTaints],
    ) -> do.Action | None:
        fields = self.needed(at, ("node", "taints", "by"), ("node", "taints"), what)
        if fields is None:
            return None
        taints = tuple(self.taint(item) for item in self.items(fields["taints"], "taints"))
        return make(self.use_node(fields["node"]), taints, self.manager(fields))

    def remove_taints(self, at: Marked) -> do.Action | None:
        """Read ``untaint``."""
        if not isinstance(at.value, dict):
            words = self.words(at, 1, "untaint takes 'NODE' or 'NODE KEY', or a mapping")
            return do.RemoveTaints(self.use_node(words[0]), self._removals(words[1:]), _MANAGER) if words else None
        fields = self.needed(at, ("node", "taints", "by"), ("node",), "untaint")
        if fields is None:
            return None
        removals = self._removals(self.items(fields.get("taints"), "taints"))
        return do.RemoveTaints(self.use_node(fields["node"]), removals, self.manager(fields))

    def _removals(self, items: list[Marked]) -> tuple[tuple[str, str], ...] | None:
        removals = []
        for item in items:
            try:
                removals.append(short_forms.parse_taint_removal(self.text(item, "a taint to remove")))
            except ValueError as expected:
                self.problem(item.line, f"{item.value!r} is not {expected}")
        return tuple(removals) or None

    def write_node(self, at: Marked) -> do.Action | None:
        """Read ``writeNode``."""
        if isinstance(at.value, str):
            return do.WriteNode(self.use_node(at), _MANAGER)
        fields = self.needed(at, ("node", "by"), ("node",), "writeNode")
        return None if fields is None else do.WriteNode(self.use_node(fields["node"]), self.manager(fields))

    def create_node(self, at: Marked) -> do.Action | None:
        """Read ``createNode``."""
        bodies = self.nodes(at)
        if len(bodies) > 1:
            self.problem(at.line, "createNode takes one node")
        return do.CreateNode(bodies[0]) if len(bodies) == 1 else None

    def delete_node(self, at: Marked) -> do.Action | None:
        """Read ``deleteNode``."""
        return do.DeleteNode(self.use_node(at))

    def recreate_node(self, at: Marked) -> do.Action | None:
        """Read ``recreateNode``."""
        if isinstance(at.value, str):
            return do.RecreateNode(self.use_node(at), ())
        fields = self.needed(at, ("node", "taints"), ("node",), "recreateNode")
        if fields is None:
            return None
        taints = tuple(self.taint(item) for item in self.items(fields.get("taints"), "taints"))
        return do.RecreateNode(self.use_node(fields["node"]), taints)

    def freeze_kubelet(self, at: Marked) -> do.Action | None:
        """Read ``freezeKubelet``."""
        return do.FreezeKubelet(self.use_node(at), True)

    def thaw_kubelet(self, at: Marked) -> do.Action | None:
        """Read ``thawKubelet``."""
        return do.FreezeKubelet(self.use_node(at), False)

    # Pods

    def create_pods(self, at: Marked) -> do.Action | None:
        """Read ``create``: a pod, or a list of pods."""
        items = self.items(at, "create") if isinstance(at.value, list) else [at]
        return do.CreatePods(tuple(body for item in items for body in self.pods(item)))

    def delete_pod(self, at: Marked) -> do.Action | None:
        """Read ``delete``."""
        if isinstance(at.value, str):
            return do.DeletePod(self.use_pod(at), False)
        fields = self.needed(at, ("pod", "force"), ("pod",), "delete")
        if fields is None:
            return None
        return do.DeletePod(self.use_pod(fields["pod"]), "force" in fields and self.boolean(fields["force"], "force"))

    def recreate_pod(self, at: Marked) -> do.Action | None:
        """Read ``recreate``; ``node: null`` leaves the pod unbound."""
        if isinstance(at.value, str):
            return do.RecreatePod(self.use_pod(at), None, False)
        fields = self.needed(at, ("pod", "node"), ("pod",), "recreate")
        if fields is None:
            return None
        unbound = "node" in fields and fields["node"].value is None
        node = self.use_node(fields["node"]) if "node" in fields and not unbound else None
        return do.RecreatePod(self.use_pod(fields["pod"]), node, unbound)

    def bind_pod(self, at: Marked) -> do.Action | None:
        """Read ``bind``."""
        if not isinstance(at.value, dict):
            words = self.words(at, 2, "bind takes 'POD NODE', or a mapping")
            return do.BindPod(self.use_pod(words[0]), self.use_node(words[1])) if len(words) == 2 else None
        fields = self.needed(at, ("pod", "node"), ("pod", "node"), "bind")
        return None if fields is None else do.BindPod(self.use_pod(fields["pod"]), self.use_node(fields["node"]))

    def change_tolerations(self, at: Marked) -> do.Action | None:
        """Read ``tolerate``."""
        fields = self.needed(at, ("pod", "tolerations"), ("pod", "tolerations"), "tolerate")
        if fields is None:
            return None
        tolerations = tuple(self.toleration(item) for item in self.items(fields["tolerations"], "tolerations"))
        return do.ChangeTolerations(self.use_pod(fields["pod"]), tolerations)

    def finish_pod(self, at: Marked) -> do.Action | None:
        """Read ``finish``."""
        if isinstance(at.value, str):
            return do.FinishPod(self.use_pod(at), "Succeeded")
        fields = self.needed(at, ("pod", "phase"), ("pod", "phase"), "finish")
        if fields is None:
            return None
        return do.FinishPod(self.use_pod(fields["pod"]), self.text(fields["phase"], "phase", ("Succeeded", "Failed")))

    def remove_finalizers(self, at: Marked) -> do.Action | None:
        """Read ``removeFinalizers``."""
        return do.RemoveFinalizers(self.use_pod(at))

    def reset_condition(self, at: Marked) -> do.Action | None:
        """Read ``resetCondition``."""
        return do.ResetCondition(self.use_pod(at))

    # The controller

    def restart(self, at: Marked) -> do.Action | None:
        """Read ``restart``: nothing, or ``after``."""
        if at.value is None:
            return do.Restart(0.0)
        fields = self.needed(at, ("after",), ("after",), "restart")
        return None if fields is None else do.Restart(self.seconds(fields["after"], "after", 0.0))

    def lead(self, at: Marked) -> do.Action | None:
        """Read ``lead``."""
        return do.Lead(self.boolean(at, "lead"))

    def step_host_clock(self, at: Marked) -> do.Action | None:
        """Read ``stepHostClock``."""
        return do.StepHostClock(self.seconds(at, "stepHostClock"))

    # Trouble

    def refuse(self, at: Marked) -> do.Action | None:
        """Read ``refuse``; without ``status`` the connection breaks."""
        fields = self.needed(at, (*_PICKING, "status", "message", "retryAfter", "tookEffect"), ("call",), "refuse")
        if fields is None:
            return None
        trouble = Trouble(
            fails=True,
            status=self.whole_number(fields["status"], "status", 400) if "status" in fields else None,
            message=self.text(fields["message"], "message") if "message" in fields else "",
            retry_after_seconds=self._optional_seconds(fields, "retryAfter"),
            takes_effect="tookEffect" in fields and self.boolean(fields["tookEffect"], "tookEffect"),
        )
        return self._disturb(fields, at, trouble)

    def hang(self, at: Marked) -> do.Action | None:
        """Read ``hang``."""
        fields = self.needed(at, (*_PICKING, "tookEffect"), ("call",), "hang")
        if fields is None:
            return None
        effect = "tookEffect" in fields and self.boolean(fields["tookEffect"], "tookEffect")
        return self._disturb(fields, at, Trouble(hangs=True, takes_effect=effect))

    def delay(self, at: Marked) -> do.Action | None:
        """Read ``delay``."""
        fields = self.needed(at, (*_PICKING, "by"), ("call", "by"), "delay")
        if fields is None:
            return None
        return self._disturb(fields, at, Trouble(delay_seconds=self.seconds(fields["by"], "by", 0.0)))

    def _disturb(self, fields: dict[str, Marked], at: Marked, trouble: Trouble) -> do.Action:
        picked = Picked(self._calls(fields["call"]), self._pattern(fields, at), self._times(fields))
        return do.DisturbCalls(picked, self._optional_seconds(fields, "for"), trouble)

    def _calls(self, at: Marked) -> frozenset[Call]:
        items = self.items(at, "call") if isinstance(at.value, list) else [at]
        names = [self.text(item, "call", _CALLS) for item in items]
        return frozenset(call for name in names for call in _CALLS.get(name, frozenset()))

    def _pattern(self, fields: dict[str, Marked], at: Marked) -> str:
        if "pod" in fields and "node" in fields:
            self.problem(at.line, "'pod' and 'node' do not go together: a call is about one of them")
        if "pod" in fields:
            return str(named(self.text(fields["pod"], "pod")))
        return self.text(fields["node"], "node") if "node" in fields else "*"

    def _times(self, fields: dict[str, Marked]) -> int | None:
        return self.whole_number(fields["times"], "times", 1) if "times" in fields else None

    def _optional_seconds(self, fields: dict[str, Marked], name: str) -> float | None:
        return self.seconds(fields[name], name, 0.0) if name in fields else None

    def outage(self, at: Marked) -> do.Action | None:
        """Read ``outage``."""
        fields = self.needed(at, ("for",), ("for",), "outage")
        return None if fields is None else do.Outage(self.seconds(fields["for"], "for", 0.0))

    def lag(self, at: Marked) -> do.Action | None:
        """Read ``lag``."""
        fields = self.needed(at, ("watch", "by"), ("watch", "by"), "lag")
        return None if fields is None else do.LagWatches(self._watches(fields), self.seconds(fields["by"], "by", 0.0))

    def cut(self, at: Marked) -> do.Action | None:
        """Read ``cut``."""
        fields = self.needed(at, ("watch", "for"), ("watch",), "cut")
        if fields is None:
            return None
        return do.CutWatches(self._watches(fields), self._optional_seconds(fields, "for") or 0.0)

    def lose(self, at: Marked) -> do.Action | None:
        """Read ``lose``."""
        fields = self.needed(at, ("watch", "for"), ("watch", "for"), "lose")
        return None if fields is None else do.LoseEvents(self._watches(fields), self.seconds(fields["for"], "for", 0.0))

    def _watches(self, fields: dict[str, Marked]) -> do.Watches:
        return _WATCHES.get(self.text(fields["watch"], "watch", _WATCHES), _WATCHES["all"])


_PICKING = ("call", "pod", "node", "times", "for")

_READERS: dict[str, Callable[[ActionReading, Marked], do.Action | None]] = {
    "taint": ActionReading.add_taints,
    "untaint": ActionReading.remove_taints,
    "setTaints": ActionReading.set_taints,
    "writeNode": ActionReading.write_node,
    "createNode": ActionReading.create_node,
    "deleteNode": ActionReading.delete_node,
    "recreateNode": ActionReading.recreate_node,
    "freezeKubelet": ActionReading.freeze_kubelet,
    "thawKubelet": ActionReading.thaw_kubelet,
    "create": ActionReading.create_pods,
    "delete": ActionReading.delete_pod,
    "recreate": ActionReading.recreate_pod,
    "bind": ActionReading.bind_pod,
    "tolerate": ActionReading.change_tolerations,
    "finish": ActionReading.finish_pod,
    "removeFinalizers": ActionReading.remove_finalizers,
    "resetCondition": ActionReading.reset_condition,
    "restart": ActionReading.restart,
    "lead": ActionReading.lead,
    "stepHostClock": ActionReading.step_host_clock,
    "refuse": ActionReading.refuse,
    "hang": ActionReading.hang,
    "delay": ActionReading.delay,
    "outage": ActionReading.outage,
    "lag": ActionReading.lag,
    "cut": ActionReading.cut,
    "lose": ActionReading.lose,
}

ACTIONS = frozenset(_READERS)
