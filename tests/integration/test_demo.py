"""The demo as a user runs it: the real controller in a process of its own, over HTTP."""

import asyncio
import json

from tests.stage.processes import output_of

from fake_apiserver import ApiServer
from taint_eviction_lab.simulation.demo import DemoStory


async def test_demo_evicts_cancels_and_evicts_again() -> None:
    """It ends with exit code 0 and has shown the pod that is recreated under its name evicted twice (W1)."""
    facts = [json.loads(line) for line in (await output_of("demo", "-o", "json")).splitlines()]
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
