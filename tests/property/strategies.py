"""The examples that properties are tested with, and the Hypothesis profiles.

In CI the examples are always the same; elsewhere each run uses new ones. In both cases a failure prints the blob that
reproduces it, and ``--hypothesis-seed`` repeats a whole run. ``HYPOTHESIS_PROFILE=long`` tries 20,000 examples of each
property; ``brief`` is for runs of code that was broken on purpose.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration

_NO_SHRINKING = (Phase.explicit, Phase.generate)

settings.register_profile(
    "anew",
    deadline=None,
    max_examples=100,
    print_blob=True,
    report_multiple_bugs=False,  # the first bug is enough, and is found sooner
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("repeatable", settings.get_profile("anew"), derandomize=True)
settings.register_profile("brief", settings.get_profile("repeatable"), max_examples=20, phases=_NO_SHRINKING)
settings.register_profile("long", settings.get_profile("anew"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("repeatable" if os.environ.get("CI") else "anew"))


def examples(share: float) -> int:
    """Return how many examples a test tries: this share of the profile's number, as tests differ in time."""
    return max(1, int(settings().max_examples * share))


KEYS = ("k1", "k2", "k3")
OPERATORS = ("", "Equal", "Exists", "Gt", "Lt", "exists", "In")
VALUES = ("", "v", "0", "1", "-1", "01", "+1", "-0", "10", "9223372036854775807", "9223372036854775808")

whole_seconds = st.none() | st.integers(-5, 400) | st.sampled_from([-(2**63), 18446744074, 2**63 - 1])

any_taints = st.builds(
    Taint, st.sampled_from(KEYS), st.sampled_from([NO_EXECUTE, NO_SCHEDULE]), st.sampled_from(VALUES)
)

any_tolerations = st.builds(
    Toleration,
    key=st.sampled_from(("", *KEYS)),
    operator=st.sampled_from(OPERATORS),
    value=st.sampled_from(VALUES),
    effect=st.sampled_from(("", NO_EXECUTE, NO_SCHEDULE)),
    toleration_seconds=whole_seconds,
)

toleration_lists = st.lists(any_tolerations, max_size=6).map(tuple)
