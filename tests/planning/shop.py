"""A little cluster as JSON for tests of plans, and the shortest ways to plan with it."""

import io
import json
from typing import Any

from click.testing import CliRunner, Result

from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.instants import Moment
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule
from taint_eviction_ctl.cli.plan import plan as command
from taint_eviction_ctl.planning.changes import Changes, apply_changes
from taint_eviction_ctl.planning.files import read_files
from taint_eviction_ctl.planning.inventory import Inventory
from taint_eviction_ctl.planning.plan import Plan, make_plan

SHOP = "tests/planning/data/shop.json"
# Noon of the day on which the shop's objects were written.
NOON = 1772366400.0
NOON_TEXT = "2026-03-01T12:00:00Z"

JsonObject = dict[str, Any]


def node(name: str, *taints: str, labels: dict[str, str] | None = None) -> JsonObject:
    """Write a node; taints as ``key=value:Effect``."""
    written = [
        {
            "key": taint.partition("=")[0],
            "value": taint.partition("=")[2].partition(":")[0],
            "effect": taint.rpartition(":")[2],
        }
        for taint in taints
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid of {name}", "labels": labels or {}},
        "spec": {"taints": written},
    }


def pod(
    name: str, on: str | None = "node-1", *tolerations: JsonObject, owner: str = "", ready: bool = True, **metadata: Any
) -> JsonObject:
    """Write a running pod of namespace ``shop``; ``owner`` as ``Kind/name``."""
    kind, _, owner_name = owner.partition("/")
    owners = [{"kind": kind, "name": owner_name, "controller": True}] if owner else []
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid of {name}", "ownerReferences": owners, **metadata},
        "spec": {"nodeName": on, "tolerations": list(tolerations)},
        "status": {"phase": "Running", "conditions": conditions},
    }


def tolerates(seconds: int | None = None, key: str = "maintenance") -> JsonObject:
    """Write a toleration of any value of a key."""
    span = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **span}


def budget(name: str, selector: JsonObject | None = None, **spec: Any) -> JsonObject:
    """Write a PodDisruptionBudget of namespace ``shop``."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {} if selector is None else selector, **spec},
    }


def inventory_of(*objects: JsonObject) -> Inventory:
    """Read objects as if they stood in a file."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return read_files(["-"], io.BytesIO(text.encode()), lambda count: None)


def planned(
    inventory: Inventory,
    changes: Changes | None = None,
    *rules: PolicyRule,
    at: float = NOON,
    mode: EvictionMode = EvictionMode.DELETE,
    on_lost_nodes: bool = True,
) -> Plan:
    """Plan at noon; ``on_lost_nodes`` False: budgets on lost nodes are ignored."""
    told = changes or Changes()
    what_if = apply_changes(told, inventory, at)
    eviction = EvictionPolicy(mode, rules=rules, ignores_budgets_on_lost_nodes=not on_lost_nodes)
    return make_plan(inventory, what_if, told.described(), Moment(NOON, NOON), DecisionPolicy(), eviction)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(command, list(arguments), input=stdin, catch_exceptions=False)
