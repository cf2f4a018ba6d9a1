"""How many evictions were compared, with which result, and which of them differ: of bounded size."""

from collections import Counter, deque
from dataclasses import dataclass, field

from taint_eviction.shadow.comparison import Comparison, ComparisonResult

# How many differences are kept, the newest; all are counted.
MAX_DIFFERENCES = 1000
# How many writers are told apart among those who were first; any client may have any name.
_MAX_WRITERS = 20


@dataclass(slots=True)
class ComparisonTotals:
    """All comparisons since ``since_epoch``, None before anything was seen.

    ``later``: the least and the most seconds by which the built-in controller was later, None if it never was.
    ``unseen``: evictions here for which the built-in controller's action was not seen. ``first``: how many pods others
    ended before either, by the writer and the reason of the condition, "" where nothing tells it.
    """

    since_epoch: float | None = None
    counts: Counter[ComparisonResult] = field(default_factory=Counter)
    later: tuple[float, float] | None = None
    differences: deque[Comparison] = field(default_factory=lambda: deque(maxlen=MAX_DIFFERENCES))
    unseen: int = 0
    first: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, comparison: Comparison) -> None:
        """Count a comparison, and keep it if both differ."""
        self.counts[comparison.result] += 1
        if comparison.result is ComparisonResult.LATER and comparison.seconds is not None:
            least, most = self.later or (comparison.seconds, comparison.seconds)
            self.later = min(least, comparison.seconds), max(most, comparison.seconds)
        if comparison.result is ComparisonResult.SOMEBODY_ELSE:
            self.count_first(comparison.by, comparison.detail, 1)
        if comparison.result not in (ComparisonResult.SAME, ComparisonResult.SOMEBODY_ELSE):
            self.differences.append(comparison)

    def count_first(self, by: str, reason: str, pods: int) -> None:
        """Count pods that somebody else ended before either."""
        known = (by, reason) in self.first or len(self.first) < _MAX_WRITERS
        self.first[by if known else "", reason if known else ""] += pods
