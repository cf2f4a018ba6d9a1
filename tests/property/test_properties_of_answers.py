"""Answers of the API server, or of a proxy before it, become a value or a refusal, never a wrong conclusion.

Each door is one request of ``kube``. The server in these tests answers with any status, headers and body.
"""

import asyncio
import contextlib
import json
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.aio.client import ApiClient
from multidict import CIMultiDict
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import EPOCH, any_json, node_json, pod_json, rngs, spoilt, tolerates_json
from tests.unit.builders import at_once

from taint_eviction.core.control_state import EVERYTHING, Latch, Pause
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, Pod, PodRef
from taint_eviction.core.pod_parts import ALL_PARTS
from taint_eviction.kube.adoptions import Adoptions
from taint_eviction.kube.api_calls import ApiCalls
from taint_eviction.kube.api_reader import ApiReader
from taint_eviction.kube.api_writer import ApiWriter
from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.own_policy import OwnPolicy
from taint_eviction.kube.preflight import missing_rights
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.reporting.outcome_keeper import UnreadableRecord, read_kept
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings

REF = PodRef(NamespacedName("shop", "web"), "uid-web")
NOW = Moment(0.0, EPOCH)
# More answers than any door needs without paging; after them the server answers 500.
_MAX_ANSWERS = 12

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7"},
    "spec": {
        "holderIdentity": "a_1",
        "leaseDurationSeconds": 15,
        "acquireTime": "2030-03-17T17:46:40.000000Z",
        "renewTime": "2030-03-17T17:46:40.000000Z",
        "leaseTransitions": 3,
    },
}
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7"},
    "data": {"pause": "true"},
}
NODES = {"kind": "NodeList", "metadata": {"resourceVersion": "9"}, "items": [node_json(1, "k1"), pod_json(2, "web")]}
PODS = {**NODES, "kind": "PodList"}
STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": 'pods "web" not found',
    "reason": "NotFound",
    "details": {"name": "web", "kind": "pods", "causes": [{"reason": "DisruptionBudget", "message": "x"}]},
    "code": 404,
}
CONFLICT = {
    **STATUS,
    "reason": "Conflict",
    "message": "Precondition failed: UID in precondition: a, UID in object meta: b",
}
REAL = (
    node_json(1, "k1", name="web"),
    pod_json(2, "web", tolerates_json("k1", 30)),
    LEASE,
    CONFIG_MAP,
    NODES,
    PODS,
    STATUS,
    CONFLICT,
)


class PlayedServer:
    """An aiohttp session, as far as ``kube`` uses one, that gives the same answer a limited number of times."""

    closed = False

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self._answer = status, CIMultiDict(headers), content
        self._left = _MAX_ANSWERS

    async def request(self, _method: str, _url: str, **_options: object) -> Any:
        """Answer a request."""
        self._left -= 1
        status, headers, content = self._answer if self._left >= 0 else (500, CIMultiDict[str](), b"")

        async def iter_chunked(size: int) -> AsyncIterator[bytes]:
            for at in range(0, len(content), size):
                yield content[at : at + size]

        body = SimpleNamespace(iter_chunked=iter_chunked)
        return SimpleNamespace(status=status, headers=headers, content=body, close=lambda: None)

    def calls(self) -> ApiCalls:
        """Return API calls to this server."""
        client = SimpleNamespace(
            rest_client=SimpleNamespace(pool_manager=self), configuration=SimpleNamespace(host="http://api")
        )
        return ApiCalls(cast(ApiClient, client), 5.0, self.heard, lambda *_: None)

    @staticmethod
    def heard(epoch: float, _connection: int, _audited: bool) -> None:
        """Receive the time of a ``Date`` header."""
        assert math.isfinite(epoch)


def reader(calls: ApiCalls) -> ApiReader:
    """Make an API reader."""
    return ApiReader(calls, MalformedObjects(lambda _kind: None))


def writer(calls: ApiCalls) -> ApiWriter:
    """Make an API writer."""
    return ApiWriter(calls, MalformedObjects(lambda _kind: None))


def adoptions(calls: ApiCalls) -> Adoptions:
    """Make the port of adoption."""
    state = StateConfigMap(calls, "shop", "web")
    return Adoptions(calls, MalformedObjects(lambda _kind: None), state, "a_1", ALL_PARTS)


async def every(pages: Any) -> list[Any]:
    """Return all pages of a list."""
    return [page async for page in pages]


Door = Callable[[ApiCalls], Awaitable[Any]]
# Ports whose answer can mean that the pod is gone, or that there is no such object.
GONE: dict[str, Door] = {
    "read_node": lambda calls: reader(calls).read_node("web"),
    "read_pod": lambda calls: reader(calls).read_pod(REF),
    "mark": lambda calls: writer(calls).mark(REF, False, NOW),
    "unmark": lambda calls: writer(calls).unmark(Pod(REF, "n1", resource_version=7), NOW),
    "delete": lambda calls: writer(calls).delete(REF, at_once),
    "evict": lambda calls: writer(calls).evict(REF, at_once),
    "read_lease": lambda calls: KubernetesLease(calls, "shop", "web").read(),
    "read_orders": lambda calls: StateConfigMap(calls, "shop", "web").read(),
}


async def taken_over(calls: ApiCalls) -> None:
    """Read a Lease and write it again, as a new leader does."""
    lease = KubernetesLease(calls, "shop", "web")
    if (record := await lease.read()) is not None:
        assert isinstance(record.version, str)
        await lease.write(replace(record, holder="b_2", transitions=record.transitions + 1))


OTHERS: dict[str, Door] = {
    "list_nodes": lambda calls: every(reader(calls).list_nodes()),
    "list_pods": lambda calls: every(reader(calls).list_pods(None)),
    "list_pods_of_node": lambda calls: every(reader(calls).list_pods("n1")),
    "cached_pods": lambda calls: reader(calls).cached_pods("n1"),
    "take_over": taken_over,
    "write_latch": lambda calls: StateConfigMap(calls, "shop", "web").write_latch(Latch(EPOCH, "many nodes")),
    "write_reset": lambda calls: StateConfigMap(calls, "shop", "web").write_reset(EPOCH),
    "pause": lambda calls: StateConfigMap(calls, "shop", "web").set_pauses({EVERYTHING: Pause(EPOCH, "why")}),
    "resume": lambda calls: StateConfigMap(calls, "shop", "web").set_pauses({EVERYTHING: None}),
    "list_noted": lambda calls: adoptions(calls).list_noted(),
    "adopt": lambda calls: adoptions(calls).change(REF, lambda _pod: None),
    "account": lambda calls: OwnPolicy(calls, REF.key).account(),
    "own_policy": lambda calls: OwnPolicy(calls, REF.key).in_force(),
    "missing_rights": lambda calls: missing_rights(calls, Settings()),
    "kept_outcomes": lambda calls: read_kept(calls, REF.key),
}
DOORS = {**GONE, **OTHERS}

statuses = st.sampled_from(
    [200, 200, 200, 201, 202, 204, 301, 400, 403, 404, 404, 409, 409, 410, 422, 422, 429, 500, 503]
)
odd_texts = st.sampled_from(["", "0", "5", "-1", "1e9", "9" * 12, "soon", "Wed, 01 May 2024 10:00:30 GMT", "٥", "nan"])
headers = st.fixed_dictionaries({}, optional={"Retry-After": odd_texts, "Date": odd_texts | st.text(max_size=30)})
spoilt_bodies = st.builds(
    lambda body, rng, value: orjson.dumps(spoilt(body, rng, value)), st.sampled_from(REAL), rngs, any_json
)
bodies = st.binary(max_size=60) | any_json.map(orjson.dumps) | st.sampled_from(REAL).map(orjson.dumps) | spoilt_bodies
doors = st.sampled_from(sorted(DOORS))


def nested(document: Any, *place: str | int) -> bytes:
    """Return a document as JSON, with a value at some place that decoders take and that is too deep to be written."""
    changed = found = deepcopy(document)
    for each in place[:-1]:
        found = found[each]
    found[place[-1]] = "here"
    return orjson.dumps(changed).replace(b'"here"', b'{"a":' * 1000 + b'"x"' + b"}" * 1000)


async def outcome(door: str, server: PlayedServer) -> Any:
    """Make the request of a door; return its result, or the refusal."""
    try:
        return await DOORS[door](server.calls())
    except (CallFailed, UnreadableRecord) as refusal:
        return refusal


def names_the_object(status: int, body: bytes) -> bool:
    """Return whether the API server itself answers that this object does not exist, or is another one."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        told = json.loads(body)
        return status in (404, 409, 422) and told["kind"] == "Status" and told["details"]["name"] == "web"
    return False


@given(doors, statuses, headers, bodies)
@example("take_over", 200, {}, orjson.dumps({**LEASE, "spec": {"leaseTransitions": 2**64 - 1}}))
@example("take_over", 200, {}, orjson.dumps({**LEASE, "metadata": {"resourceVersion": []}}))
@example("take_over", 200, {}, nested(LEASE, "spec", "strategy"))
@example("delete", 429, {}, nested(STATUS, "details", "causes", 0, "message"))
@example("pause", 200, {}, orjson.dumps({**CONFIG_MAP, "binaryData": 5}))
@example("list_noted", 200, {}, orjson.dumps({**PODS, "items": [{"metadata": {"annotations": 5}}]}))
@example("missing_rights", 201, {}, b'{"status": 5}')
def test_any_answer_is_a_value_or_a_refusal(door: str, status: int, head: dict[str, str], body: bytes) -> None:
    """Any answer to any request becomes a value or a refusal. A refusal is one short line, and its advice to wait is
    a positive, finite number of seconds.
    """
    found = asyncio.run(outcome(door, PlayedServer(status, head, body)))
    if isinstance(found, CallFailed):
        assert len(str(found)) < 600
        assert "\n" not in str(found)
        assert found.retry_after_seconds is None or 0 < found.retry_after_seconds < math.inf
    elif door == "read_pod" and found is not None:
        assert found.ref == REF


@given(st.sampled_from(sorted(GONE)), statuses, headers, bodies)
def test_only_an_answer_that_names_the_object_means_that_it_is_gone(
    door: str, status: int, head: dict[str, str], body: bytes
) -> None:
    """A proxy's 404 never means that a pod is evicted, that a node is deleted, or that nothing is paused."""
    found = asyncio.run(outcome(door, PlayedServer(status, head, body)))
    if found is None or found is False:
        another_uid = door in ("read_pod", "mark", "unmark") and status < 300
        assert another_uid or names_the_object(status, body)


@given(statuses.filter(lambda status: status >= 300), headers, bodies)
def test_a_refused_call_never_counts_as_an_eviction(status: int, head: dict[str, str], body: bytes) -> None:
    """This holds for a DELETE and for the eviction API."""
    for door in ("delete", "evict"):
        assert asyncio.run(outcome(door, PlayedServer(status, head, body))) is not True


@given(rngs, any_json)
def test_a_malformed_pod_is_never_used_in_part(rng: random.Random, value: Any) -> None:
    """If some field of a pod is malformed, its tolerations and its node are read as sent, or the answer is refused."""
    sent = pod_json(2, "web", tolerates_json("k1"))
    found = asyncio.run(outcome("read_pod", PlayedServer(200, {}, orjson.dumps(spoilt(sent, rng, value)))))
    if isinstance(found, Pod):
        assert [str(toleration) for toleration in found.tolerations] == ["k1:NoExecute indefinitely"]
        assert found.node_name == "n1"


@pytest.mark.parametrize("door", sorted(DOORS))
def test_every_door_accepts_some_answer_of_these_tests(door: str) -> None:
    """A door that accepted none would turn the tests above into tests of refusals only."""
    taken = {200: [*REAL], 404: [STATUS]}
    found = [
        asyncio.run(outcome(door, PlayedServer(status, {}, orjson.dumps(body))))
        for status, told in taken.items()
        for body in told
    ]
    assert any(not isinstance(each, CallFailed) for each in found)
