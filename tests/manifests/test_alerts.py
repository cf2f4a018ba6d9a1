"""Alerts and dashboard: their metrics exist, their texts are complete, and alerts fire when they should."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.manifests.test_kinds import MANIFESTS
from tests.unit.builders import decided, moment, ref

from taint_eviction.core.events import CountdownAdopted, Evicted
from taint_eviction.reporting.metrics import Metrics, Readings
from taint_eviction.settings import Settings

MONITORING = MANIFESTS / "components/monitoring"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (it comes with Debian's package prometheus)"
)

Labels = set[str]


@cache
def rules() -> tuple[dict[str, Any], ...]:
    """Return the alerting rules."""
    document = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text())
    return tuple(rule for group in document["spec"]["groups"] for rule in group["rules"])


@cache
def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads((MONITORING / "taint-eviction-controller.json").read_text())
    return found


@cache
def panels() -> tuple[dict[str, Any], ...]:
    """Return the panels that show something, in their order; the rows have titles alone."""
    return tuple(panel for panel in dashboard()["panels"] if panel["type"] != "row")


def expressions() -> list[tuple[str, str]]:
    """Return every expression of rules and dashboard, with the name of its place."""
    in_rules = [(rule["alert"], rule["expr"]) for rule in rules()]
    in_panels = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    annotations = [(each["name"], each["expr"]) for each in dashboard()["annotations"]["list"]]
    queries = [(variable["name"], variable["query"]["query"]) for variable in dashboard()["templating"]["list"][1:]]
    return in_rules + in_panels + annotations + queries


@cache
def measured() -> dict[str, Labels]:
    """Return the names of all series in /metrics with their labels, once everything has happened at least once."""
    metrics = Metrics("0.1.0", Settings(metrics_by_namespace=True))
    metrics.read_from(
        Readings(
            pending=lambda: 3,
            retrying=lambda: 1,
            longest_blocked_seconds=lambda: 0.5,
            synced=lambda: True,
            watch_ages=lambda: {"nodes": 1.0, "pods": 2.0},
            clock_offset_seconds=lambda: 0.1,
            clock_disagreement_seconds=lambda: 0.1,
            leading=lambda: True,
            due=lambda: 4,
            blocked=lambda: {"budget": 1},
            waiting=lambda: {"paused": 5},
            tainted_nodes=lambda: 9,
            eviction_loops=lambda: 2,
            breaker_open=lambda: True,
            newly_tainted=lambda: {"others": 6},
            pauses=lambda: {"whole": 1, "node": 2, "namespace": 0},
            orders_age_seconds=lambda: 1.5,
            breaker_unwritten_seconds=lambda: 2.5,
            policy_invalid=lambda: False,
            ready_out_of_service=lambda: 1,
            adopted=lambda: 1,
            adoption_refused=lambda: 1,
            not_given_back=lambda: 1,
            lost_notes=lambda: 1,
            adoption_policy_unconfirmed=lambda: 1,
            admission_policy_missing=lambda: 1,
            history_unkept_seconds=lambda: 1.0,
            credential_failures=lambda: 3,
            certificate_ends=lambda: {"client": 2e9},
        )
    )
    decision = decided(key="maintenance")
    for event in (Evicted(ref(), "n1", decision, 0.1), CountdownAdopted(ref(), "n1", 1)):
        metrics.report(event, moment(0.0))
    metrics.policy_read("rejected")
    metrics.called("delete", "pods", "200")
    metrics.malformed("pods")
    metrics.event("posted")
    metrics.history_written("failed")
    metrics.loop_lagged(0.001)
    metrics.compared("same")
    series: dict[str, Labels] = {}
    for line in metrics.render().decode().splitlines():
        if line and not line.startswith("#"):
            found = re.match(r"([a-z_]+)(?:\{(.*)\})? ", line)
            assert found, line
            series.setdefault(found[1], set()).update(re.findall(r'(\w+)="', found[2] or ""))
    return series


# What Prometheus adds to every series it scrapes, by the PodMonitor and by external labels.
_ADDED = {"job", "instance", "namespace", "cluster"}
_OF_KUBE_STATE_METRICS = {
    "kube_pod_tolerations": {"toleration_seconds"},
    "kube_pod_info": {"node", "uid"},
    "kube_pod_deletion_timestamp": {"uid"},
    "kube_node_status_condition": {"node", "condition", "status"},
}
_NAME = re.compile(r"\b(?:taint_eviction_controller|leader_election|kube)_\w+")


@pytest.mark.parametrize(("place", "expression"), expressions(), ids=lambda value: str(value)[:40])
def test_expressions_use_metrics_and_labels_that_exist(place: str, expression: str) -> None:
    """Every metric in an expression is in /metrics, and so is every label that it selects or groups by."""
    names = _NAME.findall(expression)
    assert names, place
    series = measured() | _OF_KUBE_STATE_METRICS
    assert set(names) <= series.keys()
    known = set.union(*(series[name] for name in names)) | _ADDED
    selected = re.findall(r'(\w+)\s*[=!]~?\s*"', expression)
    grouped = [
        label for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in re.findall(r"\w+", labels)
    ]
    assert {*selected, *grouped} <= known


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_texts_name_labels_that_the_alert_has(rule: dict[str, Any]) -> None:
    """A text does not use a label that the expression aggregates away."""
    texts = rule["annotations"]["summary"] + rule["annotations"]["description"]
    wanted = set(re.findall(r"\$labels\.(\w+)", texts))
    if grouped := re.findall(r"by \(([^)]*)\)", rule["expr"]):
        assert wanted <= set.intersection(*(set(re.findall(r"\w+", labels)) for labels in grouped))
    elif wanted:
        [name] = _NAME.findall(rule["expr"])
        assert wanted <= measured()[name] | _ADDED


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_every_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(rule: dict[str, Any]) -> None:
    """The link leads to the runbook's page, as mkdocs writes it, and to the heading that is the alert's name."""
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert all(text.endswith((".", "?")) for name, text in rule["annotations"].items() if name != "runbook_url")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == "https://site.invalid/runbook.html"
    headings = re.findall(r"^#+ (\S+)$", (MANIFESTS.parent / "docs/runbook.md").read_text(), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()


def test_every_entry_of_the_runbook_is_an_alert() -> None:
    """The runbook explains all alerts in their order, and nothing else."""
    headings = re.findall(r"^## (TaintEviction\w+)$", (MANIFESTS.parent / "docs/runbook.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]


def test_service_levels_are_the_alerts_own_expressions() -> None:
    """The page says what is measured, and names every alert with its severity."""
    page = (MANIFESTS.parent / "docs/tasks/alerts.md").read_text()
    blocks = {block.strip() for block in re.findall(r"```promql\n(.*?)```", page, re.DOTALL)}
    assert len(blocks) == 4
    assert blocks <= {rule["expr"].strip() for rule in rules()}
    rows = re.findall(r"^\| .* \| (critical|warning) \| (.*) \|$", page, re.MULTILINE)
    said = {alert: severity for severity, alerts in rows for alert in re.findall(r"\[(\w+)\]", alerts)}
    assert said == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}


def test_the_page_puts_an_address_into_every_link_to_the_runbook() -> None:
    """The sed command on the page matches every link, as the annotations are written."""
    [pattern] = re.findall(r"sed 's\|(.*?)\|", (MANIFESTS.parent / "docs/tasks/alerts.md").read_text())
    assert (MONITORING / "prometheus-rule.yaml").read_text().count(f"runbook_url: {pattern}") == len(rules())


# Metrics that no panel shows, and why.
NOT_SHOWN = {
    "taint_eviction_controller_pod_deletions_total": "Kubernetes' own name for attempts_total{outcome=evicted}",
    "taint_eviction_controller_pod_deletion_duration_seconds": "Kubernetes' own name for lateness_seconds",
    "taint_eviction_controller_certificate_end_timestamp_seconds": "most certificates are renewed; `status` warns",
    "taint_eviction_controller_adoption_not_given_back_pods": "its alert is TaintEvictionNotGivenBack",
    "taint_eviction_controller_adoption_lost_notes_pods": "its alert is TaintEvictionNotGivenBack",
    "taint_eviction_controller_admission_policy_missing": "its alert is TaintEvictionAdmissionPolicyGone",
    "taint_eviction_controller_history_writes_total": "what matters of it is that they fail: `status` says so",
    "taint_eviction_controller_history_unkept_seconds": "evictions go on without it; `status` and the log say so",
    "taint_eviction_controller_adoption_policy_unconfirmed": "its alert is TaintEvictionAdoptionPolicy",
}


def test_every_metric_is_shown_or_is_left_out_for_a_reason() -> None:
    """A new metric goes into a panel, or into the list above."""
    shown = {re.sub(r"_bucket$", "", name) for panel in panels() for name in _names(panel)}
    known = {re.sub(r"_(bucket|count|sum)$", "", name) for name in measured()}
    assert shown | NOT_SHOWN.keys() == known
    assert not shown & NOT_SHOWN.keys()


def test_the_dashboard_can_be_narrowed_to_one_cluster_and_namespace() -> None:
    """Every series in it is chosen by these variables; one metric's own label ``namespace`` is that of pods."""
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names == ["datasource", "cluster", "namespace", "job"]
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    for expression in (*shown, *(each["expr"] for each in dashboard()["annotations"]["list"])):
        for series in re.findall(r"\w+\{[^}]*\}", expression):
            own = "" if "by_namespace" in series else 'namespace=~"$namespace",'
            assert f'{{cluster=~"$cluster",{own}job=~"$job"' in series
            assert len(re.findall(rf"{_NAME.pattern}", expression)) == len(re.findall(r"\$cluster", expression))


def test_the_dashboard_answers_four_questions_in_rows() -> None:
    """The state comes first; annotations mark in all panels when the breaker was open or evictions were paused."""
    titles = [(panel["type"] == "row", panel["title"]) for panel in dashboard()["panels"]]
    assert [title for is_row, title in titles if is_row] == ["Is it well", "What goes on", "What is held", "API"]
    assert {
        "Lateness: half within",
        "Lateness: 99 of 100 within",
        "Tainted nodes",
        "Evictions by taint key",
        "Evictions by namespace",
    } <= {t for _, t in titles}
    assert [each["name"] for each in dashboard()["annotations"]["list"]] == ["Circuit breaker", "Pauses"]


def _names(panel: dict[str, Any]) -> list[str]:
    return [name for target in panel["targets"] for name in _NAME.findall(target["expr"])]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_legends_name_labels_that_the_series_have(panel: dict[str, Any]) -> None:
    """A legend does not use a label that the expression aggregates away."""
    for target in panel["targets"]:
        known = set.union(*(measured()[name] for name in _NAME.findall(target["expr"]))) | _ADDED
        if grouped := re.findall(r"by \(([^)]*)\)", target["expr"]):
            known = set(re.findall(r"\w+", grouped[0]))
        elif re.match(r"sum|max", target["expr"]):
            known = set()
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known


def test_panels_neither_overlap_nor_leave_the_grid() -> None:
    """Each panel has an id of its own and a place of its own among 24 columns."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_dashboard_asks_the_data_source_that_is_chosen() -> None:
    """No panel is tied to somebody's own data source."""
    parts = [*dashboard()["annotations"]["list"], *panels()]
    for part in [*parts, *(target for panel in panels() for target in panel["targets"])]:
        assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


# ---- promtool


def as_grafana_asks(expression: str) -> str:
    """Replace Grafana's variables by values."""
    variables = {
        **dict.fromkeys(("$cluster", "$namespace", "$job"), ".*"),
        **{"$__rate_interval": "1m", "$__range": "3h"},
    }
    return re.sub(r"\$\w+", lambda name: variables[name[0]], expression)


def promtool(*arguments: str) -> None:
    """Run promtool, which must succeed."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def write_rules(directory: Path, found: list[dict[str, Any]]) -> Path:
    """Write a rule file as the Prometheus operator would."""
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "taint-eviction-controller", "rules": found}]}))
    return path


@needs_promtool
def test_prometheus_reads_the_file_of_rules_for_itself() -> None:
    """It has the same alerts, and needs no operator."""
    path = MONITORING / "taint-eviction.rules.yaml"
    promtool("check", "rules", str(path))
    assert [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]] == list(rules())


@needs_promtool
def test_prometheus_reads_the_rules(tmp_path: Path) -> None:
    """Prometheus' own parser accepts expressions, durations and templates."""
    promtool("check", "rules", str(write_rules(tmp_path, list(rules()))))


@needs_promtool
def test_prometheus_reads_the_dashboards_expressions(tmp_path: Path) -> None:
    """Once Grafana has put in its variables, Prometheus' own parser accepts every expression."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    asked += [each["expr"] for each in dashboard()["annotations"]["list"]]
    found = [{"record": "panel", "expr": as_grafana_asks(expression)} for expression in asked]
    promtool("check", "rules", str(write_rules(tmp_path, found)))


JOB = 'job="taint-eviction-controller"'
LEADER = 'leader_election_master_status{name="taint-eviction-controller",' + JOB
PREFIX = "taint_eviction_controller_"


def calls(code: int | str, values: str) -> dict[str, str]:
    """Return a series of API calls answered with this code."""
    return {f'{PREFIX}api_calls_total{{{JOB},verb="delete",resource="pods",code="{code}"}}': values}


def buckets(metric: str, **counts: str) -> dict[str, str]:
    """Return the series of a histogram: upper bounds written as le_0_5, and +Inf as le_inf."""
    bounds = {name: name.removeprefix("le_").replace("_", ".").replace("inf", "+Inf") for name in counts}
    labels = f'{JOB},instance="a"'
    return {f'{PREFIX}{metric}_bucket{{{labels},le="{bounds[name]}"}}': values for name, values in counts.items()}


def replica(metric: str, instance: str, **labels: str) -> str:
    """Name the series of one replica."""
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f'{PREFIX}{metric}{{{JOB},instance="{instance}"{more}}}'


def leads(**labels: str) -> str:
    """Name the series by which a replica says whether it leads, in the cluster a unless the labels say otherwise."""
    own = {"name": "taint-eviction-controller", "cluster": "a", "namespace": "kube-system", "instance": "a"} | labels
    selected = ",".join(f'{key}="{value}"' for key, value in own.items())
    return f"leader_election_master_status{{{selected}}}"


# One Prometheus with two clusters, each with a leader, and with other controllers that elect leaders.
STRANGERS = {
    leads(): "1x60",
    leads(instance="b"): "0x60",
    leads(cluster="b", namespace="third"): "1x60",
    leads(cluster="b", namespace="third", instance="b"): "0x60",
    leads(name="cert-manager-controller", namespace="cert-manager"): "1x60",
    leads(name="cert-manager-controller", namespace="cert-manager-two", instance="b"): "1x60",
    leads(name="cert-manager-controller", namespace="cert-manager", instance="c"): "1x60",
    leads(name="kube-controller-manager", cluster="b"): "1x60",
}


def dead_pod(metric: str, uid: str, node: str = "lost") -> str:
    """Name a series of kube-state-metrics about a pod, with its node where the metric has that."""
    more = f',node="{node}"' if node else ""
    return f'kube_pod_{metric}{{uid="{uid}",cluster="a"{more}}}'


def ready(node: str, cluster: str = "a") -> str:
    """Name the series that says whether a node is Ready."""
    return f'kube_node_status_condition{{node="{node}",cluster="{cluster}",condition="Ready",status="true"}}'


# Two pods whose grace period ended after half a minute, one of them on a node that is Ready, as is the lost node's
# namesake in another cluster.
DEAD_NODE = {
    dead_pod("info", "db"): "1x60",
    dead_pod("deletion_timestamp", "db", ""): "30x60",
    dead_pod("info", "web", "well"): "1x60",
    dead_pod("deletion_timestamp", "web", ""): "30x60",
    ready("lost"): "0x60",
    ready("lost", "b"): "1x60",
    ready("well"): "1x60",
}


# By alert: series at minute 0, 1, 2, …; the minute at which the alert fires. It does not fire in the minute before.
FIRES: dict[str, list[tuple[dict[str, str], int]]] = {
    "TaintEvictionNoLeader": [
        ({}, 1),
        ({LEADER + ',instance="a"}': "1x3 0x9", LEADER + ',instance="b"}': "0x12"}, 5),
        # The leader of a dry run does not count.
        ({'leader_election_master_status{name="taint-eviction-controller-dry-run",job="d"}': "1x9"}, 1),
        # Neither does a leader in another cluster, in another namespace, or of another controller; nor a former one.
        (STRANGERS | {leads(cluster="b"): "1x3 0x9"}, 5),
        (STRANGERS | {leads(cluster="b"): "1x3 stale"}, 5),
        (STRANGERS | {leads(namespace="other"): "1x3 0x9"}, 5),
        (STRANGERS | {leads(name="prefix-taint-eviction-controller"): "1x3 stale"}, 5),
    ],
    "TaintEvictionTwoLeaders": [
        ({LEADER + ',instance="a"}': "1x9", LEADER + ',instance="b"}': "0 0 1x9"}, 3),
        (STRANGERS | {leads(cluster="b", instance="a"): "1x9", leads(cluster="b", instance="b"): "0 0 1x9"}, 3),
    ],
    "TaintEvictionBreakerOpen": [
        ({replica("breaker_open", "a"): "0x3 1x9", replica("breaker_open", "b"): "0x5 1x7"}, 4),
        # A dry run in another cluster hides nothing.
        (
            {
                replica("breaker_open", "a", cluster="a"): "0x3 1x9",
                replica("build_info", "a", cluster="b", dry_run="true"): "1x12",
            },
            4,
        ),
    ],
    "TaintEvictionPaused": [({replica("pauses", "a", scope="node"): "0 1x30 2x40"}, 61)],
    "TaintEvictionOrdersUnreadable": [({replica("orders_age_seconds", "a"): "0 60 120"}, 2)],
    "TaintEvictionBreakerUnwritten": [({replica("breaker_unwritten_seconds", "a"): "0 0 60 120"}, 3)],
    "TaintEvictionPolicyRejected": [({replica("policy_invalid", "a"): "0 1x9"}, 2)],
    "TaintEvictionAdoptionRefused": [({replica("adoption_refused_pods", "a"): "0 1x9"}, 3)],
    "TaintEvictionNotGivenBack": [
        ({replica("adoption_not_given_back_pods", "a"): "0 1x19", replica("adoption_lost_notes_pods", "a"): "0x20"}, 11)
    ],
    "TaintEvictionAdoptionPolicy": [({replica("adoption_policy_unconfirmed", "a"): "0 1x9"}, 6)],
    "TaintEvictionAdmissionPolicyGone": [
        ({replica("admission_policy_missing", "a"): "0x19 1x30", replica("admission_policy_missing", "b"): "0x50"}, 30)
    ],
    "TaintEvictionMarksLeft": [
        (
            {
                'kube_pod_tolerations{toleration_seconds="9223372036854775807",pod="web"}': "1x40",
                LEADER + ',instance="a"}': "1x9 stale",
            },
            25,
        ),
        # A leader in another cluster gives nothing back here.
        (
            STRANGERS
            | {
                'kube_pod_tolerations{toleration_seconds="9223372036854775807",pod="web",cluster="c"}': "1x40",
                leads(cluster="c"): "1x9 stale",
            },
            25,
        ),
    ],
    "TaintEvictionStuckTerminating": [
        (DEAD_NODE, 17),
        # On a node that is Ready another cause holds the pod, and a pod that ends in time is not counted.
        (DEAD_NODE | {dead_pod("deletion_timestamp", "fresh", ""): "1170x60", dead_pod("info", "fresh"): "1x60"}, 17),
    ],
    "TaintEvictionNoStandby": [
        ({LEADER + ',instance="a"}': "1x60", LEADER + ',instance="b"}': "0x20 stale"}, 34),
        # The replica crashes again and again, and is seen in one minute of five.
        ({LEADER + ',instance="a"}': "1x40", LEADER + ',instance="b"}': "0 " + "stale _ _ _ 0 " * 8}, 7),
    ],
    "TaintEvictionNotSynced": [({f'{PREFIX}synced{{{JOB},instance="a"}}': "1 0x9"}, 6)],
    "TaintEvictionStaleWatch": [
        ({f'{PREFIX}watch_age_seconds{{{JOB},instance="a",kind="nodes"}}': "60 120 180 240 300 360"}, 5)
    ],
    "TaintEvictionLag": [(buckets("lateness_seconds", le_10="0x20", le_30="0+60x20", le_inf="0+60x20"), 6)],
    "TaintEvictionLimited": [
        (
            {
                replica("waiting_evictions", "a", reason="limited"): "0 40x20",
                replica("attempts_total", "a", outcome="evicted"): "0+60x20",
            }
            | buckets("limiter_wait_seconds", le_300="0x20", le_1800="0+60x20", le_inf="0+60x20"),
            11,
        ),
        # Nothing is attempted any more, so that no wait is measured either.
        (
            {
                replica("waiting_evictions", "a", reason="limited"): "0x9 40x30",
                replica("attempts_total", "a", outcome="evicted"): "0+60x9 540x30",
            },
            29,
        ),
    ],
    "TaintEvictionBlocked": [({f"{PREFIX}longest_blocked_seconds{{{JOB}}}": "0+60x20"}, 7)],
    "TaintEvictionLoop": [({replica("eviction_loops", "a"): "0x3 1x9", replica("eviction_loops", "b"): "0x12"}, 4)],
    "TaintEvictionApiErrors": [(calls(200, "0+60x30") | calls(500, "0+30x30"), 11)],
    "TaintEvictionEventLoopLag": [
        (buckets("event_loop_lag_seconds", le_1="0x30", le_2_5="0+60x30", le_inf="0+60x30"), 11)
    ],
    "TaintEvictionReadyOutOfService": [({replica("ready_out_of_service_nodes", "a"): "0 1x40"}, 31)],
    "TaintEvictionBuiltInActive": [({f'{PREFIX}builtin_active_total{{{JOB},instance="a"}}': "0x5 1x10"}, 6)],
    "TaintEvictionClockOffset": [({f'{PREFIX}clock_offset_seconds{{{JOB},instance="a"}}': "-3x20"}, 10)],
    "TaintEvictionClocksDisagree": [({f'{PREFIX}clock_disagreement_seconds{{{JOB},instance="a"}}': "0x5 3600x25"}, 21)],
}

# By alert that looks back: series whose fault ends at minute 30; the last minute at which it fires.
ENDS: dict[str, tuple[dict[str, str], int]] = {
    "TaintEvictionNoLeader": ({leads(): "1x5 stale", leads(instance="b"): "0x30 1x30"}, 30),
    "TaintEvictionNoStandby": (
        {LEADER + ',instance="a"}': "1x60", LEADER + ',instance="b"}': "0 stale " + "_x27 0x30"},
        35,
    ),
    "TaintEvictionLag": (
        buckets("lateness_seconds", le_10="0x30 0+60x30", le_30="0+60x60", le_inf="0+60x60"),
        40,
    ),
    "TaintEvictionLimited": (
        {
            replica("waiting_evictions", "a", reason="limited"): "40x30 stale",
            replica("attempts_total", "a", outcome="evicted"): "0+60x60",
        }
        | buckets("limiter_wait_seconds", le_300="0x60", le_1800="0+60x60", le_inf="0+60x60"),
        30,
    ),
    "TaintEvictionApiErrors": (calls(200, "0+60x60") | calls(500, "0+30x30 900x30"), 32),
    "TaintEvictionEventLoopLag": (
        buckets("event_loop_lag_seconds", le_1="0x30 0+60x30", le_2_5="0+60x60", le_inf="0+60x60"),
        35,
    ),
    "TaintEvictionAdmissionPolicyGone": ({replica("admission_policy_missing", "a"): "0x15 1x14 0x30"}, 30),
    "TaintEvictionBuiltInActive": ({f'{PREFIX}builtin_active_total{{{JOB},instance="a"}}': "0+1x30 30x30"}, 44),
}

# Series with which no alert ever fires.
CALM: list[dict[str, str]] = [
    STRANGERS,
    {
        LEADER + ',instance="a"}': "1x5 0x40",
        LEADER + ',instance="b"}': "0x5 1x40",  # a takeover between two scrapes
        f'{PREFIX}synced{{{JOB},instance="a"}}': "0x3 1x40",
        f'{PREFIX}watch_age_seconds{{{JOB},instance="a",kind="nodes"}}': "170x45",
        f"{PREFIX}longest_blocked_seconds{{{JOB}}}": "0 60 120 180 240 0x40",
        f'{PREFIX}clock_offset_seconds{{{JOB},instance="a"}}': "1.9x45",
        f'{PREFIX}clock_disagreement_seconds{{{JOB},instance="a"}}': "1.9x20 60x12 0.9x13",  # one late answer
        replica("breaker_open", "a"): "0x45",
        replica("eviction_loops", "a"): "0x45",
        replica("pauses", "a", scope="namespace"): "1x40 0x5",
        replica("orders_age_seconds", "a"): "2x45",
        replica("breaker_unwritten_seconds", "a"): "0 20 0x43",
        replica("policy_invalid", "a"): "0x45",
        replica("admission_policy_missing", "a"): "0 1x44",  # it was left out
        replica("admission_policy_missing", "a", cluster="b"): "0x20 1x9 0x15",  # somebody applied it again
        replica("ready_out_of_service_nodes", "a"): "2x20 0x5 1x20",  # somebody removes the taint in time
        replica("waiting_evictions", "a", reason="limited"): "1x45",  # never the same pod
        replica("attempts_total", "a", outcome="evicted"): "0+60x45",
    }
    | buckets("limiter_wait_seconds", le_2_5="0+60x45", le_inf="0+60x45")
    | calls(200, "0+10x45")
    | calls(409, "0+50x45")  # somebody else was faster, however often
    | calls("held", "0+50x45")  # a pause came while the call was prepared
    | buckets("lateness_seconds", le_0_5="0+60x45", le_inf="0+60x45")
    | buckets("event_loop_lag_seconds", le_0_5="0+60x45", le_inf="0+60x45"),
    {
        # A dry run beside the built-in controller, as it should be, though its breaker would have opened.
        f'{PREFIX}builtin_active_total{{job="d",instance="d"}}': "0+1x45",
        f'{PREFIX}build_info{{job="d",instance="d",dry_run="true"}}': "1x45",
        f'{PREFIX}breaker_open{{job="d",instance="d"}}': "1x45",
        LEADER + ',instance="a"}': "1x45",
        LEADER + ',instance="b"}': "0x20 stale _x4 0x20",  # a rollout whose new replica starts slowly
    },
    {
        # All pods go that a pause has held for half an hour.
        LEADER + ',instance="a"}': "1x45",
        LEADER + ',instance="b"}': "0x45",
        replica("pauses", "a", scope="whole"): "1x30 0x15",
        replica("waiting_evictions", "a", reason="paused"): "500x30 stale",
        replica("waiting_evictions", "a", reason="limited"): "_x30 100x2 0x13",
        replica("attempts_total", "a", outcome="evicted"): "0x30 400 500x14",
    }
    | buckets("limiter_wait_seconds", le_300="0x45", le_1800="0x30 400 500x14", le_inf="0x30 400 500x14"),
]


def alert_tests() -> list[dict[str, Any]]:
    """Write the tables above as promtool's tests of rules."""
    tests = []
    for alert, cases in FIRES.items():
        for series, minute in cases:
            tests.append(_one_test(series, [(alert, minute - 1, False), (alert, minute, True)]))
    tests += [
        _one_test(series, [(alert, last, True), (alert, last + 1, False)]) for alert, (series, last) in ENDS.items()
    ]
    tests += [_one_test(series, [(alert, minute, False) for alert in FIRES for minute in range(45)]) for series in CALM]
    return tests


def _one_test(series: dict[str, str], moments: list[tuple[str, int, bool]]) -> dict[str, Any]:
    # promtool wants all labels of an alert that fires; a count by alertname says the same without them.
    conditions = [
        {
            "eval_time": f"{minute}m",
            "expr": f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
            "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else [],
        }
        for alert, minute, fires in moments
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": conditions}


def test_every_alert_is_tried() -> None:
    """Each alert has a case in which it fires; an alert that looks back also has a case in which it ends."""
    assert FIRES.keys() == {rule["alert"] for rule in rules()}
    assert ENDS.keys() == {rule["alert"] for rule in rules() if "[" in rule["expr"]}


@needs_promtool
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    """Each alert fires at its minute, not before, and ends soon after its fault; none fires while all is well."""
    write_rules(tmp_path, list(rules()))
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": alert_tests()}
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(path))


@needs_promtool
def test_the_first_evictions_of_a_taint_key_are_shown(tmp_path: Path) -> None:
    """A key has no series before its first storm, so that rate() and increase() would not see it; a restart shows 0."""
    [panel] = [panel for panel in panels() if panel["title"] == "Evictions by taint key"]
    series = f'{PREFIX}evictions_by_taint_total{{{JOB},instance="a",key="k1"}}'
    conditions = [
        {
            "eval_time": f"{minute}m",
            "expr": as_grafana_asks(panel["targets"][0]["expr"]),
            "exp_samples": [{"labels": '{key="k1"}', "value": value}],
        }
        for minute, value in {2: 400, 3: 0, 4: 7, 5: 0}.items()
    ]
    inputs = [{"series": series, "values": "_ _ 400 400 407 3"}]
    tests = {"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": conditions}]}
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(path))
