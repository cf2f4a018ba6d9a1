"""The model's informers: they turn the events of a watch into the model's knowledge.

An object that cannot be read keeps its last known state. After a list, an object that is not in it counts as deleted;
an object that was deleted and created meanwhile is seen as one change.
"""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction_lab.built_in.controller import BuiltInController
from taint_eviction_lab.simulation.calls import Parsing


class InformerListener:
    """A ``WatchListener``; ``version`` is how far its watch has come, ``heard`` counts signs of life."""

    def __init__(self, parsing: Parsing, controller: BuiltInController) -> None:
        self.listed = asyncio.Event()
        self.version: int | None = None
        self.heard = 0
        self._parsing = parsing
        self._controller = controller
        self._in_list: set[Hashable] = set()
        self._resuming = False

    def begin(self, resuming: bool) -> None:
        """Begin a watch; ``resuming``: it lists nothing at its start."""
        self._resuming = resuming
        self._in_list.clear()

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Observe an object."""
        version = int(body["metadata"]["resourceVersion"])
        self.version = version if self.version is None else max(self.version, version)
        if event_type is None:
            self._in_list.add(self._key_of(body))
        self._changed(body, event_type == "DELETED")

    def on_listed(self) -> None:
        """Drop the objects that were not listed."""
        if not self._resuming:
            for key in self._known():
                if key not in self._in_list:
                    self._gone(key)
        self._resuming = False
        self._in_list.clear()
        self.listed.set()

    def on_heard(self) -> None:
        """Count a sign of life."""
        self.heard += 1

    def on_progress(self, version: int | None) -> None:
        """Note how far the watch has come."""
        self.version = version if version is not None else self.version

    def _key_of(self, body: Mapping[str, Any]) -> Hashable:
        raise NotImplementedError

    def _known(self) -> list[Any]:
        raise NotImplementedError

    def _changed(self, body: Mapping[str, Any], deleted: bool) -> None:
        raise NotImplementedError

    def _gone(self, key: Any) -> None:
        raise NotImplementedError


class NodeInformer(InformerListener):
    """The informer of all nodes."""

    def _key_of(self, body: Mapping[str, Any]) -> str:
        return str(body["metadata"]["name"])

    def _known(self) -> list[str]:
        return self._controller.known_nodes()

    def _changed(self, body: Mapping[str, Any], deleted: bool) -> None:
        if deleted:
            self._gone(self._key_of(body))
        elif (node := self._parsing.node(body)) is not None:
            self._controller.node_changed(node.name, node)

    def _gone(self, key: str) -> None:
        self._controller.node_changed(key, None)


class PodInformer(InformerListener):
    """The informer of all pods."""

    def _key_of(self, body: Mapping[str, Any]) -> NamespacedName:
        return NamespacedName(body["metadata"]["namespace"], body["metadata"]["name"])

    def _known(self) -> list[NamespacedName]:
        return self._controller.known_pods()

    def _changed(self, body: Mapping[str, Any], deleted: bool) -> None:
        if deleted:
            self._gone(self._key_of(body))
        elif (pod := self._parsing.pod(body)) is not None:
            self._controller.pod_changed(pod.ref.key, pod)

    def _gone(self, key: NamespacedName) -> None:
        self._controller.pod_changed(key, None)
