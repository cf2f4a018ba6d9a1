"""The benchmark runs; its timings are nobody's business here."""

from pathlib import Path
from xml.etree import ElementTree

from tests.bench.bare import BareClient
from tests.bench.bench_built_in import lateness_quantile
from tests.bench.bench_queue import queue
from tests.bench.picture import PANELS, picture
from tests.bench.population import Population
from tests.bench.results import Result, percentile, table
from tests.bench.stage import BenchStage, Stages


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


def test_lateness_is_computed_as_prometheus_does() -> None:
    """Within a bucket the quantile is interpolated; what was counted before is left out."""
    bucket = 'lateness_seconds_bucket{{le="{}"}}'.format
    earlier = {bucket("1.0"): 5.0, bucket("10.0"): 5.0, bucket("+Inf"): 5.0}
    later = {bucket("1.0"): 55.0, bucket("10.0"): 105.0, bucket("+Inf"): 105.0}
    assert lateness_quantile(0.75, earlier, later) == 5.5
    assert lateness_quantile(0.99, earlier, earlier) is None


def test_a_kept_population_names_its_pods_by_node() -> None:
    """So a storm of 150,000 pods needs no list of them."""
    stage = BenchStage(Population(3, 8), "run", Path(), BareClient(Path()), None)
    assert stage.pods_on(["run-node-1", "run-node-2"]) == [1, 4, 7, 2, 5]


def test_the_picture_has_a_bar_for_each_controller_and_size() -> None:
    """And a dot for each round."""
    rounds = [
        Result(figure, name, 1.0, "s", 2.0, 2.0, "built-in").as_json()
        for figure in ("1,000 nodes", "5,000 nodes")
        for name, _ in PANELS
        for _ in range(3)
    ]
    drawn = ElementTree.fromstring(picture(rounds))
    assert len(drawn.findall("{*}circle")) == len(PANELS) * 2 * 2 * 3
