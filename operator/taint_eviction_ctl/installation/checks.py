"""What an installation needs and lacks, read with the rights of the current user.
Each check returns findings: fine, wrong with advice, or unchecked with the reason. If the user may not read something,
the check is unchecked, never wrong.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote

from taint_eviction import __version__
from taint_eviction.core.control_state import ControlState, PauseScope
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.core.sentences import bracketed, replica_name
from taint_eviction.core.text import many, one_line
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.json_fields import Unreadable, as_list, as_object, as_text
from taint_eviction.kube.preflight import allowed, needed_rights
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.reporting.status_document import utc_text
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import AdoptionSettings, ControlStateSettings, ElectionSettings, Settings
from taint_eviction_ctl.installation.adoption_findings import AdoptionFindings
from taint_eviction_ctl.installation.adoption_right import AdoptionRight
from taint_eviction_ctl.installation.alerts import MONITORING, find_unselected
from taint_eviction_ctl.installation.guards import (
    Finding,
    find_admission_policy,
    find_kept_on_lost_nodes,
    find_lost_guards,
)
from taint_eviction_ctl.installation.pretenders import beside_accounts, that_may
from taint_eviction_ctl.installation.replicas import CONTROLLER, Replica, idle, name_of, read_replicas, words_of

# The first minor version in which the built-in controller is a controller of its own; the newest known version.
_FIRST_MINOR, _LAST_MINOR = 29, 37
# Times in managedFields are whole seconds.
_TOLERATED_SKEW_SECONDS = 3.0
_LEASES = "coordination.k8s.io/v1"
# Nobody lets a Lease last longer: it is the time without evictions after a crash.
_MAX_LEASE_SECONDS = 3600.0
_MAX_HOLDER = 120
_MAX_ACCOUNT = 253
# So many pauses are looked at, and named.
_MAX_PAUSES, _SHOWN_PAUSES = 50, 3
_OWN_PODS = f"app.kubernetes.io/name={CONTROLLER}"
_KUBE_SYSTEM = "kube-system"


class State(Enum):
    """What a check found."""

    FINE = "ok"
    WRONG = "wrong"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found; ``advice`` says what to do if it is not fine."""

    check: str
    state: State
    found: str
    advice: str = ""


class NotChecked(Exception):
    """Something could not be read; the message says what and why."""


@dataclass(frozen=True, slots=True)
class _Manager:
    """What the flags of kube-controller-manager say: in which pods the built-in controller is active, sentences on pods
    that cannot be read, and the number of pods that are seen.
    """

    active: list[str]
    malformed: list[str]
    pods: int

    @property
    def is_off(self) -> bool:
        return bool(self.pods) and not self.active and not self.malformed


@dataclass(frozen=True, slots=True)
class _Beside:
    """The built-in controller, and whether this one runs as well, wherever it is installed. ``runs`` None: unknown.
    ``adopters``: the Leases of installations elsewhere that take its countdowns over.
    """

    manager: _Manager | NotChecked
    runs: bool | None
    adopters: Sequence[NamespacedName]


class Installation:
    """Examines the installation in a namespace. ``clock`` has heard all answers to ``calls``.

    ``name`` is that of its Lease; None: the name is taken from the arguments and environment of the existing pods.
    """

    def __init__(self, calls: ApiCalls, namespace: str, name: str | None, port: int, clock: ServerClock) -> None:
        self._calls = calls
        self._namespace = namespace
        self._name = name
        self._lease = NamespacedName(namespace, name or CONTROLLER)
        self._port = port
        self._server_clock = clock
        self._state: asyncio.Future[ControlState | None] | None = None

    async def examine(self) -> list[CheckResult]:
        """Make all checks."""
        unread, malformed = "", list[str]()
        try:
            replicas, malformed = await self._replicas()
        except NotChecked as why:
            replicas, unread = [], str(why)
        if replicas:
            self._lease = replicas[0].lease._replace(name=self._name or replicas[0].lease.name)
        dry_run = any(replica.dry_run for replica in replicas)
        adopts = any(replica.adopts and not replica.dry_run for replica in replicas)
        beside = await self._beside(replicas, unread)
        checks: list[tuple[str, Awaitable[list[CheckResult]]]] = [
            ("versions", self._versions(replicas, unread)),
            ("replicas", self._apart(replicas, unread, beside)),
            ("installations", self._other_installations(replicas, unread)),
            ("leader", self._leader(replicas, unread)),
            ("rights", self._rights(replicas, unread, dry_run, adopts)),
            ("breaker", self._breaker(replicas)),
            ("pauses", self._pauses()),
            ("built-in controller", self._built_in(dry_run, adopts, beside)),
            ("adoption", self._adoption(replicas, adopts, unread, beside)),
            ("adoption", self._right_left(adopts, unread)),
            ("admission policy", self._admission_policy(replicas)),
            ("guards", self._guards(replicas, dry_run)),
            ("budgets", self._budgets(replicas)),
            ("clock", self._clock()),
            ("time", self._time()),
            ("answers", self._answers(replicas)),
            ("alerts", self._alerts(replicas, unread)),
        ]
        found = await asyncio.gather(*(_checked(check, findings) for check, findings in checks))
        left_out = [CheckResult("replicas", State.UNCHECKED, sentence) for sentence in malformed]
        return [*left_out, *(finding for findings in found for finding in findings)]

    # Reading

    async def _read(self, what: str, request: ApiRequest) -> Any:
        """Return the answer's body, None if there is no such object or kind; raise ``NotChecked`` on a failure."""
        try:
            answer = await self._calls.make(request)
        except CallFailed as error:
            raise NotChecked(f"{what} cannot be read: {error}") from None
        if answer.outcome is Outcome.DONE:
            return answer.body
        if answer.status == 404:
            return None
        raise NotChecked(f"{what} cannot be read: {answer.failure}")

    async def _list(self, what: str, request: ApiRequest) -> list[Any] | None:
        """Return the items of a list, None if there is no such kind; raise ``NotChecked`` if they cannot be read."""
        body = await self._read(what, request)
        try:
            return None if body is None else as_list(as_object(body, "the list").get("items"), "items")
        except Unreadable as error:
            raise NotChecked(f"{what}: the API server's answer is malformed: {error}") from None

    async def _replicas(self) -> tuple[list[Replica], list[str]]:
        """Return the pods of the controller, and a sentence for each that is malformed or only says that it is one."""
        place, query = f"pods in {self._namespace}", {"labelSelector": _OWN_PODS}
        found, malformed = read_replicas(
            await self._list(place, ApiRequest("list", "pods", self._namespace, query=query)) or (), place
        )
        pretenders = beside_accounts(found)
        found = [each for each in found if each not in pretenders]
        malformed += [
            f"{place}: pod {each.name} on node {each.node} has no account, as others have, and is left out: if it is no"
            " static pod of yours, somebody has that node's credentials"
            for each in pretenders
        ]
        if self._name is not None:
            return [each for each in found if self._name in (each.instance, each.lease.name)], malformed
        # A dry run in the same namespace has its own Lease and instance.
        of_default = [each for each in found if each.instance == CONTROLLER]
        return of_default or [each for each in found if not each.dry_run] or found, malformed

    # Checks

    async def _versions(self, replicas: Sequence[Replica], unread: str) -> list[CheckResult]:
        body = await self._read("the API server's version", ApiRequest("get", "version", url_path="/version")) or {}
        minor = int("".join(filter(str.isdigit, str(body.get("minor", "")))) or 0)
        said = f"Kubernetes {body.get('gitVersion', 'of no version')}"
        if minor < _FIRST_MINOR:
            advice = "before 1.29 the taint manager cannot be switched off; upgrade Kubernetes, or run both"
            return [CheckResult("versions", State.WRONG, said, advice)]
        if minor > _LAST_MINOR:
            advice = f"newer than 1.{_LAST_MINOR}, the last that this version knows; look for a newer release"
            return [CheckResult("versions", State.UNCHECKED, said, advice)]
        versions = sorted({replica.version for replica in replicas})
        if len(versions) > 1:
            advice = "a rollout is under way or stuck: kubectl rollout status"
            return [CheckResult("versions", State.WRONG, f"replicas of versions {' and '.join(versions)}", advice)]
        if versions not in ([], ["unknown"], [__version__]):
            advice = "this checks what its own version needs; use the command of the controller's version"
            found = f"{said}, controller {versions[0]}, this command {__version__}"
            return [CheckResult("versions", State.UNCHECKED, found, advice)]
        none = "unknown" if unread else "not running"
        return [CheckResult("versions", State.FINE, f"{said}, controller {' '.join(versions) or none}")]

    async def _beside(self, replicas: Sequence[Replica], unread: str) -> _Beside:
        """Find out who evicts: the built-in controller, this one, or both."""
        manager: _Manager | NotChecked
        try:
            manager = await self._manager()
        except NotChecked as why:
            manager = why
        runs, adopters = True if replicas else None, list[NamespacedName]()
        with suppress(NotChecked):
            others, adopters = await self._others(replicas)
            if not any(replica.runs for replica in replicas) and not unread:
                runs = any(replica.runs for replica in others) or await self._held() is not None
        return _Beside(manager, runs, adopters)

    async def _apart(self, replicas: Sequence[Replica], unread: str, beside: _Beside) -> list[CheckResult]:
        if unread:
            raise NotChecked(unread)
        if not replicas:
            return [self._none(beside)]
        troubles = dict(await asyncio.gather(*(self._trouble(replica) for replica in replicas)))
        ready = [replica for replica in replicas if replica.ready and not troubles[replica.name]]
        nodes = {replica.node for replica in ready}
        said = f"{many(len(replicas), 'replica')}, {len(ready)} ready, on {many(len(nodes), 'node')}"
        said = "; ".join([said, *(f"{name}: {why}" for name, why in troubles.items() if why)])
        if not ready:
            advice = "none of them evicts; look at the pods: kubectl describe pod"
            return [CheckResult("replicas", State.WRONG, said, advice)]
        if len(nodes) > 1:
            return [CheckResult("replicas", State.FINE, said)]
        if all(replica.dry_run for replica in replicas):
            return [CheckResult("replicas", State.FINE, f"{said}; a dry run needs no second one")]
        # A second replica that is bound had a second node.
        lost = any(troubles[replica.name] and not replica.waits for replica in replicas)
        if not lost and len(await self._list("nodes", ApiRequest("list", "nodes", query={"limit": 2})) or ()) == 1:
            return [CheckResult("replicas", State.FINE, f"{said}; the cluster has one node")]
        if len(ready) < len(replicas):
            advice = f"until another one runs, the loss of node {min(nodes)} stops evictions"
            return [CheckResult("replicas", State.WRONG, said, advice)]
        advice = "the loss of that node stops evictions; run two replicas on two nodes, as manifests/base does"
        return [CheckResult("replicas", State.WRONG, said, advice)]

    def _none(self, beside: _Beside) -> CheckResult:
        """Return what it means that there is no replica: right after an uninstallation, if somebody else evicts."""
        said = f"none in {self._namespace}"
        if beside.runs:
            advice = "another installation evicts, or a process whose pods have other labels: see below"
            return CheckResult("replicas", State.UNCHECKED, said, advice)
        install = "to install: docs/install/index.md"
        if isinstance(beside.manager, _Manager) and beside.manager.active:
            advice = f"the built-in controller evicts, which is right without this one; {install}"
            return CheckResult("replicas", State.UNCHECKED, f"{said}: not installed there", advice)
        if isinstance(beside.manager, _Manager) and beside.manager.is_off:
            return CheckResult("replicas", State.WRONG, f"{said}: nobody evicts", f"see built-in controller; {install}")
        advice = f"nobody evicts, unless the built-in controller does; {install}"
        return CheckResult("replicas", State.WRONG, said, advice)

    async def _trouble(self, replica: Replica) -> tuple[str, str]:
        """Return a replica's name, and why it does not run or will not for long; "" if nothing is wrong."""
        if replica.waits or not replica.node:
            return replica.name, replica.waits
        try:
            node = await self._read(f"node {replica.node}", ApiRequest("get", "nodes", name=replica.node))
        except NotChecked:
            return replica.name, ""
        if node is None:
            return replica.name, f"its node {replica.node} is gone"
        status = as_object(node.get("status"), "status")
        for each in as_list(status.get("conditions"), "status.conditions"):
            condition = as_object(each, "status.conditions[]")
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                return replica.name, f"its node {replica.node} is not Ready"
        return replica.name, ""

    async def _others(self, replicas: Sequence[Replica]) -> tuple[list[Replica], list[NamespacedName]]:
        """Return the replicas of other installations that may evict, and the Leases of those that take countdowns
        over.
        """
        own = {self._lease, *(replica.lease for replica in replicas)}
        seen = [each async for each in self._labelled() if not each.dry_run and each.lease not in own]
        others = await that_may(self._calls, seen, "delete")
        adopters = await that_may(self._calls, (each for each in others if each.adopts), "patch")
        return others, sorted({each.lease for each in adopters})

    async def _labelled(self) -> AsyncIterator[Replica]:
        """Read replicas in all namespaces, page by page: anybody may give pods this label, also large ones."""
        request = ApiRequest("list", "pods", query={"labelSelector": _OWN_PODS})
        try:
            async with aclosing(list_items(self._calls, request, lambda pod: read_replicas([pod], "pods")[0])) as found:
                async for replicas in found:
                    for each in replicas:
                        yield each
        except CallFailed as error:
            raise NotChecked(f"pods cannot be read: {error}") from None

    async def _other_installations(self, replicas: Sequence[Replica], unread: str) -> list[CheckResult]:
        """Report controllers with a Lease of their own elsewhere in the cluster: two leaders evict, not one."""
        others, _ = await self._others(replicas)
        leases = {replica.lease for replica in others}
        if not others or (replicas and all(replica.dry_run for replica in replicas)):
            return []
        if not replicas and not unread:
            first = min(leases)
            said = f"none has the Lease {self._lease}, and there are others, of Leases {_all(leases)}"
            advice = f"taint-eviction doctor --lease-namespace {first.namespace} --lease-name {first.name}"
            return [CheckResult("installations", State.WRONG, said, advice)]
        idles = idle([*replicas, *others])
        both = f"{'once each runs, both evict' if idles else 'each has a leader of its own, and both evict'}: hand back"
        advice = f"{both} what the one to be removed has taken over (taint-eviction hand-back), then delete it"
        said = "; ".join([f"there are others, of Leases {_all(leases)}", *idles])
        return [CheckResult("installations", State.WRONG, said, advice)]

    async def _held(self) -> Mapping[str, Any] | None:
        """Return the spec of the Lease if somebody holds and renews it."""
        lease = await self._read(f"Lease {self._lease}", ApiRequest("get", "leases", *self._lease, group=_LEASES))
        spec = as_object(as_object(lease, "the Lease").get("spec"), "spec")
        return spec if spec.get("holderIdentity") and not self._expired(spec) else None

    def _silent(self, spec: Mapping[str, Any]) -> float:
        return self._server_clock.now().server_epoch - (parse_rfc3339(spec.get("renewTime")) or 0.0)

    def _expired(self, spec: Mapping[str, Any]) -> bool:
        return self._silent(spec) > 2 * min(_lease_seconds(spec), _MAX_LEASE_SECONDS)

    async def _leader(self, replicas: Sequence[Replica], unread: str) -> list[CheckResult]:
        leases = sorted({replica.lease for replica in replicas})
        if len(leases) > 1 and self._name is None:
            idles = idle(replicas)
            both = "once each runs, both evict" if idles else "each of these has a leader of its own, and both evict"
            said = "; ".join([f"replicas of Leases {_all(leases)}", *idles])
            return [CheckResult("leader", State.WRONG, said, f"{both}; give all replicas the same flags")]
        for replica in replicas:
            if replica.asked_lease != replica.lease:
                advice = (
                    "commands that are run in the pod ask for the latter; the controller reads"
                    " TAINT_EVICTION_LEADER_ELECT_RESOURCE_NAME and _NAMESPACE"
                )
                said = f"{replica.name} elects by Lease {replica.lease}, and its variables name {replica.asked_lease}"
                return [CheckResult("leader", State.WRONG, said, advice)]
        if replicas and not any(replica.elects for replica in replicas):
            return [CheckResult("leader", State.FINE, "none is elected: each replica acts alone")]
        what = f"Lease {self._lease}"
        if not replicas and not unread:
            return [await self._lone_holder()]
        lease = await self._read(what, ApiRequest("get", "leases", *self._lease, group=_LEASES))
        spec = (lease or {}).get("spec") or {}
        if not spec.get("holderIdentity"):
            advice = "nothing evicts; look at the log of the controller, and at --lease-namespace of this command"
            return [CheckResult("leader", State.WRONG, f"nobody holds the {what}", advice)]
        silent = self._silent(spec)
        if self._expired(spec):
            advice = "its holder is gone, and no other replica has taken over; look at the log of the controller"
            return [CheckResult("leader", State.WRONG, f"the {what} was renewed {silent:.0f} s ago", advice)]
        return [await self._holder(spec, replicas, silent)]

    async def _lone_holder(self) -> CheckResult:
        """Return who holds the Lease where no replica is seen."""
        if (held := await self._held()) is None:
            raise NotChecked("there is no replica to lead")
        who = one_line(str(held["holderIdentity"]), _MAX_HOLDER)
        said = f"{who} holds the Lease {self._lease}, and no replica is seen"
        advice = "a controller outside of the cluster, pods with other labels, or a Lease that somebody has stolen"
        return CheckResult("leader", State.UNCHECKED, said, advice)

    async def _holder(self, spec: Mapping[str, Any], replicas: Sequence[Replica], silent: float) -> CheckResult:
        """Return whether the holder of a Lease that is renewed leads."""
        what = f"the Lease {self._lease}"
        if (stolen := self._stolen(spec, replicas, silent)) is not None:
            at, pods = f"kubectl -n {self._lease.namespace}", " ".join(replica.name for replica in replicas)
            advice = (
                "no replica leads while it lasts. Look again in a minute: the holder may be a replica that has just"
                f" ended. Else see who wrote it (kubectl get --show-managed-fields), and start anew: {at} delete lease"
                f" {self._lease.name}, then {at} delete pod {pods}, since replicas that have seen it wait for up to an"
                " hour"
            )
            return CheckResult("leader", State.WRONG, f"{what} {stolen}", advice)
        holder = str(spec["holderIdentity"])
        named = next((each for each in replicas if each.name == holder.rpartition("_")[0]), None)
        if named is not None and (await self._told(named)).get("leading") is False:
            advice = "it does not evict: look again in a minute; if it stays so, look at its log"
            said = f"{what} names {holder}, and {named.name} says that it does not lead"
            return CheckResult("leader", State.WRONG, said, advice)
        return CheckResult("leader", State.FINE, replica_name(holder))

    def _stolen(self, spec: Mapping[str, Any], replicas: Sequence[Replica], silent: float) -> str | None:
        """Return what no replica writes into its Lease; None: any may have written it."""
        holder, seconds = one_line(str(spec["holderIdentity"]), _MAX_HOLDER), _lease_seconds(spec)
        if seconds > _MAX_LEASE_SECONDS:
            return f"is held by {holder} for {seconds:.0f} s (leaseDurationSeconds)"
        if -silent > _MAX_LEASE_SECONDS:
            return f"is held by {holder}, who renewed it {-silent:.0f} s in the future"
        # On its host's network a replica is named by the host. Another one may have just taken over or ended.
        names = [replica.name for replica in replicas if not replica.host_network]
        if len(names) < len(replicas) or not names or holder.rpartition("_")[0] in names:
            return None
        return f"is held by {holder}, which is none of the replicas ({', '.join(names)})"

    async def _rights(self, replicas: Sequence[Replica], unread: str, dry_run: bool, adopts: bool) -> list[CheckResult]:
        """Check the rights of the replicas' user; without replicas, those of the current user."""
        if unread:
            raise NotChecked(f"the controller's account is not known: {unread}")
        user = next((replica.user for replica in replicas), "")
        settings = Settings(
            dry_run=dry_run,
            policy=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE),
            election=ElectionSettings(lease_name=self._lease.name, lease_namespace=self._lease.namespace),
            control_state=ControlStateSettings(name=self._lease.name),
            adoption=AdoptionSettings(enabled=adopts),
        )
        needed = list(needed_rights(settings))
        answers = await asyncio.gather(*(allowed(self._calls, *right, settings, user) for right in needed))
        who = user or "this user, since no controller runs there,"
        if None in answers:
            advice = "this needs the right to create subjectaccessreviews; ask an administrator to run it"
            return [CheckResult("rights", State.UNCHECKED, f"the rights of {who.rstrip(',')}", advice)]
        missing = [f"{verb} {what}" for (verb, what), yes in zip(needed, answers, strict=True) if not yes]
        if missing and not replicas:
            advice = "that matters only to who runs the controller as this user"
            return [CheckResult("rights", State.UNCHECKED, f"{who} may not {', '.join(missing)}", advice)]
        if missing:
            advice = "apply the ClusterRole and Role of the manifests with which it was installed"
            return [CheckResult("rights", State.WRONG, f"{who} may not {', '.join(missing)}", advice)]
        return [CheckResult("rights", State.FINE, f"{who} may do all that is needed")]

    async def _breaker(self, replicas: Sequence[Replica]) -> list[CheckResult]:
        """Report a circuit breaker that is open, above all where no replica has one: it holds there, too."""
        latch = (await self._control_state()).latch
        if latch is None:
            return []
        why = bracketed(latch, utc_text)
        said = f"the circuit breaker is open: no pod is evicted{why}"
        advice = (
            "see which pods a reset evicts: taint-eviction plan; if the taints are a mistake, remove them first; then "
            "taint-eviction breaker reset (all at once; for one zone first, see the runbook: TaintEvictionBreakerOpen)"
        )
        if not replicas:
            said = f"the circuit breaker is open{why}: a controller that starts evicts nobody"
        elif not any(replica.breaker for replica in replicas):
            said += ", although no replica has --breaker"
            advice += "; without --breaker nothing else closes it"
        return [CheckResult("breaker", State.WRONG, said, advice)]

    async def _control_state(self) -> ControlState:
        """Return what people have ordered, and the state of the breaker; all checks go by one answer."""
        if self._state is None:
            self._state = asyncio.ensure_future(StateConfigMap(self._calls, *self._lease).read())
        try:
            return await self._state or ControlState()
        except CallFailed as error:
            raise NotChecked(f"ConfigMap {self._lease} cannot be read: {error}") from None

    async def _pauses(self) -> list[CheckResult]:
        """Report what is paused. A pause is wrong if it holds nothing, because its node or namespace does not exist."""
        scopes = [*(await self._control_state()).at(self._server_clock.now().server_epoch).pauses()]
        covering = await asyncio.gather(*(self._covers(scope) for scope in scopes[:_MAX_PAUSES]))
        wrong = []
        for scope in (scope for scope, covers in zip(scopes, covering, strict=False) if not covers):
            what = "namespace" if scope.kind == "namespace" else "node"
            advice = f"it holds nothing until such a {what} is created: check the spelling, or taint-eviction resume"
            wrong.append(CheckResult("pauses", State.WRONG, f"{scope} are paused, and there is no such {what}", advice))
        more = ", …" if len(scopes) > _SHOWN_PAUSES else ""
        said = f"people have paused {', '.join(map(str, scopes[:_SHOWN_PAUSES]))}{more}"
        return wrong or [CheckResult("pauses", State.FINE, said)] * bool(scopes)

    async def _covers(self, scope: PauseScope) -> bool:
        """Return whether what a pause covers is there, be it one node of many."""
        match scope.kind:
            case "all":
                return True
            case "selector":
                request = ApiRequest("list", "nodes", query={"labelSelector": scope.name, "limit": 1})
                return bool(await self._list("nodes", request))
            case "node" | "namespace":
                request = ApiRequest("get", f"{scope.kind}s", name=scope.name)
                return await self._read(f"{scope.kind} {scope.name}", request) is not None

    async def _manager(self) -> _Manager:
        """Read the flags of every kube-controller-manager that is seen as a pod."""
        query = {"labelSelector": "component=kube-controller-manager"}
        request = ApiRequest("list", "pods", _KUBE_SYSTEM, query=query)
        pods = await self._list("pods in kube-system", request) or ()
        active, malformed = list[str](), list[str]()
        for number, pod in enumerate(pods):
            try:
                active += [name_of(pod, number)] if built_in_active(pod) else []
            except Unreadable as error:
                malformed.append(f"pods in kube-system: {name_of(pod, number)} is malformed: {error}")
        return _Manager(active, malformed, len(pods))

    async def _built_in(self, dry_run: bool, adopts: bool, beside: _Beside) -> list[CheckResult]:
        check, manager = "built-in controller", beside.manager
        if dry_run:
            return [CheckResult(check, State.FINE, "may be active beside a dry run")]
        if adopts and not await self._hand_back_ordered():
            return [CheckResult(check, State.FINE, "may be active: countdowns are taken over from it")]
        if isinstance(manager, NotChecked):
            raise manager
        if manager.active and beside.adopters:
            said = f"active, and countdowns are taken over from it by the installation of Lease {_all(beside.adopters)}"
            return [CheckResult(check, State.FINE, said)]
        if manager.active:
            return [_built_in_active(manager, beside.runs)]
        if manager.malformed:
            return [CheckResult(check, State.UNCHECKED, sentence) for sentence in manager.malformed]
        if not manager.pods:
            advice = "no pod of kube-controller-manager can be seen (k3s, managed): look at its flags or its log"
            return [CheckResult(check, State.UNCHECKED, "whether it is switched off", advice)]
        said = f"switched off in {many(manager.pods, 'kube-controller-manager')}"
        if beside.runs is False:
            advice = (
                "nobody evicts: install this controller, or let it run, or take -taint-eviction-controller out of"
                " --controllers of kube-controller-manager on every control-plane node"
            )
            return [CheckResult(check, State.WRONG, f"{said}, and this controller does not run", advice)]
        return [CheckResult(check, State.FINE, said)]

    async def _hand_back_ordered(self) -> bool:
        try:
            return (await self._control_state()).no_adoption is not None
        except NotChecked:
            return False  # The check of adoption says so.

    async def _adoption(
        self, replicas: Sequence[Replica], adopts: bool, unread: str, beside: _Beside
    ) -> list[CheckResult]:
        """Check what is taken over, and that somebody evicts those pods or gives them back."""
        if not replicas and not unread:
            leads: bool | None = False
        elif adopts and (await self._leader(replicas, unread))[0].state is State.WRONG:
            leads = False
        else:
            leads = None if unread else True
        if replicas and all(replica.dry_run for replica in replicas):
            leads = None  # It gives nothing back.
        findings = AdoptionFindings(self._calls, self._lease, self._list, self._read)
        return [
            CheckResult("adoption", State.FINE if fine else State.WRONG, said, advice)
            for fine, said, advice in await findings.find(adopts, leads, _all(beside.adopters))
        ]

    async def _right_left(self, adopts: bool, unread: str) -> list[CheckResult]:
        """Report that the account may still patch pods where nobody needs that any more."""
        if adopts or unread:
            return []
        try:
            bindings = await AdoptionRight(self._calls, self._lease).bindings()
        except CallFailed as error:
            raise NotChecked(f"whether the right to patch pods was left behind cannot be read: {error}") from None
        if not bindings or (await self._control_state()).adopter:
            return []
        said = f"ClusterRoleBinding {', '.join(bindings)} grants the right to patch pods, and nobody adopts"
        rest = "docs/install/managed-control-planes.md names what else is left"
        advice = f"kubectl delete clusterrolebinding {' '.join(bindings)}; {rest}"
        return [CheckResult("adoption", State.WRONG, said, advice)]

    async def _admission_policy(self, replicas: Sequence[Replica]) -> list[CheckResult]:
        """Compare the account that the policy names with the replicas' own, and hear whether they found it in force."""
        if not replicas:
            raise NotChecked("no replica is seen, so its account is not known")
        told = [await self._told_of_policy(replica) for replica in replicas]
        without = [replica.name for replica, (_, in_force) in zip(replicas, told, strict=True) if in_force is False]
        # The user name that a replica was told by the API server, else the one that follows from its spec.
        user = next((account for account, _ in told if account), replicas[0].user)
        try:
            found = await find_admission_policy(self._read, self._list, user)
        except NotChecked:
            if not any(in_force for _, in_force in told) or without:
                raise
            found = True, f"in force for {user}, as the replicas found", ""
        if found is None:
            advice = "upgrade Kubernetes to 1.30; until then RBAC alone says what the account may write"
            return [CheckResult("admission policy", State.UNCHECKED, "Kubernetes has no such kind", advice)]
        if found[0] and without:
            said = f"{found[1]}, but {', '.join(without)} found it not in force"
            found = False, said, "see status.typeChecking of the policy, and its matchConstraints"
        return [_result("admission policy", found)]

    async def _told(self, replica: Replica) -> Mapping[str, Any]:
        """Return a replica's status document, empty if it does not answer or nobody may ask."""
        if replica.waits or replica.host_network:
            return {}
        try:
            answer = await self._ask_status(replica)
            return as_object(answer.body, "status") if answer.outcome is Outcome.DONE else {}
        except (CallFailed, Unreadable):
            return {}

    async def _told_of_policy(self, replica: Replica) -> tuple[str, bool | None]:
        """Return the account of a replica and whether its policy is in force, as it says; "" and None: unknown."""
        try:
            admission = as_object((await self._told(replica)).get("admissionPolicy"), "admissionPolicy")
            account, in_force = as_text(admission.get("account"), "account"), admission.get("inForce")
        except Unreadable:
            return "", None
        return one_line(account, _MAX_ACCOUNT), in_force if isinstance(in_force, bool) else None

    async def _guards(self, replicas: Sequence[Replica], dry_run: bool) -> list[CheckResult]:
        if not replicas or dry_run:
            return []
        return [_result("guards", found) for found in await find_lost_guards(self._read, self._lease, replicas)]

    async def _budgets(self, replicas: Sequence[Replica]) -> list[CheckResult]:
        if not replicas:
            return []
        found = await find_kept_on_lost_nodes(self._read, self._lease, replicas)
        return [_result("budgets", each) for each in found]

    async def _clock(self) -> list[CheckResult]:
        """Compare kube-controller-manager's clock, which dates taints, with the API server's, by a write that both
        dated.
        """
        what = "Lease kube-system/kube-controller-manager"
        request = ApiRequest("get", "leases", _KUBE_SYSTEM, "kube-controller-manager", group=_LEASES)
        lease = await self._read(what, request)
        entries = ((lease or {}).get("metadata") or {}).get("managedFields") or ()
        written = [at for entry in entries if (at := parse_rfc3339(entry.get("time"))) is not None]
        renewed = parse_rfc3339(((lease or {}).get("spec") or {}).get("renewTime"))
        if renewed is None or not written:
            raise NotChecked(f"there is no {what} that says when it was written")
        skew = renewed - max(written)
        said = f"kube-controller-manager's is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the API server's"
        if abs(skew) > _TOLERATED_SKEW_SECONDS:
            return [CheckResult("clock", State.WRONG, said, "tolerances end too early or too late; repair NTP there")]
        return [CheckResult("clock", State.FINE, said)]

    async def _time(self) -> list[CheckResult]:
        """Say whether API servers agree on the time, as far as their answers tell."""
        clock = self._server_clock
        if not clock.anchored:
            raise NotChecked("what time it is: no answer of the API server has a Date that can be read")
        if clock.votes_disagree:
            said = f"the clocks of API servers are {clock.disagreement_seconds():.0f} s apart"
            return [CheckResult("time", State.WRONG, said, "after a restart, deadlines may be late; repair NTP there")]
        if not clock.audited:
            said = "whose clock dates answers: they have no Audit-Id"
            advice = "a proxy removes it, so what that proxy answers itself counts as well; let it pass this header"
            return [CheckResult("time", State.UNCHECKED, said, advice)]
        return [CheckResult("time", State.FINE, "API servers agree on it")]

    async def _answers(self, replicas: Sequence[Replica]) -> list[CheckResult]:
        """Ask each replica for its status: a replica that serves its status also serves metrics."""
        found = []
        if any(replica.host_network for replica in replicas):
            raise NotChecked("static pods listen on loopback; ask on their nodes, with curl 127.0.0.1:10270/status")
        asked = [replica for replica in replicas if not replica.waits]
        for replica in asked:
            try:
                answer = await self._ask_status(replica)
            except CallFailed as error:
                raise NotChecked(f"pod {replica.name} cannot be asked: {error}") from None
            if answer.lacks_right:
                raise NotChecked("whether replicas serve metrics and status: this needs the right to get pods/proxy")
            if answer.outcome is not Outcome.DONE:
                advice = f"metrics cannot be scraped either; does it listen on port {self._port} (--listen)?"
                found.append(CheckResult("answers", State.WRONG, f"{replica.name}: {answer.failure}", advice))
        if not asked:
            raise NotChecked("no replica runs" if replicas else "there is no replica to ask")
        said = f"{many(len(asked), 'replica')} {'serves' if len(asked) == 1 else 'serve'} status and metrics"
        return found or [CheckResult("answers", State.FINE, said)]

    async def _ask_status(self, replica: Replica) -> ApiAnswer:
        path = f"/api/v1/namespaces/{quote(self._namespace)}/pods/{quote(replica.name)}:{self._port}/proxy/status"
        request = ApiRequest("get", "pods/proxy", self._namespace, replica.name, url_path=f"{path}?limit=1")
        return await self._calls.make(request)

    async def _alerts(self, replicas: Sequence[Replica], unread: str) -> list[CheckResult]:
        if not unread and all(replica.dry_run for replica in replicas):
            raise NotChecked("a dry run needs none" if replicas else "there is no replica to watch")
        advice = "apply manifests/overlays/monitoring; nobody is told when evictions stop"
        lacking, there = [], dict[str, list[Any]]()
        for kind in ("podmonitors", "prometheusrules"):
            items = await self._monitoring(kind, self._namespace)
            if items is not None and not items and self._namespace != _KUBE_SYSTEM:
                # Where overlays/monitoring is; its PodMonitor names the namespaces in which it looks.
                elsewhere = await self._monitoring(kind, _KUBE_SYSTEM) or ()
                items = [each for each in elsewhere if kind != "podmonitors" or self._namespace in _watched(each)]
            if items is None:
                without = "the cluster has no Prometheus operator; alerts of another kind are not seen here"
                return [CheckResult("alerts", State.UNCHECKED, "whether anybody scrapes the metrics", without)]
            there[kind] = items
            if not items:
                lacking.append(kind)
        if lacking:
            return [CheckResult("alerts", State.WRONG, f"no {' and no '.join(lacking)} in {self._namespace}", advice)]
        fine = CheckResult("alerts", State.FINE, "PodMonitor and PrometheusRule are there")
        try:
            unselected = await find_unselected(there, self._list, self._namespace_labels)
        except NotChecked as why:
            return [fine, CheckResult("alerts", State.UNCHECKED, f"whether a Prometheus selects them: {why}")]
        return [_result("alerts", finding) for finding in unselected] or [fine]

    async def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        body = await self._read(f"namespace {namespace}", ApiRequest("get", "namespaces", name=namespace))
        metadata = as_object(as_object(body, "the namespace").get("metadata"), "metadata")
        return as_object(metadata.get("labels"), "metadata.labels")

    async def _monitoring(self, kind: str, namespace: str) -> list[Any] | None:
        query = {"labelSelector": f"app.kubernetes.io/name={CONTROLLER}"}
        request = ApiRequest("list", kind, namespace, query=query, group=MONITORING)
        return await self._list(f"{kind} in {namespace}", request)


def _watched(pod_monitor: Any) -> list[Any]:
    """Return the namespaces that a PodMonitor names."""
    selector = as_object(as_object(pod_monitor.get("spec"), "spec").get("namespaceSelector"), "spec.namespaceSelector")
    return as_list(selector.get("matchNames"), "spec.namespaceSelector.matchNames")


async def _checked(check: str, findings: Awaitable[list[CheckResult]]) -> list[CheckResult]:
    try:
        return await findings
    except NotChecked as why:
        return [CheckResult(check, State.UNCHECKED, str(why))]
    except (AttributeError, KeyError, TypeError, Unreadable, ValueError) as error:
        return [CheckResult(check, State.UNCHECKED, f"the API server's answer is malformed: {error}")]


def _result(check: str, found: Finding) -> CheckResult:
    fine, said, advice = found
    return CheckResult(check, State.FINE if fine else State.WRONG, said, advice)


def _built_in_active(manager: _Manager, runs: bool | None) -> CheckResult:
    """Return what it means that the built-in controller is active beside this one. ``runs`` None: unknown."""
    check, said = "built-in controller", f"active in {', '.join(manager.active)}"
    if runs is None:
        advice = "right if this controller does not run, else both evict"
        return CheckResult(check, State.UNCHECKED, f"{said}; whether this controller runs is unknown", advice)
    if not runs:
        return CheckResult(check, State.FINE, f"{said}: it evicts, and this controller does not run")
    advice = (
        "both evict, each by its own rules; append ,-taint-eviction-controller to --controllers of"
        " kube-controller-manager on every control-plane node"
    )
    return CheckResult(check, State.WRONG, said, advice)


def _all(leases: Iterable[NamespacedName]) -> str:
    return " and ".join(map(str, sorted(leases)))


def built_in_active(pod: object) -> bool:
    """Return whether a pod of kube-controller-manager runs a taint manager, by its flags."""
    words = words_of(as_object(as_object(pod, "the pod").get("spec"), "spec"))
    # Until 1.33, without this gate it runs inside the node lifecycle controller, where no flag disables it.
    if any("SeparateTaintEvictionController=false" in word for word in words):
        return True
    lists = [word.partition("=")[2] for word in words if word.startswith("--controllers=")]
    controllers = ",".join(lists).split(",") if lists else ["*"]
    if f"-{CONTROLLER}" in controllers:
        return False
    return CONTROLLER in controllers or "*" in controllers


def _lease_seconds(spec: Mapping[str, Any]) -> float:
    seconds = spec.get("leaseDurationSeconds")
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else 15.0
