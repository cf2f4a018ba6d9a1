"""The command as a whole: its help, with the laboratory and without it, and colours."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taint_eviction.cli import cli
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction_ctl.cli.completion import kubectl_complete

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


def test_flags_of_the_connection_stand_before_the_verb_or_after_it(tmp_path: Path) -> None:
    """Both lines name the kubeconfig that is not there; what stands after the verb wins."""
    absent, other = str(tmp_path / "absent"), str(tmp_path / "other")
    for words in (("--kubeconfig", absent, "status"), ("status", "--kubeconfig", absent)):
        result = command(*words)
        assert (result.exit_code, result.stderr) == (ExitCode.USAGE, f"taint-eviction: no such kubeconfig: {absent}\n")
    assert f": {absent}\n" in command("--kubeconfig", other, "breaker", "--kubeconfig", absent).stderr
    assert f": {absent}\n" in command("--kubeconfig", absent, "breaker", "reset", "--yes").stderr
    assert f": {absent}\n" in command("breaker", "--kubeconfig", absent, "reset", "--yes").stderr


def test_a_flag_before_a_verb_that_does_not_have_it_is_refused() -> None:
    """It is never ignored: who names a cluster means it."""
    result = command("--context", "production", "version")
    assert result.exit_code == ExitCode.USAGE
    assert "No such option '--context'" in result.stderr
    for flag, said in {"--namespace": "No such option '--namespace'", "--output": "--output does not go with"}.items():
        result = command("breaker", flag, "json", "reset")
        assert (result.exit_code, said in result.stderr) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("verb", ["status", "breaker", "breaker reset", "plan", "doctor", "hand-back"])
def test_help_has_the_flags_of_the_connection_in_one_place(verb: str) -> None:
    """They come last, in a section of their own."""
    own, of_connection = command(*verb.split(), "--help").output.split("Connection (before the verb or after it):\n")
    flags = {word.rstrip(",") for line in of_connection.splitlines() for word in line.split() if word.startswith("--")}
    assert {"--kubeconfig", "--context", "--lease-namespace", "--lease-name"} <= flags
    assert not [flag for flag in flags - {"--namespace"} if f" {flag} " in own.partition("\nOptions:\n")[2]]


TWO_CONTEXTS = """
apiVersion: v1
kind: Config
contexts: [{name: production, context: {cluster: p}}, {name: probe, context: {cluster: q}}, {name: test, context: {}}]
"""


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return what kubectl reads from ``kubectl_complete-taint_eviction``."""
    monkeypatch.setattr("sys.argv", ["kubectl_complete-taint_eviction", *words])
    kubectl_complete()
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("before", [True, False])
def test_kubectl_completes_contexts(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the verb and after it, from the kubeconfig that the line names or the environment."""
    config = tmp_path / "config"
    config.write_text(TWO_CONTEXTS)
    named = ("--kubeconfig", str(config), "--context", "pro")
    words = named if before else ("status", *named)
    assert completed(monkeypatch, capsys, *words) == ["probe", "production", ":4"]
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert completed(monkeypatch, capsys, "breaker", "reset", "--context", "") == ["probe", "production", "test", ":4"]


def test_kubectl_completes_verbs_flags_and_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line is a directive of Cobra: whether the shell completes files."""
    assert completed(monkeypatch, capsys, "expl") == ["explain\tExplain why a pod leaves, stays or is gone.", ":4"]
    assert completed(monkeypatch, capsys, "status", "--no-h")[0].startswith("--no-headers\t")
    assert completed(monkeypatch, capsys, "status", "-o", "y") == ["yaml", ":4"]
    assert completed(monkeypatch, capsys, "replay", "tests/") == [":0"]
    assert completed(monkeypatch, capsys)[-1] == ":4"


def test_a_cluster_that_does_not_answer_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No error gets into somebody's command line."""
    for words in (("explain", ""), ("status", "-n", ""), ("pause", "node/"), ("--context", "")):
        at = ("--kubeconfig", str(tmp_path / "absent"))
        assert completed(monkeypatch, capsys, *at, *words) == [":4"]
