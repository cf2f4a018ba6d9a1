"""The demo as a picture, from its facts: one cluster below the other."""

from collections.abc import Iterable, Sequence

from taint_eviction_ctl.picture.scene import Bar, Kind, Mark, Picture, PodRow
from taint_eviction_lab.simulation.demo import DemoFact, DemoPod, Side

_MARKS = {
    "due": Kind.SCHEDULED,
    "not due": Kind.CANCELLED,
    "evicted": Kind.EVICTED,
    "refused": Kind.REFUSED,
    "gave up": Kind.REFUSED,
    "recreated": Kind.CREATED,
}


def picture_of_demo(
    facts: Iterable[DemoFact], pods: Sequence[DemoPod], name: str, verdict: Sequence[str] = ()
) -> Picture:
    """Draw the demo: a row for each of the ``pods`` in each cluster; ``name`` is the built-in controller's."""
    told = [fact for fact in facts if fact.at >= 0.0]
    end = max([1.0, *(fact.at for fact in told)])
    picture = Picture("Demo: the same in two clusters", f"Above: {name}. Below: this controller.", -0.3, end + 0.5)
    picture.compares, picture.notes = True, list(verdict)
    clusters = {Side.BUILT_IN: name, Side.OWN: "this controller"}
    picture.bands = {cluster: [] for cluster in clusters.values()}
    rows = {
        (cluster, pod.name): PodRow(pod.name, cluster, "stays", pod.about)
        for cluster in clusters.values()
        for pod in pods
    }
    since: dict[tuple[str, str], tuple[float, str]] = {}
    for fact in told:
        if fact.what == "step" and fact.side is Side.BOTH:
            picture.steps.append(Mark(fact.at, Kind.STEP, fact.text))
        elif fact.side in clusters and fact.pod and (kind := _MARKS.get(fact.what)) is not None:
            key = clusters[fact.side], fact.pod
            row = rows[key]
            row.marks.append(Mark(fact.at, kind, fact.text or fact.what))
            if key in since:
                begin, why = since.pop(key)
                row.bars.append(Bar(begin, fact.at, Kind.COUNTDOWN, why))
            if fact.what == "due":
                since[key] = fact.at, fact.text
            elif fact.what == "evicted":
                row.outcome, row.why, row.left_at = "evicted", fact.text or "evicted by mistake", fact.at
            elif fact.what == "recreated":
                row.outcome, row.left_at = "stays", None
            elif fact.what == "gave up":
                row.why = fact.text
    picture.rows = list(rows.values())
    return picture
