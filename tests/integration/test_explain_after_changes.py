"""``explain`` and ``history`` after a cluster has changed: other pods of a name, of an owner, or a dry run alone."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stage.controlled import QUICK, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, tolerates, write_kubeconfig
from tests.stage.shop import LEASE, Shop, open_shop
from tests.stage.waiting import until

from fake_apiserver import ApiServer, pod_object
from taint_eviction_ctl.planning.wording import utc


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """A cluster of the test's own, which it changes."""
    async with open_shop(tmp_path) as made:
        yield made


async def test_explain_suggests_living_and_remembered_pods_of_a_name(shop: Shop) -> None:
    """Without -n people mean the pod that is gone as often as one that is there."""
    add_pod(shop.server, "db-1", "n2", namespace="bank")
    line, *_ = (await shop.say("explain", "db-1")).out.splitlines()
    begin = (
        "default/db-1 is not known: there is no such pod; did you mean 'bank/db-1', or 'shop/db-1', which was evicted"
    )
    assert line.startswith(f"{begin} from node n1 at 20")
    document = json.loads((await shop.say("explain", "db-1", "-o", "json")).out)
    assert (document["known"], document["near"]) == (False, "bank/db-1")
    [gone] = document["nearRemembered"]
    assert (gone["pod"], gone["outcome"], gone["node"]) == ("shop/db-1", "evicted", "n1")


async def test_explain_of_a_pod_that_is_gone_says_which_pods_its_owner_has(shop: Shop) -> None:
    """People ask whether it runs again; the owner has created another pod, which has another name."""

    def owned_by(name: str, **more: Any) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        return {"namespace": "shop", "ownerReferences": [owner], **more}

    async def now() -> str:
        lines = (await shop.say("explain", "shop/cart-1")).out.splitlines()
        [line] = [line for line in lines if line.startswith("  now ")]
        return line.removeprefix("  now       it is gone: there is no pod of this name")

    async def documented() -> Any:
        return json.loads((await shop.say("explain", "shop/cart-1", "-o", "json")).out)["ownerPods"]

    add_pod(shop.server, "cart-1", "n1", **owned_by("cart"))
    await until(lambda: shop.server.get("pods", "cart-1", "shop") is None)
    none = "ReplicaSet/cart has no pod now: if its Deployment was rolled out since, another ReplicaSet has them"
    assert (await now(), await documented()) == (f"; {none}", [])
    add_pod(shop.server, "cart-2", None, **owned_by("cart"))
    add_pod(shop.server, "other-1", "n2", **owned_by("other"))
    created = (shop.server.get("pods", "cart-2", "shop") or {})["metadata"]["creationTimestamp"]
    has = f"; ReplicaSet/cart has cart-2, created {utc(created)}, Pending, not bound to a node"
    assert await now() == has
    assert await documented() == [{"name": "cart-2", "phase": "Pending", "node": None, "created": created}]
    shop.server.faults.add(verb="list", resource="pods", status=403)
    assert (await now(), await documented()) == ("", None)


async def test_explain_of_a_pod_that_is_gone_says_what_became_of_its_node(shop: Shop) -> None:
    """Silence would leave open whether the node still evicts; a user who may not read it is told nothing."""

    async def said() -> tuple[list[str], Any]:
        lines = (await shop.say("explain", "shop/db-1")).out.splitlines()
        document = json.loads((await shop.say("explain", "shop/db-1", "-o", "json")).out)
        return [line.removeprefix("  old node  ") for line in lines if line.startswith("  old")], document["leftNode"]

    def left(*taints: str, gone: bool = False) -> dict[str, Any]:
        return {"node": "n1", "taints": list(taints), "gone": gone}

    node = shop.server.get("nodes", "n1") or {}
    assert await said() == ([f"n1 still has {KEY}:NoExecute"], left(f"{KEY}:NoExecute"))
    shop.server.update("nodes", {**node, "spec": {}})
    assert await said() == (["n1 has no NoExecute taint any more"], left())
    shop.server.delete("nodes", "n1")
    assert await said() == (["n1 no longer exists"], left(gone=True))
    shop.server.faults.add(verb="get", resource="nodes", status=403)
    assert await said() == ([], None)


async def test_explain_of_a_uid_explains_this_very_pod(shop: Shop) -> None:
    """Not the one that has its name now; in text and as a document."""
    add_pod(shop.server, "db-1", "n2", namespace="shop")
    [told] = json.loads((await shop.say("history", "shop/db-1", "-o", "json")).out)["outcomes"]
    lines = (await shop.say("explain", told["uid"])).out.splitlines()
    assert lines[0].startswith("shop/db-1 was evicted from node n1 at 20")
    assert f"  uid       {told['uid']}" in lines
    assert "  now       another pod of this name is on node n2: Pending, not Ready" in lines
    document = json.loads((await shop.say("explain", told["uid"], "-o", "json")).out)
    assert (document["kind"], document["known"], document["uid"]) == ("Explanation", True, told["uid"])


async def test_explain_of_a_recreated_pod_shows_the_earlier_pod_and_the_new_one(shop: Shop) -> None:
    """The answer says what happened to the earlier pod, and where the pod with its name is now."""
    add_pod(shop.server, "db-1", "n2", namespace="shop")
    lines = (await shop.say("explain", "shop/db-1")).out.splitlines()
    assert lines[0].startswith("shop/db-1 was evicted from node n1 ")
    assert "  now       another pod of this name is on node n2: Pending, not Ready" in lines


async def test_explain_of_a_pod_recreated_on_a_tainted_node_shows_both_pods(shop: Shop) -> None:
    """What happens to the new pod comes first, then what happened to the earlier one."""
    add_pod(shop.server, "db-1", "n1", tolerates(900), namespace="shop")
    await until(lambda: len(shop.controlled.application.engine.live.controller.status.known_keys()) == 3)
    lines = (await shop.say("explain", "shop/db-1")).out.splitlines()
    assert lines[0].startswith("shop/db-1 leaves node n1 ")
    assert lines[-1].startswith("  before    an earlier pod of this name was evicted from node n1 ")
    [before] = json.loads((await shop.say("explain", "shop/db-1", "-o", "json")).out)["past"]
    all_of_it = f"all of it: taint-eviction explain {before['uid']}"
    assert lines[-1].endswith(f": taint {KEY}:NoExecute is not tolerated; {all_of_it}")
    document = json.loads((await shop.say("explain", before["uid"], "-o", "json")).out)
    assert (document["uid"], document["outcome"]) == (before["uid"], "evicted")
    # What is true of the new pod alone.
    assert document.keys().isdisjoint({"leavesBecause", "deadline", "dueInSeconds", "verdicts", "taints", "eviction"})


async def test_explain_of_a_pod_that_was_evicted_twice_shows_the_last_time_first(shop: Shop) -> None:
    """The last eviction is shown with the state of its node now, and the earlier one follows with all its lines."""
    first = json.loads((await shop.say("explain", "shop/db-1", "-o", "json")).out)["past"][0]["uid"]
    second = add_pod(shop.server, "db-1", "n1", namespace="shop")
    await until(lambda: shop.server.get("pods", "db-1", "shop") is None)
    lines = (await shop.say("explain", "shop/db-1")).out.splitlines()
    begins = [number for number, line in enumerate(lines) if line.startswith("shop/db-1 was evicted from node n1 ")]
    assert lines.index(f"  uid       {second}") < begins[1] < lines.index(f"  uid       {first}")
    assert lines.index(f"  old node  n1 still has {KEY}:NoExecute") < begins[1]
    assert "  before    1 earlier pod of this name left, too: see below" in lines[: begins[1]]


async def test_a_dry_run_answers_where_no_controller_runs(tmp_path: Path) -> None:
    """After the README's first step it is the only replica: three commands find it, and say what it is."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "cp")
        add_pod(server, "web-0", "n1")
        election = replace(LEASE, lease_name="taint-eviction-controller-dry-run")
        async with controlling(server, replace(QUICK, dry_run=True, election=election)) as controlled:
            await controlled.until(controlled.application.gate.may_act)
            server.taint("n1", KEY)
            own = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            own["metadata"]["labels"] = {"app.kubernetes.io/name": "taint-eviction-controller"}
            server.create("pods", {**own, "status": {**own["status"], "podIP": "127.0.0.1"}})
            shop = Shop(server, controlled, write_kubeconfig(tmp_path / "config", server))
            await controlled.until(controlled.application.engine.live.controller.status.known_keys)
            async with asyncio.timeout(10):
                while "web-0" not in (await shop.say("history")).out:  # noqa: ASYNC110 - asked again
                    await asyncio.sleep(0.05)
            status, history = await shop.say("status"), await shop.say("history")
            assert (status.code, history.code) == (0, 0)
            assert ": dry run, ready" in status.out.splitlines()[0]
            assert "dry run" in history.out
            assert "dry run" in (await shop.say("explain", "web-0")).out
            assert (await shop.say("status", "--lease-name", "mine")).code == 3
