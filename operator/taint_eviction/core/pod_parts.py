"""Which parts of pods are read: those that the settings and the rules in force use, and no others.

Anybody who may create a pod decides how large the other parts are. This module reads nothing
(``kube.kubernetes_objects``, ``kopf_shell.kept_fields``).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

ValueT = TypeVar("ValueT")


@dataclass(slots=True)
class PodParts:
    """``label_keys``: the keys of the labels that are kept, None: all. ``holds``: the annotation taint-eviction/hold is
    read; without it no pod asks for a hold. ``long_notes``: a note counts for any number of tolerations
    (``core.adoption``): one that people read by a command keeps no loop busy.

    All readers of one process share one object, and a policy with other keys changes it.
    """

    label_keys: frozenset[str] | None = None
    holds: bool = True
    long_notes: bool = False

    def labels(self, raw: Mapping[str, ValueT]) -> Mapping[str, ValueT]:
        """Return the labels that are kept, in an order of their own."""
        if self.label_keys is None:
            return raw
        return {key: raw[key] for key in self.label_keys if key in raw} if raw else raw


# The key of the label by which the controller knows its own pods.
_OWN_KEY = "app.kubernetes.io/name"


def needed_keys(rules_name: Collection[str]) -> frozenset[str]:
    """Return the keys of the labels that are kept while the rules in force name these."""
    return frozenset({_OWN_KEY, *rules_name})


# Everything that any setting or rule could use: for people who ask what-if questions.
ALL_PARTS = PodParts()
