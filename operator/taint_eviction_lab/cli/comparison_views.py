"""The output of ``replay --against``: for each pod, what the built-in controller would have done."""

from collections import Counter

from taint_eviction_ctl.cli.tables import table_lines
from taint_eviction_lab.simulation.against import AgainstModel, Difference, PodComparison

# A longer list names the pods that differ first, and only counts the rest.
_MAX_PODS = 40


def comparison_lines(comparison: AgainstModel, whole: bool) -> list[str]:
    """Return the lines of a comparison; ``whole``: also pods that both treat alike."""
    pods = sorted(comparison.pods, key=lambda pod: not pod.differs) if whole else comparison.differing
    shown = pods[:_MAX_PODS]
    counts = Counter(pod.difference for pod in comparison.pods)
    summary = "; ".join(f"{counts[difference]} {difference.value}" for difference in Difference if counts[difference])
    lines = [f"  against a model of the built-in controller {comparison.version}: {summary or 'no pods'}"]
    if shown:
        rows = [(_name(pod), _when(pod.evicted_at), _when(pod.built_in_at), _words(pod)) for pod in shown]
        lines += [
            f"  {line}"
            for line in table_lines(("POD", "THIS CONTROLLER", "BUILT-IN", "BUILT-IN ONE"), rows, folds=False)
        ]
    if len(pods) > len(shown):
        lines.append(f"    and {len(pods) - len(shown)} more pods")
    lines += [f"    left out there at {entry.at:g}: {entry.subject}: {entry.why}" for entry in comparison.left_out]
    return lines


def _name(pod: PodComparison) -> str:
    return pod.pod if pod.uid.endswith("-1") else f"{pod.pod} [{pod.uid}]"


def _when(at: float | None) -> str:
    return "stays" if at is None else f"evicted {at:.1f}"


def _words(pod: PodComparison) -> str:
    words = pod.difference.value
    if pod.evicted_at is not None and pod.built_in_at is not None and pod.differs:
        words = f"{abs(pod.built_in_at - pod.evicted_at):.1f} s {words}"
    return f"{words}: {pod.why}" if pod.why else words
