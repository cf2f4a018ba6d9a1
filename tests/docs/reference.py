"""``python -m tests.docs.reference``: writes the pages that are made from the code.

A test compares them with what this would write. The pages about other formats are not made here: those of the policy
file and of scenario files have tests of their own.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from taint_eviction.cli import cli
from taint_eviction.cli.connection import CONNECTION
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction.cli.run import run
from taint_eviction.core.control_state import Latch
from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.events import BreakerClosed, BreakerOpened, Cancelled, Evicted, EvictionLoop
from taint_eviction.core.instants import Moment, TimeSource
from taint_eviction.core.objects import ControllerRef, NamespacedName, PodRef, Taint
from taint_eviction.reporting.metrics import Metrics, Readings
from taint_eviction.reporting.reporters import BreakerEventReporter, EventReporter
from taint_eviction.settings import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"
MONITORING = ROOT / "manifests" / "components" / "monitoring"

MADE = "<!-- Made from the code: `python -m tests.docs.reference` writes this page. -->"


def commands_page() -> str:
    """Return the page of all commands and their flags, with their environment variables."""
    parts = [
        MADE,
        "# Commands and flags",
        "Each flag can also be set by an environment variable, unless the table names none. A flag wins over its"
        " variable."
        " Durations are numbers of seconds (`30`), or have units (`500ms`, `30s`, `5m`, `1h30m`).",
        "`taint-eviction COMMAND --help` shows the same.",
        "## Connection",
        "Which cluster and which controller is meant. These flags, and `-n`, may stand before the verb, too:"
        " `taint-eviction --context production status`. kubectl wants them after `taint-eviction`.",
        _table(_HEADER, [*_connection().values()]),
    ]
    for name, command in verbs():
        context = click.Context(command, info_name=name, auto_envvar_prefix="TAINT_EVICTION")
        parts += [f"## {name}", *_paragraphs(command.help or "")]
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        usage = " ".join([f"taint-eviction {name}", "[OPTIONS]", *(each.make_metavar(context) for each in arguments)])
        parts.append(f"```\n{usage}\n```")
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        rows = {each.opts[0]: _row(each, context) for each in options}
        shared = {name for name, row in _connection().items() if rows.get(name) == row}
        if own := [row for name, row in rows.items() if name not in shared]:
            parts.append(_table(_HEADER, own))
        if shared:
            names = ", ".join(f"`{name}`" for name in rows if name in shared)
            parts.append(f"And of the [connection](#connection): {names}.")
    return "\n\n".join(parts) + "\n"


_HEADER = ("flag", "environment", "default", "meaning")


def _connection() -> dict[str, tuple[str, ...]]:
    """Return the rows of the flags that may stand before the verb, by flag; ``status`` has them all."""
    status = cli.get_command(click.Context(cli), "status")
    assert status is not None
    context = click.Context(status, info_name="status", auto_envvar_prefix="TAINT_EVICTION")
    return {
        each.opts[0]: _row(each, context)
        for each in status.params
        if isinstance(each, click.Option) and each.name in CONNECTION
    }


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their names; ``breaker reset`` is one, and so is ``breaker`` itself."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield name, command
            yield from ((f"{name} {under}", below) for under, below in sorted(command.commands.items()))
        else:
            yield name, command


def _row(option: click.Option, context: click.Context) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    extra = option.get_help_extra(context)
    # A cell of a table cannot have a bar in code.
    metavar = option.make_metavar(context)
    words = metavar.strip("[]").split("|") if isinstance(option.type, click.Choice) else metavar.split("|")
    values = f" `{'` or `'.join(words)}`" if not option.is_flag and option.metavar != "" else ""
    default = extra.get("default", "")
    return (
        names + values,
        " ".join(f"`{name}`" for name in extra.get("envvars", ())),
        default.strip("()") if default.startswith("(") else default and f"`{default}`",
        " ".join((option.help or "").split()),
    )


def metrics_page() -> str:
    """Return the page of all metrics."""
    metrics = Metrics("0", Settings(metrics_by_namespace=True))
    metrics.read_from(_readings())
    rows = []
    # The library has no other way to ask for the labels of a metric without values.
    for collector in metrics.registry._names_to_collectors.values():  # noqa: SLF001
        for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            labels = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            shown = ", ".join(f"`{label}`" for label in labels)
            rows.append((f"`{family.name}{suffix}`", family.type, shown, family.documentation))
    intro = (
        "The controller serves metrics at `/metrics` of `--listen`. Every replica counts its own API calls, watches and"
        " lag; only the leader counts evictions, refusals and cancellations, so sums over all replicas are right. No"
        " label names a pod or a node, and one names namespaces where `--metrics-by-namespace` says so. The first 20"
        " taint keys (and 100 namespaces) that a replica sees have a series of their own, all others share `other`. Two"
        " metrics have the built-in controller's names and buckets: `taint_eviction_controller_pod_deletions_total` and"
        " `taint_eviction_controller_pod_deletion_duration_seconds`, which here counts seconds."
    )
    table = _table(("metric", "type", "labels", "meaning"), sorted(set(rows)))
    return "\n\n".join([MADE, "# Metrics", intro, table]) + "\n"


def _readings() -> Readings:
    numbers: dict[str, Callable[[], Any]] = dict.fromkeys(Readings.__dataclass_fields__, lambda: 0)
    for name in ("watch_ages", "blocked", "waiting", "newly_tainted", "pauses", "certificate_ends"):
        numbers[name] = dict
    return Readings(**numbers)


class _WordedEvents:
    """Keeps what an ``EventRecorder`` would post."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def post(self, ref: PodRef, reason: str, message: str, type: str = "Normal", kind: str = "Pod") -> None:
        self.events.append((reason, type, kind, message))


def events_page() -> str:
    """Return the page of all Kubernetes events, each with an example that the reporters themselves word."""
    listener: Any = _WordedEvents()
    pod, taint = PodRef(NamespacedName("shop", "db-1"), "uid"), Taint("maintenance", "NoExecute", "now")
    verdict = TaintVerdict(taint, None, None, 0.0, TimeSource.FIRST_SIGHT, 0.0)
    now = Moment(0.0, 0.0)
    about_pods = EventReporter(listener, Settings())
    about_pods.report(Evicted(pod, "worker-7", Evict(0.0, verdict, (verdict,)), 0.1), now)
    about_pods.report(Cancelled(pod, "worker-7", StayReason.NODE_CLEAN), now)
    about_pods.report(EvictionLoop(pod, "worker-7", ControllerRef("DaemonSet", "agent", "uid"), taint), now)
    about_all = BreakerEventReporter(listener, NamespacedName("kube-system", "taint-eviction-controller"))
    about_all.report(BreakerOpened(Latch(0.0, "12 of 30 nodes were newly tainted within 300 s")), now)
    about_all.report(BreakerClosed(), now)
    rows = [(f"`{reason}`", type, kind, message) for reason, type, kind, message in listener.events]
    intro = (
        "The leader posts one event for each eviction, after the API server has accepted it, and not one for each"
        " attempt. An event carries the pod's UID, so `kubectl describe pod` shows it. `--no-event-reasons` leaves out"
        " the part after the colon, which names the taint. Each pod has a burst of 25 events, then one in five minutes."
        " The source component is `taint-eviction-controller`, and `reportingInstance` names the replica. Events of"
        " Kubernetes' own controller have the same reason and, since 1.29, the same component, but no UID of the pod."
    )
    table = _table(("reason", "type", "object", "example"), rows)
    return "\n\n".join([MADE, "# Events", intro, table]) + "\n"


def exit_codes_page() -> str:
    """Return the page of exit codes."""
    rows = [(f"`{name}`", _exit_codes(command)) for name, command in verbs() if _exit_codes(command)]
    codes = ", ".join(f"{code.value} ({code.name.lower()})" for code in ExitCode)
    about_all = _exit_codes(cli)
    return (
        "\n\n".join(
            [
                MADE,
                "# Exit codes",
                f"The exit codes are {codes}. For all commands: {about_all}",
                _table(("command", "exit codes"), rows),
            ]
        )
        + "\n"
    )


def chart_page() -> str:
    """Return the page of the chart's values: from its schema, its defaults, and the flags' own help."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    parts = [
        MADE,
        "# Values of the chart",
        "Without values the chart renders `manifests/base`, object by object. It refuses values that it does not know."
        " [Install with Helm](../../docs/install/chart.md) says how to install, upgrade and remove it; `values.yaml`"
        " has an example for each value.",
    ]
    groups = [name for name, at in schema.items() if "properties" in at and not _described(at)]
    rows = []
    for name, at in schema.items():
        if "description" in at:
            rows.append((f"`{name}`", _default(defaults[name]), at["description"]))
        for key, value in at.get("properties", {}).items():
            if "description" in value:
                rows.append((f"`{name}.{key}`", _default(defaults[name].get(key)), value["description"]))
    parts.append(_table(("value", "default", "meaning"), rows))
    parts += [
        "## Flags",
        "Flags of [`taint-eviction run`](../../docs/reference/commands.md#run) are values in groups, in camelCase."
        " A value that is not given leaves the flag's own default.",
    ]
    flags = {option.opts[0]: option for option in run.params if isinstance(option, click.Option)}
    for group in [*(name for name in schema if name in {"breaker", "adoption"}), *groups]:
        keys = sorted(key for key, at in schema[group]["properties"].items() if "description" not in at)
        named = [(key, flags[chart_flag(group, key)]) for key in keys]
        found = [(f"`{group}.{key}`", f"`{each.opts[0]}`", " ".join((each.help or "").split())) for key, each in named]
        parts += [f"### {group}", _table(("value", "flag", "meaning"), found)]
    return "\n\n".join(parts) + "\n"


def rules_file() -> str:
    """Return the alerts as a file that Prometheus reads by itself, without its operator."""
    lines = (MONITORING / "prometheus-rule.yaml").read_text(encoding="utf-8").splitlines()
    begin = lines.index("spec:") + 1
    head = (
        "# The alerts of prometheus-rule.yaml for a Prometheus without its operator, as rule_files has them.",
        "# Made from that file: `python -m tests.docs.reference` writes this one.",
    )
    return "\n".join([*head, *(line.removeprefix("  ") for line in lines[begin:])]) + "\n"


def chart_flag(group: str, key: str) -> str:
    """Return the flag that a value in a group sets."""
    kebab = re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", key)
    prefix = {"breaker": "--breaker", "adoption": "--adopt"}.get(group)
    if prefix is None:
        return f"--{kebab}"
    return prefix if key == "enabled" else f"{prefix}-{kebab}"


def _described(at: Mapping[str, Any]) -> bool:
    return "description" in at or any("description" in each for each in at["properties"].values())


def _default(value: Any) -> str:
    """Return a default as JSON; "" for nothing, and where it is too long for a table."""
    text = json.dumps(value)
    return f"`{text}`" if value not in (None, "", [], {}) and len(text) <= 100 else ""


def _exit_codes(command: click.Command) -> str:
    """Return what a command's help promises after "Exit codes"."""
    for paragraph in _paragraphs(command.help or ""):
        if found := re.match(r"Exit codes(?: of all verbs)?: (.*)", paragraph):
            return found[1]
    return ""


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text as Markdown, those that keep their lines as code."""
    found = []
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent(text).strip()):
        if paragraph.startswith("\b"):
            found.append("```\n" + textwrap.dedent(paragraph.removeprefix("\b\n")) + "\n```")
        else:
            found.append(" ".join(paragraph.split()))
    return found


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, tuple("---" for _ in head), *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


MAKERS = {
    "docs/reference/commands.md": commands_page,
    "docs/reference/events.md": events_page,
    "docs/reference/exit-codes.md": exit_codes_page,
    "docs/reference/metrics.md": metrics_page,
    "manifests/chart/README.md": chart_page,
    "manifests/components/monitoring/taint-eviction.rules.yaml": rules_file,
}

if __name__ == "__main__":
    for name, make in MAKERS.items():
        (ROOT / name).write_text(make(), encoding="utf-8")
