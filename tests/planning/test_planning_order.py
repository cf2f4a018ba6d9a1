"""Plans with an order: when pods leave then, and which plugins leave before pods that may need them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.planning.shop import run

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
CSI = {"kind": "DaemonSet", "name": "csi", "uid": "d", "controller": True}
TAINT = "--taint=n1=m=x:NoExecute"


def a_pod(name: str, seconds: int | None = 0, plugin: bool = False, **metadata: Any) -> dict[str, Any]:
    """Make a pod that tolerates the taint for some seconds, None: indefinitely."""
    toleration = {"key": "m", "operator": "Exists", "effect": "NoExecute"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds  # type: ignore[assignment]
    spec: dict[str, Any] = {"nodeName": "n1", "tolerations": [toleration]}
    owner: dict[str, Any] = {}
    if plugin:
        spec["priority"], owner = 2000001000, {"ownerReferences": [CSI]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, **owner, **metadata},
        "spec": spec,
    }


@pytest.fixture
def planned(tmp_path: Path) -> Any:
    """Plan for a ready node with these pods."""

    def plan(*pods: dict[str, Any], flags: tuple[str, ...] = ("--order=tiers",)) -> dict[str, Any]:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n"}, "spec": {}, "status": READY}
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *pods]}))
        result = run(str(file), TAINT, *flags, "-o", "json")
        assert result.exit_code == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    return plan


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    """Return for whom each pod waits, and until when in seconds."""
    return {
        pod["name"]: (pod["inOrder"]["pod"], pod["inOrder"]["inSeconds"])
        for pod in document["pods"]
        if "inOrder" in pod
    }


def plugins_told(document: dict[str, Any]) -> list[str]:
    """Return the notes about plugins that leave early."""
    return [note for note in document["notes"] if "plugins" in note]


def test_a_plan_shows_for_whom_a_pod_waits_and_until_when(planned: Any) -> None:
    """The deadline stays what it is."""
    document = planned(a_pod("web", 300), a_pod("csi", plugin=True))
    assert in_order(document) == {"csi": ("default/web", 300)}
    assert [pod["inSeconds"] for pod in document["pods"]] == [300, 0]
    assert plugins_told(document) == []


def test_a_pod_that_leaves_too_late_is_not_waited_for(planned: Any) -> None:
    """The plugin leaves before it, and the plan says so."""
    document = planned(a_pod("web", 700), a_pod("csi", plugin=True))
    assert in_order(document) == {}
    assert len(plugins_told(document)) == 1


def test_a_pod_that_a_rule_pauses_is_waited_for_as_long_as_the_wait_takes(planned: Any, tmp_path: Path) -> None:
    """It never leaves."""
    config = tmp_path / "policy.yaml"
    rule = "{name: web, match: {podSelector: app=web}, pause: true}"
    config.write_text(f"apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules: [{rule}]\n")
    document = planned(
        a_pod("web", labels={"app": "web"}),
        a_pod("csi", plugin=True),
        flags=("--order=tiers", "--order-wait=4m", f"--config={config}"),
    )
    assert in_order(document) == {"csi": ("default/web", 240)}


@pytest.mark.parametrize(("seconds", "told"), [(None, 1), (300, 1), (0, 0)])
def test_without_an_order_a_plan_warns_of_a_plugin_that_leaves_first(
    planned: Any, seconds: int | None, told: int
) -> None:
    """Before a pod that stays, or that leaves later."""
    document = planned(a_pod("web", seconds), a_pod("csi", plugin=True), flags=())
    assert in_order(document) == {}
    assert len(plugins_told(document)) == told


def test_a_plugin_that_stays_is_no_reason_for_a_warning(planned: Any) -> None:
    """Most of them tolerate every taint."""
    assert plugins_told(planned(a_pod("web"), a_pod("csi", None, plugin=True), flags=())) == []
