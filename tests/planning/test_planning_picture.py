"""The page in a real browser: drawn, filtered, zoomed, hovered over, used by keyboard, printed, and in the dark."""

import base64
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest
from tests.planning.browser import CHROMEDRIVER, CHROMIUM, Browser, browser
from tests.planning.shop import NOON_TEXT, SHOP, inventory_of, node, planned, pod, run, tolerates

from taint_eviction_ctl.picture.of_plan import picture_of_plan
from taint_eviction_ctl.picture.page import render_page
from taint_eviction_ctl.planning.changes import Changes, read_taint
from taint_eviction_lab.picture.of_demo import picture_of_demo
from taint_eviction_lab.picture.of_replay import picture_of_replay
from taint_eviction_lab.simulation.demo import API, CACHE, DemoFact, Side
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or CHROMEDRIVER is None, reason="Chromium and its driver are not installed"
)
STALE_KEY = "tests/scenarios/recreate/recreate-statefulset-pod-is-evicted-again.yaml"
SHOWN = (
    "return [...document.querySelectorAll('.podRow:not([hidden])')].map((row) => row.firstChild.firstChild.data.trim())"
)
CONTRASTS = """
const probe = (colour) => {
  const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const linear = (value) => value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
const luminance = (rgb) => {
  const [red, green, blue] = rgb.map((value) => linear(value / 255));
  return .2126 * red + .7152 * green + .0722 * blue;
};
const style = getComputedStyle(document.documentElement), paper = luminance(probe(style.getPropertyValue('--paper')));
const names = ['ink', 'quiet', 'taint-ink', 'mild-ink', 'evicted', 'cancelled', 'scheduled', 'gone', 'created', 'held'];
return names.map((name) => {
  const ink = luminance(probe(style.getPropertyValue('--' + name)));
  return [name, (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)];
});
"""
FILTERING = """
const began = performance.now(), filter = document.getElementById('filter');
filter.value = 'pod-77';
filter.dispatchEvent(new Event('input'));
document.body.offsetHeight;
return performance.now() - began;
"""
TIP = "const tip = document.getElementById('tip'); return tip.hidden ? null : tip.textContent"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Run one browser for all tests of this file."""
    with browser() as started:
        yield started


@pytest.fixture
def shop(chromium: Browser, tmp_path: Path) -> Browser:
    """Open the page of the shop's plan."""
    page = tmp_path / "plan.html"
    written = run(
        SHOP, "--now", NOON_TEXT, "--taint", "*=maintenance=now:NoExecute", "-l", "pool=web", "--html", str(page)
    )
    assert written.exit_code == 0
    chromium.open(page)
    return chromium


def replayed(file: str) -> str:
    """Play a scenario and draw it."""
    return render_page(picture_of_replay(replay_scenario(read_scenario(Path(file).read_text(), file))))


def test_the_page_needs_nothing_else() -> None:
    """The page has no address of a server, and a policy that forbids to load anything."""
    page = replayed(STALE_KEY)
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", page)
    assert not re.findall(r"https?://", page)
    assert "default-src 'none'" in page


def test_names_are_text_whatever_they_contain() -> None:
    """A pod whose name contains a script brings no script to the page."""
    evil = "</script><script>alert(1)</script>"
    page = render_page(picture_of_plan(planned(inventory_of(node("node-1", "k=v:NoExecute"), pod(evil)))))
    assert evil not in page
    assert f"<div>shop/{escape(evil)}</div>" in page


@needs_chromium
def test_rows_are_grouped_by_node(shop: Browser) -> None:
    """Each node has its pods below it, the first to leave at the top."""
    groups = shop.run("return [...document.querySelectorAll('.group')].map((group) => group.firstChild.innerText)")
    assert groups == ["node-1 6 of 9 leave", "node-2 5 of 5 leave", "node-3 4 of 4 leave"]
    assert shop.run(SHOWN)[:4] == ["shop/bare", "shop/web-0", "shop/web-6", "shop/agent-0"]
    assert shop.run("return document.querySelectorAll('#rows tr').length") == 18
    assert shop.complaints() == []


@needs_chromium
def test_a_bar_is_as_long_as_its_tolerance(shop: Browser) -> None:
    """A tolerance of 300 s ends where the axis has 5 m."""
    ends = "const box = document.querySelector(arguments[0]).getBoundingClientRect(); return [box.left, box.right]"
    _, right = shop.run(ends, ".podRow[aria-label^='shop/web-3 '] .bar")
    ticks = shop.run(
        "return [...document.querySelectorAll('.tick')].map((t) => [t.firstChild.data, t.getBoundingClientRect().left])"
    )
    at = dict(ticks)
    assert abs(right - (at["4 m"] + at["6 m"]) / 2) < 2


@needs_chromium
def test_words_and_outcomes_filter_the_pods(shop: Browser) -> None:
    """A filter applies to the chart and to the table."""
    shop.type("#filter", "db node-1")
    assert shop.run(SHOWN) == ["shop/db-0"]
    assert shop.run("return document.getElementById('count').textContent") == "1 of 18 pods"
    shop.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    shop.click("[data-outcome=stays]")
    assert sorted(shop.run(SHOWN)) == ["shop/going", "shop/patient", "shop/static"]
    assert shop.run("return document.querySelectorAll('#rows tr:not([hidden])').length") == 3


@needs_chromium
def test_zoom_spreads_the_axis(shop: Browser) -> None:
    """A click halves the span, and another button shows the whole again."""
    span = "return +getComputedStyle(document.documentElement).getPropertyValue('--span')"
    whole = shop.run(span)
    shop.click("#in")
    assert shop.run(span) == pytest.approx(whole / 2)
    shop.click("#in")
    shop.click("#fit")
    assert shop.run(span) == pytest.approx(whole)


@needs_chromium
def test_hovering_shows_the_reason(shop: Browser) -> None:
    """The tip has the toleration that counts and the one that does not."""
    shop.hover(".podRow[aria-label^='shop/db-0 '] .bar")
    assert "tolerance running, 10 m" in shop.run(TIP)
    assert "[maintenance:NoExecute for 60 s] comes later: only the first toleration" in shop.run(TIP)


@needs_chromium
def test_the_keyboard_goes_from_pod_to_pod(shop: Browser) -> None:
    """Arrows move from pod to pod and show the tip, and a slash goes to the filter."""
    shop.run("document.querySelector('.podRow').focus()")
    shop.press("\ue015", "\ue015")
    assert shop.run("return document.activeElement.firstChild.firstChild.data") == "shop/web-6"
    assert "shop/web-6" in shop.run(TIP)
    shop.press("+", "/")
    assert shop.run("return document.activeElement.id") == "filter"
    assert shop.run("return document.querySelectorAll('.podRow[tabindex=\"0\"]').length") == 1


@needs_chromium
def test_text_has_contrast_in_light_and_in_dark(shop: Browser) -> None:
    """The contrast is at least 4.5 to 1, as WCAG AA asks for."""
    for theme in ("light", "dark"):
        shop.run("document.documentElement.dataset.theme = arguments[0]", theme)
        assert [name for name, contrast in shop.run(CONTRASTS) if contrast < 4.5] == []


@needs_chromium
def test_the_system_chooses_the_theme_until_the_button_does(shop: Browser) -> None:
    """The page follows the browser, and the button overrules the browser."""
    paper = "return getComputedStyle(document.body).backgroundColor"
    shop.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert shop.run(paper) == "rgb(21, 23, 26)"
    shop.click("#theme")
    assert shop.run(paper) == "rgb(255, 255, 255)"
    shop.devtools("Emulation.setEmulatedMedia", features=[])


@needs_chromium
def test_the_page_can_be_printed(shop: Browser) -> None:
    """The printed page has no tools, and is no wider than the paper."""
    printed = base64.b64decode(shop.devtools("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    shop.devtools("Emulation.setEmulatedMedia", media="print")
    assert shop.run("return getComputedStyle(document.querySelector('.tools')).display") == "none"
    shop.devtools("Emulation.setDeviceMetricsOverride", width=700, height=1000, deviceScaleFactor=1, mobile=False)
    assert shop.run("return document.documentElement.scrollWidth") <= 700
    shop.devtools("Emulation.clearDeviceMetricsOverride")
    shop.devtools("Emulation.setEmulatedMedia", media="")


@needs_chromium
def test_the_stale_key_scenario_shows_both_pods_of_the_name(chromium: Browser, tmp_path: Path) -> None:
    """The picture of W1 has the same name twice, each with an eviction of its own."""
    (tmp_path / "stale.html").write_text(replayed(STALE_KEY))
    chromium.open(tmp_path / "stale.html")
    assert chromium.run(SHOWN) == ["default/web-0", "default/web-0"]
    assert chromium.run("return document.querySelectorAll('.mark.evicted').length") == 2
    assert chromium.run("return document.querySelectorAll('.band.evicts').length") == 2
    assert len(chromium.screenshot()) > 10_000


@needs_chromium
def test_retries_and_lateness_are_drawn(chromium: Browser, tmp_path: Path) -> None:
    """Refusals are marks, and the time past the deadline is a bar."""
    (tmp_path / "retry.html").write_text(replayed("tests/scenarios/retry/retry-burst-of-server-errors.yaml"))
    chromium.open(tmp_path / "retry.html")
    assert chromium.run("return document.querySelectorAll('.mark.refused').length") > 2
    assert chromium.run("return document.querySelectorAll('.track .bar.retrying').length") == 1


@needs_chromium
def test_what_holds_evictions_back_has_a_row_of_its_own(chromium: Browser, tmp_path: Path) -> None:
    """The row has a band while the breaker is open, and each pod that it holds has a bar."""
    (tmp_path / "held.html").write_text(replayed("tests/scenarios/breaker/breaker-closes-by-itself.yaml"))
    chromium.open(tmp_path / "held.html")
    groups = chromium.run("return [...document.querySelectorAll('.group')].map((group) => group.firstChild.innerText)")
    assert groups == ["held back", "node-1 1 of 1 leave", "node-2 1 of 1 leave", "node-3 0 of 1 leave"]
    assert chromium.run("return document.querySelector('.band.hold').textContent").startswith("the circuit breaker is")
    chromium.hover(".band.hold")
    assert "to second 100.005" in chromium.run(TIP)
    assert chromium.run("return document.querySelectorAll('.track .bar.held').length") == 3


@needs_chromium
def test_marks_are_drawn_and_not_written(chromium: Browser, tmp_path: Path) -> None:
    """No font has all the signs for marks: the sign for a blocked pod was an empty box."""
    (tmp_path / "blocked.html").write_text(replayed("tests/scenarios/budget/budget-blocks-then-frees.yaml"))
    chromium.open(tmp_path / "blocked.html")
    assert chromium.run("return document.querySelectorAll('.mark.blocked').length") == 3
    assert chromium.run("return [...document.querySelectorAll('.mark')].map((mark) => mark.textContent).join('')") == ""
    assert chromium.run("return [...document.querySelectorAll('.legend span')].map((each) => each.textContent)") == [
        *("scheduled", "evicted", "blocked"),
        *("the pod exists", "past its deadline", "blocked by a budget, tried again"),
    ]


@needs_chromium
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen(chromium: Browser, tmp_path: Path, width: int) -> None:
    """Long names of pods and nodes wrap on a phone, and are not cut."""
    name = "checkout-frontend-with-a-long-name-7d9c8b6f5d-x0001"
    nodes = [f"ip-10-0-{index}-17.eu-central-1.compute.internal" for index in range(2)]
    pods = [pod(f"{name}-{index}", nodes[index % 2], tolerates(index)) for index in range(12)]
    inventory = inventory_of(*map(node, nodes), *pods)
    picture = picture_of_plan(planned(inventory, Changes((read_taint("*=maintenance=now:NoExecute"),))))
    picture.asked = "taint * maintenance=now:NoExecute; in " + "a-file-with-a-long-name" * 9
    (tmp_path / "wide.html").write_text(render_page(picture))
    chromium.devtools(
        "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 1000
    )
    chromium.open(tmp_path / "wide.html")
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    cut = (
        "return [...document.querySelectorAll('.row > :first-child')].filter((l) => l.scrollWidth > l.clientWidth + 1)"
    )
    assert chromium.run(f"{cut}.length") == 0
    inside = "const c = document.getElementById('chart'); return [c.scrollWidth - c.clientWidth, c.clientHeight]"
    over, height = chromium.run(inside)
    assert (over, height <= 844) == (0, True)
    chromium.devtools("Emulation.clearDeviceMetricsOverride")


@needs_chromium
def test_nodes_open_and_close_without_a_script(chromium: Browser, tmp_path: Path) -> None:
    """If scripts are forbidden, the page has everything but the tools."""
    (tmp_path / "stale.html").write_text(replayed(STALE_KEY))
    chromium.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(tmp_path / "stale.html")
        drawn = "return document.querySelectorAll('.podRow').length + ' ' + document.querySelectorAll('.tick').length"
        assert chromium.run(drawn).startswith("2 ")
        assert chromium.run("return getComputedStyle(document.querySelector('.tools')).display") == "none"
        chromium.click("summary.group")
        assert chromium.run("return document.querySelector('details.node').open") is False
    finally:
        chromium.devtools("Emulation.setScriptExecutionDisabled", value=False)


@needs_chromium
def test_many_pods_begin_as_a_summary_and_a_filter_opens_nodes(chromium: Browser, tmp_path: Path) -> None:
    """Nodes are closed; a filter opens those that have a matching pod, and without it they are closed again."""
    pods = [pod(f"pod-{index}", f"node-{index % 3}", tolerates(index)) for index in range(300)]
    inventory = inventory_of(*(node(f"node-{index}") for index in range(3)), *pods)
    picture = picture_of_plan(planned(inventory, Changes((read_taint("*=maintenance=now:NoExecute"),))))
    (tmp_path / "many.html").write_text(render_page(picture))
    chromium.open(tmp_path / "many.html")
    tiles = "return [...document.querySelectorAll('.tiles div')].map((tile) => tile.textContent)"
    assert chromium.run(tiles) == ["pods300", "leave300", "stay0"]
    opened = "return document.querySelectorAll('details.node[open]').length"
    assert chromium.run(opened) == 0
    chromium.type("#filter", "pod-299")
    assert (chromium.run(opened), chromium.run(SHOWN)) == (1, ["shop/pod-299"])
    chromium.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    assert chromium.run(opened) == 0
    chromium.click("#fold")
    assert chromium.run(opened) == 3


@needs_chromium
def test_two_thousand_pods_are_ready_within_seconds(chromium: Browser, tmp_path: Path) -> None:
    """The page is loaded within 5 s, and filtered within 1 s."""
    pods = [pod(f"pod-{index}", f"node-{index % 40}", tolerates(index % 600)) for index in range(2000)]
    inventory = inventory_of(*(node(f"node-{index}") for index in range(40)), *pods)
    plan = planned(inventory, Changes((read_taint("*=maintenance=now:NoExecute"),)))
    (tmp_path / "large.html").write_text(render_page(picture_of_plan(plan)))
    chromium.open(tmp_path / "large.html")
    assert chromium.run("return document.querySelectorAll('.podRow').length") == 2000
    loaded = "return performance.getEntriesByType('navigation')[0].domComplete"
    assert chromium.run(loaded) < 5000
    assert chromium.run(FILTERING) < 1000


@needs_chromium
def test_the_demo_becomes_a_picture(chromium: Browser, tmp_path: Path) -> None:
    """Each pod has a row in each of the two clusters, with countdowns and evictions."""
    facts = [
        DemoFact(1.0, Side.BOTH, "step", "node-a is tainted"),
        DemoFact(1.1, Side.BUILT_IN, "due", "counts down for cache, 10 s", "cache", due_at=11.1),
        DemoFact(1.1, Side.OWN, "due", "counts down for cache, 10 s", "cache", due_at=11.1),
        DemoFact(5.0, Side.BUILT_IN, "due", "counts down for cache, 10 s", "cache", due_at=15.0),
        DemoFact(11.1, Side.OWN, "evicted", "cache is evicted", "cache"),
        DemoFact(15.0, Side.BUILT_IN, "evicted", "cache is evicted, 4 s late", "cache"),
        DemoFact(16.0, Side.BUILT_IN, "gave up", "api is given up", "api"),
    ]
    picture = picture_of_demo(facts, (CACHE, API), "model of built-in 1.36", ["Everything went as expected."])
    (tmp_path / "demo.html").write_text(render_page(picture))
    chromium.open(tmp_path / "demo.html")
    assert sorted(chromium.run(SHOWN)) == ["api", "api", "cache", "cache"]
    assert chromium.run("return document.querySelectorAll('.mark.evicted').length") == 2
    assert chromium.run("return document.querySelectorAll('.track .bar').length") == 3
    # Two clusters have no sum.
    assert chromium.run("return document.querySelectorAll('.tiles').length") == 0
    assert chromium.run("return document.querySelector('ul').textContent") == "Everything went as expected."
