"""``hand-back``, the command that returns adopted pods to the built-in controller."""

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from tests.stage.client import ClientStage, client_stage

from fake_apiserver import pod_object
from fake_apiserver.patching import json_patch
from taint_eviction.cli import cli
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.objects import MARK_SECONDS
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION
from taint_eviction.kube.control_state_data import read_control_state
from taint_eviction.kube.state_config_map import StateConfigMap

NAMESPACE, NAME = "kube-system", "taint-eviction-controller"
LEASES = "leases"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture(autouse=True)
def replicas_read_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for a replica that does not know of the order yet, and for a dead leader's requests."""
    monkeypatch.setattr("taint_eviction_ctl.cli.hand_back._READ_SECONDS", 0.2)
    monkeypatch.setattr("taint_eviction_ctl.cli.hand_back._ASK_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr("taint_eviction_ctl.cli.hand_back.LATE_WRITE_SECONDS", 0.3)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A stage for one test."""
    async with client_stage(tmp_path) as made:
        made.server.create("configmaps", {"metadata": {"name": NAME, "namespace": NAMESPACE}})
        yield made


async def hand_back(directory: Path, *arguments: str) -> Result:
    """Run the command, by default without questions."""
    env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TAINT_EVICTION_")}
    words = ["hand-back", *(arguments or ("--yes",))]
    env["KUBECONFIG"] = str(directory / "config")
    return await asyncio.to_thread(CliRunner().invoke, cli, words, env=env, catch_exceptions=False)


def note(seconds: object) -> str:
    """Return a note with the seconds of UNREACHABLE."""
    return orjson.dumps([{**UNREACHABLE, "seconds": seconds}]).decode()


def adopted(
    at: ClientStage,
    name: str,
    annotation: str,
    *appended: dict[str, Any],
    node: str = "n1",
    namespace: str = "default",
    **more: Any,
) -> None:
    """Create a pod with a mark and this note; ``more`` is added to its first toleration, others are appended."""
    body = pod_object(namespace, name, node)
    body["metadata"]["annotations"] = {NOTE_ANNOTATION: annotation, "own": "a"}
    body["spec"]["tolerations"] = [
        UNREACHABLE | {"tolerationSeconds": MARK_SECONDS} | more,
        {"key": "other", "operator": "Exists"},
        *appended,
    ]
    at.server.create("pods", body)


def pod(at: ClientStage, name: str) -> dict[str, Any]:
    """Return a pod as it is now."""
    found = at.server.get("pods", name, "default")
    assert found is not None
    return found


def seconds_of(at: ClientStage, name: str) -> Any:
    """Return the seconds of the first toleration, None for none."""
    return pod(at, name)["spec"]["tolerations"][0].get("tolerationSeconds")


def is_adopted(at: ClientStage, name: str) -> bool:
    """Return whether a pod has a note."""
    return NOTE_ANNOTATION in pod(at, name)["metadata"].get("annotations", {})


def orders(at: ClientStage) -> ControlState:
    """Return the control state in the ConfigMap."""
    found = at.server.get("configmaps", NAME, NAMESPACE)
    return ControlState() if found is None else read_control_state(found)[0]


def lease(at: ClientStage, holder: str, seconds: int) -> None:
    """Create the Lease with this holder."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    at.server.create(LEASES, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})


async def test_pods_get_back_their_tolerations_and_annotations(at: ClientStage, tmp_path: Path) -> None:
    """The note goes with the last mark, and the entry in the ConfigMap when nothing is left."""
    adopted(at, "web", note(300))
    adopted(at, "db", note(60))
    await StateConfigMap(at.calls, NAMESPACE, NAME).write_adopter("replica-1 1")
    result = await hand_back(tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "2 pods are adopted",
        "with the present taints, the built-in controller will evict none of them",
        "no replica leads",
        "2 pods have been given back",
        "nothing is adopted any more",
    ]
    assert orders(at).adopter == ""
    for name, seconds in (("web", 300), ("db", 60)):
        found = pod(at, name)
        assert found["spec"]["tolerations"][0] == UNREACHABLE | {"tolerationSeconds": seconds}
        assert found["metadata"]["annotations"] == {"own": "a"}
    assert orders(at).no_adoption is not None


async def test_a_pod_whose_owner_appended_a_thousand_tolerations_gets_its_seconds_back(
    at: ClientStage, tmp_path: Path
) -> None:
    """To a controller, no note of so many tolerations counts: reading them at each event would keep it busy."""
    appended = [{"key": f"k{number}", "operator": "Exists"} for number in range(1000)]
    adopted(at, "web", note(300), *appended)
    result = await hand_back(tmp_path)
    assert (result.exit_code, result.stdout.splitlines()[-2]) == (0, "1 pod has been given back")
    assert (seconds_of(at, "web"), is_adopted(at, "web")) == (300, False)


def binding(at: ClientStage, name: str, account: str, namespace: str) -> None:
    """Create a ClusterRoleBinding for a ClusterRole of the same name."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    at.server.create(
        "clusterrolebindings", {"metadata": {"name": name}, "roleRef": {"name": name}, "subjects": [subject]}
    )


def may_patch_pods(at: ClientStage, monkeypatch: pytest.MonkeyPatch, *answers: bool) -> list[str]:
    """Let the API server answer so, and the last answer again, whether a user may; return the users asked about."""
    asked: list[str] = []

    async def allowed(calls: object, verb: str, resource: str, settings: object, user: str) -> bool:
        assert (verb, resource) == ("patch", "pods")
        asked.append(user)
        return answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr("taint_eviction_ctl.installation.adoption_right.allowed", allowed)
    monkeypatch.setattr("taint_eviction_ctl.installation.adoption_right._ASK_AGAIN_SECONDS", 0.01)
    return asked


async def test_the_right_to_mark_pods_is_taken_away(
    at: ClientStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bindings of this account go; others stay. An API server needs a moment to learn of it."""
    asked = may_patch_pods(at, monkeypatch, True, True, False)
    binding(at, "kube-system.taint-eviction-controller-adopt", NAME, NAMESPACE)
    binding(at, "taint-eviction-controller", NAME, NAMESPACE)
    binding(at, "other.taint-eviction-controller-adopt", NAME, "other")
    result = await hand_back(tmp_path)
    assert result.stdout.splitlines()[-4:] == [
        "removed ClusterRoleBinding kube-system.taint-eviction-controller-adopt",
        "the controller may change no tolerations any more",
        "0 pods have been given back",
        "nothing is adopted any more",
    ]
    assert asked == ["system:serviceaccount:kube-system:taint-eviction-controller"] * 3 + [NAME]
    for name in ("taint-eviction-controller", "other.taint-eviction-controller-adopt"):
        assert at.server.get("clusterrolebindings", name) is not None
    assert "may keep the right" not in result.stderr


async def test_the_account_has_the_name_of_the_lease(
    at: ClientStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kustomization around the manifests renames both, and the binding."""
    asked = may_patch_pods(at, monkeypatch, False)
    binding(at, "my-ns.taint-eviction-controller-adopt-b", "my-taint-eviction-controller-b", NAMESPACE)
    at.server.create("configmaps", {"metadata": {"name": "my-taint-eviction-controller-b", "namespace": NAMESPACE}})
    result = await hand_back(tmp_path, "--yes", "--lease-name", "my-taint-eviction-controller-b")
    assert "removed ClusterRoleBinding my-ns.taint-eviction-controller-adopt-b" in result.stdout
    assert asked[0] == "system:serviceaccount:kube-system:my-taint-eviction-controller-b"


@pytest.mark.parametrize("has_binding", [True, False])
async def test_a_right_that_remains_is_named(
    at: ClientStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_binding: bool
) -> None:
    """Another binding may grant it: a request of a host that was cut off may still arrive."""
    may_patch_pods(at, monkeypatch, True)
    if has_binding:
        binding(at, "kube-system.taint-eviction-controller-adopt", NAME, NAMESPACE)
    result = await hand_back(tmp_path)
    assert result.exit_code == 0
    assert "system:serviceaccount:kube-system:taint-eviction-controller may patch pods" in result.stderr
    assert "may still arrive for 15 min" in result.stderr


@pytest.mark.parametrize("words", [("--yes",), ("--print",)])
async def test_a_malformed_pod_with_a_note_is_a_failure(
    at: ClientStage, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """It cannot be given back, and must not be overlooked."""
    adopted(at, "web", note(300))
    found = pod(at, "web")
    found["spec"]["tolerations"][1]["key"] = ["other"]
    at.server.update("pods", found)
    result = await hand_back(tmp_path, *words)
    assert result.exit_code == 1
    assert "is left out: " in result.stderr
    assert "nothing is adopted any more" not in result.stdout


async def test_a_late_write_of_a_dead_leader_is_found(at: ClientStage, tmp_path: Path) -> None:
    """The command looks at every pod once more when no request can arrive any more."""
    running = asyncio.create_task(hand_back(tmp_path))
    while orders(at).no_adoption is None:  # noqa: ASYNC110 - another thread writes it
        await asyncio.sleep(0.05)
    adopted(at, "web", note(300))
    result = await running
    assert (result.exit_code, seconds_of(at, "web")) == (0, 300)
    assert "waiting for 1 s" in result.stderr


async def test_a_mark_without_a_note_is_named_and_stays(at: ClientStage, tmp_path: Path) -> None:
    """Nobody knows what it was before; a tenant may have written it."""
    adopted(at, "web", note(300))
    found = pod(at, "web")
    del found["metadata"]["annotations"][NOTE_ANNOTATION]
    at.server.update("pods", found)
    result = await hand_back(tmp_path)
    assert result.exit_code == 0
    assert "1 pod of unknown origin" in result.stderr
    assert "default/web" in result.stderr
    assert seconds_of(at, "web") == MARK_SECONDS


async def test_the_commands_for_kubectl_are_printed_with_exact_numbers(at: ClientStage, tmp_path: Path) -> None:
    """Nothing is changed; tools that compute with floats would round the mark and large seconds."""
    adopted(at, "web", note(2**62 + 1))
    result = await hand_back(tmp_path, "--print")
    assert (result.exit_code, is_adopted(at, "web")) == (0, True)
    (line,) = result.stdout.splitlines()
    words = shlex.split(line)
    assert words[:8] == ["kubectl", "patch", "pod", "-n", "default", "web", "--type=json", "-p"]
    at.server.update("pods", json_patch(pod(at, "web"), orjson.loads(words[8])))
    assert (seconds_of(at, "web"), is_adopted(at, "web")) == (2**62 + 1, False)
    assert orders(at) == ControlState()


async def test_a_pod_that_has_grown_past_64_tolerations_is_given_back_and_printed(
    at: ClientStage, tmp_path: Path
) -> None:
    """Its countdown was taken over when it had fewer."""
    adopted(at, "grown", note(300))
    more = [{"key": f"k{number}", "operator": "Exists", "effect": "NoSchedule"} for number in range(70)]
    tolerations = [*more, *pod(at, "grown")["spec"]["tolerations"]]
    at.server.patch("pods", "grown", {"spec": {"tolerations": tolerations}}, "default")
    printed = await hand_back(tmp_path, "--print")
    assert '"path":"/spec/tolerations/70/tolerationSeconds","value":300' in printed.stdout
    result = await hand_back(tmp_path)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "nothing is adopted any more")
    assert "1 pod has been given back" in result.stdout.splitlines()
    assert pod(at, "grown")["spec"]["tolerations"][70] == {**UNREACHABLE, "tolerationSeconds": 300}


async def test_without_a_lease_and_a_config_map_the_command_does_nothing(at: ClientStage, tmp_path: Path) -> None:
    """Most likely they are in another namespace, where a leader goes on adopting."""
    adopted(at, "web", note(300))
    result = await hand_back(tmp_path, "--yes", "--lease-namespace", "elsewhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"there is neither a Lease nor a ConfigMap elsewhere/{NAME}" in result.stderr
    assert is_adopted(at, "web")


@pytest.mark.parametrize(("flags", "code"), [(["--adopt"], 2), (["--adopt", "--dry-run"], 0), ([], 0)])
async def test_while_a_controller_with_another_lease_adopts_the_command_does_nothing(
    at: ClientStage, tmp_path: Path, flags: list[str], code: int
) -> None:
    """It would adopt the pods again at once."""
    adopted(at, "web", note(300))
    other = pod_object("taint-eviction", "other", "n1")
    other["metadata"]["labels"] = {"app.kubernetes.io/name": NAME}
    other["spec"]["containers"] = [{"name": "controller", "image": "i", "args": ["run", *flags]}]
    at.server.create("pods", other)
    result = await hand_back(tmp_path)
    assert result.exit_code == code
    command = f"taint-eviction hand-back --lease-namespace taint-eviction --lease-name {NAME}"
    assert (command in result.stderr) is (code == 2)
    assert is_adopted(at, "web") is (code == 2)


async def test_a_pod_that_only_says_that_it_adopts_does_not_stop_the_command(at: ClientStage, tmp_path: Path) -> None:
    """Whoever may create pods in some namespace may write these labels and flags: its account may not patch pods."""
    adopted(at, "web", note(300))
    path, denied = "/subjectaccessreviews", '{"status": {"allowed": false}}'
    at.server.faults.add(path=path, status=201, message=denied, plain_text=True)
    other = pod_object("tenant", "other", "n1")
    other["metadata"]["labels"] = {"app.kubernetes.io/name": NAME}
    other["spec"] |= {"serviceAccountName": "default"}
    other["spec"]["containers"] = [{"name": "controller", "image": "i", "args": ["run", "--adopt"]}]
    at.server.create("pods", other)
    result = await hand_back(tmp_path)
    assert (result.exit_code, is_adopted(at, "web")) == (0, False)


async def test_a_lease_that_is_named_by_a_variable_is_the_lease_of_the_command(at: ClientStage, tmp_path: Path) -> None:
    """The manifests name it after the account, which a kustomization renames; the API server adds a version."""
    adopted(at, "web", note(300))
    lease = f"my-{NAME}"
    own = pod_object(NAMESPACE, "own", "n1")
    own["metadata"]["labels"] = {"app.kubernetes.io/name": NAME}
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.serviceAccountName"}}
    variable = {"name": "TAINT_EVICTION_LEASE_NAME", "valueFrom": field}
    words = ["run", "--adopt", "--leader-elect-resource-name=$(TAINT_EVICTION_LEASE_NAME)"]
    own["spec"] |= {
        "serviceAccountName": lease,
        "containers": [{"name": "c", "image": "i", "args": words, "env": [variable]}],
    }
    at.server.create("pods", own)
    at.server.create("configmaps", {"metadata": {"name": lease, "namespace": NAMESPACE}})
    result = await hand_back(tmp_path, "--yes", "--lease-name", lease)
    assert (result.exit_code, is_adopted(at, "web")) == (0, False)


async def test_the_command_first_says_which_pods_the_built_in_controller_will_evict_and_when(
    at: ClientStage, tmp_path: Path
) -> None:
    """Each countdown starts anew with its full time; pods on clean nodes stay."""
    at.server.taint("n1", UNREACHABLE["key"], "", "NoExecute")
    for name, seconds in (("a", 300), ("b", 300), ("c", 30), ("d", -1)):
        adopted(at, name, note(seconds))
    adopted(at, "e", note(300), node="n2")
    lines = (await hand_back(tmp_path)).stdout.splitlines()
    assert lines[:5] == [
        "5 pods are adopted",
        "the built-in controller will evict 4 of them, each after its full time, counted anew:",
        "  after 0 s: 1 pod",
        "  after 30 s: 1 pod",
        "  after 300 s: 2 pods",
    ]


async def test_without_a_terminal_the_command_requires_the_flag_and_changes_nothing(
    at: ClientStage, tmp_path: Path
) -> None:
    """The exit code is 2, since a script must confirm the command with --yes."""
    adopted(at, "web", note(300))
    result = await hand_back(tmp_path, "--reason", "x")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (2, "1 pod is adopted")
    assert "give --yes" in result.stderr
    assert is_adopted(at, "web")
    assert orders(at) == ControlState()


async def test_nothing_is_given_back_before_the_leader_has_confirmed(at: ClientStage, tmp_path: Path) -> None:
    """A leader that does not know of the order yet would adopt the pod again at once."""
    adopted(at, "web", note(300))
    lease(at, "replica-1", 15)
    running = asyncio.create_task(hand_back(tmp_path, "--yes", "--reason", "getting out"))
    while (ended := orders(at).no_adoption) is None:  # noqa: ASYNC110 - another thread writes it
        await asyncio.sleep(0.05)
    assert ended.reason == "getting out"
    assert is_adopted(at, "web")
    await StateConfigMap(at.calls, NAMESPACE, NAME).confirm_no_adoption("replica-1", ended)
    result = await running
    assert (result.exit_code, seconds_of(at, "web")) == (0, 300)
    assert "replica-1 leads, and no longer adopts pods" in result.stdout


async def test_a_confirmation_by_another_replica_than_the_leader_does_not_count(
    at: ClientStage, tmp_path: Path
) -> None:
    """The wait ends with exit code 1, and the pod stays adopted."""
    adopted(at, "web", note(300))
    lease(at, "replica-2", 15)
    data = {"no-adoption": "true", "no-adoption-confirmed": '"replica-1"'}
    at.server.patch("configmaps", NAME, {"data": data}, NAMESPACE)
    result = await hand_back(tmp_path, "--yes", "--confirm-timeout", "1500ms")
    assert result.exit_code == 1
    assert "waiting for replica-2 to confirm" in result.stderr
    assert "the leader has not confirmed in time" in result.stderr
    assert is_adopted(at, "web")


async def test_the_command_waits_until_a_lease_that_is_not_renewed_has_expired(at: ClientStage, tmp_path: Path) -> None:
    """The holder may no longer exist; the command measures the time itself and does not read it from the Lease."""
    adopted(at, "web", note(300))
    lease(at, "replica-1", 1)
    result = await hand_back(tmp_path)
    assert (result.exit_code, seconds_of(at, "web")) == (0, 300)
    assert "the Lease of replica-1 has expired" in result.stdout


@pytest.mark.parametrize("annotation", ["nonsense", "{}", note("300"), note(2**63), ""])
async def test_a_note_that_cannot_be_read_is_reported_and_removed(
    at: ClientStage, tmp_path: Path, annotation: str
) -> None:
    """The mark stays, since its former seconds are unknown, and is named."""
    adopted(at, "web", annotation)
    result = await hand_back(tmp_path)
    assert result.exit_code == 0
    assert f"default/web: what its annotation {NOTE_ANNOTATION} says of no mark is removed" in result.stderr
    assert "1 pod of unknown origin" in result.stderr
    assert (is_adopted(at, "web"), seconds_of(at, "web")) == (False, MARK_SECONDS)


async def test_seconds_that_were_set_meanwhile_are_kept(at: ClientStage, tmp_path: Path) -> None:
    """The note counts only for a mark; the command reports what it does not restore."""
    adopted(at, "web", note(300), tolerationSeconds=42)
    result = await hand_back(tmp_path)
    assert (is_adopted(at, "web"), seconds_of(at, "web")) == (False, 42)
    assert "says of no mark is removed" in result.stderr


async def test_a_conflict_is_tried_again(at: ClientStage, tmp_path: Path) -> None:
    """Somebody else has changed the pod meanwhile."""
    adopted(at, "web", note(300))
    at.server.faults.add(verb="patch", resource="pods", status=409, times=3)
    assert (await hand_back(tmp_path)).exit_code == 0
    assert seconds_of(at, "web") == 300


async def test_a_namespace_whose_webhook_hangs_keeps_neither_the_others_nor_the_command_waiting(
    at: ClientStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of its 60 pods are tried once calls for three have failed after a long time."""
    monkeypatch.setattr("taint_eviction_ctl.cli.giving_back._LONG_SECONDS", 0.2)
    for number in range(60):
        adopted(at, f"stuck-{number}", note(300), namespace="a-tenant")
    adopted(at, "web", note(300))
    hook = "failed calling webhook: context deadline exceeded"
    at.server.faults.add(verb="patch", namespace="a-tenant", delay_seconds=0.3, status=500, message=hook)
    result = await hand_back(tmp_path)
    assert (result.exit_code, seconds_of(at, "web")) == (1, 300)
    tried = [each.namespace for each in at.server.requests.entries if (each.verb, each.resource) == ("patch", "pods")]
    assert tried.count("a-tenant") <= 3 * (10 + 2)  # Three times ten, and two that begin before the third fails.
    assert tried.index("default") <= 10
    assert (
        result.stderr.count("is still adopted: it was not tried: its namespace's admission webhook seems to hang") >= 48
    )


async def test_a_pod_that_may_not_be_changed_is_named_and_the_others_are_given_back(
    at: ClientStage, tmp_path: Path
) -> None:
    """The exit code is 1."""
    for name in ("web", "db"):
        adopted(at, name, note(300))
    at.server.faults.add(verb="patch", resource="pods", name="web", status=403)
    result = await hand_back(tmp_path)
    assert result.exit_code == 1
    assert "default/web is still adopted: " in result.stderr
    assert "1 pod has been given back" in result.stdout
    assert (seconds_of(at, "web"), seconds_of(at, "db")) == (MARK_SECONDS, 300)


async def test_undo_allows_the_controller_to_adopt_again(at: ClientStage, tmp_path: Path) -> None:
    """Undo changes no pod."""
    adopted(at, "web", note(300))
    await StateConfigMap(at.calls, NAMESPACE, NAME).set_no_adoption(Pause())
    assert orders(at).no_adoption == Pause()
    result = await hand_back(tmp_path, "--undo")
    assert (result.exit_code, result.stdout.split(",")[0]) == (0, "the controller may adopt again")
    assert orders(at) == ControlState()
    assert is_adopted(at, "web")


async def test_the_program_in_the_documentation_prints_the_same_commands(at: ClientStage, tmp_path: Path) -> None:
    """It needs Python's standard library only, and works where this project is gone."""
    adopted(at, "web", note(2**62 + 1))
    adopted(at, "db", note(60))
    adopted(at, "garbled", "nonsense")
    page = Path(__file__).parents[2] / "docs/install/managed-control-planes.md"
    program = page.read_text().partition("<!-- giving-back -->\n```python\n")[2].partition("```")[0]
    pods = {"items": [pod(at, name) for name in ("web", "db", "garbled")]}
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], input=orjson.dumps(pods), capture_output=True, check=True
    )
    assert b"default/garbled: the note cannot be read" in run.stderr
    lines = run.stdout.decode().splitlines()
    assert [shlex.split(line)[:8] for line in lines] == [
        ["kubectl", "patch", "pod", "-n", "default", name, "--type=json", "-p"] for name in ("web", "db")
    ]
    for name, line, seconds in zip(("web", "db"), lines, (2**62 + 1, 60), strict=True):
        at.server.update("pods", json_patch(pod(at, name), orjson.loads(shlex.split(line)[8])))
        assert (seconds_of(at, name), is_adopted(at, name)) == (seconds, False)
