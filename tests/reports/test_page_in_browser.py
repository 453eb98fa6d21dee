"""The report in a browser: no requests, no errors, working filters, accessible."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.made_results import HOSTILE

pytestmark = pytest.mark.slow

STRATEGIES = ("FULL[PER]", "FIFO[Uniform]", "FIFO[PER]", HOSTILE, "FULL[Uniform]")
SERIES = [f"{learner} {strategy}" for learner in ("DDPG", "SAC") for strategy in STRATEGIES]


@contextmanager
def opened(browser: Any, report: Path, **how: Any) -> Iterator[Any]:
    """Open the report in a fresh context, and check that nothing fails and nothing is requested."""
    context = browser.new_context(viewport={"width": how.pop("width", 1200), "height": 900}, **how)
    page, faults = context.new_page(), []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if request.url != report.as_uri() else None)
    page.goto(report.as_uri())
    page.locator(".panel").first.scroll_into_view_if_needed()
    page.wait_for_selector(".plot .main-svg")
    yield page
    assert not faults
    context.close()


@pytest.fixture(scope="module")
def opened_page(browser: Any, report: Path) -> Iterator[Any]:
    with opened(browser, report) as page:
        yield page


@pytest.fixture
def page(opened_page: Any) -> Any:
    opened_page.evaluate("document.querySelector('.filters').reset()")
    choose(opened_page, plant="PendulumDCSC")
    return opened_page


def choose(page: Any, **labels: str) -> None:
    for axis, label in labels.items():
        page.locator(f"select[name={axis}]").select_option(label=label)
        page.locator(f"select[name={axis}]").dispatch_event("change")


def uncheck(page: Any, axis: str, place: int) -> None:
    page.locator(f"input[name={axis}]").nth(place).uncheck()


def shown(page: Any, section: str) -> list[str]:
    found: list[str] = page.locator(f"#{section} .panel:visible figcaption").all_inner_texts()
    return found


def plot_of(page: Any, section: str) -> Any:
    """Return the plot of a section's first visible panel, once it is drawn."""
    panel = page.locator(f"#{section} .panel:visible").first
    panel.scroll_into_view_if_needed()
    plot = panel.locator(".plot.js-plotly-plot")
    plot.wait_for()
    panel.locator(".main-svg").first.wait_for()
    return plot


def traces(page: Any, section: str) -> list[str]:
    """Return the names of the traces in a section's first visible panel, sorted."""
    names = "plot => [...new Set(plot.data.map(t => t.meta && t.name).filter(Boolean))]"
    return sorted(name.replace("&lt;", "<").replace("&gt;", ">") for name in plot_of(page, section).evaluate(names))


def squares(page: Any, section: str) -> list[str]:
    found: list[str] = plot_of(page, section).evaluate("plot => plot.data.map(trace => trace.text[0][0])")
    return found


def test_every_figure_is_drawn(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        choose(page, plant="all")
        count = page.locator(".panel").count()
        for number in range(count):
            page.locator(".panel").nth(number).scroll_into_view_if_needed()
            page.locator(".panel").nth(number).locator(".main-svg").first.wait_for()
        assert count == page.locator(".panel:visible").count() > 10


def test_plant_noise_and_rate_choose_panels(page: Any) -> None:
    assert [title.split(",")[0] for title in shown(page, "curves")] == ["PendulumDCSC"] * 4
    choose(page, plant="Magman", noise="0.02")
    assert shown(page, "curves") == ["Magman, noise 0.02, 50 Hz", "Magman, noise 0.02, 100 Hz"]
    choose(page, frequency="100 Hz")
    assert shown(page, "curves") == shown(page, "scores") == ["Magman, noise 0.02, 100 Hz"]


def test_four_panels_stand_in_a_square(page: Any) -> None:
    def columns() -> int:
        lefts = [round(panel.bounding_box()["x"]) for panel in page.locator("#curves .panel:visible").all()]
        return len(set(lefts))

    assert columns() == 2
    choose(page, plant="all")
    assert (len(shown(page, "curves")), columns()) == (8, 3)


def test_strategies_and_learners_choose_series(page: Any) -> None:
    assert traces(page, "curves") == sorted(SERIES)
    bands = "plot => plot.data.filter(trace => trace.meta?.band).length"
    assert plot_of(page, "curves").evaluate(bands) == 0, "ten would hide each other"
    uncheck(page, "learner", 1)
    assert traces(page, "curves") == sorted(SERIES[:5])
    assert plot_of(page, "curves").evaluate(bands) == 2 * 5, "an upper and a lower end of each"
    uncheck(page, "strategy", 1)
    uncheck(page, "strategy", 3)
    left = ["DDPG FIFO[PER]", "DDPG FULL[PER]", "DDPG FULL[Uniform]"]
    assert traces(page, "curves") == traces(page, "scores") == left


def test_filters_choose_squares_of_response_surfaces(page: Any) -> None:
    assert len(shown(page, "responses")) == len(SERIES)
    assert len(squares(page, "responses")) == 4
    choose(page, noise="0.02")
    assert len(squares(page, "responses")) == 2
    choose(page, frequency="50 Hz")
    assert len(squares(page, "responses")) == 1
    uncheck(page, "strategy", 0)
    uncheck(page, "learner", 1)
    assert shown(page, "responses") == [f"PendulumDCSC, {name}" for name in SERIES[1:5]]


def test_filters_choose_squares_of_strategy_maps(page: Any) -> None:
    """The hostile name has no brackets and no square."""
    assert len(shown(page, "strategies")) == 8
    assert squares(page, "strategies") == ["0.74", "0.58", "0.57", "0.40"]
    uncheck(page, "strategy", 1)
    assert squares(page, "strategies") == ["0.74", "0.58", "0.40"]
    uncheck(page, "learner", 0)
    assert shown(page, "strategies")[0] == "PendulumDCSC, noise 0, 50 Hz, SAC"


def test_policies_show_the_chosen_time_and_follow_filters(page: Any) -> None:
    shades = "plot => plot._fullData.filter(t => t.type === 'heatmap').map(t => t.z[0][0])"
    output, steps = page.locator("#policies output"), page.locator("#policies input[type=range]")
    steps.fill("2")
    assert output.inner_text() == "episode 60"
    assert plot_of(page, "policies").evaluate(shades) == [128, 0]
    steps.fill("0")
    assert output.inner_text() == "episode 1"
    assert plot_of(page, "policies").evaluate(shades) == [255, 0]
    uncheck(page, "strategy", 0)
    assert "FIFO[Uniform]" in shown(page, "policies")[0]
    assert plot_of(page, "policies").evaluate(shades) == [255, 85]
    choose(page, plant="Magman")
    assert not shown(page, "policies")
    assert page.locator("#policies .empty").is_visible()
    assert not page.locator("#policies .steps").is_visible()


def test_an_animation_plays_and_stops(page: Any) -> None:
    output, play = page.locator("#policies output"), page.locator("#policies .play")
    page.locator("#policies input[type=range]").fill("2")
    output.evaluate(
        "output => { window.shown = [];"
        " new MutationObserver(() => shown.push(output.textContent)).observe(output, { childList: true }); }"
    )
    play.click()
    page.locator("#policies .play", has_text="Play").wait_for()  # "Stop" while it plays
    assert page.evaluate("window.shown") == ["episode 1", "episode 30", "episode 60"]


def test_buffers_and_costs_follow_filters(page: Any) -> None:
    assert len(shown(page, "buffers")) == 2 * len(SERIES)
    costs = plot_of(page, "resources")
    assert costs.evaluate("plot => plot.data.length") == 4 * len(SERIES)
    choose(page, frequency="100 Hz")
    uncheck(page, "learner", 1)
    assert costs.evaluate("plot => plot.data.length") == len(SERIES)
    assert shown(page, "buffers") == [f"PendulumDCSC, noise 0, 100 Hz, {name}" for name in SERIES[:5]]
    shares = plot_of(page, "buffers").evaluate("plot => plot._fullData.map(t => Math.round(t.y[2]))")
    assert shares == [25, 0, 0, 0, 25, 0, 0, 0, 0, 50]


def test_tables_follow_the_filters(page: Any) -> None:
    rows = page.locator("#scores tbody tr:not([hidden]):not(.reference)")
    references = page.locator("#scores tbody tr.reference:not([hidden])")
    assert (rows.count(), references.count()) == (40, 4 * 2)
    uncheck(page, "learner", 0)
    uncheck(page, "strategy", 0)
    choose(page, noise="0")
    assert (rows.count(), references.count()) == (8, 2 * 2), "references have no learner"


def test_a_hostile_name_is_text(page: Any) -> None:
    """In the page, and in a figure, in whose text Plotly interprets tags."""
    assert page.locator("fieldset span", has_text=HOSTILE).count() == 1
    plot = plot_of(page, "scores")
    plot.locator(".ytick").first.wait_for()
    assert f"DDPG {HOSTILE}" in plot.locator(".ytick").all_text_contents()


def test_dark_and_light_by_system_and_by_button(browser: Any, report: Path) -> None:
    with opened(browser, report, color_scheme="dark") as page:
        background = "getComputedStyle(document.body).backgroundColor"
        line = "[...document.querySelectorAll('#scores .plot .ytick text')].map(t => t.style.fill)[0]"
        assert (page.evaluate(background), page.evaluate(line)) == ("rgb(21, 24, 27)", "rgb(195, 202, 210)")
        page.locator("#theme").click()
        assert page.evaluate(background) == "rgb(255, 255, 255)"
        tick = page.locator("#scores .plot .ytick text").first
        tick.scroll_into_view_if_needed()  # the click has scrolled to the button, and figures are drawn when in view
        pytest.importorskip("playwright.sync_api").expect(tick).to_have_css("fill", "rgb(61, 69, 78)", timeout=30_000)


def test_a_phone_shows_all_of_it_and_colour_bars_outside_the_pictures(browser: Any, report: Path) -> None:
    with opened(browser, report, width=375) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        area = "all => all.map(one => one.getBoundingClientRect().toJSON())"
        assert max(panel["right"] for panel in page.locator(".panel:visible").evaluate_all(area)) <= 375
        plot = plot_of(page, "policies")
        plot.locator(".cbcoloraxis").first.wait_for()
        pictures = plot.locator(".heatmaplayer image").evaluate_all(area)
        bars = plot.locator(".cbcoloraxis, .cbcoloraxis2").evaluate_all(area)
        assert (len(pictures), len(bars)) == (2, 2)
        assert min(bar["top"] for bar in bars) >= max(picture["bottom"] for picture in pictures)


def test_all_controls_are_reached_by_the_keyboard(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        controls = page.locator("button:visible, select:visible, input:visible, summary:visible").count()
        reached = set()
        for _ in range(controls + 20):
            page.keyboard.press("Tab")
            if page.evaluate("['BUTTON', 'SELECT', 'INPUT', 'SUMMARY'].includes(document.activeElement.tagName)"):
                reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        assert len(reached) == controls


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, report: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    with opened(browser, report, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found = axe.Axe().run(page).response["violations"]
        assert not [one for one in found if one["impact"] in ("serious", "critical")]


def test_paper_shows_the_chosen_figures(browser: Any, report: Path) -> None:
    """Before printing, figures out of view are drawn too, as wide as the paper."""
    with opened(browser, report, color_scheme="dark") as page:
        page.evaluate("document.querySelector('.chips input').click()")
        page.evaluate("document.getElementById('filters').open = false")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        drawn = page.locator(".panel:visible .main-svg:first-child")
        assert drawn.count() == page.locator(".panel:visible").count()
        assert max(drawn.evaluate_all("all => all.map(svg => svg.getBoundingClientRect().width)")) <= 700
        page.emulate_media(media="print")
        assert not page.locator("details:not([open])").count(), "nothing can be unfolded on paper"
        long = "() => { const one = document.createElement('pre'); one.textContent = 'key = 1 '.repeat(60);"
        page.evaluate(f"{long} document.querySelector('main section').append(one); }}")
        wide = page.locator("pre").evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert wide[0] <= wide[1] + 1, "a long line of the study file is not cut"
        assert page.locator(".chips label:visible").count() == page.locator(".chips label").count() - 1 > 0, "a legend"
        as_on_white = """() => [...document.querySelectorAll(".swatch[data-color]")].every((one) => {
            const shown = one.style.color;
            one.style.color = one.dataset.color;
            return shown === one.style.color;
        })"""
        assert page.evaluate(as_on_white)
        assert not page.locator(".filters :is(select, input, summary):visible").count()
        right = "(all, of) => all.map(one => one.closest(of).getBoundingClientRect().right)"
        pictures = page.locator("#policies .panel:visible .main-svg:first-child")
        ends, rooms = pictures.evaluate_all(right, ".main-svg"), pictures.evaluate_all(right, ".panel")
        assert all(end <= room + 1 for end, room in zip(ends, rooms, strict=True))
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert not page.evaluate("document.getElementById('filters').open")
        assert page.locator("details:not([open])").count() > 2, "as before"
