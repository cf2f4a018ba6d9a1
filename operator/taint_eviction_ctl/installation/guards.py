"""What ``doctor`` finds of what holds an installation back: its admission policy, and guards that were left behind.

An overlay that is applied over another one replaces all arguments of the container. What the former one had switched on
leaves records behind, by which this module notices it.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from taint_eviction.core.objects import LIFECYCLE_KEYS, NamespacedName
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.policy_file import read_policy
from taint_eviction.kube.api_calls import ApiRequest
from taint_eviction.kube.control_state_data import ADOPTS_KEY, BREAKER_KEY
from taint_eviction.kube.json_fields import as_list, as_object, as_text
from taint_eviction_ctl.installation.replicas import CONTROLLER, Replica

# The manifests name the ConfigMap with the policy file so; a prefix or suffix is that of the Lease.
POLICY_FILE = "taint-eviction-policy"

_ADMISSION = "admissionregistration.k8s.io/v1"
_POLICIES, _BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
# How the policy of a static pod names its user.
_USER = re.compile(r"request\.userInfo\.username == '([^']+)'")

# (whether it is right, what was found, advice)
Finding = tuple[bool, str, str]
Read = Callable[[str, ApiRequest], Awaitable[Any]]
ReadList = Callable[[str, ApiRequest], Awaitable[list[Any] | None]]


async def find_admission_policy(read: Read, listed: ReadList, user: str) -> Finding | None:
    """Find the admission policy that narrows the account of this user name; None: Kubernetes has no such kind."""
    query = {"labelSelector": f"app.kubernetes.io/name={CONTROLLER}"}
    bindings = await listed("admission policies", ApiRequest("list", _BINDINGS, query=query, group=_ADMISSION))
    if bindings is None:
        return None
    advice = "the account may write more than the controller does: apply the manifests or the chart (Kubernetes 1.30)"
    others = []
    for binding in bindings:
        name = as_text(as_object(binding.get("metadata"), "metadata").get("name"), "metadata.name")
        spec = as_object(binding.get("spec"), "spec")
        policy_name = as_text(spec.get("policyName"), "spec.policyName")
        what = f"ValidatingAdmissionPolicy {policy_name}"
        policy = await read(what, ApiRequest("get", _POLICIES, name=policy_name, group=_ADMISSION))
        if policy is None:
            return False, f"there is no {what}, which a binding names", advice
        named = _named(spec, as_object(policy.get("spec"), "spec"))
        if named != user:
            others.append(f"{policy_name} narrows {named or 'nobody'}")
        elif "Deny" not in as_list(spec.get("validationActions"), "spec.validationActions"):
            return False, f"the binding {name} refuses nothing", "its validationActions must be [Deny]"
        else:
            return True, f"{policy_name} narrows {user}", ""
    said = f"no admission policy narrows {user}"
    return False, f"{said}; {', '.join(others)}" if others else said, advice


def _named(binding: Any, policy: Any) -> str:
    """Return the user name of the account that a policy narrows; "" if it is none."""
    if parameter := as_object(binding.get("paramRef"), "spec.paramRef"):
        return f"system:serviceaccount:{parameter.get('namespace')}:{parameter.get('name')}"
    for condition in as_list(policy.get("matchConditions"), "spec.matchConditions"):
        if named := _USER.fullmatch(as_text(as_object(condition, "a condition").get("expression"), "expression")):
            return named[1]
    return ""


async def find_lost_guards(read: Read, lease: NamespacedName, replicas: Sequence[Replica]) -> list[Finding]:
    """Find what the state ConfigMap and the policy file say, and no replica has a flag for."""
    state = await read(f"ConfigMap {lease}", ApiRequest("get", "configmaps", *lease))
    data = as_object((state or {}).get("data"), "data")
    found: list[Finding] = []
    if BREAKER_KEY in data and not any(replica.breaker for replica in replicas):
        said = f"the ConfigMap {lease} has a record of the circuit breaker, and no replica has --breaker"
        advice = (
            "another overlay was applied over the one with components/breaker: apply both together; where the breaker"
            " is to go, run breaker reset and remove the key"
        )
        found.append((False, said, advice))
    if ADOPTS_KEY in data and not any(replica.adopts for replica in replicas):
        said = f"the ConfigMap {lease} says that countdowns are taken over, and no replica has --adopt"
        advice = "apply the overlay with components/adopt again, or run taint-eviction hand-back"
        found.append((False, said, advice))
    if not any(replica.policy_file for replica in replicas):
        file = _policy_file(lease)
        if await read(f"ConfigMap {file}", ApiRequest("get", "configmaps", *file)) is not None:
            said = f"there is a ConfigMap {file}, and no replica has --config: its rules have no effect"
            advice = "apply the overlay with components/policy again, or delete the ConfigMap"
            found.append((False, said, advice))
    return found or [(True, _guards_of(replicas), "")]


async def find_kept_on_lost_nodes(read: Read, lease: NamespacedName, replicas: Sequence[Replica]) -> list[Finding]:
    """Find whether budgets keep pods on lost nodes, by the flags or by a rule of the policy file, and nobody has said
    that this is meant.
    """
    rules = await _rules(read, lease) if any(replica.policy_file for replica in replicas) else ()
    flags = {EvictionMode(replica.eviction_mode or "delete") for replica in replicas if _is_mode(replica)}
    keeping = {by for flag in flags for key in LIFECYCLE_KEYS for by in _keeping(flag, rules, key)}
    if not keeping:
        return []
    if all(replica.budgets_on_lost_nodes for replica in replicas):
        return [(True, f"--budgets-on-lost-nodes={replicas[0].budgets_on_lost_nodes} with mode evict", "")]
    by = "" if "" in keeping else f" of rule {min(keeping)}"
    said = f"with mode evict{by}, a budget that has too few healthy pods keeps the pods of a dead node indefinitely"
    advice = "set --budgets-on-lost-nodes=ignore, which deletes such pods, or =respect if that is meant"
    return [(False, said, advice)]


def _is_mode(replica: Replica) -> bool:
    return replica.eviction_mode in ("", *(mode.value for mode in EvictionMode))


def _keeping(flag: EvictionMode, rules: Sequence[PolicyRule], key: str) -> Iterator[str]:
    """Yield the names of the rules by which pods that leave because of this taint are evicted in mode evict; "": no
    rule matches them, and the flag says so.
    """
    for rule in rules:
        if rule.taint_keys and "*" not in rule.taint_keys and not rule.names(key):
            continue
        if (rule.mode or flag) is EvictionMode.EVICT and not rule.pause:
            yield rule.name
        if rule.covers(PolicyRule("", taint_keys=(key,))):
            return
    if flag is EvictionMode.EVICT:
        yield ""


async def _rules(read: Read, lease: NamespacedName) -> Sequence[PolicyRule]:
    """Return the rules in the ConfigMap of the policy file; none if there is none, or if it cannot be read."""
    name = _policy_file(lease)
    found = await read(f"ConfigMap {name}", ApiRequest("get", "configmaps", *name))
    texts = as_object((found or {}).get("data"), "data").values()
    try:
        return [
            rule for text in texts for rule in read_policy(as_text(text, "data"), str(name), EvictionPolicy()).rules
        ]
    except Malformed:
        return ()


def _policy_file(lease: NamespacedName) -> NamespacedName:
    """Return the ConfigMap with the policy file, beside the Lease."""
    return lease._replace(name=lease.name.replace(CONTROLLER, POLICY_FILE) if CONTROLLER in lease.name else POLICY_FILE)


def _guards_of(replicas: Sequence[Replica]) -> str:
    guards = {
        "circuit breaker": any(replica.breaker for replica in replicas),
        "policy file": any(replica.policy_file for replica in replicas),
    }
    on = [name for name, is_on in guards.items() if is_on]
    return f"{' and '.join(on)} on, and nothing is left of others" if on else "none is on, and none is left behind"
