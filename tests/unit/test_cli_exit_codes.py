"""Each verb ends as the page of exit codes says, and no variable that is meant for another verb breaks it."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.docs.reference import verbs
from tests.simulation.scenario_texts import ONE_POD

from taint_eviction.cli import cli

PREFIX = "TAINT_EVICTION"
ASKING = ("status", "explain shop/a", "history", "history --since 5m", "compare")
CHANGING = ("pause", "resume", "resume --yes", "breaker", "breaker -o json", "breaker reset --yes")
REACHING = (*ASKING, *CHANGING, "status --stuck", "plan", "doctor", "run")


def run(*words: str, **environment: str) -> Result:
    """Run the command line; nothing may end in a traceback."""
    return CliRunner().invoke(cli, list(words), env=environment, catch_exceptions=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Write a kubeconfig of a server that is not there."""
    clusters = [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}]
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    content = {"clusters": clusters, "contexts": contexts, "users": [{"name": "u", "user": {}}], "current-context": "c"}
    (tmp_path / "config").write_text(json.dumps(content))
    return str(tmp_path / "config")


@pytest.mark.parametrize("verb", REACHING)
def test_a_server_that_is_not_there_exits_3(config: str, verb: str) -> None:
    """The last line on stderr names the server, and why in the system's words, once; stdout stays empty."""
    result = run(*verb.split(), "--kubeconfig", config)
    assert (result.exit_code, result.stdout) == (3, "")
    said = result.stderr.splitlines()[-1]
    assert "https://127.0.0.1:9: the API server cannot be reached: Connection refused" in said
    assert said.count("Connection refused") == 1


@pytest.mark.parametrize("verb", REACHING)
@pytest.mark.parametrize("flags", [("--kubeconfig", "/no/such"), ("--context", "nope"), ("--nonsense",)])
def test_wrong_usage_exits_2(config: str, verb: str, flags: tuple[str, ...]) -> None:
    """There is no such kubeconfig, no such context, or no such flag."""
    result = run(*verb.split(), *flags, KUBECONFIG=config)
    assert (result.exit_code, result.stdout) == (2, "")


VERBS = dict(verbs())


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_verb_promises_its_exit_codes(verb: str) -> None:
    """The help of the verb names them; the page of exit codes is made from it."""
    assert "Exit codes: 0 " in " ".join(run(*verb.split(), "--help").output.split())


def variables(command: click.Command) -> dict[str, click.Option]:
    """The variables of the environment by which a verb's flags can be set."""
    found: dict[str, click.Option] = {}
    for option in (each for each in command.params if isinstance(each, click.Option)):
        given = option.envvar or (f"{PREFIX}_{(option.name or '').upper()}" if option.allow_from_autoenv else [])
        if command.context_settings.get("auto_envvar_prefix") or option.envvar:
            found |= dict.fromkeys([given] if isinstance(given, str) else given, option)
    return found


def test_a_variable_means_the_same_for_every_verb() -> None:
    """Otherwise a value for one verb would break another verb."""
    kinds: dict[str, set[Any]] = {}
    for command in VERBS.values():
        for name, option in variables(command).items():
            choices = tuple(getattr(option.type, "choices", ()))
            # A verb that people type completes some texts.
            text = click.types.StringParamType
            kind = text if isinstance(option.type, text) else type(option.type)
            kinds.setdefault(name, set()).add((kind, choices, option.is_flag, option.multiple))
    assert not {name for name, kind in kinds.items() if len(kind) > 1}
    assert len(kinds) > 60


MINIMAL = {"explain": ("shop/a",), "completion": ("bash",)}


@pytest.mark.parametrize("value", ["nonsense", "true", "5", ""])
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_variables_of_other_verbs_break_no_verb(monkeypatch: pytest.MonkeyPatch, verb: str, value: str) -> None:
    """The variables may have any value."""
    command, own = VERBS[verb], variables(VERBS[verb])
    for other in VERBS.values():
        for name in variables(other).keys() - own.keys():
            monkeypatch.setenv(name, value)
    words = ["x.yaml"] if verb == "replay" else list(MINIMAL.get(verb, ()))
    with command.make_context(verb, words) as context:
        assert context.command is command


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"version", "completion"}))
def test_nonsense_in_a_verbs_own_variable_exits_2_or_is_taken_as_text(config: str, verb: str) -> None:
    """The error for a wrong number, duration or choice names the flag of the variable."""
    words = ["x.yaml"] if verb == "replay" else list(MINIMAL.get(verb, ()))
    for name, option in variables(VERBS[verb]).items():
        if isinstance(option.type, click.types.StringParamType) or option.name == "config":
            continue
        result = run(*verb.split(), *words, KUBECONFIG=config, **{name: "\u2007nonsense"})
        assert (result.exit_code, result.stdout) == (2, ""), name
        assert option.opts[0] in result.stderr, name


def test_a_variable_that_does_not_go_with_a_flag_is_ignored(config: str) -> None:
    """A replica that is named for other calls does not keep status --stuck from reading the cluster."""
    result = run("status", "--stuck", "--kubeconfig", config, TAINT_EVICTION_SERVER="http://127.0.0.1:1")
    assert result.exit_code == 3
    result = run("status", "--stuck", "--kubeconfig", config, TAINT_EVICTION_WATCH="true")
    assert result.exit_code == 3


def test_only_the_command_line_can_ask_for_a_picture(tmp_path: Path) -> None:
    """With a variable each run would overwrite the last picture, and a folder could not be replayed."""
    (tmp_path / "one.yaml").write_text(ONE_POD)
    (tmp_path / "two.yaml").write_text(ONE_POD)
    picture = tmp_path / "picture.html"
    assert run("replay", str(tmp_path), TAINT_EVICTION_HTML=str(picture)).exit_code == 0
    assert not picture.exists()
