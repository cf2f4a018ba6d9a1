"""The command ``run`` before it runs: flags and environment become settings, and what is wrong is told at once."""

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taint_eviction.cli.run import run
from taint_eviction.cli.run_flags import read_settings
from taint_eviction.core.breaker import BreakerPolicy, NodeThreshold
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit
from taint_eviction.settings import OrdersSettings, Settings

POLICY = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules: [{name: a}]\n"
# Where a run ends that was set up rightly: no file is there.
NOWHERE = "/nowhere/kubeconfig"


def settings(*arguments: str) -> Settings:
    """Read settings from flags."""
    return read_settings(run.make_context("run", list(arguments)).params)


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Put the root logger back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def started(*arguments: str, **environment: str) -> Result:
    """Run the command without a cluster."""
    return CliRunner().invoke(run, ["--kubeconfig", NOWHERE, *arguments], env=environment, catch_exceptions=False)


# Settings


def test_without_flags_everything_is_as_the_settings_have_it() -> None:
    """No flag has a default of its own; where the Lease is, a cluster says."""
    default = Settings()
    assert settings() == replace(default, election=replace(default.election, lease_namespace=""))


def test_each_flag_of_the_policy_arrives() -> None:
    """Mode, timeout and limits."""
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


def test_each_flag_of_the_breaker_arrives() -> None:
    """The least number of nodes is that of both shares."""
    read = settings(
        *("--breaker", "--breaker-nodes", "25%,40", "--breaker-least-nodes", "5", "--breaker-lifecycle-nodes", "10"),
        *("--breaker-window", "10m", "--breaker-due-pods", "500", "--breaker-settle", "5s"),
        *("--breaker-closes", "by-itself"),
    )
    assert read.breaker == BreakerPolicy(
        enabled=True,
        nodes=NodeThreshold(40, 25.0, 5),
        lifecycle_nodes=NodeThreshold(10, None, 5),
        window_seconds=600.0,
        most_due=500,
        settle_seconds=5.0,
        closes_by_itself=True,
    )


def test_nodes_that_are_not_ready_may_be_exempt_from_the_breaker() -> None:
    """Then no number of them opens it."""
    assert settings("--breaker-lifecycle-nodes", "exempt").breaker.lifecycle_nodes is None


def test_tolerances_and_holds_arrive() -> None:
    """Seconds by default, and how far holds are honoured."""
    read = settings(*("--default-not-ready-seconds", "300", "--default-unreachable-seconds", "0"), "--dry-run-events")
    assert (read.default_not_ready_seconds, read.default_unreachable_seconds, read.dry_run_events) == (300, 0, True)
    assert settings("--honour-holds", "2h").most_hold_seconds == 7200.0
    assert settings("--honour-holds", "forever").most_hold_seconds == math.inf


def test_orders_have_the_name_of_the_lease() -> None:
    """So a dry run has a ConfigMap of its own, as it has a Lease of its own."""
    assert settings("--dry-run").orders == OrdersSettings(name="taint-eviction-controller-dry-run")
    assert settings("--leader-elect-resource-name", "mine").orders == OrdersSettings(name="mine")


# What is wrong


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
def test_a_value_that_cannot_be_read_exits_2(arguments: tuple[str, ...], logging_as_it_was: None) -> None:
    """The message names the flag."""
    result = started(*arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path, logging_as_it_was: None) -> None:
    """Flags and file together, a line each, and nothing is begun."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("name:", "nam:").replace("v1", "v2"))
    result = started(
        *("--config", str(file), "--workers", "1", "--evictions-burst", "3", "--evict-timeout", "-1s"),
        *("--breaker-nodes", "100%", "--breaker-least-nodes", "0", "--default-not-ready-seconds", "-1"),
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
        "a burst without evictions per second means nothing",
        "the evict timeout must not be negative",
        "breaker: more than 100 % of the nodes can never be",
        "a share counts from 1 node on",
        "the default seconds for not-ready must be",
        "evictions per node: evictions per second must be more than 0",
    ):
        assert any(said in line for line in told[:-3]), (said, told)


def test_a_file_that_is_not_there_exits_2(logging_as_it_was: None) -> None:
    """A controller that started without its rules would evict what they hold."""
    result = started("--config", "/nowhere/policy.yaml")
    assert result.exit_code == 2
    assert result.stderr == "taint-eviction: /nowhere/policy.yaml:1: it cannot be read: No such file or directory\n"


def test_the_environment_names_the_file_too(logging_as_it_was: None) -> None:
    """As every flag has its twin."""
    result = started(TAINT_EVICTION_CONFIG="/nowhere/policy.yaml")
    assert "/nowhere/policy.yaml:1: it cannot be read" in result.stderr


def test_with_a_file_that_is_right_it_goes_on(tmp_path: Path, logging_as_it_was: None) -> None:
    """To the next thing that is missing: the kubeconfig."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    result = started("--config", str(file))
    assert result.exit_code == 2
    assert str(file) not in result.stderr
    assert NOWHERE in result.stderr
