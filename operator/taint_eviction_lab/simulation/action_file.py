"""Reads the actions of a scenario's timeline: the keywords and their values.

Most take a short form, as a command line would have it (``taint: node-1 maintenance=now:NoExecute``), or a mapping.
"""

from collections.abc import Callable

from taint_eviction.files import short_forms
from taint_eviction.files.marked_yaml import Marked
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.actions import KUBECTL
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.lifecycle_file import LifecycleReading


class ActionReading(LifecycleReading):
    """Reads actions; returns None if a problem leaves nothing to perform."""

    def action(self, keyword: str, at: Marked) -> do.Action | None:
        """Read the value of a keyword in ``ACTIONS`` or ``OLD_ACTIONS``."""
        return _READERS[OLD_ACTIONS.get(keyword, keyword)](self, at)

    # Nodes

    def add_taints(self, at: Marked) -> do.Action | None:
        """Read ``taint``."""
        if not isinstance(at.value, dict):
            words = self.words(at, 2, "taint takes 'NODE KEY=VALUE:EFFECT', or a mapping")
            if not words:
                return None
            return do.AddTaints(self.use_node(words[0]), tuple(self.taint(word) for word in words[1:]), KUBECTL)
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
            return do.RemoveTaints(self.use_node(words[0]), self._removals(words[1:]), KUBECTL) if words else None
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
            return do.WriteNode(self.use_node(at), KUBECTL)
        fields = self.needed(at, ("node", "by"), ("node",), "writeNode")
        return None if fields is None else do.WriteNode(self.use_node(fields["node"]), self.manager(fields))

    def set_ready(self, at: Marked) -> do.Action | None:
        """Read ``setReady``."""
        if isinstance(at.value, str):
            words = self.words(at, 2, "setReady takes 'NODE STATUS', or a mapping")
            return do.SetReady(self.use_node(words[0]), self._readiness(words[1])) if words else None
        fields = self.needed(at, ("node", "status", "message"), ("node", "status"), "setReady")
        if fields is None:
            return None
        message = self.text(fields["message"], "message") if "message" in fields else ""
        return do.SetReady(self.use_node(fields["node"]), self._readiness(fields["status"]), message)

    def _readiness(self, at: Marked) -> str:
        if isinstance(at.value, bool):  # YAML reads True and False as booleans.
            return str(at.value)
        return self.text(at, "status", ("True", "False", "Unknown"))

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
        fields = self.needed(at, ("pod", "force", "by", "refused"), ("pod",), "delete")
        if fields is None:
            return None
        built_in = "by" in fields and self.text(fields["by"], "by", ("built-in",)) == "built-in"
        force, refused = (name in fields and self.boolean(fields[name], name) for name in ("force", "refused"))
        if force and built_in:
            self.problem(at.line, "the built-in controller deletes no pod by force")
        if refused and not built_in:
            self.problem(at.line, "refused needs 'by: built-in'")
        return do.DeletePod(self.use_pod(fields["pod"]), force, built_in, refused)

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


_READERS: dict[str, Callable[[ActionReading, Marked], do.Action | None]] = {
    "taint": ActionReading.add_taints,
    "untaint": ActionReading.remove_taints,
    "setTaints": ActionReading.set_taints,
    "writeNode": ActionReading.write_node,
    "setReady": ActionReading.set_ready,
    "createNode": ActionReading.create_node,
    "deleteNode": ActionReading.delete_node,
    "recreateNode": ActionReading.recreate_node,
    "freezeKubelet": ActionReading.freeze_kubelet,
    "thawKubelet": ActionReading.thaw_kubelet,
    "silence": ActionReading.silence,
    "speak": ActionReading.speak,
    "shutDown": ActionReading.shut_down,
    "restartLifecycle": ActionReading.restart_lifecycle,
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
    "stepServerClock": ActionReading.step_server_clock,
    "stopServer": ActionReading.stop_server,
    "refuse": ActionReading.refuse,
    "hang": ActionReading.hang,
    "delay": ActionReading.delay,
    "misdate": ActionReading.misdate,
    "outage": ActionReading.outage,
    "lag": ActionReading.lag,
    "cut": ActionReading.cut,
    "lose": ActionReading.lose,
    "repeat": ActionReading.repeat,
    "relist": ActionReading.relist,
    "freeze": ActionReading.freeze,
    "partition": ActionReading.partition,
    "pause": ActionReading.pause,
    "resume": ActionReading.resume,
    "resetBreaker": ActionReading.reset_breaker,
    "loseControlState": ActionReading.lose_control_state,
    "scribble": ActionReading.scribble,
    "createBudget": ActionReading.create_budget,
    "changeBudget": ActionReading.change_budget,
    "deleteBudget": ActionReading.delete_budget,
    "setHold": ActionReading.set_hold,
    "annotate": ActionReading.annotate,
    "handBack": ActionReading.hand_back,
    "changePolicy": ActionReading.change_policy,
}

ACTIONS = frozenset(_READERS)
# What actions were called before 0.3.
OLD_ACTIONS = {"loseOrders": "loseControlState"}
