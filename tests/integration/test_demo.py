"""The demo as users run it: the real controller in its own process, and the model of the built-in one, over HTTP."""

import asyncio
import json

from tests.stage.processes import output_of

from fake_apiserver import ApiServer
from taint_eviction_lab.simulation.demo import API, CACHE, DB, QUEUE, SHOPS, STEPS, WEB, DemoCluster, DemoStory, Side


async def test_demo_ends_as_expected() -> None:
    """Each fault happens in the model and not in this controller, and the verdict has three lines."""
    facts = [json.loads(line) for line in (await output_of("demo", "--built-in", "1.32", "-o", "json")).splitlines()]
    verdict = facts.pop()
    assert (verdict["what"], verdict["as_told"], len(verdict["lines"])) == ("verdict", True, 3)
    evicted = {
        side: [fact["pod"] for fact in facts if (fact["what"], fact["side"]) == ("evicted", side)]
        for side in ("built-in", "this one")
    }
    shops = sorted(shop.name for shop in SHOPS)
    assert sorted(evicted["built-in"]) == ["cache", "db", "queue-0", *shops, "web"]
    assert sorted(evicted["this one"]) == ["api", "cache", "db", "queue-0", "queue-0", "web"]
    assert [fact["pod"] for fact in facts if fact["what"] == "gave up"] == ["api"]


async def test_demo_without_controllers_is_not_as_expected() -> None:
    """The checks of the demo can fail: without controllers, every eviction is missing."""
    pods = (WEB, CACHE, DB, API, QUEUE, *SHOPS)
    now = asyncio.get_running_loop().time
    async with ApiServer() as own, ApiServer() as other:
        here = DemoCluster(own, Side.OWN, pods, now, lambda _: None)
        there = DemoCluster(other, Side.BUILT_IN, pods, now, lambda _: None)
        here.prepare()
        there.prepare()
        story = DemoStory(here, there, now, lambda _: None, keeps_key=True)
        for step in STEPS:
            story.do(step)
        assert [line for line in story.broken() if line.startswith("this controller")] == [
            "this controller evicted web never",
            "this controller evicted web 0 times, not 1",
            "this controller evicted cache never",
            "this controller evicted cache 0 times, not 1",
            "this controller evicted db never",
            "this controller evicted db 0 times, not 1",
            "this controller evicted api never",
            "this controller evicted api 0 times, not 1",
            "this controller evicted queue-0 never",
            "this controller evicted queue-0 0 times, not 2",
        ]
        assert "the model did not evict queue-0 once" in story.broken()
        verdict = story.verdict("1.32")
        assert verdict[0] == "Built-in 1.32: never: api; 0 by mistake"
        assert verdict[2] == "NOT as expected: this controller evicted web never"
