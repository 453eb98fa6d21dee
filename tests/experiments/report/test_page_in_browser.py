"""The report as a browser shows it: nothing fetched, nothing broken, filters that choose, readable by everyone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from made_results import HOSTILE


@contextmanager
def opened(browser: Any, report: Path, **how: Any) -> Iterator[Any]:
    """Open the report in a fresh context; what went wrong is listed in `page.faults`."""
    context = browser.new_context(viewport={"width": how.pop("width", 1200), "height": 900}, **how)
    page, faults = context.new_page(), []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if request.url != report.as_uri() else None)
    page.faults = faults
    page.goto(report.as_uri())
    page.locator(".panel").first.scroll_into_view_if_needed()
    page.wait_for_selector(".plot .main-svg")
    yield page
    assert not faults
    context.close()


@pytest.fixture(scope="module")
def page(browser: Any, report: Path) -> Iterator[Any]:
    with opened(browser, report) as page:
        yield page


def shown(page: Any, section: str) -> list[str]:
    """Titles of the panels of a section that are shown."""
    found: list[str] = page.locator(f"#{section} .panel:visible figcaption").all_inner_texts()
    return found


def traces(page: Any, section: str) -> list[str]:
    """Names of the traces in a section's first visible panel, each once, once it is drawn."""
    panel = page.locator(f"#{section} .panel:visible").first
    panel.scroll_into_view_if_needed()
    plot = panel.locator(".plot.js-plotly-plot")
    plot.wait_for()
    found: list[str] = plot.evaluate("plot => [...new Set(plot.data.map(t => t.meta && t.name).filter(Boolean))]")
    return found


def reset(page: Any) -> None:
    page.evaluate("document.querySelector('.filters').reset()")
    page.locator("select[name=plant]").dispatch_event("change")


SERIES = [
    f"{learner} {s}"
    for learner in ("DDPG", "SAC")
    for s in ("FULL[PER]", "FIFO[Uniform]", "FIFO[PER]", HOSTILE, "FULL[Uniform]")
]


def test_every_figure_is_drawn_without_errors_and_without_a_network(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        page.locator("select[name=plant]").select_option("")
        count = page.locator(".panel").count()
        for number in range(count):
            page.locator(".panel").nth(number).scroll_into_view_if_needed()
            page.locator(".panel").nth(number).locator(".main-svg").first.wait_for()
        assert count == page.locator(".panel:visible").count() > 10


def test_plant_noise_and_rate_choose_panels(page: Any) -> None:
    reset(page)
    assert [title.split(",")[0] for title in shown(page, "curves")] == ["PendulumDCSC"] * 4
    page.locator("select[name=plant]").select_option(label="Magman")
    assert [title.split(",")[0] for title in shown(page, "curves")] == ["Magman"] * 4
    page.locator("select[name=noise]").select_option(label="0.02")
    assert shown(page, "curves") == ["Magman, noise 0.02, 50 Hz", "Magman, noise 0.02, 100 Hz"]
    page.locator("select[name=frequency]").select_option(label="100 Hz")
    assert shown(page, "curves") == shown(page, "scores") == ["Magman, noise 0.02, 100 Hz"]


def test_four_panels_stand_in_a_square(page: Any) -> None:
    def columns() -> int:
        lefts = [round(panel.bounding_box()["x"]) for panel in page.locator("#curves .panel:visible").all()]
        return len(set(lefts))

    reset(page)
    assert columns() == 2
    page.locator("select[name=plant]").select_option("")
    assert (len(shown(page, "curves")), columns()) == (8, 3)


def test_strategies_and_learners_choose_series(page: Any) -> None:
    reset(page)
    assert sorted(traces(page, "curves")) == sorted(escaped(SERIES))
    page.locator("input[name=learner]").nth(1).uncheck()
    assert sorted(traces(page, "curves")) == sorted(escaped(SERIES[:5]))
    page.locator("input[name=strategy]").nth(1).uncheck()
    page.locator("input[name=strategy]").nth(3).uncheck()
    left = ["DDPG FIFO[PER]", "DDPG FULL[PER]", "DDPG FULL[Uniform]"]
    assert sorted(traces(page, "curves")) == sorted(traces(page, "scores")) == left


def test_bands_are_drawn_of_few_curves(page: Any) -> None:
    reset(page)
    plot = page.locator("#curves .panel:visible").first.locator(".plot.js-plotly-plot")
    bands = "plot => plot.data.filter(trace => trace.meta?.band).length"
    traces(page, "curves")
    assert plot.evaluate(bands) == 0, "ten would cover each other"
    page.locator("input[name=learner]").nth(1).uncheck()
    assert plot.evaluate(bands) == 2 * 5, "an upper and a lower end of each"


def escaped(names: list[str]) -> list[str]:
    return [name.replace("<", "&lt;").replace(">", "&gt;") for name in names]


def squares(page: Any, section: str) -> list[str]:
    """Numbers in the squares of a section's first visible panel."""
    panel = page.locator(f"#{section} .panel:visible").first
    panel.scroll_into_view_if_needed()
    plot = panel.locator(".plot.js-plotly-plot")
    plot.wait_for()
    found: list[str] = plot.evaluate("plot => plot.data.map(trace => trace.text[0][0])")
    return found


def test_noise_and_rate_choose_squares_of_a_response_surface(page: Any) -> None:
    reset(page)
    assert len(shown(page, "responses")) == len(SERIES)
    assert len(squares(page, "responses")) == 4
    page.locator("select[name=noise]").select_option(label="0.02")
    assert len(squares(page, "responses")) == 2
    page.locator("select[name=frequency]").select_option(label="50 Hz")
    assert len(squares(page, "responses")) == 1
    page.locator("input[name=strategy]").first.uncheck()
    page.locator("input[name=learner]").nth(1).uncheck()
    assert shown(page, "responses") == [f"PendulumDCSC, {name}" for name in SERIES[1:5]]


def test_strategies_choose_squares_of_their_map(page: Any) -> None:
    """The hostile name has no brackets: it is no square."""
    reset(page)
    assert len(shown(page, "strategies")) == 8
    assert squares(page, "strategies") == ["0.74", "0.58", "0.57", "0.40"]
    page.locator("input[name=strategy]").nth(1).uncheck()
    assert squares(page, "strategies") == ["0.74", "0.58", "0.40"]
    page.locator("input[name=learner]").first.uncheck()
    assert shown(page, "strategies")[0] == "PendulumDCSC, noise 0, 50 Hz, SAC"


def test_policies_move_with_the_time_of_the_run_and_follow_filters(page: Any) -> None:
    reset(page)
    panel = page.locator("#policies .panel:visible").first
    panel.scroll_into_view_if_needed()
    panel.locator(".main-svg").first.wait_for()
    shades = "plot => plot._fullData.filter(t => t.type === 'heatmap').map(t => t.z[0][0])"
    plot = panel.locator(".plot")
    assert page.locator("#policies output").inner_text() == "episode 60"
    assert plot.evaluate(shades) == [128, 0]
    page.locator("#policies input[type=range]").fill("0")
    assert page.locator("#policies output").inner_text() == "episode 1"
    assert plot.evaluate(shades) == [255, 0]
    page.locator("input[name=strategy]").first.uncheck()
    second = page.locator("#policies .panel:visible").first
    assert "FIFO[Uniform]" in second.locator("figcaption").inner_text()
    second.scroll_into_view_if_needed()
    second.locator(".main-svg").first.wait_for()
    assert second.locator(".plot").evaluate(shades) == [255, 85]
    assert page.locator("#policies .steps").is_visible()
    page.locator("select[name=plant]").select_option(label="Magman")
    assert not shown(page, "policies")
    assert page.locator("#policies .empty").is_visible()
    assert not page.locator("#policies .steps").is_visible()  # nothing here moves


def test_a_film_plays_and_stops(page: Any) -> None:
    reset(page)
    output, play = page.locator("#policies output"), page.locator("#policies .play")
    output.evaluate(
        "output => { window.told = [];"
        " new MutationObserver(() => told.push(output.textContent)).observe(output, { childList: true }); }"
    )
    page.locator("#policies input[type=range]").fill("2")
    page.evaluate("window.told.length = 0")
    play.click()
    page.locator("#policies .play", has_text="Play").wait_for()  # while it plays it says Stop
    assert page.evaluate("window.told") == ["episode 1", "episode 30", "episode 60"]


def test_buffers_follow_filters(page: Any) -> None:
    reset(page)
    assert len(shown(page, "buffers")) == 2 * len(SERIES)
    page.locator("select[name=frequency]").select_option(label="100 Hz")
    page.locator("input[name=learner]").nth(1).uncheck()
    assert shown(page, "buffers") == [f"PendulumDCSC, noise 0, 100 Hz, {name}" for name in SERIES[:5]]
    page.locator("#buffers .panel:visible").first.scroll_into_view_if_needed()
    plot = page.locator("#buffers .panel:visible .plot.js-plotly-plot").first
    assert plot.evaluate("plot => plot._fullData.map(t => Math.round(t.y[2]))") == [25, 0, 0, 0, 25, 0, 0, 0, 0, 50]


def test_seconds_of_cells_follow_filters(page: Any) -> None:
    reset(page)
    panel = page.locator("#resources .panel:visible").first
    panel.scroll_into_view_if_needed()
    plot = panel.locator(".plot.js-plotly-plot")
    plot.wait_for()
    assert plot.evaluate("plot => plot.data.length") == 4 * len(SERIES)
    page.locator("select[name=noise]").select_option(label="0")
    page.locator("input[name=strategy]").first.uncheck()
    assert plot.evaluate("plot => plot.data.length") == 2 * (len(SERIES) - 2)


def test_tables_follow_the_filters(page: Any) -> None:
    reset(page)
    rows = page.locator("#scores tbody tr:not([hidden]):not(.reference)")
    references = page.locator("#scores tbody tr.reference:not([hidden])")
    assert (rows.count(), references.count()) == (40, 4 * 2)
    page.locator("input[name=learner]").first.uncheck()
    page.locator("input[name=strategy]").first.uncheck()
    page.locator("select[name=noise]").select_option(label="0")
    assert (rows.count(), references.count()) == (8, 2 * 2), "references are of no learner"


def test_a_hostile_name_is_text(page: Any) -> None:
    """Neither in the page nor in a figure, whose text Plotly would read marks in."""
    reset(page)
    assert page.locator("fieldset span", has_text=HOSTILE).count() == 1
    panel = page.locator("#scores .panel:visible").first
    panel.scroll_into_view_if_needed()
    panel.locator(".ytick").first.wait_for()
    assert f"DDPG {HOSTILE}" in panel.locator(".ytick").all_text_contents()


def test_dark_and_light_by_system_and_by_button(browser: Any, report: Path) -> None:
    with opened(browser, report, color_scheme="dark") as page:
        background = "getComputedStyle(document.body).backgroundColor"
        line = "[...document.querySelectorAll('#scores .plot .ytick text')].map(t => t.style.fill)[0]"
        dark = page.evaluate(background), page.evaluate(line)
        assert dark == ("rgb(21, 24, 27)", "rgb(195, 202, 210)")
        page.locator("#theme").click()
        assert page.evaluate(background) == "rgb(255, 255, 255)"
        # What is not near the screen is drawn anew when it comes there: the click has scrolled to the button.
        tick = page.locator("#scores .plot .ytick text").first
        tick.scroll_into_view_if_needed()
        pytest.importorskip("playwright.sync_api").expect(tick).to_have_css("fill", "rgb(61, 69, 78)", timeout=30_000)


def test_a_phone_shows_all_of_it(browser: Any, report: Path) -> None:
    with opened(browser, report, width=375) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        widths = page.locator(".panel:visible").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
        assert max(widths) <= 375


def test_a_phone_shows_colours_beside_no_picture_of_others(browser: Any, report: Path) -> None:
    """The bar of colours of a value stands where neither picture is."""
    with opened(browser, report, width=375) as page:
        panel = page.locator("#policies .panel:visible").first
        panel.scroll_into_view_if_needed()
        panel.locator(".cbcoloraxis").first.wait_for()
        area = "all => all.map(one => one.getBoundingClientRect().toJSON())"
        pictures = panel.locator(".heatmaplayer image").evaluate_all(area)
        bars = panel.locator(".cbcoloraxis, .cbcoloraxis2").evaluate_all(area)
        assert (len(pictures), len(bars)) == (2, 2)
        assert min(bar["top"] for bar in bars) >= max(picture["bottom"] for picture in pictures)


def test_all_controls_are_reached_by_the_keyboard(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        controls = page.locator("button:visible, select:visible, input:visible, summary:visible").count()
        reached = set()
        for _ in range(controls + 20):
            page.keyboard.press("Tab")
            kind = "e => ['BUTTON', 'SELECT', 'INPUT', 'SUMMARY'].includes(e.tagName)"
            if page.evaluate(f"({kind})(document.activeElement)"):
                reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        assert len(reached) == controls


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, report: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    with opened(browser, report, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found = axe.Axe().run(page).response["violations"]
        told = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        assert not [one for one in found if one["impact"] in ("serious", "critical")], told


def test_paper_shows_the_chosen_figures(browser: Any, report: Path) -> None:
    """What is printed is drawn before, also what nobody has scrolled to, as wide as the paper."""
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
        wide = page.locator("#policies .panel:visible .main-svg:first-child")
        ends, rooms = wide.evaluate_all(right, ".main-svg"), wide.evaluate_all(right, ".panel")
        assert all(end <= room + 1 for end, room in zip(ends, rooms, strict=True))
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert not page.evaluate("document.getElementById('filters').open")
        assert page.locator("details:not([open])").count() > 2, "as they were"
