"""Commands take pods, nodes and namespaces in the ways that people know from kubectl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import yaml
from click.shell_completion import ShellComplete
from tests.stage.processes import start
from tests.stage.shop import Shop, open_shop

from taint_eviction.cli import cli

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    """One cluster for all tests of a process: they only read it."""
    async with open_shop(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def shop(standing: Shop) -> Iterator[Shop]:
    """The cluster, without the faults of other tests."""
    yield standing
    standing.server.faults.clear()


@pytest.mark.parametrize(
    "words",
    [("db-0", "-n", "shop"), ("pod/db-0", "-n", "shop"), ("pod", "db-0", "-n", "shop"), ("-n", "x", "shop/db-0")],
)
async def test_explain_takes_a_pod_as_kubectl_does(shop: Shop, words: tuple[str, ...]) -> None:
    """The pod is given by name or as pod/name with -n; a namespace before the name has priority over -n."""
    said = await shop.say("explain", *words)
    assert (said.code, said.complaints) == (0, "")
    assert said.out.startswith("shop/db-0 stays on node n1")


async def test_explain_without_a_namespace_uses_that_of_the_context(shop: Shop) -> None:
    """As with kubectl, the namespace is default if the context names none."""
    assert (await shop.say("explain", "api")).out.startswith("default/api leaves node n1")
    content = json.loads(shop.config.read_text())
    content["contexts"][0]["context"]["namespace"] = "shop"
    other = shop.config.with_name("other")
    other.write_text(json.dumps(content))
    assert (await replace(shop, config=other).say("explain", "db-0")).out.startswith("shop/db-0 stays on node n1")


@pytest.mark.parametrize(
    ("pod", "near"),
    [
        ("shop/db0", "shop/db-0"),
        ("shop/db1", "shop/db-1"),
        ("bank/db-0", "shop/db-0"),
        ("shpo/db-0", "shop/db-0"),
        ("shop/zebra", None),
    ],
)
async def test_explain_of_an_unknown_pod_suggests_a_similar_one(shop: Shop, pod: str, near: str | None) -> None:
    """The suggestion is a pod of the same namespace, even if it is gone, or a pod of the same name elsewhere."""
    said = await shop.say("explain", pod)
    assert said.code == 1
    suggested = f"; did you mean '{near}'?" if near else ""
    line, *sources = said.out.splitlines()
    assert line == f"{pod} is not known: there is no such pod{suggested}"
    assert len(sources) == 2  # The replica, which has what the ConfigMap has, and events.
    assert json.loads((await shop.say("explain", pod, "-o", "json")).out)["near"] == near


async def test_explain_of_a_workload_suggests_its_pods_that_are_gone(shop: Shop) -> None:
    """Who asks why a pod of db was evicted need not know the pod's name; a living one has another."""
    line, *_ = (await shop.say("explain", "shop/db")).out.splitlines()
    assert line.startswith("shop/db is not known: there is no such pod; did you mean ")
    assert "'shop/db-1', which was evicted from node n1 at 20" in line


async def test_a_document_and_a_text_agree_that_a_pod_that_is_gone_is_known(shop: Shop) -> None:
    """Exit code 0 is ``known: true`` in a document; the API server's answer that it is gone is in the text."""
    said = await shop.say("explain", "shop/db-1")
    assert (said.code, said.out.count("  now       it is gone: there is no pod of this name")) == (0, 1)
    document = await shop.say("explain", "shop/db-1", "-o", "json")
    told = json.loads(document.out)
    assert (document.code, told["known"], told["outcome"], told["node"]) == (0, True, "evicted", "n1")
    assert told["text"].startswith("was evicted from node n1 at 20")
    clean = await shop.say("explain", "bank/web-7", "-o", "json")
    told = json.loads(clean.out)
    assert (clean.code, told["known"], told["outcome"], told["node"]) == (0, True, "stays", "n2")
    unknown = await shop.say("explain", "shop/zebra", "-o", "json")
    assert (unknown.code, json.loads(unknown.out)["known"]) == (1, False)


async def test_history_suggests_as_explain_does(shop: Shop) -> None:
    """Of a workload its pods, and the flag for a namespace; where else to look for a pod that was never evicted."""
    nothing = "nobody that was asked knows such an outcome"
    said = [(await shop.say("history", word)).out.splitlines()[0] for word in ("shop/db", "n1", "shop", "shop/db-0")]
    assert said[0].startswith(f"{nothing}; did you mean 'shop/db-")
    assert "'shop/db-1', which was evicted from node n1 at 20" in said[0]
    assert said[1:] == [
        f"{nothing}; did you mean 'node/n1'?",
        f"{nothing}; did you mean 'history -n shop'?",
        f"{nothing}; a pod that had not to leave, or was Terminating before, has none: see the API server's audit log",
    ]
    document = json.loads((await shop.say("history", "shop", "-o", "json")).out)
    assert (document["outcomes"], document["near"], document["nearRemembered"]) == ([], "namespace/shop", [])


async def test_explain_says_where_a_pod_is_that_the_controller_does_not_know(shop: Shop) -> None:
    """The pod's node is clean; the command reads the pod with the user's rights."""
    said = await shop.say("explain", "web-7", "-n", "bank")
    assert said.code == 0
    assert said.out.startswith("bank/web-7 stays: its node n2 has no NoExecute taint that the controller has seen\n")


async def test_explain_without_the_right_to_list_pods_suggests_none(shop: Shop) -> None:
    """The rest of the answer is the same."""
    shop.server.faults.add(verb="list", resource="pods", status=403)
    said = await shop.say("explain", "shop/db0")
    assert (said.code, said.out.splitlines()[0]) == (1, "shop/db0 is not known: there is no such pod")


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("node/n2", 0, ""),
        ("node/n22", 1, "there is no node 'n22'; did you mean 'n2'?"),
        ("01234567-89ab-cdef-0123-456789abcdef", 1, "no pod with the UID 01234567-89ab-cdef-0123-456789abcdef is rem"),
    ],
)
async def test_explain_of_an_unknown_node_or_uid_exits_1_and_says_so(
    shop: Shop, word: str, code: int, said: str
) -> None:
    """No pod has left n2, which is there."""
    found = await shop.say("explain", word)
    assert found.code == code
    assert said in found.complaints


async def test_plan_of_a_namespace_needs_no_rights_in_other_namespaces(shop: Shop) -> None:
    """Pods and budgets are listed in that namespace, and nodes as usual."""
    said = await shop.say("plan", "-n", "shop", "-o", "json", "--taint", "*=x:NoExecute")
    assert said.code == 0
    assert [(pod["namespace"], pod["name"]) for pod in json.loads(said.out)["pods"]] == [("shop", "db-0")]
    lists = shop.server.requests.select(verb="list")
    assert {(each.resource, each.namespace) for each in lists[-3:]} == {
        ("nodes", ""),
        ("pods", "shop"),
        ("poddisruptionbudgets", "shop"),
    }


@pytest.mark.parametrize("verb", [("status",), ("history",), ("plan",), ("breaker",)])
async def test_all_namespaces_is_the_default_of_commands_with_a_namespace_flag(
    shop: Shop, verb: tuple[str, ...]
) -> None:
    """-A is accepted wherever -n is, and has priority over it."""
    with_both, with_neither = await shop.say(*verb, "-A", "-n", "bank"), await shop.say(*verb)
    assert (with_both.code, with_neither.code) == (0, 0)
    # Whether the ConfigMap with outcomes had to be read depends on whether the leader has restored it by then.
    listed = [[line for line in each.out.splitlines() if "remembers" not in line] for each in (with_both, with_neither)]
    assert len(listed[0]) == len(listed[1])
    assert (await shop.say(*verb, "-n", "bank")).code == 0


@pytest.mark.parametrize("words", [("db-0", "db-1"), ("pod", "shop/db-0"), ("pod", "db-0", "db-1")])
async def test_explain_of_several_pods_is_refused(shop: Shop, words: tuple[str, ...]) -> None:
    """``explain`` takes one pod, or a node for all its pods."""
    said = await shop.say("explain", *words)
    assert (said.code, said.out) == (2, "")
    assert "give one pod" in said.complaints or "is not a pod" in said.complaints


@pytest.mark.parametrize("words", [("rs/web",), ("deployment.apps/web",), ("ReplicaSet/web-5d4f8",), ("sts", "db")])
async def test_the_owner_of_pods_is_refused_with_where_its_pods_are(shop: Shop, words: tuple[str, ...]) -> None:
    """Nobody means a pod of a namespace rs, and 'no such pod' would leave the reader with nothing."""
    for verb in ("explain", "history"):
        said = await shop.say(verb, *words)
        assert (said.code, said.out) == (2, "")
        assert "name one of its pods, which kubectl get pods lists" in said.complaints


async def test_explain_of_a_node_without_its_kind_suggests_the_right_form(shop: Shop) -> None:
    """As in kubectl, a bare name is the name of a pod."""
    assert (await shop.say("explain", "n2")).out.splitlines()[0].endswith("; did you mean 'node/n2'?")


@pytest.mark.parametrize("words", [("shop/db-1", "-n", "x"), ("db-1", "-n", "shop"), ("pod", "db-1", "-n", "shop")])
async def test_history_takes_a_pod_as_explain_does(shop: Shop, words: tuple[str, ...]) -> None:
    """The history of a name contains all pods that had this name."""
    said = await shop.say("history", *words, "-o", "json")
    assert [each["name"] for each in json.loads(said.out)["outcomes"]] == ["db-1"]
    assert json.loads((await shop.say("history", "shop/db-0", "-o", "json")).out)["outcomes"] == []
    of_node = await shop.say("history", "node/n1", "-o", "json")
    assert [each["name"] for each in json.loads(of_node.out)["outcomes"]] == ["db-1"]


async def test_status_of_a_namespace_that_does_not_exist_warns(shop: Shop) -> None:
    """Without the warning, "nothing is pending" would look like good news; without the right to list, there is none."""
    said = await shop.say("status", "-n", "shpo")
    assert (said.code, said.complaints) == (0, "taint-eviction: there is no namespace 'shpo'; did you mean 'shop'?\n")
    assert (await shop.say("status", "-n", "shop")).complaints == ""
    shop.server.faults.add(resource="namespaces", status=403)
    assert (await shop.say("status", "-n", "shpo")).complaints == ""


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("history",),
        ("explain", "shop/db-0"),
        ("explain", "shop/db-1"),
        ("breaker",),
        ("plan",),
        ("status", "--stuck"),
        ("doctor",),
    ],
)
async def test_yaml_says_what_json_says(shop: Shop, words: tuple[str, ...]) -> None:
    """The same document, but for what changes by itself between two commands."""
    as_json, as_yaml = await shop.say(*words, "-o", "json"), await shop.say(*words, "-o", "yaml")
    assert as_yaml.code == as_json.code
    assert shape(yaml.safe_load(as_yaml.out)) == shape(json.loads(as_json.out))


def shape(value: Any) -> Any:
    """Return a document without its values, but for words."""
    match value:
        case dict():
            # Whether the ConfigMap with outcomes has to be read depends on whether the leader has restored it.
            return {name: shape(each) for name, each in value.items() if name != "sources"}
        case list():
            return [shape(each) for each in value]
        case str() if value.isalpha():
            return value
        case _:
            return None


async def test_watching_prints_yaml_documents(shop: Shop) -> None:
    """Each begins with ---, so that any reader of YAML can tell them apart."""
    at = ("--kubeconfig", str(shop.config), "--port", str(shop.controlled.listen.port))
    process = await start(*at, "status", "--watch", "--interval", "0.1", "-o", "yaml", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(20):
        while text.count("---\n") < 3:
            text += (await process.stdout.readline()).decode()
    process.kill()
    await process.communicate()
    assert [each["kind"] for each in list(yaml.safe_load_all(text))[:2]] == ["Status", "Status"]


async def test_no_headers_leaves_the_headers_of_tables_out(shop: Shop) -> None:
    """As in kubectl, so that a script counts lines; all other lines stay."""
    for words, header in ((("history",), "TIME "), (("status",), "DUE "), (("plan", "-o", "wide"), "AT ")):
        whole, without = await shop.say(*words), await shop.say(*words, "--no-headers")
        assert any(line.lstrip().startswith(header) for line in whole.out.splitlines()), whole.out
        assert not any(line.lstrip().startswith(header) for line in without.out.splitlines())
        assert len(whole.out.splitlines()) > len(without.out.splitlines()) > 0


async def test_history_without_headers_prints_rows_alone(shop: Shop) -> None:
    """From when on outcomes are known goes to stderr, as what kubectl says beside rows, also where there are none."""
    said = await shop.say("history", "--no-headers", "--since", "1h")
    assert [line.split()[4] for line in said.out.splitlines()] == ["shop/db-1"]
    assert "since 20" in said.complaints
    assert ": remembers since 20" in said.complaints
    none = await shop.say("history", "--no-headers", "bank/web-7")
    assert (none.code, none.out) == (0, "")
    assert none.complaints.startswith("nobody that was asked knows such an outcome; a pod that had not to leave")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("explain", "d"), []),
        (("-n", "shop", "explain", ""), ["db-0"]),
        (("explain", "-n", "shop", "db"), ["db-0"]),
        (("explain", "shop/"), ["shop/db-0"]),
        (("history", "node/n"), ["node/n1", "node/n2"]),
        (("pause", ""), ["node/", "zone/", "namespace/"]),
        (("pause", "zone/"), ["zone/a", "zone/b"]),
        (("resume", "--only", "zones/b"), ["zones/b"]),
        (("pause", "node/n"), ["node/n1", "node/n2"]),
        (("pause", "namespace/s"), ["namespace/shop"]),
        (("resume", "ns/b"), ["ns/bank"]),
        (("status", "-n", "ba"), ["bank"]),
        (("-n", "s"), ["shop"]),
        (("doctor", "--lease-namespace", "b"), ["bank"]),
        (("history", "--node", "c"), ["cp"]),
        (("plan", "--taint", "n"), ["n1", "n2"]),
        (("status", "--context", ""), ["simulation"]),
    ],
)
async def test_names_complete(shop: Shop, words: tuple[str, ...], names: list[str]) -> None:
    """Pods, nodes, zones and namespaces are read with the user's rights; nothing is said where that fails."""
    *before, word = words
    completing = ShellComplete(cli, {}, "taint-eviction", "_TAINT_EVICTION_COMPLETE")
    line = ["--kubeconfig", str(shop.config), *before]
    found = await asyncio.to_thread(completing.get_completions, line, word)
    assert [each.value for each in found] == names


async def test_names_that_may_not_be_read_do_not_complete(shop: Shop) -> None:
    """Nothing is printed, either."""
    shop.server.faults.add(verb="list", status=403)
    completing = ShellComplete(cli, {}, "taint-eviction", "_TAINT_EVICTION_COMPLETE")
    line = ["--kubeconfig", str(shop.config), "explain"]
    assert await asyncio.to_thread(completing.get_completions, line, "shop/") == []
