"""Bad input: file and place are named, usable objects are used, and the others are counted."""

import io
import json
from collections.abc import Callable

import pytest
import yaml
from tests.planning.shop import JsonObject, budget, node, pod, run

from taint_eviction_ctl.planning.files import read_files
from taint_eviction_ctl.planning.inventory import Inventory

NODE = node("node-1", "k=v:NoExecute")
TAINT_FORM = "a taint is written {key: maintenance, value: now, effect: NoExecute}"


def read(text: str | bytes) -> Inventory:
    """Read a text as stdin."""
    return read_files(["-"], io.BytesIO(text.encode() if isinstance(text, str) else text), lambda count: None)


def listed(*items: object) -> JsonObject:
    """Write a List."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def tainted(*taints: object) -> JsonObject:
    """Write a node with these taints, whatever they are."""
    return {**NODE, "spec": {"taints": list(taints)}}


# Lists


@pytest.mark.parametrize("form", [json.dumps, yaml.safe_dump])
def test_lists_in_lists_are_unpacked(form: Callable[[object], str]) -> None:
    """Lists are unpacked at any depth, also lists of one kind, whose items do not name it."""
    unnamed = {name: value for name, value in pod("a").items() if name != "kind"}
    inner = {"kind": "PodList", "items": [unnamed, pod("b")]}
    inventory = read(form(listed(listed(listed(NODE), inner), {"kind": "List", "items": None})))
    assert [*inventory.nodes, *(key.name for key in inventory.pods)] == ["node-1", "a", "b"]
    assert (inventory.problems, inventory.skipped) == ([], {})


def test_kinds_of_the_same_name_in_other_groups_are_skipped() -> None:
    """Longhorn, for example, has a kind Node, and names its objects like the nodes."""
    other = {"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {}}
    inventory = read(json.dumps(listed(NODE, other)))
    assert len(inventory.nodes["node-1"].node.taints) == 1
    assert inventory.skipped == {"Node.longhorn.io": 1}


def test_objects_that_are_there_twice_are_mentioned() -> None:
    """The input may consist of two dumps: the last object counts."""
    result = run("-", stdin=json.dumps(listed(NODE, pod("a"), node("node-1"), pod("a"))))
    assert result.stdout.splitlines()[0] == "no pod will leave: the one node has no NoExecute taint"
    assert "note: 2 objects given more than once: the last one counts" in result.stdout


def test_pods_on_nodes_that_are_missing_are_counted_in_the_summary() -> None:
    """The plan guesses nothing about these pods."""
    result = run("-", stdin=json.dumps(listed(NODE, pod("a", "node-1"), pod("b", "gone"), pod("c", "away"))))
    assert result.stdout.splitlines()[0] == (
        "1 of 1 pod on 1 node will leave: 1 at once; 1 bare pod gone for good;"
        " 2 pods left out: the input lacks their nodes"
    )
    assert "note: the input lacks these nodes, to which pods are bound: away, gone" in result.stdout


# Taints in a wrong form


@pytest.mark.parametrize(
    ("taint", "nodes"),
    [("k:NoExecute", 0), ({"key": "k", "effect": "Noexecute"}, 1), ({"key": "k"}, 1), ({"effect": "NoExecute"}, 0)],
)
def test_a_taint_in_a_wrong_form_is_reported_with_the_right_one(taint: object, nodes: int) -> None:
    """It is a problem of the input: a plan without the taint may say the opposite of what is true."""
    inventory = read(json.dumps(listed(tainted(taint), pod("a")), indent=1))
    assert len(inventory.nodes) == nodes
    (problem,) = inventory.problems
    assert problem.startswith("stdin:5: Node node-1: spec.taints[0]")
    assert TAINT_FORM in problem


@pytest.mark.parametrize("taint", ["k=v=w:NoExecute", "a/b/c:NoExecute", f"{'k' * 64}:NoExecute", "k=ä:NoExecute"])
def test_a_taint_that_kubernetes_would_refuse_is_no_change(taint: str) -> None:
    """The error shows the right form."""
    result = run("-", "--taint", f"node-1={taint}", stdin=json.dumps(NODE))
    assert result.exit_code == 2
    assert "is not NODE=KEY[=VALUE]:EFFECT, as in node-1=maintenance=now:NoExecute" in result.stderr


# Texts that are cut


def test_a_yaml_list_that_is_cut_between_two_lines_is_noticed() -> None:
    """The rest is still YAML, but kubectl ends a list with its kind, and every pod has a spec."""
    text = yaml.safe_dump(listed(NODE, pod("a"), pod("b")))
    cut = text[: text.rindex("  spec:")]
    inventory = read(cut)
    assert [key.name for key in inventory.pods] == ["a"]
    line = cut[: cut.rindex("- apiVersion")].count("\n") + 1
    assert inventory.problems == [
        f"stdin:{line}: Pod shop/b: spec is missing: has the text been cut?",
        "stdin:1: this list does not end with its kind: has the text been cut?",
    ]


# Texts that are hostile


@pytest.mark.parametrize("nested", ["[" * 200_000 + "]" * 200_000, "- " * 200_000])
def test_yaml_that_is_nested_too_deeply_does_not_end_the_process(nested: str) -> None:
    """The stack does not overflow, and the objects before the nested one are used."""
    inventory = read(f"---\n{json.dumps(NODE)}\n---\nkind: Node\nmetadata: {{name: a}}\nx:\n  {nested}\n")
    assert inventory.problems == ["stdin:7: it is nested too deeply"]
    assert list(inventory.nodes) == ["node-1"]


def test_half_a_character_is_no_text() -> None:
    """Half of a surrogate pair cannot be printed."""
    inventory = read('{"items": [' + json.dumps(NODE) + ', {"kind": "Node", "metadata": {"name": "\\ud83d"}}]}')
    assert list(inventory.nodes) == ["node-1"]
    assert inventory.problems == ["stdin:1: it has half of a character, written as an escape"]
    assert read('{"kind": "Node", "metadata": {"name": "\\ud83d\\ude00"}}').problems == []


def test_a_key_that_is_there_twice_in_yaml_is_refused() -> None:
    """kubectl refuses it, too: one of the two would be ignored. A merged key may be overridden."""
    twice = "kind: Node\nmetadata: {name: a}\nspec: {taints: [{key: k, effect: NoExecute}]}\nspec: {}\n"
    assert read(twice).problems == ["stdin:4: not valid YAML: the key 'spec' appears twice"]
    merged = "x: &x {kind: Pod, metadata: {name: a}}\n<<: *x\nkind: Node\n"
    assert list(read(merged).nodes) == ["a"]


def test_a_budget_with_min_available_and_max_unavailable_is_refused() -> None:
    """The API server refuses it, too."""
    inventory = read(json.dumps(budget("b", minAvailable=1, maxUnavailable=1)))
    assert inventory.problems == [
        "stdin:1: PodDisruptionBudget shop/b: spec.minAvailable and spec.maxUnavailable exclude each other"
    ]


# Nothing to use


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["stdin: it is empty", "there is no node, pod or budget in -"]),
        (json.dumps(listed()), ["there is no node, pod or budget in -"]),
        (
            json.dumps(listed({"kind": "Deployment"}, {"kind": "Deployment"}, {"x": 1})),
            ["there is no node, pod or budget in - (skipped: 2 Deployment, 1 without a kind)"],
        ),
    ],
)
def test_without_usable_objects_nothing_is_planned(text: str, said: list[str]) -> None:
    """An empty table would say that all is well."""
    result = run("-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [f"taint-eviction: {sentence}" for sentence in said]


def test_stdin_can_be_read_once() -> None:
    """A second read would find nothing."""
    result = run("-", "-", stdin=json.dumps(NODE))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "taint-eviction: - is stdin, which can be read only once\n"


# Counting


def test_problems_beyond_a_hundred_are_only_counted() -> None:
    """Nobody would read more lines."""
    result = run("-", stdin=json.dumps(listed(NODE, *[None] * 250)))
    assert "INCOMPLETE: 250 parts of the input could not be read" in result.stdout.splitlines()[0]
    assert len(result.stderr.splitlines()) == 101
    assert result.stderr.endswith("… and 150 more like these\n")


def test_objects_that_are_used_in_part_are_counted() -> None:
    """The part that is left out is reported with its place."""
    odd = tainted({"key": "k", "effect": "NoExecute", "timeAdded": "yesterday"})
    result = run("-", stdin=json.dumps(listed(odd, pod("a"))))
    assert result.exit_code == 0
    assert "note: 1 object could be read only in part (see stderr)" in result.stdout
    assert "stdin:1: Node node-1: spec.taints[0].timeAdded is not a usable time" in result.stderr
