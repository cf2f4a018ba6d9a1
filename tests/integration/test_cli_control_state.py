"""The commands that hold evictions and release them: what they write and print, and their exit codes."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.stage.client import ClientStage, client_stage
from tests.stage.clocks import EPOCH

from fake_apiserver import Fault, LoggedRequest, WallClock, node_object
from taint_eviction.cli import cli
from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope
from taint_eviction.core.objects import ZONE_LABEL
from taint_eviction.files.kubernetes_times import format_rfc3339, format_utc
from taint_eviction.kube.control_state_data import latch_text, read_control_state, reset_text

ROOT = Path(__file__).parents[2]
NAMESPACE, NAME = "kube-system", "taint-eviction-controller"
SINCE = format_utc(EPOCH)
PAUSED = f'{{"since": "{format_rfc3339(EPOCH)}", "reason": "disk swap"}}'
# The name of the user in the stage's kubeconfig.
USER = "simulation"
SURGE = Latch(EPOCH, "5 of 9 nodes in 300 s")


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A stage for one test."""
    async with client_stage(tmp_path) as made:
        yield made


async def run(directory: Path, *arguments: str, kubeconfig: str = "config", **environment: str) -> Result:
    """Run the command."""
    env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TAINT_EVICTION_")}
    env |= {"KUBECONFIG": str(directory / kubeconfig), **environment}
    return await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env, catch_exceptions=False)


def put(at: ClientStage, name: str = NAME, namespace: str = NAMESPACE, **data: str) -> None:
    """Create the ConfigMap; ``__`` in a key stands for a dot, ``_`` for a dash."""
    keys = {key.replace("__", ".").replace("_", "-"): text for key, text in data.items()}
    at.server.create("configmaps", {"metadata": {"name": name, "namespace": namespace}, "data": keys})


def control_state(at: ClientStage, name: str = NAME, namespace: str = NAMESPACE) -> ControlState:
    """Return the control state in the ConfigMap; it must be valid."""
    found = at.server.get("configmaps", name, namespace)
    assert found is not None
    kept, complaints = read_control_state(found)
    assert complaints == []
    return kept


def data(at: ClientStage) -> dict[str, str]:
    """Return the keys and values of the ConfigMap."""
    found = at.server.get("configmaps", NAME, NAMESPACE)
    assert found is not None
    return dict(found["data"])


def is_now(at: ClientStage, pause: Pause | None, reason: str = "") -> bool:
    """Return whether a pause has just begun by the server's clock, with this reason."""
    assert pause is not None
    assert pause.since_epoch is not None
    now = at.server.clock.now().timestamp()
    return now - 10 <= pause.since_epoch <= now and pause.reason == reason


# Pause


async def test_pause_holds_all_evictions(at: ClientStage, tmp_path: Path) -> None:
    """The pause is dated by the API server's clock and names its author; one line of output says so."""
    result = await run(tmp_path, "pause", "--reason", "disk swap")
    assert result.exit_code == 0
    whole = control_state(at).cluster
    assert is_now(at, whole, "disk swap")
    assert whole is not None
    assert (
        result.stdout
        == f"all evictions are paused (since {format_utc(whole.since_epoch or 0)}, by {USER}: disk swap)\n"
    )
    assert whole.by == USER
    assert result.stderr.splitlines() == [
        f"taint-eviction: acting on {at.server.url} ({at.connection.where}) as {USER}",
        "taint-eviction: warning: there is no Lease kube-system/taint-eviction-controller: no controller reads this"
        " yet; it counts as soon as one does",
    ]


async def test_a_pause_from_a_host_with_a_wrong_clock_is_dated_by_the_server(tmp_path: Path) -> None:
    """The controller compares the pause with the API server's times."""
    async with client_stage(tmp_path, clock=WallClock(offset_seconds=-86400.0)) as at:
        assert (await run(tmp_path, "pause")).exit_code == 0
        assert is_now(at, control_state(at).cluster)


class WrongDates(WallClock):
    """A clock of the API server with a wrong Date header in its answers."""

    def __init__(self, header: str) -> None:
        super().__init__()
        self.header = header

    def http_date(self, plus_seconds: float = 0.0) -> str:
        """Return the wrong header."""
        return self.header


@pytest.mark.parametrize("header", ["", "yesterday"])
async def test_a_pause_is_dated_by_the_host_if_answers_have_no_date(tmp_path: Path, header: str) -> None:
    """The command warns that this machine's clock counts."""
    async with client_stage(tmp_path, clock=WrongDates(header)) as at:
        result = await run(tmp_path, "pause", "--for", "30m")
        pause = control_state(at).cluster
    assert result.exit_code == 0
    assert "no answer of the API server has a Date that can be read: this machine's clock counts" in result.stderr
    assert is_now(at, pause)
    assert pause is not None
    assert pause.until_epoch is not None
    # Both are whole seconds: the start is rounded down, and the end is rounded up.
    assert pause.until_epoch - (pause.since_epoch or 0.0) in {1800, 1801}


@pytest.mark.parametrize("year", ["1970", "2015", "9999"])
@pytest.mark.parametrize("flags", [(), ("--for", "30m")])
async def test_a_pause_with_an_implausible_date_has_no_date_and_no_end(
    tmp_path: Path, year: str, flags: tuple[str, ...]
) -> None:
    """A controller might regard a pause with a wrong end as over, so this one holds until somebody resumes."""
    async with client_stage(tmp_path, clock=WrongDates(f"Fri, 02 Jan {year} 00:00:00 GMT")) as at:
        result = await run(tmp_path, "pause", *flags)
        pause = control_state(at).cluster
    assert (result.exit_code, pause) == (0, Pause(by=USER))
    assert f"the API server dates its answers {year}-01-02" in result.stderr
    assert ("it does not end by itself" in result.stderr) is bool(flags)
    assert result.stdout == f"all evictions are paused (by {USER})\n"


async def test_a_pause_has_no_date_while_api_servers_disagree_on_the_time(at: ClientStage, tmp_path: Path) -> None:
    """With the date of the server that is behind it would be over at once, so it holds until somebody resumes."""
    put(at, pause_node__n1="true")
    at.server.faults.add(Fault(date_ahead_seconds=-3600.0, times=2))
    result = await run(tmp_path, "pause", "--for", "30m")
    assert (result.exit_code, control_state(at).cluster) == (0, Pause(by=USER))
    assert "s apart: the pause has no date; it does not end by itself" in result.stderr


async def test_pause_may_be_for_nodes_and_namespaces(at: ClientStage, tmp_path: Path) -> None:
    """Each named node and namespace gets a pause and a line of output; evictions elsewhere continue."""
    result = await run(tmp_path, "pause", "--node", "n1", "--node", "n2", "-n", "default")
    assert result.exit_code == 0
    found = control_state(at)
    assert found.cluster is None
    assert all(is_now(at, pause) for pause in (found.nodes["n1"], found.nodes["n2"], found.namespaces["default"]))
    since = format_utc(found.nodes["n1"].since_epoch or 0)
    assert result.stdout.splitlines() == [
        f"evictions are paused for node n1 (since {since}, by {USER})",
        f"evictions are paused for node n2 (since {since}, by {USER})",
        f"evictions are paused for namespace default (since {since}, by {USER})",
    ]


async def test_a_node_that_is_paused_already_keeps_its_pause(at: ClientStage, tmp_path: Path) -> None:
    """The line says since when; the other node is paused as ordered."""
    put(at, pause_node__n1=PAUSED)
    result = await run(tmp_path, "pause", "--node", "n1", "--node", "n2", "--reason", "again")
    assert result.stdout.splitlines()[0] == f"evictions are already paused for node n1 (since {SINCE}: disk swap)"
    found = control_state(at).nodes
    assert found["n1"] == Pause(EPOCH, "disk swap")
    assert is_now(at, found["n2"], "again")


async def test_a_pause_written_by_hand_is_shown_without_a_time(at: ClientStage, tmp_path: Path) -> None:
    """The value true contains no time."""
    put(at, pause="true")
    assert (await run(tmp_path, "pause")).stdout == "all evictions are already paused\n"


async def test_a_node_that_does_not_exist_is_refused(at: ClientStage, tmp_path: Path) -> None:
    """Most likely its name is mistyped; --force pauses what is to come."""
    at.server.create("nodes", node_object("worker-1", format_rfc3339(EPOCH)))
    result = await run(tmp_path, "pause", "--node", "worker-l")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[1:] == [
        "taint-eviction: there is no node worker-l in this cluster; did you mean 'worker-1'?",
        "taint-eviction: nothing was changed; --force pauses what is to come",
    ]
    assert at.server.get("configmaps", NAME, NAMESPACE) is None
    assert (await run(tmp_path, "pause", "--node", "worker-l", "--force")).exit_code == 0
    assert control_state(at).nodes.keys() == {"worker-l"}


def add_pools(at: ClientStage) -> None:
    """Add three nodes, two of them in zone east and in the pool gpu."""
    for name, zone, pool in (("gpu-1", "east", "gpu"), ("gpu-2", "east", "gpu"), ("web-1", "west", "web")):
        node = node_object(name, format_rfc3339(EPOCH))
        node["metadata"]["labels"] = {ZONE_LABEL: zone, "pool": pool}
        at.server.create("nodes", node)


async def test_a_zone_and_a_pool_are_paused_by_their_labels(at: ClientStage, tmp_path: Path) -> None:
    """The selector is kept, and the command says which nodes it matches now."""
    add_pools(at)
    result = await run(tmp_path, "pause", "zone/east", "-l", "pool in (web)", "--reason", "new drivers")
    assert result.exit_code == 0
    zone, pool = result.stdout.splitlines()
    assert zone.startswith("evictions are paused for nodes in zone east (since ")
    assert pool.startswith("evictions are paused for nodes that match pool=web (since ")
    later = "others are paused as soon as they are such nodes"
    assert result.stderr.splitlines()[2:] == [
        f"taint-eviction: nodes in zone east: 2 nodes (gpu-1, gpu-2) now; {later}",
        f"taint-eviction: nodes that match pool=web: 1 node (web-1) now; {later}",
    ]
    assert control_state(at).selectors.keys() == {f"{ZONE_LABEL}=east", "pool=web"}
    assert data(at)["format"] == "2-new"
    assert (await run(tmp_path, "pause", "zones", "east")).stdout.startswith(
        "evictions are already paused for nodes in"
    )


async def test_a_pause_by_labels_ends_by_a_selector_that_means_the_same(at: ClientStage, tmp_path: Path) -> None:
    """With the last one, the format is what it was before, so that older versions work on."""
    add_pools(at)
    await run(tmp_path, "pause", "zone/east", "-l", "pool in (web)")
    result = await run(tmp_path, "resume", "zone/east", "-l", "pool==web", "--yes")
    assert (result.exit_code, control_state(at).selectors) == (0, {})
    assert "evictions are no longer paused for nodes that match pool=web (since " in result.stdout
    assert data(at) == {}
    result = await run(tmp_path, "resume", "-l", "pool=web", "--yes")
    assert result.stdout == "evictions from nodes that match pool=web have no pause of their own\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("zone/easst",), "there are no nodes in zone easst in this cluster; did you mean 'east'?"),
        (("-l", "pool=gpuu,pool"), "there are no nodes that match pool,pool=gpuu in this cluster; did you mean 'gpu'?"),
        (("-l", "poool"), "there are no nodes that match poool in this cluster; did you mean 'pool'?"),
        (
            ("-l", "pool,pool notin (gpu,web)"),
            "there are no nodes that match pool,pool notin (gpu,web) in this cluster",
        ),
    ],
)
async def test_labels_that_no_node_has_are_refused(
    at: ClientStage, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    """Most likely they are mistyped; --force pauses nodes that are to come."""
    add_pools(at)
    result = await run(tmp_path, "pause", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[1:] == [
        f"taint-eviction: {complaint}",
        "taint-eviction: nothing was changed; --force pauses what is to come",
    ]
    assert at.server.get("configmaps", NAME, NAMESPACE) is None
    assert (await run(tmp_path, "pause", *arguments, "--force")).exit_code == 0
    assert len(control_state(at).selectors) == 1


async def test_labels_are_paused_by_users_who_may_not_list_nodes(at: ClientStage, tmp_path: Path) -> None:
    """Pausing needs only the rights on the ConfigMap; which nodes it covers is then not said."""
    at.server.faults.add(verb="list", resource="nodes", status=403)
    result = await run(tmp_path, "pause", "zone/east")
    assert (result.exit_code, set(control_state(at).selectors)) == (0, {f"{ZONE_LABEL}=east"})
    assert "now" not in result.stderr


async def test_more_than_100_pauses_by_labels_are_refused(at: ClientStage, tmp_path: Path) -> None:
    """A controller could not read them, and would hold everything."""
    many = [word for number in range(101) for word in ("-l", f"k{number}")]
    result = await run(tmp_path, "pause", "--force", *many)
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "would have 101 pauses by selectors, more than 100, and could not be read; nothing was changed" in result.stderr
    )


async def test_a_namespace_that_does_not_exist_is_paused_with_a_warning(at: ClientStage, tmp_path: Path) -> None:
    """It may be created later, but most likely the name is mistyped."""
    result = await run(tmp_path, "pause", "--namespace", "shpo")
    assert (result.exit_code, set(control_state(at).namespaces)) == (0, {"shpo"})
    assert result.stderr.splitlines()[2:] == ["taint-eviction: there is no namespace shpo in this cluster"]


@pytest.mark.parametrize("status", [403, 500])
async def test_a_user_who_may_not_read_nodes_gets_no_warning(at: ClientStage, tmp_path: Path, status: int) -> None:
    """Pausing needs only the rights on the ConfigMap."""
    at.server.faults.add(verb="get", resource="nodes", status=status)
    result = await run(tmp_path, "pause", "--node", "nodo")
    assert result.exit_code == 0
    assert "in this cluster" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("pause", "--node", "n" * 243), "room for 1 to 242 letters"),
        (("pause", "--node", "a/b"), "node 'a/b' cannot be paused by name"),
        (("resume", "-n", ""), "namespace '' cannot be paused by name"),
        (("resume", "--all", "--node", "n1"), "--all ends every pause"),
        (("pause", "n1"), "is none of node/NAME, zone/NAME and namespace/NAME"),
        (("pause", "-l", "pool in gpu"), "-l 'pool in gpu' is not a label selector (key=value, "),
        (("pause", "-l", "pool=gpu,!pool"), "it can match nothing: pool=gpu and !pool"),
        (("pause", "-l", "a" * 513), "is not a label selector of at most 512 characters"),
        (("pause", "-l", ""), "-l '' matches all nodes: to pause all evictions, leave it out"),
        (("pause", "zone/a,b"), "'zone/a,b' is no zone: 'a,b' is no label's value"),
        (("pause", "zone/"), "'zone/' is none of node/NAME, zone/NAME and namespace/NAME"),
        (("pause", "--all", "zone/a"), "--all pauses everything"),
        (("resume", "--all", "-l", "pool"), "--all ends every pause"),
        (("resume", "--only", "zone/a", "node/n1"), "--only takes nodes by name, nodes by label (zone/NAME, -l) or"),
        (
            ("resume", "--only", "-l", "size>5"),
            "--only cannot pause the other nodes: no selector matches",
        ),
        (("resume", "--only", "-l", ""), "-l '' matches all nodes: to release them all"),
    ],
)
async def test_wrong_usage_exits_2_and_sends_no_request(
    at: ClientStage, tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    """A sentence on stderr says what is wrong."""
    result = await run(tmp_path, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in " ".join(result.stderr.split())
    assert not at.server.requests.entries


# Resume


async def test_resume_ends_the_pause_of_all_evictions_and_names_other_holds(at: ClientStage, tmp_path: Path) -> None:
    """Single nodes and namespaces stay paused, and the breaker open."""
    put(at, pause=PAUSED, pause_node__n1="true", pause_namespace__shop=PAUSED, breaker=latch_text(SURGE))
    result = await run(tmp_path, "resume", "--yes")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"all evictions are no longer paused (since {SINCE}: disk swap)",
        "evictions are still paused for node n1",
        f"evictions are still paused for namespace shop (since {SINCE}: disk swap)",
        f"all evictions are still stopped: the circuit breaker is open (since {SINCE}: 5 of 9 nodes in 300 s);"
        " see taint-eviction breaker",
    ]
    assert control_state(at) == ControlState(None, {"n1": Pause()}, {"shop": Pause(EPOCH, "disk swap")}, SURGE)


async def test_resume_may_be_for_named_nodes_and_namespaces(at: ClientStage, tmp_path: Path) -> None:
    """A name that is not paused is not an error."""
    put(at, pause=PAUSED, pause_node__n1=PAUSED, pause_node__n2="true", pause_namespace__shop="true")
    result = await run(tmp_path, "resume", "--yes", "--node", "n1", "--namespace", "shop", "--node", "n3")
    assert result.stdout.splitlines() == [
        f"evictions are no longer paused for node n1 (since {SINCE}: disk swap)",
        "evictions from node n3 have no pause of their own",
        "evictions are no longer paused for namespace shop",
        f"all evictions are still paused (since {SINCE}: disk swap)",
        "evictions are still paused for node n2",
    ]
    assert control_state(at) == ControlState(Pause(EPOCH, "disk swap"), {"n2": Pause()})


async def test_resume_all_ends_every_pause(at: ClientStage, tmp_path: Path) -> None:
    """This includes malformed pauses; the breaker stays as it is."""
    put(at, pause="maybe", pause_node__n1="true", pause_namespace__shop="false", breaker=reset_text(EPOCH))
    result = await run(tmp_path, "resume", "--yes", "--all")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "all evictions are no longer paused (the key pause is malformed (its value is not JSON): maybe)",
        "evictions are no longer paused for node n1",
    ]
    assert "the key pause is malformed" in result.stderr
    assert "this ends 2 pauses:" in result.stderr
    assert "evictions are paused for node n1" in result.stderr.split("this ends 2 pauses:")[1]
    shop = PauseScope("namespace", "shop")
    assert control_state(at) == ControlState(reset_epoch=EPOCH, resumed=frozenset({shop}))


@pytest.mark.parametrize("command", [("resume", "--yes"), ("breaker", "reset", "--yes")])
async def test_a_pause_that_has_ended_is_not_shown_as_active(
    at: ClientStage, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """It may still be in the ConfigMap: a dry run does not remove it, and neither does a replica that does not lead."""
    put(at, pause="true", pause_node__n1='{"until": "2020-01-01T00:00:00Z"}')
    result = await run(tmp_path, *command)
    assert result.exit_code == 0
    assert "n1" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there is no pause of all evictions"),
        (("--all",), "nothing is paused"),
        (("--node", "n1"), "evictions from node n1 have no pause of their own"),
    ],
)
async def test_resume_succeeds_if_nothing_is_paused(
    at: ClientStage, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """The command says so, and that what was deleted may still be in force; it creates no ConfigMap."""
    result = await run(tmp_path, "resume", "--yes", *arguments)
    assert result.exit_code == 0
    assert said in result.stdout
    assert "does not exist; if it was deleted, a controller that runs still obeys it" in result.stderr
    assert at.server.list("configmaps") == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[str]]:
    """Agree to the first question after something has happened, and to no other; return the questions."""

    def answering(meanwhile: Callable[[], object]) -> list[str]:
        questions: list[str] = []

        def confirm(question: str, **_: object) -> bool:
            questions.append(question)
            if len(questions) == 1:
                meanwhile()
            return len(questions) == 1

        monkeypatch.setattr("taint_eviction_ctl.cli.releasing._is_asked", lambda: True)
        monkeypatch.setattr("click.confirm", confirm)
        return questions

    return answering


@pytest.mark.parametrize("verb", [["resume"], ["resume", "--all"], ["resume", "--only", "node/n1"]])
async def test_a_pause_that_was_ordered_while_the_question_stands_is_shown_and_asked_about(
    at: ClientStage, tmp_path: Path, verb: list[str], asked: Callable[[Callable[[], object]], list[str]]
) -> None:
    """Whoever has agreed to end the first pause has not seen the second one."""
    put(at, pause='{"until": "2999-01-01T00:00:00Z", "reason": "first"}')
    second = '{"until": "2999-01-01T06:00:00Z", "reason": "do not evict"}'
    questions = asked(lambda: at.server.patch("configmaps", NAME, {"data": {"pause": second}}, NAMESPACE))
    result = await run(tmp_path, *verb)
    assert (result.exit_code, questions) == (1, ["resume?", "resume?"])
    assert "all evictions are paused (until 2999-01-01 06:00:00 UTC: do not evict)" in result.stderr
    assert [(scope, pause.reason) for scope, pause in control_state(at).pauses().items()] == [
        (EVERYTHING, "do not evict")
    ]


# Breaker


async def test_a_breaker_that_opens_while_the_question_stands_is_shown_and_asked_about(
    at: ClientStage, tmp_path: Path, asked: Callable[[Callable[[], object]], list[str]]
) -> None:
    """A person's order stands until a person who knows of it ends it."""
    put(at, breaker=latch_text(SURGE))
    order = Latch(SURGE.since_epoch + 1, "wrong nodes are tainted")
    questions = asked(lambda: at.server.patch("configmaps", NAME, {"data": {"breaker": latch_text(order)}}, NAMESPACE))
    result = await run(tmp_path, "breaker", "reset")
    assert (result.exit_code, len(questions)) == (1, 2)
    assert "has opened meanwhile" in result.stderr
    assert "wrong nodes are tainted" in result.stderr
    assert control_state(at).latch == order


async def test_breaker_reset_closes_the_breaker_and_says_why_it_was_open(at: ClientStage, tmp_path: Path) -> None:
    """The reset is dated by the API server's clock."""
    latch = Latch(EPOCH - 4e8, SURGE.cause)
    put(at, breaker=latch_text(latch), pause_node__n1="true")
    result = await run(tmp_path, "breaker", "reset", "--yes")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"the circuit breaker is closed; it was open (since {format_utc(latch.since_epoch)}: {latch.cause})"
    ]
    assert result.stderr.endswith("taint-eviction: after the reset, evictions are still paused for node n1\n")
    found = control_state(at)
    assert found.latch is None
    assert is_now(at, Pause(found.reset_epoch))


async def test_a_reset_is_later_than_the_latch_that_it_resets(at: ClientStage, tmp_path: Path) -> None:
    """The clock of the replica that opened the breaker may have been ahead."""
    put(at, breaker=latch_text(Latch(EPOCH * 2, "")))
    assert (await run(tmp_path, "breaker", "reset", "--yes")).exit_code == 0
    reset_epoch = control_state(at).reset_epoch
    assert reset_epoch == pytest.approx(EPOCH * 2 + 0.001, abs=1e-5)


async def test_a_malformed_breaker_can_be_reset(at: ClientStage, tmp_path: Path) -> None:
    """It counts as open, and the output contains its value."""
    put(at, breaker="closed")
    result = await run(tmp_path, "breaker", "reset", "--yes")
    assert result.exit_code == 0
    was = "the key breaker is malformed (its value is not JSON): closed"
    assert result.stdout == f"the circuit breaker is closed; it was open ({was})\n"
    assert control_state(at).latch is None


@pytest.mark.parametrize("data", [None, {}, {"breaker": reset_text(EPOCH)}])
async def test_a_breaker_that_is_not_open_in_the_config_map_is_reset_too_where_no_leader_answers(
    at: ClientStage, tmp_path: Path, data: dict[str, str] | None
) -> None:
    """A replica may have failed to write its open breaker; besides, what it has counted so far no longer counts."""
    if data is not None:
        put(at, **data)
    result = await run(tmp_path, "breaker", "reset", "--yes")
    assert result.exit_code == 0
    last = f" (last reset {SINCE})" if data else ""
    assert result.stdout == f"the circuit breaker was not open{last}; it is reset all the same\n"
    found = control_state(at)
    assert found.latch is None
    assert is_now(at, Pause(found.reset_epoch))


async def test_a_reset_from_a_host_with_a_wrong_clock_is_dated_by_the_server(tmp_path: Path) -> None:
    """The clock of a laptop may be a day ahead."""
    async with client_stage(tmp_path, clock=WallClock(offset_seconds=-86400.0)) as at:
        put(at, breaker=latch_text(Latch(EPOCH - 4e8, SURGE.cause)))
        assert (await run(tmp_path, "breaker", "reset", "--yes")).exit_code == 0
        assert is_now(at, Pause(control_state(at).reset_epoch))


async def test_a_reset_exits_1_if_the_breaker_opens_again_at_once(at: ClientStage, tmp_path: Path) -> None:
    """A script must not regard the breaker as closed."""
    put(at, breaker=latch_text(SURGE))
    again = Latch(EPOCH * 2, "6 of 9 nodes in 300 s")

    def trip(entry: LoggedRequest) -> None:
        if entry.verb == "patch":
            at.server.patch("configmaps", NAME, {"data": {"breaker": latch_text(again)}}, NAMESPACE)

    at.server.requests.subscribe(trip)
    result = await run(tmp_path, "breaker", "reset", "--yes")
    assert result.exit_code == 1
    assert "opened again" in result.stdout
    assert again.cause in result.stdout


# Finding the cluster and the ConfigMap


@pytest.mark.parametrize("command", [("pause",), ("resume", "--yes"), ("breaker", "reset", "--yes")])
async def test_the_config_map_may_have_another_name_and_namespace(
    at: ClientStage, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """All commands take the same flags, and environment variables instead of them."""
    put(at, "mine", "default", pause="true", breaker=latch_text(SURGE))
    for arguments, environment in (
        (("--state-namespace", "default", "--state-name", "mine"), {}),
        ((), {"TAINT_EVICTION_STATE_NAMESPACE": "default", "TAINT_EVICTION_STATE_NAME": "mine"}),
    ):
        result = await run(tmp_path, *command, *arguments, **environment)
        assert result.exit_code == 0
    asked = at.server.requests.select(resource="configmaps")
    assert {(entry.namespace, entry.name) for entry in asked} == {("default", "mine")}


@pytest.mark.parametrize("command", [("pause",), ("resume", "--yes"), ("breaker", "reset", "--yes")])
@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ({"status": 403, "message": "no"}, "this needs the rights to get, create and patch configmaps, at least"),
        ({"status": 401}, "are these credentials still good?"),
        ({"status": 500}, "try again"),
        ({"reset": True}, "is this the right cluster, and up?"),
    ],
)
async def test_an_api_server_that_refuses_the_order_exits_3(
    at: ClientStage, tmp_path: Path, command: tuple[str, ...], fault: dict[str, Any], advice: str
) -> None:
    """stderr contains advice, and nothing says that anything was done."""
    at.server.faults.add(resource="configmaps", **fault)
    result = await run(tmp_path, *command)
    assert (result.exit_code, result.stdout) == (3, "")
    assert advice in result.stderr
    assert f"of {tmp_path / 'config'}: {at.server.url}: " in result.stderr


async def test_a_pause_that_cannot_be_written_exits_3(at: ClientStage, tmp_path: Path) -> None:
    """The right to read is not enough."""
    at.server.faults.add(verb="create", resource="configmaps", status=403)
    result = await run(tmp_path, "pause")
    assert (result.exit_code, result.stdout) == (3, "")


@pytest.mark.parametrize("words", [("pause",), ("resume", "--yes"), ("breaker", "reset", "--yes")])
async def test_a_config_map_in_a_newer_format_is_not_written_and_exits_2(
    at: ClientStage, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Nobody may believe that evictions are paused, or go on, because an old command says so."""
    put(at, format="3")
    result = await run(tmp_path, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "ConfigMap kube-system/taint-eviction-controller has format 3, and this version knows formats 1 and 2 only;"
        " nothing was changed" in result.stderr
    )
    found = at.server.get("configmaps", NAME, NAMESPACE)
    assert found is not None
    assert found["data"] == {"format": "3"}


async def test_a_missing_kubeconfig_exits_2(at: ClientStage, tmp_path: Path) -> None:
    """The exit code is the same for each command."""
    result = await run(tmp_path, "pause", kubeconfig="absent")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "absent" in result.stderr


async def test_the_installed_command_pauses_and_resumes(at: ClientStage, tmp_path: Path) -> None:
    """Each command runs in its own process."""

    async def ordered(*arguments: str) -> tuple[int | None, str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TAINT_EVICTION_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "taint_eviction", *arguments, "--kubeconfig", str(tmp_path / "config")),
            cwd=ROOT,
            env={**environment, "PYTHONPATH": "operator"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    code, out, _ = await ordered("pause", "--node", "n1", "--reason", "disk swap")
    assert code == 0
    assert out.startswith("evictions are paused for node n1 (since ")
    code, out, err = await ordered("resume", "--yes", "--node", "n1")
    assert code == 0
    assert "no controller reads this yet" in err
    assert out.startswith("evictions are no longer paused for node n1 (since ")
    assert control_state(at) == ControlState()
    code, out, _ = await ordered("breaker", "reset", "--yes")
    assert (code, out) == (0, "the circuit breaker was not open; it is reset all the same\n")
