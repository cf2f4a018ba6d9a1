"""The command ``run`` before the controller starts: flags and variables become settings, and mistakes are reported."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taint_eviction.cli.run import _compared_before, run
from taint_eviction.cli.run_settings import read_settings
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit
from taint_eviction.core.tiers import Order
from taint_eviction.settings import ControlStateSettings, Settings

POLICY = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules: [{name: a}]\n"
# No file is there: a run whose settings are right ends here.
NOWHERE = "/nowhere/kubeconfig"


def settings(*arguments: str) -> Settings:
    """Read settings from flags."""
    return read_settings(run.make_context("run", list(arguments)).params)


def started(*arguments: str, **environment: str) -> Result:
    """Run the command without a cluster."""
    return CliRunner().invoke(run, ["--kubeconfig", NOWHERE, *arguments], env=environment, catch_exceptions=False)


# Settings


def test_without_flags_everything_is_as_the_settings_have_it() -> None:
    """No flag has a default of its own; the namespace of the Lease comes from the cluster."""
    default = Settings()
    assert settings() == replace(default, election=replace(default.election, lease_namespace=""))


def test_each_flag_of_the_policy_is_read() -> None:
    """The flags set mode, timeout and limits."""
    read = settings(
        *("--eviction-mode", "evict-then-delete", "--evict-timeout", "10m"),
        *("--evictions-per-second", "5", "--evictions-burst", "20"),
        *("--evictions-per-second-per-node", "0.5", "--evictions-burst-per-node", "2"),
        *("--evictions-per-second-per-namespace", "1", "--evictions-burst-per-namespace", "3"),
    )
    assert read.policy == EvictionPolicy(
        EvictionMode.EVICT_THEN_DELETE, 600.0, Limit(5.0, 20), Limit(0.5, 2), Limit(1.0, 3)
    )
    assert read.problems() == []


def test_the_order_and_its_wait_are_read() -> None:
    """The wait is more than 0 seconds."""
    policy = settings("--order", "tiers", "--order-wait", "5m").policy
    assert (policy.order, policy.order_wait_seconds) == (Order.TIERS, 300.0)
    problem = "the order wait must be more than 0 seconds, not 0"
    assert settings("--order", "tiers", "--order-wait", "0").problems() == [problem]


def test_each_flag_of_the_breaker_is_read() -> None:
    """The minimum number of nodes applies to every threshold."""
    read = settings(
        *("--breaker", "--breaker-nodes", "25%,40", "--breaker-min-nodes", "5", "--breaker-lifecycle-nodes", "10"),
        *("--breaker-window", "10m", "--breaker-due-pods", "500", "--breaker-settle", "5s"),
        *("--breaker-list-wait", "15s", "--breaker-closes", "by-itself"),
        *("--breaker-zone", "90%", "--breaker-without-control-plane"),
    )
    assert read.breaker == BreakerPolicy(
        enabled=True,
        nodes=NodeThreshold(40, 25.0, 5),
        lifecycle_nodes=NodeThreshold(10, None, 5),
        zone=NodeThreshold(None, 90.0, 5),
        without_control_plane=True,
        window_seconds=600.0,
        max_due=500,
        settle_seconds=5.0,
        list_wait_seconds=15.0,
        closes_by_itself=True,
    )


def test_nodes_that_are_not_ready_may_be_exempt_from_the_breaker() -> None:
    """No number of nodes that are not ready opens the breaker then."""
    assert settings("--breaker-lifecycle-nodes", "exempt").breaker.lifecycle_nodes is None


@pytest.mark.parametrize("flags", [(), ("--breaker-zone", "off")])
def test_a_lost_zone_opens_nothing_unless_a_flag_says_so(flags: tuple[str, ...]) -> None:
    """By default the breaker has no threshold for a zone."""
    assert settings(*flags).breaker.zone is None


def test_tolerances_and_holds_are_read() -> None:
    """Flags set the default seconds, how far holds are honoured, and whether a graceful shutdown is waited for."""
    read = settings(*("--default-not-ready-seconds", "300", "--default-unreachable-seconds", "0"), "--dry-run-events")
    assert (read.decisions.default_not_ready_seconds, read.decisions.default_unreachable_seconds) == (300, 0)
    assert read.dry_run_events
    assert settings("--honour-holds", "2h").decisions.max_hold_seconds == 7200.0
    assert settings("--honour-holds", "forever").decisions.max_hold_seconds == math.inf
    assert settings("--graceful-shutdown", "wait").decisions.wait_for_shutdown
    assert not settings("--graceful-shutdown", "evict").decisions.wait_for_shutdown


def test_the_control_state_has_the_name_of_the_lease() -> None:
    """A dry run has a ConfigMap of its own, as it has a Lease of its own."""
    assert settings("--dry-run").control_state == ControlStateSettings(name="taint-eviction-controller-dry-run")
    assert settings("--leader-elect-resource-name", "mine").control_state == ControlStateSettings(name="mine")


@pytest.mark.parametrize(
    ("arguments", "elects", "name"),
    [
        ((), True, "taint-eviction-controller"),
        (("--no-leader-elect",), False, "taint-eviction-controller"),
        (("--dry-run",), False, "taint-eviction-controller-dry-run"),
        (("--dry-run", "--leader-elect"), True, "taint-eviction-controller-dry-run"),
        (("--dry-run", "--leader-elect-resource-name=mine"), True, "mine"),
        (("--dry-run", "--leader-elect-resource-name=mine", "--no-leader-elect"), False, "mine"),
    ],
)
def test_a_dry_run_stands_for_election_only_if_a_flag_says_so(
    arguments: tuple[str, ...], elects: bool, name: str
) -> None:
    """The name of a Lease says so, as in the shadow's manifests, or --leader-elect."""
    election = settings(*arguments).election
    assert (election.enabled, election.lease_name) == (elects, name)


# Old names


OLD_AND_NEW = [
    ("--retry-most", "--retry-max", "7s", lambda read: read.retry.max_seconds == 7.0),
    ("--breaker-least-nodes", "--breaker-min-nodes", "7", lambda read: read.breaker.nodes.min_nodes == 7),
]


def variable(flag: str) -> str:
    """Name the environment variable of a flag."""
    return f"TAINT_EVICTION_{flag.removeprefix('--').replace('-', '_').upper()}"


@pytest.mark.parametrize(("old", "new", "value", "arrives"), OLD_AND_NEW)
def test_a_flag_is_still_known_by_its_old_name(
    old: str, new: str, value: str, arrives: Callable[[Settings], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old name means the same as the new one, as a flag and as an environment variable."""
    assert arrives(settings(new, value))
    assert arrives(settings(old, value))
    monkeypatch.setenv(variable(old), value)
    assert arrives(settings())
    monkeypatch.setenv(variable(new), "9")
    assert not arrives(settings())


@pytest.mark.parametrize(("old", "new", "value", "arrives"), OLD_AND_NEW)
def test_where_both_names_are_set_the_new_one_wins(
    old: str, new: str, value: str, arrives: Callable[[Settings], bool]
) -> None:
    """The order of the flags does not matter."""
    assert arrives(settings(old, "9", new, value))
    assert arrives(settings(new, value, old, "9"))


@pytest.mark.parametrize(("old", "new", "value"), [case[:3] for case in OLD_AND_NEW])
def test_an_old_name_is_warned_about_at_start(old: str, new: str, value: str) -> None:
    """The warning has the new name as it is to be written; if both are set, it says which one counts."""
    deprecated = "is deprecated and will be removed in the next version: use"
    assert f"{old} {deprecated} {new}\n" in started(old, value).stderr
    environment = {variable(old): value}
    assert f"{variable(old)} {deprecated} {variable(new)}\n" in started(**environment).stderr
    ignored = f"{old} {deprecated} {new}; it is ignored, because the new one is set, too\n"
    assert ignored in started(old, value, new, value).stderr
    assert "deprecated" not in started(new, value).stderr


@pytest.mark.parametrize(
    "flags",
    [("--breaker-nodes=10%",), ("--breaker-lifecycle-nodes", "exempt"), ("--breaker-min-nodes", "5")],
    ids=lambda flags: flags[0],
)
def test_settings_of_a_breaker_that_is_off_are_warned_about(flags: tuple[str, ...]) -> None:
    """A rollback that drops --breaker alone must not stop the controller, and nobody should believe in a breaker."""
    warning = "there is no circuit breaker: --breaker is not set, so its other flags have no effect\n"
    assert warning in started(*flags).stderr
    assert warning in started(TAINT_EVICTION_BREAKER_DUE_PODS="7").stderr
    assert warning not in started(*flags, "--breaker").stderr
    assert warning not in started().stderr


def test_the_help_shows_durations_and_no_old_names() -> None:
    """Defaults are written as a person would set them."""
    shown = " ".join(started("--help").stdout.split())
    assert "default: 200ms" in shown
    assert "default: 5m" in shown
    assert not [old for old, *_ in OLD_AND_NEW if old in shown]


# Mistakes


@pytest.mark.parametrize(
    "arguments",
    [
        ("--breaker-nodes", "many"),
        ("--breaker-nodes", "25%,30%"),
        ("--breaker-nodes", "25%,"),
        ("--breaker-nodes", "exempt"),
        ("--breaker-lifecycle-nodes", "-1"),
        ("--honour-holds", "always"),
        ("--evict-timeout", "inf"),
        ("--evict-timeout", "soon"),
        ("--eviction-mode", "kill"),
    ],
)
def test_a_value_that_cannot_be_read_exits_2(arguments: tuple[str, ...]) -> None:
    """The message names the flag."""
    result = started(*arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    """Each mistake in the flags and in the file has a line, and nothing is started."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("name:", "nam:").replace("v1", "v2"))
    result = started(
        *("--config", str(file), "--workers", "1", "--evictions-burst", "3", "--evict-timeout", "-1s"),
        *("--breaker-nodes", "100%", "--breaker-min-nodes", "0", "--default-not-ready-seconds", "-1"),
        *("--evictions-per-second-per-node", "nan"),
    )
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert all(line.startswith("taint-eviction: ") for line in lines)
    told = [line.removeprefix("taint-eviction: ") for line in lines]
    assert told[-3:] == [
        f"{file}:1: apiVersion must be taint-eviction/v1, not 'taint-eviction/v2'",
        f"{file}:3: a rule lacks 'name'",
        f"{file}:3: unknown key 'nam' in a rule; did you mean 'name'?",
    ]
    for said in (
        "workers must be at least 2",
        "a burst has no effect without evictions per second",
        "the evict timeout must not be negative",
        "breaker: the percentage must be at least 0 and less than 100, not 100",
        "a percentage can count from 1 node on, not from 0",
        "the default seconds for not-ready must be",
        "evictions per node: evictions per second must be more than 0",
    ):
        assert any(said in line for line in told[:-3]), (said, told)


def refused(result: Result) -> dict[str, Any]:
    """Return the one line of the JSON log that says why the start is refused."""
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    told: dict[str, Any] = json.loads(line)
    return told


def test_a_wrong_policy_is_an_error_in_the_json_log(tmp_path: Path) -> None:
    """One line has the words that the runbook searches for, together with the wrong settings."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("name:", "nam:"))
    told = refused(started("--config", str(file), "--workers", "1", "--log-format", "json"))
    assert (told["level"], told["what"]) == ("ERROR", "not_started")
    assert told["message"].startswith(
        "the configuration is rejected, and nothing was started: workers must be at least 2"
    )
    assert f"{file}:3: a rule lacks 'name'" in told["problems"]
    assert all(problem in told["message"] for problem in told["problems"])


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--workers", "many", "--log-format", "json"), {}),
        (("--log-format=json", "--worker=3"), {}),
        (("--breaker-nodes=exempt",), {"TAINT_EVICTION_LOG_FORMAT": "json"}),
        (("--log-format=json", "--listen", "nowhere"), {}),
    ],
)
def test_a_wrong_flag_is_an_error_in_the_json_log(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    """The format of the log may be chosen by a flag or by a variable."""
    told = refused(started(*arguments, **environment))
    assert told["what"] == "not_started"
    assert "is rejected" in told["message"]


def test_a_wrong_kubeconfig_is_an_error_in_the_json_log() -> None:
    """This mistake is found later, and is reported in the same way."""
    told = refused(started("--log-format", "json"))
    [problem] = told["problems"]
    assert NOWHERE in problem


def test_a_file_that_is_not_there_exits_2() -> None:
    """A controller that starts without its rules would evict pods that the rules hold back."""
    result = started("--config", "/nowhere/policy.yaml")
    assert result.exit_code == 2
    assert result.stderr == "taint-eviction: /nowhere/policy.yaml:1: it cannot be read: No such file or directory\n"


def test_the_environment_names_the_file_too() -> None:
    """Every flag has an environment variable."""
    result = started(TAINT_EVICTION_CONFIG="/nowhere/policy.yaml")
    assert "/nowhere/policy.yaml:1: it cannot be read" in result.stderr


def test_with_a_right_policy_file_the_start_continues(tmp_path: Path) -> None:
    """The start fails later, because there is no kubeconfig."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    result = started("--config", str(file))
    assert result.exit_code == 2
    assert str(file) not in result.stderr
    assert NOWHERE in result.stderr


@pytest.mark.parametrize(("name", "why"), [("absent/audit", "No such file or directory"), ("", "Is a directory")])
def test_an_audit_log_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, name: str, why: str) -> None:
    """People who ask for an audit log, by flag or variable, must not find out later that there is none."""
    file = tmp_path / name
    for words, environment in ((["--audit-log", str(file)], {}), ([], {"TAINT_EVICTION_AUDIT_LOG": str(file)})):
        result = CliRunner().invoke(run, words, env=environment)
        assert result.exit_code == 2
        assert f"--audit-log: {file} cannot be written: {why}" in result.stderr


def test_a_dry_run_does_not_read_a_journal_that_is_a_pipe(tmp_path: Path) -> None:
    """/dev/stdout, for example, may be a pipe, and reading it would never end."""
    pipe = tmp_path / "journal"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.open("wb").close())
    writer.start()
    found = _compared_before(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # This releases the writer, which nobody has read.
    writer.join()
    os.close(reading)
    assert found is None
