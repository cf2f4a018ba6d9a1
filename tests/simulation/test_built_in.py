"""The model of the built-in controller has the faults that were measured or read in the real one."""

import asyncio
from pathlib import Path

import pytest

from taint_eviction.core.objects import NamespacedName, Pod, PodRef
from taint_eviction_lab.built_in.pod_deletion import PodDeletion
from taint_eviction_lab.built_in.version import BuiltInVersion, read_version
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.simulation.timeline import What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import replay_scenario

FOLDER = Path(__file__).parent.parent / "built_in"
FILES = sorted(FOLDER.glob("*.yaml"))
WEB = NamespacedName("default", "web-0")


def play(settings: str, timeline: str, tolerations: str = "") -> ReplayResult:
    """Play a scenario with one pod, web-0 on node-1."""
    pod = f"{{name: web-0, nodeName: node-1, tolerations: [{tolerations}]}}"
    given = f"about: x\nsettings: {{{settings}}}\ngiven: {{nodes: [node-1], pods: [{pod}]}}"
    text = f"{given}\ntimeline:\n{timeline}\nexpect: {{}}\n"
    return replay_scenario(read_scenario(text, "test.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_model_meets_the_expectations_of_its_file(file: Path) -> None:
    """The model does what each file of ``tests/built_in`` expects."""
    result = replay_scenario(read_scenario(file.read_text(encoding="utf-8"), file.name))
    broken = [f"{verdict.pod}: expected {verdict.expected}, seen {verdict.seen}" for verdict in result.broken]
    timeline = [f"{entry.at:.3f} {entry.what.value} {entry.subject} {entry.why}" for entry in result.timeline]
    assert not broken, "\n".join([*broken, *timeline])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_fault_names_its_source(file: Path) -> None:
    """Each file says where its fault was measured or read, and the table in the README lists the file."""
    about = read_scenario(file.read_text(encoding="utf-8"), file.name).about
    assert "Measured on 1.3" in about or "Read in " in about
    assert f"({file.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_events_say_cancelling_right_before_a_deletion() -> None:
    """If a taint that is not tolerated joins a tolerated one, the timer is cancelled before the deletion (measured)."""
    taints = "  - {at: 1, taint: 'node-1 a:NoExecute'}\n  - {at: 5, taint: 'node-1 b:NoExecute'}"
    result = play('builtIn: {version: "1.36", alone: true}', taints, "a for 30")
    texts = [
        (round(entry.at), entry.why.partition(": ")[2])
        for entry in result.timeline
        if entry.what is What.BUILT_IN_EVENT
    ]
    assert texts == [
        (5, "Cancelling deletion of Pod default/web-0"),
        (5, "Marking for deletion Pod default/web-0"),
    ]


def test_events_name_no_uid() -> None:
    """Events of the model name no UID (measured), so they cannot be found by their pod."""
    result = play('builtIn: {version: "1.36", alone: true}', "  - {at: 1, taint: 'node-1 a:NoExecute'}")
    assert {entry.uid for entry in result.timeline if entry.what is What.BUILT_IN_EVENT} == {""}


class _Willing:
    async def get(self, key: NamespacedName) -> Pod:
        return Pod(PodRef(key, "1"))

    async def mark(self, pod: Pod) -> None:
        return None

    async def delete(self, key: NamespacedName) -> None:
        await asyncio.sleep(2.0)


class _Silent:
    def armed(self, key: NamespacedName, fire_at: float) -> None:
        return None

    def cancelled(self, key: NamespacedName) -> None:
        return None

    def gave_up(self, key: NamespacedName, why: str) -> None:
        return None

    def event(self, key: NamespacedName, message: str) -> None:
        return None


@pytest.mark.parametrize(
    ("version", "late", "observed"),
    [("1.36", 2.0, 2e18), ("1.37", 30.0, -6893488147419103232.0), ("1.38", 2.0, 2.0)],
)
def test_duration_metric_is_no_duration_before_1_38(version: str, late: float, observed: float) -> None:
    """The metric is nanoseconds times 10⁹, which overflows 64 bits beyond 9.2 s (read in deletePodHandler, #141311)."""

    async def measure() -> list[float]:
        deletion = PodDeletion(read_version(version), _Willing(), _Silent())
        await deletion.delete(WEB, asyncio.get_running_loop().time() + 2.0 - late)
        return deletion.durations

    assert run_virtually(measure()) == [observed]


def test_only_modelled_versions_are_read() -> None:
    """Versions 1.32 to 1.38 are modelled; any other text is refused with a message that names this range."""
    assert read_version("1.36") == BuiltInVersion(36)
    for text in ("1.31", "1.39", "1.3", "36", "v1.36", ""):
        with pytest.raises(ValueError, match=r"from 1\.32 to 1\.38"):
            read_version(text)


def test_both_in_one_cluster_evict_a_pod_once() -> None:
    """If both controllers run, the pod is evicted once, and at most one DELETE comes from the built-in controller."""
    both = play('builtIn: "1.36"', "  - {at: 1, taint: 'node-1 a:NoExecute'}")
    deletes = [entry.why for entry in both.timeline if entry.what in (What.EVICTED, What.DELETE_MISSED)]
    assert len([why for why in deletes if why.endswith(", by the built-in controller")]) <= 1
    assert len([entry for entry in both.timeline if entry.what is What.EVICTED]) == 1


@pytest.mark.parametrize(("by_built_in", "broken"), [("11", 0), ("[]", 1), ("20", 1)])
def test_an_expectation_says_which_of_the_two_evicts(by_built_in: str, broken: int) -> None:
    """While this controller is frozen, the built-in one evicts the pod, and ``evictedByBuiltIn`` expects that."""
    text = f"""
about: x
settings: {{builtIn: "1.36"}}
given: {{nodes: [node-1], pods: [{{name: web-0, nodeName: node-1, tolerations: [a for 10]}}]}}
timeline:
  - {{at: 0.5, freeze: {{for: 1m}}}}
  - {{at: 1, taint: "node-1 a:NoExecute"}}
expect:
  web-0: {{evicted: 11, evictedByBuiltIn: {by_built_in}}}
"""
    assert len(replay_scenario(read_scenario(text, "test.yaml")).broken) == broken


def test_a_restart_of_the_built_in_controller_does_not_affect_this_one() -> None:
    """A restart of kube-controller-manager starts its countdowns anew; this controller evicts at the deadline."""
    steps = "  - {at: 1, taint: 'node-1 a:NoExecute'}\n  - {at: 8, restart: {replica: built-in}}"
    both = play('builtIn: "1.36"', steps, "a for 10")
    assert [(round(entry.at), entry.why) for entry in both.timeline if entry.what is What.EVICTED] == [
        (11, "from node-1")
    ]
