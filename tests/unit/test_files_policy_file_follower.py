"""The policy file while the controller runs: what counts, what is rejected, and what is logged."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.unit.runtime_fakes import running, until, virtually

from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.files.policy_file_follower import PolicyFileFollower

T = TypeVar("T")

BASE = EvictionPolicy(EvictionMode.EVICT, 60.0)
GOOD = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules: [{name: NAME}]\n"
BAD = GOOD.replace("name:", "nam:")


class Disk:
    """The disk that has the file; reads take ``seconds``. Parsing takes no read."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "policy.yaml"
        self.seconds = 0.0
        self.reads = 0

    async def off_the_loop(self, work: Callable[[], T]) -> T:
        """Do the work after ``seconds``."""
        if work.__name__ == "_read_once":
            self.reads += 1
            await asyncio.sleep(self.seconds)
        return work()

    def write(self, name: str) -> None:
        """Write a good policy whose rule has this name."""
        self.path.write_text(GOOD.replace("NAME", name))


class FollowedFile:
    """A follower, the policies that it applied, and the results that it counted."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk = Disk(tmp_path)
        self.applied: list[EvictionPolicy] = []
        self.counted: list[str] = []
        self.follower = PolicyFileFollower(
            self.disk.path, BASE, self.apply, self.counted.append, off_the_loop=self.disk.off_the_loop
        )

    async def apply(self, policy: EvictionPolicy) -> None:
        """Note a policy that is to be in force."""
        self.applied.append(policy)

    @property
    def names(self) -> list[str]:
        """The names of the rules of all policies that were applied."""
        return [rule.name for policy in self.applied for rule in policy.rules]


@pytest.fixture
def stage(tmp_path: Path) -> FollowedFile:
    """A follower of a good file."""
    made = FollowedFile(tmp_path)
    made.disk.write("first")
    return made


@virtually
async def test_a_change_counts_within_two_seconds(stage: FollowedFile) -> None:
    """The first content counts at once, a change at the next read; the base policy says what the file leaves out."""
    async with running(stage.follower.run()):
        await until(0.5)
        assert stage.names == ["first"]
        stage.disk.write("second")
        await until(1.9)
        assert stage.names == ["first"]
        await until(2.0)
    assert stage.names == ["first", "second"]
    assert stage.counted == ["loaded", "loaded"]
    assert (stage.applied[1].mode, stage.applied[1].evict_timeout_seconds) == (EvictionMode.EVICT, 60.0)
    assert not stage.follower.invalid


@virtually
async def test_unchanged_content_is_not_applied_again(stage: FollowedFile) -> None:
    """Limits do not start again because a file was touched, or was written as it was."""
    async with running(stage.follower.run()):
        await until(3.0)
        stage.disk.write("first")
        await until(60.0)
    assert stage.counted == ["loaded"]
    assert stage.disk.reads == 31


@virtually
async def test_content_is_compared_and_not_times(stage: FollowedFile, tmp_path: Path) -> None:
    """A mounted ConfigMap changes by a swap of symbolic links, and may keep the file's name and time."""
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "policy.yaml").write_text(GOOD.replace("NAME", version))
    (tmp_path / "..data").symlink_to("old")
    stage.disk.path.unlink()
    stage.disk.path.symlink_to("..data/policy.yaml")
    async with running(stage.follower.run()):
        await until(1.0)
        (tmp_path / "..swap").symlink_to("new")
        (tmp_path / "..swap").rename(tmp_path / "..data")
        await until(2.0)
    assert stage.names == ["old", "new"]


@virtually
async def test_a_bad_change_is_rejected_and_the_last_good_one_stays(
    stage: FollowedFile, caplog: pytest.LogCaptureFixture
) -> None:
    """The change is logged once, with all its problems."""
    async with running(stage.follower.run()):
        await until(1.0)
        stage.disk.path.write_text(BAD + "pause: true\n")
        await until(60.0)
        assert stage.follower.invalid
        assert stage.counted == ["loaded", "rejected"]
        stage.disk.write("second")
        await until(62.0)
    assert not stage.follower.invalid
    assert stage.names == ["first", "second"]
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    path = stage.disk.path
    assert said == (
        f"policy file {path} is rejected, and the previous policy stays in force: "
        f"{path}:3: a rule lacks 'name'; "
        f"{path}:3: unknown key 'nam' in a rule; did you mean 'name'?; "
        f"{path}:4: unknown key 'pause' in a policy; known: apiVersion, kind, rules"
    )


@virtually
async def test_another_bad_content_is_rejected_again(stage: FollowedFile) -> None:
    """Somebody who repairs a file step by step sees the result of each step."""
    stage.disk.path.write_text(BAD)
    async with running(stage.follower.run()):
        await until(1.0)
        stage.disk.path.write_text(BAD + "pause: true\n")
        await until(60.0)
    assert stage.counted == ["rejected", "rejected"]
    assert stage.names == []


@virtually
async def test_a_file_that_vanishes_changes_nothing(stage: FollowedFile, caplog: pytest.LogCaptureFixture) -> None:
    """The missing file is rejected once, and counts again when it comes back as it was."""
    async with running(stage.follower.run()):
        await until(1.0)
        stage.disk.path.unlink()
        await until(60.0)
        assert stage.follower.invalid
        assert stage.counted == ["loaded", "rejected"]
        stage.disk.write("first")
        await until(62.0)
    assert not stage.follower.invalid
    assert stage.names == ["first", "first"]
    assert f"{stage.disk.path}:1: it cannot be read: No such file or directory" in caplog.text


@virtually
async def test_a_slow_disk_is_told_once_and_counts_when_it_answers(
    stage: FollowedFile, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop continues meanwhile, and no more than three reads are under way."""
    caplog.set_level(logging.INFO)
    stage.disk.seconds = 100.0
    async with running(stage.follower.run()):
        await until(9.9)
        assert not stage.follower.invalid
        await until(99.0)
        assert (stage.disk.reads, stage.names, stage.follower.invalid) == (3, [], True)
        stage.disk.seconds = 0.0
        await until(103.0)
        assert (stage.names, stage.follower.invalid) == (["first"], False)
        await until(200.0)
    assert stage.counted == ["loaded"]
    path = stage.disk.path
    assert caplog.messages == [
        f"policy file {path} cannot be read, and the previous policy stays in force: "
        "its disk has not answered for 10 s",
        f"policy file {path} can be read again",
        f"policy file {path} is in force; rules: 1",
    ]


@virtually
async def test_a_disk_that_is_mounted_again_counts_although_an_earlier_read_never_ends(stage: FollowedFile) -> None:
    """What the earlier read would still bring is older, and is dropped; a content that was rejected stays rejected."""
    stage.disk.path.write_text(BAD)
    async with running(stage.follower.run()):
        await until(1.0)
        stage.disk.seconds = 1e9
        await until(15.0)
        stage.disk.seconds = 0.0
        await until(23.0)
        assert stage.follower.invalid
        stage.disk.write("second")
        await until(26.0)
        assert (stage.names, stage.follower.invalid) == (["second"], False)


async def test_files_are_read_in_a_thread(tmp_path: Path) -> None:
    """The test uses a real loop, as in production."""
    (tmp_path / "policy.yaml").write_text(GOOD)
    applied = asyncio.get_running_loop().create_future()

    async def apply(policy: EvictionPolicy) -> None:
        applied.set_result(policy)

    follower = PolicyFileFollower(tmp_path / "policy.yaml", BASE, apply, lambda _: None)
    async with running(follower.run()), asyncio.timeout(10):
        assert (await applied).rules[0].name == "NAME"


def test_neither_a_cancellation_nor_the_end_of_the_process_waits_for_a_read(tmp_path: Path) -> None:
    """The file is a pipe into which nobody writes."""
    path = tmp_path / "policy.yaml"
    os.mkfifo(path)

    async def apply(policy: EvictionPolicy) -> None:
        raise AssertionError(policy)

    async def follow() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await PolicyFileFollower(path, BASE, apply, lambda _: None).run()

    asyncio.run(follow())
    (waiting,) = [thread for thread in threading.enumerate() if thread.name == "policy file"]
    assert waiting.daemon
    path.open("w").close()
    waiting.join(10)
    assert not waiting.is_alive()
