"""Hypothetical changes: parsed from arguments, and applied to an inventory.
Nodes are given by name or by a pattern (``*``, ``worker-*``), which a selector and zones narrow. An invalid change
raises ``WrongChange``: one sentence with the valid form.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from taint_eviction.core.label_selectors import LabelSelector, chooses, parse_selector
from taint_eviction.core.objects import PodRef, Taint, Toleration
from taint_eviction.core.text import did_you_mean, nearest
from taint_eviction.files import short_forms
from taint_eviction_ctl.planning import forecast
from taint_eviction_ctl.planning.forecast import WhatIf
from taint_eviction_ctl.planning.inventory import Inventory, NodeFacts

_TAINT_FORM = "NODE=KEY[=VALUE]:EFFECT, as in node-1=maintenance=now:NoExecute (EFFECT: {})".format(
    ", ".join(short_forms.EFFECTS)
)
# Valid keys and values in Kubernetes: a name, for a key perhaps with a domain before it.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9.-]{{1,253}}/)?{_NAME}", re.ASCII)
# The characters that make a name a pattern.
_WILD = frozenset("*?[")
_VALUE = re.compile(rf"(?:{_NAME})?", re.ASCII)
_UNTAINT_FORM = "NODE=KEY[:EFFECT], as in node-1=maintenance or node-1=maintenance:NoExecute"


class WrongChange(ValueError):
    """A change that cannot be read, or that names an object that does not exist."""


@dataclass(frozen=True, slots=True)
class Tolerating:
    """A toleration for all pods that a selector matches, in one namespace or ("") in all."""

    namespace: str
    selector: LabelSelector
    toleration: Toleration
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes. ``selector`` and ``zones`` narrow patterns of nodes; empty ones do not."""

    taints: tuple[tuple[str, Taint], ...] = ()
    untaints: tuple[tuple[str, str, str], ...] = ()
    deleted_nodes: tuple[str, ...] = ()
    tolerations: tuple[Tolerating, ...] = ()
    selector: LabelSelector = ()
    zones: frozenset[str] = frozenset()

    @property
    def label_keys(self) -> frozenset[str]:
        """The keys of the labels by which they choose pods."""
        return frozenset(term.key for change in self.tolerations for term in change.selector)

    def described(self) -> list[str]:
        """Return the changes in words, one phrase each."""
        return [
            *(f"untaint {node} {key}{':' if effect else ''}{effect}" for node, key, effect in self.untaints),
            *(f"taint {node} {taint}" for node, taint in self.taints),
            *(f"delete node {node}" for node in self.deleted_nodes),
            *(f"let {change.text}" for change in self.tolerations),
        ]


# Reading


def read_taint(text: str, chosen: bool = False) -> tuple[str, Taint]:
    """Read ``NODE=KEY[=VALUE]:EFFECT``; where a selector has ``chosen``, ``KEY:EFFECT`` is for all those nodes."""
    node, equals, rest = text.partition("=")
    if chosen and not equals:
        node, rest = "*", text
    try:
        parsed = short_forms.parse_taint(rest)
    except ValueError:
        raise WrongChange(f"{text!r} is not {_TAINT_FORM}{short_forms.meant(text, '--untaint ')}") from None
    if not node or not _KEY.fullmatch(parsed["key"]) or not _VALUE.fullmatch(parsed.get("value", "")):
        raise WrongChange(f"{text!r} is not {_TAINT_FORM}")
    return node, Taint(parsed["key"], parsed["effect"], parsed.get("value", ""))


def read_untaint(text: str, chosen: bool = False) -> tuple[str, str, str]:
    """Read ``NODE=KEY[:EFFECT]``, with or without kubectl's final ``-``; ``chosen`` as for a taint."""
    node, equals, rest = text.partition("=")
    if chosen and not equals:
        node, rest = "*", text
    try:
        key, effect = short_forms.parse_taint_removal(rest)
    except ValueError:
        raise WrongChange(f"{text!r} is not {_UNTAINT_FORM}{short_forms.meant(text.removesuffix('-'))}") from None
    if not node:
        raise WrongChange(f"{text!r} is not {_UNTAINT_FORM}")
    return node, key, effect


def read_tolerating(chosen: str, text: str) -> Tolerating:
    """Read a toleration and the pods it is for: ``[NAMESPACE/]SELECTOR``."""
    namespace, slash, selector = chosen.partition("/")
    # Keys of labels may have a slash after a domain; namespaces have no dots.
    if not slash or "." in namespace or "=" in namespace:
        namespace, selector = "", chosen
    try:
        parsed = short_forms.parse_toleration(text)
    except ValueError as expected:
        raise WrongChange(f"{text!r} is not {expected}") from None
    return Tolerating(namespace, read_selector(selector), _toleration(parsed), f"pods of {chosen} tolerate {text}")


def read_selector(text: str) -> LabelSelector:
    """Read a label selector."""
    try:
        return parse_selector(text)
    except ValueError as expected:
        raise WrongChange(f"{text!r} is not {expected}") from None


def _toleration(parsed: dict[str, Any]) -> Toleration:
    return Toleration(
        parsed.get("key", ""),
        parsed.get("operator", ""),
        parsed.get("value", ""),
        parsed.get("effect", ""),
        parsed.get("tolerationSeconds"),
    )


# Applying


def with_chosen_nodes(changes: Changes, inventory: Inventory) -> Changes:
    """Interpret ``KEY=VALUE:EFFECT`` beside a selector as kubectl does, for all nodes that the selector matches.
    It was parsed as a node's name and a key. This applies only if no node has that name, or a similar one.
    """
    if not (changes.selector or changes.zones):
        return changes

    def chosen(node: str, taint: Taint) -> tuple[str, Taint]:
        is_name = node in inventory.nodes or nearest(node, inventory.nodes) or set(node) & _WILD
        return (node, taint) if is_name or taint.value else ("*", Taint(node, taint.effect, taint.key))

    return replace(changes, taints=tuple(chosen(*each) for each in changes.taints))


def apply_changes(changes: Changes, inventory: Inventory, at: float) -> WhatIf:
    """Return nodes and pods as they would be. Untaints come before taints, so that one taint can replace another."""
    patterns = [*(each[0] for each in changes.untaints), *(node for node, _ in changes.taints), *changes.deleted_nodes]
    if (changes.selector or changes.zones) and not any(set(pattern) & _WILD for pattern in patterns):
        raise WrongChange(
            "-l and --zone only say for which nodes a taint, an untaint or a deletion of many nodes is; there is none:"
            " write '*=…'; what leaves as things are, by name: taint-eviction plan; how many pods would leave if a zone"
            " were let go: taint-eviction resume zone/NAME --dry-run"
        )
    taints: dict[str, tuple[Taint, ...]] = {}
    for pattern, key, effect in changes.untaints:
        found = False
        for node in _nodes(pattern, changes, inventory):
            before = taints.get(node.node.name, node.node.taints)
            taints[node.node.name] = forecast.remove_taints(before, key, effect)
            found = found or taints[node.node.name] != before
        if not found:
            named = f"{key}:{effect}" if effect else key
            raise WrongChange(f"there is no taint {named} to remove from {pattern}{_present(pattern, inventory)}")
    for pattern, taint in changes.taints:
        for node in _nodes(pattern, changes, inventory):
            before = taints.get(node.node.name, node.node.taints)
            taints[node.node.name] = forecast.add_taint(before, taint)
    deleted = {node.node.name for pattern in changes.deleted_nodes for node in _nodes(pattern, changes, inventory)}
    changed = {name: now for name, now in taints.items() if now != inventory.nodes[name].node.taints}
    return WhatIf(at, changed, frozenset(deleted), _tolerations(changes.tolerations, inventory))


def _present(pattern: str, inventory: Inventory) -> str:
    node = inventory.nodes.get(pattern)
    return "" if node is None else f", which has {', '.join(map(str, node.node.taints)) or 'none'}"


def _nodes(pattern: str, changes: Changes, inventory: Inventory) -> list[NodeFacts]:
    if pattern in inventory.nodes:
        return [inventory.nodes[pattern]]
    if not set(pattern) & _WILD:
        raise WrongChange(_unknown_node(pattern, changes, inventory.nodes))
    found = [
        node
        for name, node in inventory.nodes.items()
        if fnmatchcase(name, pattern)
        and chooses(changes.selector, node.node.labels)
        and (not changes.zones or node.zone in changes.zones)
    ]
    if not found:
        narrowed = " that -l and --zone match" if changes.selector or changes.zones else ""
        raise WrongChange(f"{pattern!r} matches none of {len(inventory.nodes)} nodes{narrowed}")
    return found


def _unknown_node(name: str, changes: Changes, known: Collection[str]) -> str:
    if changes.selector or changes.zones:
        return f"there is no node {name!r}; for the nodes that -l and --zone match write '*=…'"
    return f"there is no node {name!r}" + (
        did_you_mean(name, known) or f" among {len(known)}; for all nodes write '*=…', for some add -l"
    )


def _tolerations(given: Iterable[Tolerating], inventory: Inventory) -> dict[PodRef, tuple[Toleration, ...]]:
    changed: dict[PodRef, tuple[Toleration, ...]] = {}
    for change in given:
        chosen = [
            facts.pod
            for facts in inventory.pods.values()
            if change.namespace in ("", facts.pod.ref.key.namespace) and chooses(change.selector, facts.pod.labels)
        ]
        if not chosen:
            raise WrongChange(f"no pod matches: let {change.text}")
        for pod in chosen:
            before = changed.get(pod.ref, pod.tolerations)
            changed[pod.ref] = forecast.add_toleration(before, change.toleration)
    return changed
