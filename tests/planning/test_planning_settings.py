"""Plans with the controller's own settings: the same flags, and the same environment variables."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from tests.planning.shop import NOON_TEXT, JsonObject, node, pod, run, tolerates

from taint_eviction_ctl.cli.plan import plan as command

LOST = "node.kubernetes.io/unreachable"
HOLD = "taint-eviction/hold"
FINISHED = {**pod("finished"), "status": {"phase": "Succeeded"}}


def foretold(*flags: str, pods: list[JsonObject], **environment: str) -> tuple[dict[str, Any], dict[str, JsonObject]]:
    """Plan for pods on a node that is lost; return the document and its pods by name."""
    text = json.dumps([node("node-1", f"{LOST}=:NoExecute"), *pods])
    arguments = ["-", "--now", NOON_TEXT, "-o", "json", *flags]
    result = CliRunner().invoke(command, arguments, input=text, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    return document, {each["name"]: each for each in document["pods"]}


def test_default_seconds_are_for_pods_that_lack_such_a_toleration() -> None:
    """The plan says that the toleration is a default."""
    _, pods = foretold(
        "--default-unreachable-seconds", "300", pods=[pod("lacks"), pod("has", "node-1", tolerates(9, LOST))]
    )
    assert {name: each["inSeconds"] for name, each in pods.items()} == {"lacks": 300.0, "has": 9.0}
    assert pods["lacks"]["why"] == f"{LOST}:NoExecute is tolerated by default by [{LOST}:NoExecute for 300 s]"
    assert [each["verdicts"][0]["byDefault"] for each in pods.values()] == [True, False]
    _, pods = foretold("--default-not-ready-seconds", "300", pods=[pod("lacks")])
    assert pods["lacks"]["inSeconds"] == 0.0


@pytest.mark.parametrize(
    ("granted", "asked", "seconds"),
    [("0", "5m", 0.0), ("10m", "5m", 300.0), ("2m", "5m", 120.0), ("2m", "true", 120.0), ("forever", "5m", 300.0)],
)
def test_an_owner_is_granted_what_it_asks_for_up_to_a_limit(granted: str, asked: str, seconds: float) -> None:
    """The pod leaves that much later, and a note counts holds that are not granted in full."""
    document, pods = foretold("--honour-holds", granted, pods=[pod("held", annotations={HOLD: asked})])
    assert (pods["held"]["inSeconds"], pods["held"].get("heldSeconds", 0.0)) == (seconds, seconds)
    assert ("its owner holds it" in pods["held"]["why"]) == (seconds > 0)
    more = f"1 pod with a longer hold than is granted (annotation {HOLD})"
    assert (more in document["notes"]) == (seconds != 300.0)


def test_a_pod_that_is_held_indefinitely_stays() -> None:
    """The setting has to grant indefinite holds."""
    _, pods = foretold("--honour-holds", "forever", pods=[pod("held", annotations={HOLD: "true"})])
    assert (pods["held"]["outcome"], pods["held"]["reason"]) == ("stays", "held")


@pytest.mark.parametrize(("setting", "outcome"), [("evict", "leaves"), ("wait", "stays")])
def test_pods_of_a_node_that_shuts_down_gracefully_may_be_left_to_its_kubelet(setting: str, outcome: str) -> None:
    """A note names the node in either case."""
    ready = {"type": "Ready", "status": "False", "message": "node is shutting down"}
    ending = {**node("node-2", "node.kubernetes.io/not-ready=:NoExecute"), "status": {"conditions": [ready]}}
    document, pods = foretold("--graceful-shutdown", setting, pods=[ending, pod("web", "node-2")])
    assert pods["web"]["outcome"] == outcome
    assert "these nodes shut down gracefully, and their kubelets end the pods, too: node-2" in document["notes"]


def test_finished_pods_go_unless_they_are_kept() -> None:
    """The flag is that of run."""
    assert foretold(pods=[FINISHED])[1]["finished"]["outcome"] == "leaves"
    assert foretold("--keep-finished", pods=[FINISHED])[1]["finished"]["reason"] == "finished"


def test_the_controllers_own_environment_makes_the_controllers_own_plan() -> None:
    """Each flag has the same environment variable as for run."""
    environment = {
        "TAINT_EVICTION_EVICTION_MODE": "evict-then-delete",
        "TAINT_EVICTION_DEFAULT_UNREACHABLE_SECONDS": "60",
        "TAINT_EVICTION_HONOUR_HOLDS": "30s",
        "TAINT_EVICTION_KEEP_FINISHED": "true",
    }
    document, pods = foretold(pods=[FINISHED, pod("held", annotations={HOLD: "true"})], **environment)
    assert document["mode"] == "evict-then-delete"
    assert pods["held"]["inSeconds"] == 90.0
    assert pods["finished"]["outcome"] == "stays"


def test_settings_that_are_wrong_exit_2() -> None:
    """The message is that of run."""
    result = run("-", "--default-unreachable-seconds", "-3", stdin=json.dumps(pod("a")))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == ("taint-eviction: the default seconds for unreachable must be a number from 0 on, not -3\n")
