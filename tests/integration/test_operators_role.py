"""The Role for people in docs/security.md with what its table adds: commands ask for that, and for nothing else.

The API server allows that and nothing else.
"""

import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.client import Configuration
from tests.stage.controlled import QUICK, controlling, plain_connection
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, is_leaving, write_kubeconfig
from tests.stage.processes import ROOT, CommandResult, invoked
from tests.stage.rights import Grant, grants_of
from tests.stage.waiting import until

from fake_apiserver import ApiServer, pod_object
from fake_apiserver.request_info import RequestInfo
from taint_eviction.login.token_sources import FixedAuthorization
from taint_eviction.settings import ElectionSettings

LEASE = ElectionSettings()
SHADOW = ElectionSettings(lease_name="taint-eviction-controller-dry-run")

# What the table of the page adds to the Role.
LIST_NODES, LIST_PODS = Grant("", "nodes", "list", "", ""), Grant("", "pods", "list", "", "")
LIST_BUDGETS = Grant("policy", "poddisruptionbudgets", "list", "", "")
TRY_EVICTIONS = Grant("", "pods/eviction", "create", "", "")
LIST_OWN_PODS = LIST_PODS._replace(namespace=LEASE.lease_namespace)
READ_STUCK = (
    Grant("", "pods", "get", "", ""),
    LIST_PODS,
    Grant("", "nodes", "get", "", ""),
    LIST_NODES,
    Grant("coordination.k8s.io", "leases", "get", "kube-node-lease", ""),
    Grant("", "persistentvolumeclaims", "get", "", ""),
    Grant("storage.k8s.io", "volumeattachments", "list", "", ""),
)
GET_NODES = Grant("", "nodes", "get", "", "")
LIST_EVENTS = Grant("", "events", "list", "", "")
GET_SHADOW = Grant("coordination.k8s.io", "leases", "get", SHADOW.lease_namespace, SHADOW.lease_name)


def role() -> list[Grant]:
    """Read the Role from the page."""
    page = (ROOT / "docs/security.md").read_text()
    [text] = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return grants_of(yaml.safe_load(text))


@dataclass
class Operator:
    """A person who has the Role; ``refused``: the requests that the API server did not allow."""

    server: ApiServer
    config: Path
    port: int
    rights: tuple[Grant, ...] = ()
    refused: list[tuple[str, str]] = field(default_factory=list)

    async def types(self, *words: str, also: tuple[Grant, ...] = ()) -> CommandResult:
        """Run a command with the Role and more rights."""
        self.rights = (*role(), *also)
        return await invoked(*words, "--kubeconfig", str(self.config))

    async def asks(self, *words: str, also: tuple[Grant, ...] = ()) -> CommandResult:
        """Run a command that asks the controller."""
        return await self.types(*words, "--port", str(self.port), also=also)

    def may(self, info: RequestInfo) -> bool:
        """Return whether a request is allowed, and note it if it is not."""
        allowed = any(grant.covers(info) for grant in self.rights)
        if not allowed:
            self.refused.append((info.verb, info.resource_name))
        return allowed


@pytest.fixture
async def operator(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Operator]:
    """One pod has been evicted, and a clean node has one with a budget. The controller has a token of its own."""
    election = getattr(request, "param", LEASE)
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2", "cp")
        add_pod(server, "web", "n1")
        add_pod(server, "db", "n2", labels={"app": "db"})
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
        server.create("poddisruptionbudgets", {"metadata": {"name": "db"}, "spec": spec})
        settings = replace(QUICK, election=election, dry_run=election is SHADOW)
        own = plain_connection(Configuration(host=server.url), FixedAuthorization("Bearer controller"))
        async with controlling(server, settings, connection=own) as controlled:
            await controlled.until(controlled.application.gate.may_act)
            pod = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            pod["metadata"]["labels"] = {"app.kubernetes.io/name": "taint-eviction-controller"}
            server.create("pods", {**pod, "status": {**pod["status"], "podIP": "127.0.0.1"}})
            server.taint("n1", KEY)
            if election is LEASE:
                await deleted(server, "web")
            config = write_kubeconfig(tmp_path / "config", server, token="person")
            person = Operator(server, config, controlled.listen.port)
            token_of_request = ""

            def who(token: str) -> bool:
                nonlocal token_of_request
                token_of_request = token
                return True

            # The server asks for both of a request without a turn for another one between.
            server.answerer.tokens = who
            server.answerer.authorize = lambda info: token_of_request == "controller" or person.may(info)
            yield person


async def test_history_finds_the_replicas_with_the_right_to_list_their_pods(operator: Operator) -> None:
    """It asks all of them."""
    said = await operator.asks("history", also=(LIST_OWN_PODS, LIST_EVENTS))
    assert (said.code, operator.refused) == (0, [])
    assert "web" in said.out


async def test_history_asks_the_leader_without_the_right_to_list_pods(operator: Operator) -> None:
    """The Role alone is enough for that."""
    said = await operator.asks("history")
    assert (said.code, set(operator.refused)) == (0, {("list", "pods"), ("list", "events")})
    assert "web" in said.out


async def test_explain_of_a_pod_that_is_gone_asks_the_replicas(operator: Operator) -> None:
    """It would also read whether the pod is there and stays Terminating."""
    said = await operator.asks("explain", "web", also=(LIST_OWN_PODS, LIST_EVENTS, GET_NODES))
    assert (said.code, operator.refused) == (0, [("get", "pods")])
    assert "evicted" in said.out


async def test_explain_of_a_pod_that_stays_terminating_reads_what_its_page_names(operator: Operator) -> None:
    """A finalizer holds it."""
    add_pod(operator.server, "stuck", "n1", finalizers=["example.com/x"])
    await until(lambda: is_leaving(operator.server, "stuck"))
    said = await operator.asks("explain", "stuck", also=(*READ_STUCK, LIST_OWN_PODS, LIST_EVENTS))
    assert (said.code, operator.refused) == (0, [])
    assert "example.com/x" in said.out


async def test_plan_reads_nodes_pods_and_budgets_and_tries_evictions(operator: Operator) -> None:
    """Without a mode that asks budgets, it tries none."""
    words = ("plan", "--taint", f"n2={KEY}:NoExecute")
    said = await operator.types(*words, also=(LIST_NODES, LIST_PODS, LIST_BUDGETS))
    assert (said.code, operator.refused) == (0, [])
    said = await operator.types(*words, "--mode=evict", also=(LIST_NODES, LIST_PODS, LIST_BUDGETS, TRY_EVICTIONS))
    assert (said.code, operator.refused) == (0, [])
    assert "confirmed by dry-run evictions" in said.out


async def test_plan_without_the_right_to_evict_says_that_it_computes_what_budgets_allow(operator: Operator) -> None:
    """It goes on."""
    words = ("plan", "--taint", f"n2={KEY}:NoExecute", "--mode=evict")
    said = await operator.types(*words, also=(LIST_NODES, LIST_PODS, LIST_BUDGETS))
    assert (said.code, operator.refused) == (0, [("create", "pods/eviction")])
    assert "this user may not create pods/eviction" in said.out


@pytest.mark.parametrize("operator", [SHADOW], indirect=True)
async def test_compare_needs_the_lease_of_the_dry_run_and_the_proxy(operator: Operator) -> None:
    """The Role alone names the other Lease."""
    said = await operator.asks("compare", also=(GET_SHADOW, LIST_EVENTS))
    assert (said.code, operator.refused) == (0, [])
    said = await operator.asks("compare")
    assert (said.code, operator.refused) == (3, [("get", "leases")])
