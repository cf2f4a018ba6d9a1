"""Whether the admission policy narrows this account is asked, remembered and told."""

import logging

import pytest
from tests.unit.runtime_fakes import FakeApi, FakeClock, FakePolicy, refused, running, until, virtually

from taint_eviction.runtime.policy_check import PolicyCheck

NAME = "system:serviceaccount:kube-system:controller"


class PolicyStage:
    """A check, its door and the wire between them."""

    def __init__(self, *, adopts: bool = False, name: str | None = NAME, narrows: bool = True) -> None:
        self.api = FakeApi()
        self.door = FakePolicy(self.api, name)
        self.door.narrows = narrows
        self.check = PolicyCheck(self.door, FakeClock(), adopts=adopts)

    def asked(self) -> list[float]:
        """List when it was asked whether the policy is in force."""
        return [round(call.at) for call in self.api.calls if call.verb == "POLICY"]


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the level and the text of what was told."""
    return [(each.levelname, each.message) for each in caplog.records]


@virtually
async def test_a_policy_that_narrows_another_account_is_told_once_with_the_own_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked again every 10 s, after the first minute every 5 min; the end is told as well."""
    caplog.set_level(logging.INFO)
    it = PolicyStage(narrows=False)
    async with running(it.check.run()):
        await until(700)
        assert it.asked() == [0, 10, 20, 30, 40, 50, 60, 360, 660]
        problem = f"the admission policy is not in force for {NAME}, which may write more than the controller does"
        assert (it.check.account, it.check.in_force, it.check.problem) == (NAME, False, problem)
        assert told(caplog) == [("WARNING", problem)]
        it.door.narrows = True
        await until(1000)
        assert (it.check.in_force, it.check.problem) == (True, "")
        assert told(caplog)[1:] == [("INFO", f"the admission policy is in force for {NAME}")]


@virtually
async def test_a_policy_in_force_is_asked_about_every_hour_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Most installations never hear of it."""
    caplog.set_level(logging.INFO)
    it = PolicyStage()
    async with running(it.check.run()):
        await until(7300)
        assert it.asked() == [0, 3600, 7200]
        assert it.check.in_force is True
        assert told(caplog) == []


@virtually
async def test_what_is_not_known_is_told_after_a_minute_and_only_a_definite_answer_ends_what_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With adoption these are errors, since nothing is taken over."""
    it = PolicyStage(adopts=True)
    it.api.ever["POLICY"] = refused(500)
    async with running(it.check.run()):
        await until(59)
        assert (it.check.in_force, it.check.problem) == (None, "")
        await until(75)
        assert "is not known, so no countdown is taken over: " in it.check.problem
        del it.api.ever["POLICY"]
        await until(82)
        assert (it.check.in_force, it.check.problem) == (True, "")
        it.api.ever["POLICY"] = refused(500)
        await until(4000)
        assert (it.check.in_force, it.check.problem) == (True, "")
        del it.api.ever["POLICY"]
        it.door.narrows = False
        await until(8000)
        assert it.check.problem.endswith("is not in force for " + NAME + ", so no countdown is taken over")
        it.api.ever["POLICY"] = refused(500)
        await until(8100)
        assert it.check.problem.endswith("is not in force for " + NAME + ", so no countdown is taken over")
    assert [level for level, _ in told(caplog)] == ["ERROR", "ERROR"]


@virtually
async def test_an_api_server_without_such_policies_is_asked_once_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only adoption needs them."""
    it, adopting = PolicyStage(name=None), PolicyStage(name=None, narrows=False, adopts=True)
    async with running(it.check.run()), running(adopting.check.run()):
        await until(100)
    assert it.asked() == []
    assert (it.check.in_force, it.check.problem) == (None, "")
    assert [text for _, text in told(caplog)] == [
        "the admission policy is not in force for this account, so no countdown is taken over"
    ]
