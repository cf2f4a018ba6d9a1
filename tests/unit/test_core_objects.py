"""The texts of taints and tolerations, as explanations show them."""

import pytest

from taint_eviction.core.objects import NO_EXECUTE, Taint, Toleration


@pytest.mark.parametrize(
    ("toleration", "words"),
    [
        (Toleration(operator="Exists"), "* indefinitely"),
        (Toleration("k1", "Exists", "", NO_EXECUTE, 60), "k1:NoExecute for 60 s"),
        (Toleration("k1", value="v"), "k1 Equal 'v' indefinitely"),
        (Toleration("k1", "Equal", "v", "", 0), "k1 Equal 'v' for 0 s"),
        (Toleration("k1", "Gt", "5"), "k1 Gt '5' indefinitely"),
    ],
)
def test_a_tolerations_text_says_what_it_tolerates_and_for_how_long(toleration: Toleration, words: str) -> None:
    """A toleration without an operator means Equal, and one without a key every key."""
    assert str(toleration) == words


@pytest.mark.parametrize(
    ("taint", "words"), [(Taint("k1", NO_EXECUTE), "k1:NoExecute"), (Taint("k1", NO_EXECUTE, "v"), "k1=v:NoExecute")]
)
def test_a_taints_text_has_the_syntax_of_kubectl(taint: Taint, words: str) -> None:
    """The text contains the value only if there is one."""
    assert str(taint) == words
