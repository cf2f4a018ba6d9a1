"""The command ``plan``: what it prints, and how it exits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.planning.shop import NOON_TEXT, SHOP, pod, run

DATA = "tests/planning/data"
TAINT = ("--taint", "*=maintenance=now:NoExecute", "-l", "pool=web")
ONE_POD = "\n".join(
    map(
        json.dumps,
        (
            {"kind": "Node", "metadata": {"name": "a"}},
            {"kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": "a"}},
        ),
    )
)


def test_the_worked_example_keeps_running() -> None:
    """The Kubernetes documentation's pod with two tolerations on a node with three taints keeps running."""
    result = run(f"{DATA}/worked-example-running.yaml", "--exit-code")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "0 of 1 pod on 1 node will leave"
    assert "default/running  node1  key2=value2:NoSchedule" in result.stdout


def test_the_worked_example_cannot_be_scheduled() -> None:
    """A new pod with the same tolerations is kept away by the third taint alone."""
    document = json.loads(run(f"{DATA}/worked-example-new.yaml", "-o", "json").stdout)
    assert document["pods"][0]["cannotBeScheduledOn"] == {"node1": ["key2=value2:NoSchedule"]}
    assert document["pods"][0]["why"] == "it is not bound to a node"


def test_the_worked_example_is_tainted_by_the_plan() -> None:
    """The running pod stays with all three taints; without its second toleration it goes at once."""
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}}
    documents = list(yaml.safe_load_all(Path(f"{DATA}/worked-example-new.yaml").read_text()))
    documents[0], documents[1]["spec"]["nodeName"] = bare, "node1"
    taints = [
        f"--taint=node1={taint}"
        for taint in ("key1=value1:NoSchedule", "key1=value1:NoExecute", "key2=value2:NoSchedule")
    ]
    assert run("-", "--exit-code", *taints, stdin=yaml.safe_dump_all(documents)).exit_code == 0
    documents[1]["spec"]["tolerations"].pop()
    gone = run("-", "--exit-code", *taints, stdin=yaml.safe_dump_all(documents))
    assert gone.exit_code == 1
    assert "key1=value1:NoExecute is not tolerated" in gone.stdout


def test_the_summary_comes_first_and_says_it_all() -> None:
    """The first line says what the change does, the second what happens with or without it."""
    result = run(SHOP, "--now", NOON_TEXT, *TAINT)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:3] == [
        "because of the change 10 of 18 pods on 3 nodes would leave: 4 at once, 6 within 10 m; 2 budgets would be"
        " violated; 1 bare pod gone for good; 2 DaemonSet pods evicted and recreated again and again;"
        " 1 pod left out: the input lacks their nodes",
        "with or without the change, 5 pods would leave: 4 at once, 1 within 1 m 1 s (-o wide shows them)",
        "if: taint * maintenance=now:NoExecute",
    ]
    assert "in 5 m   2026-03-01 12:05:00 UTC  shop/web-3    node-1" in result.stdout
    assert "[maintenance:NoExecute for 60 s] comes later: only the first toleration" in result.stdout
    assert "shop/web  8        5      8      would be violated, down to 0 healthy" in result.stdout
    assert "note: skipped objects of other kinds: 1 Service" in result.stdout
    assert "\x1b[" not in result.stdout


def test_without_changes_the_plan_says_what_is_going_to_happen() -> None:
    """Only taints that are already there count."""
    first = run(SHOP, "--now", NOON_TEXT).stdout.splitlines()[0]
    assert first.startswith("5 of 5 pods on 1 node will leave: 4 at once, 1 within 1 m")


def test_no_pod_leaves_a_cluster_without_taints() -> None:
    """The only line says why."""
    clean = run("-", stdin=ONE_POD)
    assert clean.stdout == "no pod will leave: the one node has no NoExecute taint\n"


@pytest.mark.parametrize("gates", [(), ("--exit-code",), ("--fail-on", "more-than=0")])
def test_no_gate_passes_on_input_without_pods(gates: tuple[str, ...]) -> None:
    """Somebody may have written only the nodes to the file."""
    empty = run("-", *gates, stdin=json.dumps({"kind": "Node", "metadata": {"name": "a"}}))
    assert (empty.exit_code, empty.stdout) == (2, "")
    assert "there is no pod among the objects that were read (1 node and 0 budgets)" in empty.stderr


@pytest.mark.parametrize("chosen", [("-l", "pool=nope"), ("--zone", "nope"), ("-l", "pool=web")])
def test_a_selector_without_a_pattern_chooses_nothing_and_is_refused(chosen: tuple[str, ...]) -> None:
    """Somebody who forgot the taint must not read that nothing happens."""
    result = run(SHOP, "--now", NOON_TEXT, "--exit-code", *chosen)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "write '*=…'" in result.stderr


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ([], 0),
        (["--exit-code"], 1),
        (["--fail-on", "budget"], 1),
        (["--fail-on", "bare-pod"], 1),
        (["--fail-on", "more-than=15"], 0),
        (["--fail-on", "more-than=14"], 1),
        (["--fail-on", "more-than=78%"], 1),
        (["--fail-on", "more-than=79%"], 0),
        (["--fail-on", "more-than=79%", "--fail-on", "bare-pod"], 1),
        (["--fail-on", "nonsense"], 2),
    ],
)
def test_gates_set_the_exit_code(gates: list[str], code: int) -> None:
    """15 of the 19 pods leave, two budgets are violated, one pod is bare."""
    assert run(SHOP, "--now", NOON_TEXT, *TAINT, *gates).exit_code == code


def test_a_bare_pod_is_gone_with_its_node_too() -> None:
    """The pod garbage collector does not evict the pod, but nobody creates it again either."""
    result = run(SHOP, "--now", NOON_TEXT, "--delete-node", "node-1", "--fail-on", "bare-pod")
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith(
        "the change frees shop/going, orphans 8 pods and evicts nothing more; 1 bare pod gone for good"
    )
    assert result.stderr == "taint-eviction: 1 bare pod would be gone for good: shop/bare\n"


@pytest.mark.parametrize(("gate", "code"), [("more-than=15", 0), ("more-than=14", 1)])
def test_a_gate_works_although_the_pipe_is_closed(gate: str, code: int) -> None:
    """``head``, for example, closes the pipe after the first lines."""
    command = [sys.executable, "-m", "taint_eviction", "plan", SHOP, "--now", NOON_TEXT, *TAINT, "--fail-on", gate]
    environment = {**os.environ, "PYTHONPATH": str(Path("operator").resolve())}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == code
    assert said == ("" if code == 0 else "taint-eviction: 15 pods would be evicted, more than 14\n")


def test_machines_get_one_document() -> None:
    """The document is the same as JSON and as YAML."""
    written = run(SHOP, "--now", NOON_TEXT, *TAINT, "-o", "json").stdout
    document = json.loads(written)
    assert document == yaml.safe_load(run(SHOP, "--now", NOON_TEXT, *TAINT, "-o", "yaml").stdout)
    assert document["counts"]["leaving"] == 15
    leaving = {pod["name"]: pod for pod in document["pods"]}
    assert (leaving["web-3"]["leavesAt"], leaving["web-3"]["inSeconds"]) == ("2026-03-01T12:05:00Z", 300.0)
    assert leaving["static"]["reason"] == "mirror"
    assert leaving["agent-0"]["recreatedForEver"] is True
    assert leaving["db-0"]["verdicts"][0]["overruled"] == "maintenance:NoExecute for 60 s"


def test_wide_shows_every_pod() -> None:
    """Pods that stay are shown, too, and so are owners."""
    wide = run(SHOP, "--now", NOON_TEXT, *TAINT, "-o", "wide").stdout
    assert "it is a mirror pod: its kubelet owns it" in wide
    assert "StatefulSet db" in wide


def test_incomplete_input_is_planned_and_exits_2() -> None:
    """A gate must not pass because a part of the input is missing."""
    text = Path(SHOP).read_text()
    result = run("-", "--now", NOON_TEXT, *TAINT, stdin=text[: len(text) * 2 // 3])
    assert result.exit_code == 2
    assert "INCOMPLETE: 1 part of the input could not be read" in result.stdout.splitlines()[0]
    assert "the text ends in the middle" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--taint", "node-1=oops"],
        ["--taint", "nodo-1=k:NoExecute"],
        ["--untaint", "node-1=absent"],
        ["--at", "yesterday"],
        ["--at", "2020-01-01T00:00:00Z"],
        ["-l", "a b"],
        ["--toleration", "app=none", "k"],
        ["--toleration", "app=web", "k for"],
    ],
)
def test_wrong_arguments_exit_2(arguments: list[str]) -> None:
    """There is a message on stderr and nothing on stdout."""
    result = run(SHOP, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


def test_an_unreachable_api_server_exits_3(tmp_path: Path) -> None:
    """No server listens at the address."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    result = run("--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 3
    assert "cannot be reached" in result.stderr


def test_a_later_change_is_shown_with_its_time() -> None:
    """The line has the time by the clock and from now, and counts the pods that leave before."""
    first = run(SHOP, "--now", NOON_TEXT, "--at", "30m", "--taint", "node-1=k:NoExecute").stdout.splitlines()[0]
    assert first.startswith(
        "at 2026-03-01 12:30:00 UTC (in 30 m): because of the change 7 of 14 pods on 2 nodes would leave: 6 at once,"
        " 1 within 30 s;"
    )


def test_a_namespace_is_planned_by_itself() -> None:
    """The plan has only its pods and budgets; -A, like no flag, means all namespaces."""
    objects = json.loads(Path(SHOP).read_text())
    objects["items"].append(pod("teller", namespace="bank"))
    written = json.dumps(objects)

    def planned(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            run("-", "--now", NOON_TEXT, *TAINT, "-o", "json", *words, stdin=written).stdout
        )
        return found

    bank = planned("-n", "bank")
    assert [each["name"] for each in bank["pods"]] == ["teller"]
    assert bank["budgets"] == []
    assert "only namespace bank is planned" in bank["notes"]
    assert planned("-A", "-n", "bank") == planned()


def test_no_gate_passes_on_a_namespace_without_pods() -> None:
    """The namespace is most likely mistyped."""
    result = run(SHOP, "--now", NOON_TEXT, *TAINT, "-n", "shpo")
    assert result.exit_code == 2
    assert "there is no pod in namespace 'shpo'; did you mean 'shop'?" in result.stderr


@pytest.mark.parametrize("taint", ["maintenance=now:NoExecute", "*=maintenance=now:NoExecute"])
def test_a_selector_is_enough_to_say_which_nodes(taint: str) -> None:
    """``kubectl taint nodes -l pool=web maintenance=now:NoExecute`` names no node either."""
    written = run(SHOP, "--now", NOON_TEXT, "--taint", taint, "-l", "pool=web")
    assert written.exit_code == 0
    assert written.stdout == run(SHOP, "--now", NOON_TEXT, *TAINT).stdout


def test_a_selector_is_enough_for_a_taint_without_a_value_and_for_an_untaint() -> None:
    """Both are written as for kubectl."""
    shown = run(SHOP, "--now", NOON_TEXT, "--taint", "maintenance:NoExecute", "-l", "pool=web").stdout
    assert "if: taint * maintenance:NoExecute" in shown
    both = ("--taint", "*=gpu:NoExecute", "--untaint", "gpu:NoExecute", "-l", "pool=web")
    assert "there is no taint gpu:NoExecute to remove from *" in run(SHOP, "--now", NOON_TEXT, *both).stderr


def test_a_selector_beside_a_node_that_exists_is_refused() -> None:
    """The selector would choose nothing."""
    result = run(SHOP, "--now", NOON_TEXT, "--taint", "node-1=maintenance:NoExecute", "-l", "pool=web")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-l and --zone only say for which nodes a taint, an untaint or a deletion of many nodes is" in result.stderr


def test_a_zone_without_a_change_is_refused_with_the_command_that_counts_its_pods() -> None:
    """What would leave is decided by what the controller holds, which a plan of changes does not know."""
    result = run(SHOP, "--now", NOON_TEXT, "--zone", "a")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "how many pods would leave if a zone were let go: taint-eviction resume zone/NAME --dry-run" in result.stderr


def test_a_zone_among_the_files_is_answered_with_the_command_that_counts_its_pods() -> None:
    """`pause` and `resume` take zones where plan takes files."""
    said = "how many pods would leave if it were let go: taint-eviction resume zone/a --dry-run\n"
    assert run("zone/a").stderr.endswith(said)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("node-1", "maintenance=now:NoExecute"), "'node-1=maintenance=now:NoExecute'\n"),
        (("maintenance:NoExecute-",), "'NODE=maintenance:NoExecute', or -l SELECTOR --taint 'maintenance:NoExecute'\n"),
        (("worker-3",), "'worker-3=KEY=VALUE:NoExecute'\n"),
        (("node/worker-3",), "'worker-3=KEY=VALUE:NoExecute'\n"),
        (("node", "worker-3"), "'worker-3=KEY=VALUE:NoExecute'\n"),
    ],
)
def test_a_node_or_a_taint_among_the_files_is_answered_with_the_flag(words: tuple[str, ...], flag: str) -> None:
    """kubectl taint takes nodes and taints where plan takes files."""
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"to plan a taint: --taint {flag}")


def test_a_file_that_does_not_exist_is_not_taken_for_a_node() -> None:
    """Its name says what it is."""
    assert "--taint" not in run("cluster.json").stderr


def test_a_taint_that_evicts_nobody_is_named_by_its_effect() -> None:
    """Otherwise readers look for the reason in the tolerations of their pods."""
    shown = run(SHOP, "--now", NOON_TEXT, "--taint", "node-2=x:NoSchedule").stdout
    assert "note: a taint with the effect NoSchedule evicts nobody" in shown
    calm = run("-", "--taint", "a=x:NoSchedule", stdin=ONE_POD).stdout
    assert calm.splitlines()[0] == "no pod would leave: a taint with the effect NoSchedule evicts nobody"


def test_a_taint_without_a_node_says_how_to_choose_nodes() -> None:
    """KEY=VALUE:EFFECT, as kubectl has it, would be read as the name of a node and a key."""
    result = run(SHOP, "--now", NOON_TEXT, "--taint", "maintenance=now:NoExecute")
    assert "there is no node 'maintenance' among 3; for all nodes write '*=…', for some add -l" in result.stderr
