"""The command as a whole: its help, with the laboratory and without it, and colours."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner, Result

from taint_eviction.cli import cli
from taint_eviction.cli.exit_codes import ExitCode

LOADED_OF_OTHERS = (
    "print({name.partition('.')[0] for name in sys.modules} & {'taint_eviction_ctl', 'taint_eviction_lab', 'rich'})"
)
HOW_TO_GET_IT = "`pip install .` in a clone of the repository installs it"


def command(*arguments: str, **environment: str) -> Result:
    """Run the command line."""
    return CliRunner().invoke(cli, list(arguments), env=environment, catch_exceptions=False, color=True)


@pytest.fixture
def without_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the laboratory as absent as it is in the image."""
    verb = EntryPoint("replay", "no_such_laboratory.replay:replay", "taint_eviction.verbs")
    monkeypatch.setattr("taint_eviction.cli.entry_points", lambda **_: [verb])
    monkeypatch.setattr("taint_eviction.cli._LABORATORY_PACKAGE", "no_such_laboratory")


def test_help_recommends_the_demo() -> None:
    """Where the laboratory is installed, its verbs are listed."""
    shown = " ".join(command("--help").output.split())
    assert "New here? `taint-eviction demo` shows the controller at work" in shown
    assert "replay Play scenarios on a virtual clock." in shown
    assert HOW_TO_GET_IT not in shown


@pytest.mark.usefixtures("without_laboratory")
def test_help_without_the_laboratory_says_how_to_get_it() -> None:
    """The image has no laboratory, so its help recommends none of those verbs."""
    shown = " ".join(command("--help").output.split())
    assert HOW_TO_GET_IT in shown
    assert "New here?" not in shown
    assert "Play scenarios" not in shown


@pytest.mark.usefixtures("without_laboratory")
def test_a_verb_of_the_laboratory_that_is_missing_says_how_to_get_it() -> None:
    """The call is a usage error, whatever its arguments are."""
    result = command("replay", "--output", "json", "file.yaml")
    assert result.exit_code == ExitCode.USAGE
    assert HOW_TO_GET_IT in " ".join(result.stderr.split())


def test_the_command_promises_the_exit_codes_of_all_verbs() -> None:
    """The codes of each verb are in its own help."""
    assert "Exit codes of all verbs: 0 fine; 1 " in " ".join(command("--help").output.split())


@pytest.mark.parametrize(("environment", "coloured"), [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_no_color_turns_colours_off(environment: dict[str, str], coloured: bool) -> None:
    """A variable NO_COLOR that is empty leaves the colours on."""
    shown = command("plan", "tests/planning/data/worked-example-running.yaml", **environment).output
    assert ("\x1b[" in shown) is coloured


def test_a_pipe_gets_no_colours() -> None:
    """Neither stdout nor stderr has an escape sequence."""
    arguments = [sys.executable, "-m", "taint_eviction", "plan", "tests/planning/data/worked-example-running.yaml"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "PODS" in done.stdout.upper()
    assert "\x1b" not in done.stdout + done.stderr


def test_run_loads_no_verb() -> None:
    """The controller starts without what people type, without the laboratory and without tables."""
    code = "import sys; from taint_eviction.cli import cli; cli(['run', '--help'], standalone_mode=False);"
    assert loads(code + LOADED_OF_OTHERS) == "set()"


def test_the_controller_loads_no_verb() -> None:
    """No module of the controller imports one of another package."""
    code = (
        "import importlib, pkgutil, sys, taint_eviction\n"
        "for module in pkgutil.walk_packages(taint_eviction.__path__, 'taint_eviction.'):\n"
        "    module.name.endswith('__main__') or importlib.import_module(module.name)\n"
    )
    assert loads(code + LOADED_OF_OTHERS) == "set()"


def loads(code: str) -> str:
    """Run code in a new process; return the last line that it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_the_version_is_a_flag_as_well() -> None:
    """The flag is what kubectl's plugins have, and prints the same as the verb."""
    assert command("--version").output == command("version").output


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("stauts", "there is no verb 'stauts'; did you mean 'status'?"),
        ("xyzzy", "there is no verb 'xyzzy'\n"),
        ("describe", "there is no verb 'describe'; did you mean 'explain'?"),
        ("stop", "there is no verb 'stop'; did you mean 'pause'?"),
    ],
)
def test_a_misspelt_verb_is_answered_with_a_similar_one(word: str, said: str) -> None:
    """No verb is named if none is similar."""
    result = command(word)
    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(shell: str) -> None:
    """The script is for the installed command."""
    assert "_TAINT_EVICTION_COMPLETE" in command("completion", shell).output


def test_a_value_for_one_verb_breaks_no_other() -> None:
    """A verb whose flag of the same name has other values does not read them from the environment."""
    result = command("status", "--server", "http://127.0.0.1:1", TAINT_EVICTION_OUTPUT="wide")
    assert result.exit_code == ExitCode.UNREACHABLE


def test_the_help_of_run_is_in_groups_and_names_every_flag_once() -> None:
    """Durations appear as people write them."""
    shown = command("run", "--help").output
    groups = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups[:2] == ["Process:", "Evicting:"]
    assert groups[-2:] == ["Records:", "Other:"]
    flags = [line.split()[0] for line in shown.splitlines() if line.startswith("  --")]
    assert len(flags) == len(set(flags))
    assert {"--kubeconfig", "--breaker-window", "--audit-megabytes"} <= set(flags)
    assert "default: 5m" in " ".join(shown.split())
