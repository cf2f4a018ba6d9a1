"""Files: every form that kubectl and people write, large ones, and broken ones."""

import io
import json
from pathlib import Path

import pytest
import yaml
from tests.planning.shop import SHOP, node, pod, tolerates

from taint_eviction_ctl.planning import json_stream, yaml_stream
from taint_eviction_ctl.planning.files import read_files
from taint_eviction_ctl.planning.inventory import Inventory

OBJECTS = [
    node("node-1", "k=v:NoExecute"),
    pod("web", "node-1", tolerates(30)),
    pod("db"),
    {"kind": "Service", "metadata": {}},
]
LIST = {"apiVersion": "v1", "items": OBJECTS, "kind": "List", "metadata": {"resourceVersion": ""}}


def read(text: str | bytes) -> Inventory:
    """Read a text as stdin."""
    return read_files(["-"], io.BytesIO(text.encode() if isinstance(text, str) else text), lambda count: None)


def names(inventory: Inventory) -> list[str]:
    """Return the names of what was read."""
    return [*inventory.nodes, *(key.name for key in inventory.pods)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(LIST, indent=4), id="kubectl -o json"),
        pytest.param(json.dumps(LIST), id="compact"),
        pytest.param("\n".join(json.dumps(each) for each in OBJECTS), id="a line each"),
        pytest.param(json.dumps(OBJECTS), id="array"),
        pytest.param(b"\xef\xbb\xbf" + json.dumps(LIST).encode(), id="byte order mark"),
        pytest.param(yaml.safe_dump(LIST), id="kubectl -o yaml"),
        pytest.param(yaml.safe_dump_all(OBJECTS, explicit_start=True), id="documents"),
        pytest.param("# a comment\n---\n" + yaml.safe_dump(LIST) + "---\n---\n# end\n", id="empty documents"),
        pytest.param(yaml.safe_dump(LIST).replace("\n- ", "\n\n# next\n- "), id="comments between items"),
        pytest.param(yaml.safe_dump(LIST).replace("\n", "\r\n"), id="lines as Windows ends them"),
        pytest.param(
            "items:\n" + "".join(f"  - {json.dumps(each)}\n" for each in OBJECTS) + "kind: List\n", id="indented"
        ),
    ],
)
def test_every_form_gives_the_same_objects(text: str | bytes) -> None:
    """Nodes and pods are used, and other kinds are counted."""
    inventory = read(text)
    assert names(inventory) == ["node-1", "web", "db"]
    assert inventory.skipped == {"Service": 1}
    assert (inventory.problems, inventory.complaints) == ([], [])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_items_of_a_list_of_one_kind_need_not_name_it(form: str) -> None:
    """The API server lists items without their kind."""
    items = [{key: value for key, value in each.items() if key != "kind"} for each in OBJECTS[1:3]]
    told = {"kind": "PodList", "apiVersion": "v1", "items": items}
    text = json.dumps(told) if form == "json" else yaml.safe_dump(told, sort_keys=False)
    assert names(read(text)) == ["web", "db"]


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_json_is_read_the_same_in_any_portions(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Words, numbers, strings and letters of several bytes may be cut anywhere."""
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    told = {
        "number": 1234567890,
        "text": 'Zoë \\ " ∞ 𝄞',
        "none": None,
        "items": [{"a": [1.5e300, True]}, {"b": "x" * 50}],
    }
    source = io.BytesIO(json.dumps(told, ensure_ascii=False, indent=1).encode() + b"\n{}\n")
    assert [value for value, _ in json_stream.stream_json(source)] == [*told["items"], {}]  # type: ignore[misc]


def test_a_truncated_file_gives_what_comes_before(tmp_path: Path) -> None:
    """The problem has file and line of the object that is cut, and the objects before it are used."""
    text = json.dumps(LIST, indent=4)
    cut = text[: text.index('"db"')]
    inventory = read(cut)
    assert names(inventory) == ["node-1", "web"]
    line = cut[: cut.rindex('        {\n            "apiVersion"')].count("\n") + 1
    assert inventory.problems == [
        f"stdin:{line}: the text ends in the middle: this object and everything after it are missing"
    ]


def test_broken_json_names_the_line() -> None:
    """The object before the error is used."""
    inventory = read('{"items": [\n{"kind": "Node", "metadata": {"name": "a"}},\n{"kind" "Pod"}\n]}')
    assert names(inventory) == ["a"]
    assert inventory.problems == ["stdin:3: not valid JSON: Expecting ':' delimiter"]


def test_broken_yaml_names_the_line() -> None:
    """The object before the error is used, as with JSON."""
    items = ["{name: a}", "{name: [}", "{name: b}"]
    text = "apiVersion: v1\nkind: List\nitems:\n" + "".join(f"- kind: Node\n  metadata: {item}\n" for item in items)
    inventory = read(text)
    assert names(inventory) == ["a"]
    assert inventory.problems == ["stdin:7: not valid YAML: did not find expected node content"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"kind": "Pod", "metadata": {}}, "Pod ?/?: metadata.namespace is missing"),
        ({"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": "x"}}, "Node n: spec.taints is not a list"),
        ({"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"minAvailable": "x"}}, "neither a number"),
        ("text", "an object was expected, not text (kubectl prints objects with -o json)"),
        (7, "an object was expected, not a number"),
        (None, "an object was expected, not null"),
    ],
)
def test_an_object_that_cannot_be_used_is_named(body: object, problem: str) -> None:
    """The other objects are used."""
    inventory = read(json.dumps({"items": [body, OBJECTS[0]]}))
    assert names(inventory) == ["node-1"]
    assert len(inventory.problems) == 1
    assert problem in inventory.problems[0]


@pytest.mark.parametrize(
    "raw", [b"", b"  \n", b"\xff\xfe{}", b'{"a": "\xff"}', b"- - -\n\t", b"just words", b"7", b"[" * 100_000]
)
def test_a_text_that_is_no_input_is_a_problem_and_no_exception(raw: bytes) -> None:
    """Anything may come through a pipe."""
    assert read(raw).problems


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    """One file is missing, another is a directory, and the third is read."""
    inventory = read_files([str(tmp_path / "none.json"), str(tmp_path), SHOP], io.BytesIO(), lambda count: None)
    assert [problem.partition(": ")[2] for problem in inventory.problems] == [
        "cannot be read: No such file or directory",
        "cannot be read: Is a directory",
    ]
    assert len(inventory.pods) == 19


def test_a_list_of_yaml_is_read_item_by_item() -> None:
    """The first item is returned before the rest is read: memory is bounded by one item."""
    text = (yaml.safe_dump({"items": OBJECTS[:1]}) + yaml.safe_dump(OBJECTS[1:]) * 10_000).encode()
    source = io.BytesIO(text)
    assert next(yaml_stream.stream_yaml(source)) == (OBJECTS[0], 2)
    assert source.tell() < len(text) / 10


def test_anchors_are_valid_within_their_document() -> None:
    """An alias may refer to another item, but not to another document."""
    text = "items:\n- kind: Node\n  metadata: &m {name: a}\n- {kind: Pod, metadata: *m, spec: {}}\nkind: List\n---\n"
    assert names(read(text)) == ["a", "a"]
    assert read(text + "{kind: Node, metadata: *m}\n").problems == [
        "stdin:7: not valid YAML: found undefined alias 'm'"
    ]


KUBECTL = Path("tests/planning/data/kubectl.yaml")


def test_what_kubectl_prints_is_the_same_as_yaml_and_as_json() -> None:
    """The file has annotations of many lines, hashes that begin with a digit, and times, which stay text."""
    as_yaml = [item for item, _ in yaml_stream.stream_yaml(io.BytesIO(KUBECTL.read_bytes()))]
    text = json.dumps({"items": as_yaml}).encode()
    assert [item["kind"] for item in as_yaml] == ["Node", "Pod", "PodDisruptionBudget"]
    assert all(isinstance(item["metadata"]["creationTimestamp"], str) for item in as_yaml)
    assert [item for item, _ in json_stream.stream_json(io.BytesIO(text))] == as_yaml
