"""What ``explain`` says of a pod that is gone: replicas tell it, and whoever answers in their place."""

import pytest
from tests.golden import gone_pod


@pytest.mark.parametrize("field", ["uid", "node", "taint", "call", "answer", "budget", "keptBy", "toldBy"])
def test_no_text_of_an_answer_steers_the_terminal(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """Neither its title and colours, nor the direction of the text."""
    monkeypatch.setitem(gone_pod.OUTCOME, field, "a\x1b]0;b\x07c\u202ed")
    said = gone_pod.gone_pod()
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
