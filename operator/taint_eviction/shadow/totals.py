"""How many evictions were compared, with which result, and which of them differ: of bounded size."""

from collections import Counter, deque
from dataclasses import dataclass, field

from taint_eviction.shadow.comparison import Comparison, ComparisonResult

# How many differences are kept, the newest; all are counted.
MAX_DIFFERENCES = 1000


@dataclass(slots=True)
class ComparisonTotals:
    """All comparisons since ``since_epoch``, None before anything was seen.

    ``later``: the least and the most seconds by which the built-in controller was later, None if it never was.
    ``unseen``: evictions here for which the built-in controller's action was not seen.
    """

    since_epoch: float | None = None
    counts: Counter[ComparisonResult] = field(default_factory=Counter)
    later: tuple[float, float] | None = None
    differences: deque[Comparison] = field(default_factory=lambda: deque(maxlen=MAX_DIFFERENCES))
    unseen: int = 0

    def add(self, comparison: Comparison) -> None:
        """Count a comparison, and keep it if both differ."""
        self.counts[comparison.result] += 1
        if comparison.result is ComparisonResult.LATER and comparison.seconds is not None:
            least, most = self.later or (comparison.seconds, comparison.seconds)
            self.later = min(least, comparison.seconds), max(most, comparison.seconds)
        if comparison.result not in (ComparisonResult.SAME, ComparisonResult.SOMEBODY_ELSE):
            self.differences.append(comparison)
