"""The controller's pods in an installation: how each was started, from its arguments and its environment.
A pod that cannot be read is reported, and the others are still read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import one_line
from taint_eviction.kube.json_fields import Unreadable, as_list, as_object, as_text, is_object, needed_text, refuse
from taint_eviction.settings import ElectionSettings

CONTROLLER = "taint-eviction-controller"
# The values that click takes as true in the environment.
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_LEASE_FLAG = "leader-elect-resource"
# The manifests name the Lease after the account.
_ACCOUNT = "spec.serviceAccountName"
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
# No argument that counts is longer. Strangers' variables may make any length of one that names them again and again.
_MAX_ARGUMENT = 1024
# The scheduler's message names each reason with its number of nodes.
_MAX_SAID = 300

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of the controller.

    ``lease``: the Lease for which it is a candidate, by its flags and its environment; ``asked_lease``: the Lease that
    commands run in the pod ask for, by variables that the controller does not read. ``waits``: why its container does
    not run, in the words of the scheduler or the kubelet; "" if it runs, or nobody says.
    """

    name: str
    node: str
    ready: bool
    waits: str
    version: str
    # The user name at the API server: a service account, or the user of manifests/overlays/static-pod.
    user: str
    dry_run: bool
    host_network: bool
    lease: NamespacedName
    asked_lease: NamespacedName
    elects: bool
    instance: str
    adopts: bool
    breaker: bool
    policy_file: bool
    # As written; "": not set.
    eviction_mode: str
    budgets_on_lost_nodes: str

    @property
    def runs(self) -> bool:
        """Return whether its container runs, as far as anybody says."""
        return bool(self.node) and not self.waits


def read_replicas(pods: Sequence[Any], place: str) -> tuple[list[Replica], list[str]]:
    """Read pods; return a sentence for each that is malformed. Those that are terminating are left out."""
    replicas, problems = [], []
    for number, pod in enumerate(pods):
        try:
            if not is_object(pod):
                refuse("it is not an object")
            metadata = as_object(pod.get("metadata"), "metadata")
            if not metadata.get("deletionTimestamp"):
                replicas.append(_replica(pod, metadata))
        except Unreadable as error:
            problems.append(f"{place}: {name_of(pod, number)} is malformed: {error}")
    return replicas, problems


def idle(replicas: Iterable[Replica]) -> list[str]:
    """Return a sentence for each Lease of which no replica runs: it has no leader, and evicts nothing."""
    by_lease: dict[NamespacedName, list[Replica]] = {}
    for replica in replicas:
        by_lease.setdefault(replica.lease, []).append(replica)
    return [
        f"no replica of {lease} runs ({of[0].name}: {of[0].waits or 'nobody has bound it to a node yet'})"
        for lease, of in sorted(by_lease.items())
        if not any(replica.runs for replica in of)
    ]


def name_of(pod: object, number: int) -> str:
    """Return the name of a pod in a list, or its position if the pod is malformed."""
    metadata = pod.get("metadata") if isinstance(pod, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"pod {name}" if isinstance(name, str) and name else f"items[{number}]"


def words_of(spec: Json) -> list[str]:
    """Return the commands and arguments of all containers."""
    return [
        as_text(word, f"spec.containers[].{part}[]")
        for container in _containers(spec)
        for part in ("command", "args")
        for word in as_list(container.get(part), f"spec.containers[].{part}")
    ]


def _containers(spec: Json) -> Iterator[Json]:
    for number, container in enumerate(as_list(spec.get("containers"), "spec.containers")):
        yield as_object(container, f"spec.containers[{number}]")


def _environment(spec: Json) -> dict[str, str]:
    """Return the environment variables in the pod's spec.

    Of variables with ``valueFrom``, the name of the account is known; others have the value "".
    """
    entries = (
        as_object(entry, "spec.containers[].env[]")
        for container in _containers(spec)
        for entry in as_list(container.get("env"), "spec.containers[].env")
    )
    account = as_text(spec.get("serviceAccountName"), "spec.serviceAccountName")
    return {
        as_text(entry.get("name"), "env.name"): account
        if _field(entry) == _ACCOUNT
        else as_text(entry.get("value"), "env.value")
        for entry in entries
    }


def _field(entry: Json) -> str:
    """Return the field of the pod that a variable is set to; "" if it is set to none."""
    field = as_object(as_object(entry.get("valueFrom"), "env.valueFrom").get("fieldRef"), "env.valueFrom.fieldRef")
    return as_text(field.get("fieldPath"), "fieldPath")


def _expanded(word: str, environment: Mapping[str, str]) -> str:
    """Return an argument with the values of the variables that it names, as the kubelet does it; cut off if long."""
    cut = slice(_MAX_ARGUMENT)
    return _VARIABLE.sub(lambda name: environment.get(name[1], name[0])[cut], word[cut])[cut]


def _replica(pod: Json, metadata: Json) -> Replica:
    spec, status = as_object(pod.get("spec"), "spec"), as_object(pod.get("status"), "status")
    labels, environment = as_object(metadata.get("labels"), "metadata.labels"), _environment(spec)
    words = [_expanded(word, environment) for word in words_of(spec)]
    name, namespace = needed_text(metadata, "name"), needed_text(metadata, "namespace")
    account = as_text(spec.get("serviceAccountName"), "spec.serviceAccountName")
    conditions = [as_object(each, "status.conditions[]") for each in as_list(status.get("conditions"), "conditions")]
    dry_run = "--dry-run" in words or environment.get("TAINT_EVICTION_DRY_RUN", "").strip().lower() in _TRUE
    default = ElectionSettings().lease_name + ("-dry-run" if dry_run else "")

    def set_to(flag: str) -> str:
        variable = f"TAINT_EVICTION_{flag}".replace("-", "_").upper()
        return _flag(f"--{flag}", words) or environment.get(variable, "")

    def is_on(flag: str) -> bool:
        return f"--{flag}" in words or environment.get(f"TAINT_EVICTION_{flag.upper()}", "").strip().lower() in _TRUE

    lease = set_to(f"{_LEASE_FLAG}-name")
    by = NamespacedName(set_to(f"{_LEASE_FLAG}-namespace") or namespace, lease or default)
    elects = set_to("leader-elect").strip().lower() in _TRUE if set_to("leader-elect") else not dry_run or bool(lease)

    return Replica(
        name,
        as_text(spec.get("nodeName"), "spec.nodeName"),
        any((condition.get("type"), condition.get("status")) == ("Ready", "True") for condition in conditions),
        _waits(status, conditions, as_text(spec.get("nodeName"), "spec.nodeName")),
        as_text(labels.get("app.kubernetes.io/version"), "its version") or "unknown",
        f"system:serviceaccount:{namespace}:{account}" if account else CONTROLLER,
        dry_run,
        bool(spec.get("hostNetwork")),
        by,
        NamespacedName(*(_asked(part, environment) or own for part, own in zip(by._fields, by, strict=True))),
        "--leader-elect" in words or (elects and "--no-leader-elect" not in words),
        as_text(labels.get("app.kubernetes.io/instance"), "its instance"),
        is_on("adopt"),
        is_on("breaker"),
        bool(set_to("config")),
        set_to("eviction-mode") or _flag("--mode", words),
        set_to("budgets-on-lost-nodes"),
    )


def _waits(status: Json, conditions: Sequence[Json], node: str) -> str:
    """Return why the container of a pod does not run; "" if it runs, or nobody says."""
    for condition in conditions:
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False"):
            return _said(condition, "status.conditions[]") or "it is not bound to a node"
    for container in as_list(status.get("containerStatuses"), "status.containerStatuses"):
        state = as_object(as_object(container, "status.containerStatuses[]").get("state"), "state")
        if waiting := as_object(state.get("waiting"), "state.waiting"):
            return _said(waiting, "state.waiting") or "its container waits"
    if status.get("phase") == "Pending" and not status.get("containerStatuses"):
        return f"the kubelet of {node} says nothing of it yet" if node else "nobody has bound it to a node yet"
    return ""


def _said(of: Json, where: str) -> str:
    parts = (as_text(of.get(part), f"{where}.{part}") for part in ("reason", "message"))
    return one_line(": ".join(filter(None, parts)), _MAX_SAID)


def _asked(part: str, environment: Mapping[str, str]) -> str:
    """Return the part of the Lease's name that commands use; "" for their default."""
    names = (f"TAINT_EVICTION_{kind}_{part.upper()}" for kind in ("LEASE", "STATE"))
    return next(filter(None, (environment.get(name) for name in names)), "")


def _flag(name: str, words: Sequence[str]) -> str:
    """Return the value of a flag, written as one word or two; "" if it is not there. The last one counts."""
    values = [after for word, after in pairwise([*words, ""]) if word == name]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return values[-1] if values else ""
