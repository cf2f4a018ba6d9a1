"""The rights in manifests/ and the calls that the controller makes are the same, in both directions.

The controller goes through everything that it does, with an API server that enforces those rights.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.stage.processes import ROOT
from tests.stage.replicas import ReplicaProcess, Theatre, theatre
from tests.stage.rights import Grant, grants_of
from tests.stage.waiting import until

from fake_apiserver import LoggedRequest
from fake_apiserver.request_info import RequestInfo, parse_request

NORMAL, DRY_RUN = "base", "overlays/dry-run"
LEASE_FLAG = "--leader-elect-resource-name=taint-eviction-controller-dry-run"

# The policy uses the eviction API for pods with this taint, and the breaker opens when a fourth node is tainted.
BUDGETED = "budgeted"
POLICY = f"""
apiVersion: taint-eviction/v1
kind: EvictionPolicy
rules:
  - name: budgeted
    match: {{taintKeys: [{BUDGETED}]}}
    mode: evict
"""
BREAKER = ("--breaker", "--breaker-nodes=3", "--breaker-settle=0s", "--breaker-closes=by-itself")

# Rights of any authenticated user (system:basic-user, system:discovery, system:public-info-viewer), and their use:
EXEMPT = {
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",  # which rights are missing, if a person started it
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",  # whose rights the admission policy must narrow
    "/version",  # when a second of the server's clock begins
    "/api/v1",  # whether there are nodes and pods
}


def grants(directory: str) -> list[Grant]:
    """Read the rights in a directory of the manifests; kustomize gives objects with a name its suffix."""
    manifests = ROOT / "manifests" / directory
    suffix = yaml.safe_load((manifests / "kustomization.yaml").read_text()).get("nameSuffix", "")

    def named(name: str) -> str:
        if "$(CONTROLLER_NAME)" in name:
            return name.replace("$(CONTROLLER_NAME)", f"taint-eviction-controller{suffix}")
        return name and name + suffix

    return [
        grant._replace(name=named(grant.name))
        for file in sorted(manifests.glob("*role.yaml"))
        for role in yaml.safe_load_all(file.read_text())
        for grant in grants_of(role)
    ]


def info_of(entry: LoggedRequest) -> RequestInfo:
    """Parse a request from the log again."""
    methods = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
    return parse_request(methods.get(entry.verb, "GET"), entry.path, entry.query)


@dataclass
class RightsStory:
    """A controller that has done everything that it can do."""

    on: Theatre
    replica: ReplicaProcess
    granted: list[Grant]
    code: int

    def asked(self) -> list[RequestInfo]:
        """Return the requests for resources."""
        return [info for entry in self.on.calls() if (info := info_of(entry)).resource is not None]

    def reviewed(self) -> list[dict[str, Any]]:
        """Return the rights that the controller reviewed at its start."""
        reviews = self.on.calls(resource="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        return [entry.body["spec"]["resourceAttributes"] for entry in reviews]


async def play(directory: Path, manifests: str, *flags: str) -> RightsStory:
    """Lead, evict with and without budgets, fail, cancel, take back, post events, open the breaker, release Lease,
    restore what it has kept.
    """
    granted = grants(manifests)
    (directory / "policy.yaml").write_text(POLICY)
    async with theatre(directory) as on:
        on.server.answerer.authorize = lambda info: any(grant.covers(info) for grant in granted)
        for number in range(1, 6):
            on.add_node(f"node-{number}")
        for name in ("plain", "condition-refused", "refused-once"):
            on.add_pod(name, "node-1")
        on.add_pod("called-off", "node-2")
        on.add_pod("armed", "node-2", 300)
        on.add_pod("asked-for", "node-3")
        for node in ("node-4", "node-5"):
            on.add_pod(f"held-on-{node}", node)
        on.server.faults.add(verb="patch", resource="pods/status", name="condition-refused", status=500)
        on.server.faults.add(verb="delete", resource="pods", name="refused-once", status=500, times=1)
        on.server.faults.add(verb="delete", resource="pods", name="called-off", status=500)
        policy = f"--config={directory / 'policy.yaml'}"
        flags = (*flags, policy, *BREAKER, "--leader-elect-retry-period=500ms")
        replica = await on.open("one", *flags)
        dry = "--dry-run" in flags
        on.taint("node-1")
        on.server.taint("node-3", BUDGETED)
        evicted = ("plain", "condition-refused", "refused-once", "asked-for")
        await until(lambda: all(done(on, replica, name, dry) for name in evicted))
        for _ in range(2):
            said = len(replica.lines)
            on.taint("node-2")
            await until_told(replica, said, "armed", "called-off")
            said = len(replica.lines)
            on.server.untaint("node-2", "maintenance")
            await until_told(replica, said, "armed")
        await until(lambda: dry or on.calls(verb="patch", resource="events"))
        await until(lambda: dry or unmarked(on, "called-off"))
        surge = ("node-4", "node-5")
        for node in surge:
            on.taint(node)
        await until(lambda: dry or on.calls(verb="create", resource="configmaps"))
        await until(lambda: dry or on.calls(verb="patch", resource="configmaps"))
        for node in surge:
            on.server.untaint(node, "maintenance")
        await until(lambda: dry or len(on.calls(verb="patch", resource="configmaps")) > 1)
        await until(lambda: len(on.calls(verb="update", resource="leases")) > 0)
        code = await replica.end()
        # The one before has created the ConfigMap with the last outcomes, at its end.
        on.add_pod("later", "node-1")
        successor = await on.open("two", *flags)
        await until(lambda: done(on, successor, "later", dry))
        return RightsStory(on, replica, granted, code or await successor.end())


def done(on: Theatre, replica: ReplicaProcess, name: str, dry: bool) -> bool:
    """Return whether a pod has been evicted, or would have been in a dry run."""
    return told(replica, name) if dry else on.is_gone(name)


def told(replica: ReplicaProcess, name: str, since: int = 0) -> bool:
    """Return whether a log line since then mentions a pod."""
    return any(f"default/{name}" in line.get("message", "") for line in replica.lines[since:])


async def until_told(replica: ReplicaProcess, since: int, *names: str) -> None:
    """Wait until the log since then mentions each of these pods."""
    await until(lambda: all(told(replica, name, since) for name in names))


def unmarked(on: Theatre, name: str) -> bool:
    """Return whether a pod's condition has been taken back."""
    conditions = ((on.server.get("pods", name) or {}).get("status") or {}).get("conditions") or []
    return any((found["type"], found["status"]) == ("DisruptionTarget", "False") for found in conditions)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RightsStory]:
    """Run both modes, once for all tests and at the same time."""

    async def play_both() -> tuple[RightsStory, RightsStory]:
        return await asyncio.gather(
            play(tmp_path_factory.mktemp("normal"), NORMAL),
            play(tmp_path_factory.mktemp("dry-run"), DRY_RUN, "--dry-run", LEASE_FLAG),
        )

    return dict(zip((NORMAL, DRY_RUN), asyncio.run(play_both()), strict=True))


@pytest.fixture(params=[NORMAL, DRY_RUN])
def story(stories: dict[str, RightsStory], request: pytest.FixtureRequest) -> RightsStory:
    """The run of one mode."""
    return stories[request.param]


def test_no_call_is_made_without_a_right(story: RightsStory) -> None:
    """Each request is covered by a rule, or is one that all authenticated users may make."""
    assert {entry.resource for entry in story.on.calls() if info_of(entry).resource is None} <= EXEMPT
    refused = [entry for entry in story.on.calls() if entry.code == 403]
    assert refused == []
    assert [info for info in story.asked() if not any(grant.covers(info) for grant in story.granted)] == []


def test_no_right_is_granted_without_use(story: RightsStory) -> None:
    """Each verb and each name of each rule is used."""
    asked = story.asked()
    assert [grant for grant in story.granted if not any(grant.covers(info) for info in asked)] == []


def test_no_rule_has_wildcards_or_verbs_that_grant_other_rights(story: RightsStory) -> None:
    """The rights are therefore no wider than they look."""
    for grant in story.granted:
        assert "*" not in "".join(grant)
        assert grant.verb not in {"escalate", "bind", "impersonate"}


def test_the_review_at_the_start_asks_for_exactly_the_granted_rights(story: RightsStory) -> None:
    """So a person is not told that granted rights are missing; Lease and ConfigMap are reviewed by name."""
    reviewed = {
        (asked.get("group", ""), "/".join(filter(None, (asked["resource"], asked["subresource"]))), asked["verb"])
        for asked in story.reviewed()
    }
    assert reviewed == {(grant.group, grant.resource, grant.verb) for grant in story.granted}
    for resource in ("leases", "configmaps"):
        names = {(asked["verb"], asked.get("name", "")) for asked in story.reviewed() if asked["resource"] == resource}
        assert names == {(grant.verb, grant.name) for grant in story.granted if grant.resource == resource}


def test_the_run_contains_each_behaviour_of_the_controller(stories: dict[str, RightsStory]) -> None:
    """Both controllers end with exit code 0, and the requests of each behaviour are found."""
    on = stories[NORMAL].on
    assert [story.code for story in stories.values()] == [0, 0]
    assert [entry.code for entry in on.calls(verb="delete", resource="pods", name="refused-once")] == [500, 200]
    assert on.calls(verb="get", resource="pods", name="condition-refused")
    assert [entry.code for entry in on.calls(resource="pods/eviction")] == [201]
    history = "taint-eviction-controller-history"
    assert [entry.code for entry in on.calls(verb="create", resource="configmaps")] == [201, 201]
    assert {entry.code for entry in on.calls(verb="patch", resource="configmaps", name=history)} == {200}
    assert len([entry for entry in on.calls(verb="patch", resource="configmaps") if entry.name != history]) == 2
    assert unmarked(on, "called-off")
    assert max(event["count"] for event in on.server.list("events")) == 2
    assert on.calls(resource="leases")[-1].body["spec"]["holderIdentity"] == ""


def test_a_dry_run_writes_only_its_own_lease_and_history(stories: dict[str, RightsStory]) -> None:
    """The dry run decides to evict pods, but writes nothing about them."""
    on = stories[DRY_RUN].on
    writes = [entry for entry in on.calls() if entry.verb in {"create", "update", "patch", "delete"}]
    assert {entry.resource for entry in writes} - EXEMPT == {"leases", "configmaps"}
    assert {lease["metadata"]["name"] for lease in on.server.list("leases")} == {"taint-eviction-controller-dry-run"}
    kept = {each["metadata"]["name"] for each in on.server.list("configmaps")}
    assert kept == {"taint-eviction-controller-dry-run-history"}
