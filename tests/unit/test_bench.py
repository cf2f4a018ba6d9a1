"""The benchmark runs; its timings are nobody's business here."""

from tests.bench.bench_queue import queue
from tests.bench.population import Population
from tests.bench.results import Result, percentile, table
from tests.bench.stage import Stages


async def test_the_queue_is_measured_at_toy_size() -> None:
    """A rate, its growth and memory, each beside a goal or a floor."""
    results = await queue(Stages(None), 0.001)
    assert [result.unit for result in results] == ["/s", "×", "bytes"]
    assert all(result.measured > 0 for result in results)


def test_a_goal_is_met_from_the_right_side() -> None:
    """Times must stay below it, rates above."""
    assert Result("f", "n", 1.0, "s", goal=2.0).met
    assert Result("f", "n", 3.0, "/s", goal=2.0, at_least=True).met
    assert Result("f", "n", 3.0, "s", goal=2.0).met is False
    assert Result("f", "n", 3.0, "s").met is None


def test_the_table_has_a_line_for_each_result() -> None:
    """With the ratio to the floor."""
    [_, line] = table([Result("f", "n", 3.0, "s", 2.0, 1.5, "bare")]).splitlines()
    assert line.split() == ["f", "n", "3", "s", "≤", "2", "1.5", "(bare)", "2.00", "MISSED"]


def test_percentiles_are_values_that_were_measured() -> None:
    """The smallest that so many do not exceed."""
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0


def test_pods_are_spread_over_nodes_and_seconds() -> None:
    """Each node gets the same, and its pods' tolerances are spread evenly."""
    population = Population(2, 8, seconds=10, spread=4)
    pods = [population.pod("run", index)["spec"] for index in range(8)]
    assert [spec["nodeName"] for spec in pods[:3]] == ["run-node-0", "run-node-1", "run-node-0"]
    assert [spec["tolerations"][0]["tolerationSeconds"] for spec in pods[::2]] == [10, 11, 12, 13]
    assert population.pods_on(1) == 4
