"""The demo as a user runs it: the real controller in a process of its own, over HTTP."""

import asyncio
import json
import os
import sys

from taint_eviction.simulation.apiserver import ApiServer
from taint_eviction.simulation.demo import DemoStory


async def test_demo_evicts_cancels_and_evicts_again() -> None:
    """It ends with exit code 0 and has shown the pod that is recreated under its name evicted twice (W1)."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "taint_eviction", "demo", "-o", "json"),
        env={**os.environ, "PYTHONPATH": "operator"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    facts = [json.loads(line) for line in out.splitlines()]
    happened = [(fact["what"], fact["pod"]) for fact in facts if fact["what"] in {"evicted", "cancelled"}]
    assert sorted(happened) == [
        ("cancelled", "cache"),
        ("cancelled", "db-0"),
        ("evicted", "cache"),
        ("evicted", "db-0"),
        ("evicted", "db-0"),
        ("evicted", "web"),
    ]
    evicted = [fact["uid"] for fact in facts if (fact["what"], fact["pod"]) == ("evicted", "db-0")]
    assert len(set(evicted)) == 2


async def test_demo_in_which_nothing_is_evicted_is_broken() -> None:
    """What the demo checks can fail: without a controller every eviction is missed."""
    async with ApiServer() as server:
        story = DemoStory(server, asyncio.get_running_loop().time, lambda _: None)
        story.prepare()
        assert story.broken() == [
            "web was evicted 0 times, not 1",
            "db-0 was evicted 0 times, not 2",
            "cache was evicted 0 times, not 1",
        ]
