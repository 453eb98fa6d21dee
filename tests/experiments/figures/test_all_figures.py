"""The figures of a sweep: they show the dataset, and every gap in a study leaves them standing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_studies import ORIGIN, RANDOM, TOO_CLOSE, UNKNOWN, USABLE, line, plant_results, results
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from replaybench.baselines.fuzzy_q_iteration import solve
from replaybench.baselines.grid import plant_grid
from replaybench.baselines.grid_choice import Refinement, Rule
from replaybench.data.policy_file import read_policy
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.ode.plant import OdePlant
from replaybench.exchange.offline_scores import OfflineScores
from replaybench.experiments import snapshots as solved
from replaybench.experiments.cell import make_agent, run_cell
from replaybench.experiments.dataset import assemble
from replaybench.experiments.snapshots import median_seed
from replaybench.experiments.study import Study
from replaybench.reports.figures import all_figures, surfaces
from replaybench.reports.figures.all_figures import draw_figures, draw_offline
from replaybench.reports.figures.distributions import paired_differences
from replaybench.reports.figures.learning_curves import learning_curves
from replaybench.reports.figures.scores import response, score_bars
from replaybench.reports.figures.style import PAPER, all_series, broken, file_names, new_figure, save, style

COMPARED = ("differences", "profiles")
"""Figures of studies with several seeds; differences need several strategies, too."""
GRID: dict[str, Any] = {"noise": (0.0, 0.05), "frequency": (50.0, 100.0)}


def drawn_groups(paths: list[Path]) -> set[str]:
    """Return the groups of figures; each must be written as PNG and SVG, and no other file next to them."""
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in path.with_suffix(".svg").read_text(encoding="utf-8")[:1000]
        assert len(list(path.parent.iterdir())) == 2 * len(paths)
    return {path.name.split("-")[0] for path in paths}


def test_equal_data_give_equal_bytes(tmp_path: Path) -> None:
    data, folder, cells = results(tmp_path)
    paths = draw_figures(data, folder, cells)
    assert drawn_groups(paths) == {"learning_curves", "scores", *COMPARED}
    first = [path.with_suffix(".svg").read_bytes() for path in paths]
    assert first == [path.with_suffix(".svg").read_bytes() for path in draw_figures(data, folder, cells)]


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({**GRID, "missing": (0, 4, 5, 6), "failing": (1,)}, {"response_noise", "response_frequency", *COMPARED}),
        ({"seeds": 1, "episodes": 2, "noise": (0.0, 0.05)}, {"response_noise"}),
        ({"seeds": 1, "episodes": 2, "noise": (0.0, 0.05), "reference": TOO_CLOSE}, {"response_noise"}),
        ({"seeds": 1, "episodes": 2, "noise": (0.0, 0.05), "reference": UNKNOWN}, {"response_noise"}),
    ],
)
def test_studies_with_gaps_have_their_figures(changes: dict[str, Any], groups: set[str], tmp_path: Path) -> None:
    assert drawn_groups(draw_figures(*results(tmp_path, **changes))) == {"learning_curves", "scores", *groups}


def test_without_results_there_are_no_figures(tmp_path: Path) -> None:
    assert draw_figures(*results(tmp_path, missing=(0, 1))) == []


def test_a_long_legend_stays_below_the_caption(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 31))
    with style():
        figure = learning_curves(plant_results(tmp_path, strategies=strategies, seeds=1))
        figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.texts[1].get_window_extent().y0


def test_nothing_is_cut_off_on_the_left(tmp_path: Path) -> None:
    """Text is as wide as whole pixels: at the file's resolution names are longer than at another."""
    strategies = ("FULL[Uniform]", "FIFO(84000)[Uniform]", "FIFO(42000)[PER+IS]")
    with style():
        figure = paired_differences(plant_results(tmp_path / "run", strategies=strategies, seeds=6))
        assert figure is not None
        picture = imread(save(figure, tmp_path, "differences"))
    head = round(0.3 * len(picture))  # title and caption
    assert (picture[head:, :3, :3] == 1.0).all(), "white margin"


def test_a_strategy_of_which_every_run_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(tmp_path, lost=(1,))
    here = found[0].sel(plant="PendulumDCSC")
    panel: Any = learning_curves(here).axes[0]
    assert "4 of 4 FULL[PER]" in panel.get_legend().get_title().get_text()
    assert "4×" in [text.get_text() for text in score_bars(here).axes[0].texts]
    shown: list[list[str]] = []
    monkeypatch.setitem(all_figures._DRAWN, "scores", lambda data, *_: shown.append([*data["strategy"].values]))
    assert drawn_groups(draw_figures(*found)) == {"learning_curves", "profiles"}
    assert shown == [["FIFO[Uniform]", "FULL[PER]"]]


@pytest.mark.parametrize("learners", [("DDPG",), ("DDPG", "TD3"), ("DDPG", "TD3", "SAC")])
def test_no_two_series_look_alike(learners: tuple[str, ...], tmp_path: Path) -> None:
    strategies = tuple(f"FIFO({1000 * n})[Uniform]" for n in range(1, 11))
    data, _, _ = results(tmp_path, strategies=strategies, learners=learners, seeds=1)
    looks = {(one.color, one.marker, one.dashes, one.hatch) for one in all_series(data)}
    assert len(looks) == 10 * len(learners)


def heights(axes: Any) -> list[float]:
    """Return the heights of the bars of a panel."""
    return [bar.get_height() for bar in axes.patches]


def test_raw_rewards_are_drawn_if_references_are_too_close(tmp_path: Path) -> None:
    here = plant_results(tmp_path, reference=TOO_CLOSE)
    runs = here.sel(learner="DDPG", strategy="FULL[PER]", noise=0.0, frequency=50.0)["reward"].values
    (axes,) = learning_curves(here).axes
    np.testing.assert_allclose(line(axes, "FULL[PER]")[1], runs.mean(axis=0), rtol=1e-12)
    (bars,) = score_bars(here).axes
    np.testing.assert_allclose(heights(bars)[1], runs.mean(), rtol=1e-12)
    assert axes.get_ylabel().startswith("raw")
    assert bars.get_ylabel().startswith("raw")


def test_bars_and_responses_are_the_scores(tmp_path: Path) -> None:
    here = plant_results(tmp_path, noise=(0.05, 0.0), frequency=(50.0, 100.0))
    for axes, name in zip(score_bars(here).axes, ("mu_final", "mu_max", "rise_time"), strict=True):
        places = here[f"{name}_mean"].sel(learner="DDPG").transpose("strategy", "noise", "frequency")
        assert heights(axes) == places.values.ravel().tolist()
    final = here["mu_final_mean"].sel(learner="DDPG", strategy="FULL[PER]")
    by_noise, by_rate = response(here, "noise"), response(here, "frequency")
    assert by_noise is not None
    assert by_rate is not None
    for axes, frequency in zip(by_noise.axes, (50.0, 100.0), strict=True):
        np.testing.assert_array_equal(line(axes, "FULL[PER]")[1], final.sel(frequency=frequency).sortby("noise").values)
    for axes, noise in zip(by_rate.axes, (0.05, 0.0), strict=True):
        x, mean = line(axes, "FULL[PER]")
        np.testing.assert_array_equal(mean, final.sel(noise=noise).values)
        np.testing.assert_allclose(x, (50.0, 100.0), rtol=0.02)


def test_bars_count_collapsed_failed_and_never_risen_runs(tmp_path: Path) -> None:
    _, folder, cells = results(tmp_path, failing=(1,))
    flat = np.full((4, 30), RANDOM)
    arrays = {"reward": flat, "reward_greedy": flat[:, ::5], "episode_steps": np.full_like(flat, 200)}
    write_record(folder.cell(cells[0].id) / "scores.h5", "scores", ORIGIN, arrays)
    references = {("PendulumDCSC", 50.0, 0.0): USABLE}
    data = assemble(cells, references, {cell.id: folder.cell(cell.id) for cell in cells})
    final, _, rise = score_bars(data.sel(plant="PendulumDCSC")).axes
    assert [text.get_text() for text in final.texts] == ["4†", "2×"]
    assert rise.texts[0].get_text() == "4"


def test_file_names_are_plain_and_unique() -> None:
    assert file_names(["Magman", "a/cart.py:Cart", "b/cart.py:Cart"]) == ["Magman", "Cart-2", "Cart-3"]


def test_the_median_seed_did_not_fail() -> None:
    rewards = np.array([[-3.0], [-1.0], [np.nan], [-2.0], [-9.0]])
    assert median_seed(rewards) == 0
    assert median_seed(rewards[2:3]) is None


def test_policies_are_drawn_next_to_dynamic_programming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pixel near the centre is the greedy action, and the value, of the whole population's network there."""

    def coarse(plant: OdePlant, frequency: float, rule: Rule | None) -> Refinement:
        assert rule == "paper"
        return Refinement(solve(plant, frequency, grid=plant_grid(plant, (15, 15))), rule, np.nan)

    monkeypatch.setattr(solved, "reference_solution", coarse)
    study = Study(name="t", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]", "FULL[PER]"), seeds=3, block=2,
                  episodes=3, greedy_every=3)  # fmt: skip
    cells, folder = study.cells(), RunFolder(tmp_path)
    for cell in cells:
        run_cell(cell, folder.cell(cell.id), buffers="none")
    references = {("PendulumDCSC", 50.0, 0.0): USABLE}
    data = assemble(cells, references, {cell.id: folder.cell(cell.id) for cell in cells})
    assert drawn_groups(draw_figures(data, folder, cells)) == {"learning_curves", "scores", "policies", *COMPARED}
    figure = surfaces.policy_surfaces(data.sel(plant="PendulumDCSC"), folder, cells)
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.images]
    titles = [axes.get_title().split("\n")[0] for axes in panels[:3]]
    assert titles == ["dynamic programming", "FIFO[Uniform]", "FULL[PER]"]
    seed = median_seed(data["reward"].sel(strategy="FULL[PER]").values.reshape(3, -1))
    assert seed is not None
    (cell,) = (cell for cell in cells if cell.strategy == "FULL[PER]" and seed in cell.seeds)
    plant = cell.make_plant()
    assert isinstance(plant, OdePlant)
    agent = make_agent(cell, plant)
    agent.load_weights(read_policy(folder.cell(cell.id) / "policy.safetensors")[1])
    x, y = 100, 40
    low, high = np.array(plant.grid_low), np.array(plant.grid_high)
    state = plant.normalise_state(low + (np.array([x, y]) + 0.5) / 161 * (high - low)).astype(np.float32)
    states, row = np.tile(state, (cell.members, 1)), seed - cell.first_member
    value, action = (np.asarray(panels[place].images[0].get_array())[y, x] for place in (2, 5))
    np.testing.assert_allclose(action, plant.denormalise_action(agent.act(states)[row])[0], rtol=1e-5)
    np.testing.assert_allclose(value, 0.05 * 100.0 * agent.value(states[:, None])[row, 0], rtol=1e-4)


@pytest.mark.parametrize("learners", [1, 5])
def test_an_offline_replay_has_one_figure(tmp_path: Path, learners: int) -> None:
    rewards = np.random.Generator(np.random.PCG64(1)).normal(-50.0, 3.0, (learners, 4))
    about = {"learner": "DDPG", "strategy": "FULL[PER]", "buffer": "rig.h5"}
    online = {"online: FIFO[Uniform]": [-30.0, -35.0]}
    scores = OfflineScores(about, np.arange(4) * 100, rewards, np.array([-40.0]), online, USABLE)
    assert drawn_groups(draw_offline(scores, tmp_path)) == {"offline.png"}


def test_figures_for_print_have_captions_embedded_fonts_and_the_width_of_a_column(tmp_path: Path) -> None:
    *figures, captions = draw_figures(*results(tmp_path, **GRID), look=PAPER, output=tmp_path / "paper")
    groups = ("learning_curves", "scores", "response_noise", "response_frequency", *COMPARED)
    assert {path.name for path in figures} == {f"{group}-PendulumDCSC.pdf" for group in groups}
    for path in figures:
        content = path.read_bytes()
        assert b"/FontFile2" in content, "TrueType, embedded"
        assert b"/Type3" not in content
        (width,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", content)
        assert min(abs(float(width) / 72 * 25.4 - column) for column in (89, 183)) < 0.1
    text = captions.read_text(encoding="utf-8").split("\n\n")
    assert [line.partition(": ")[0] for line in text] == [path.name for path in figures]
    assert text[0].startswith("learning_curves-PendulumDCSC.pdf: PendulumDCSC: learning curves. Training episodes")


def test_figures_for_print_have_no_text_above_and_the_legend_below(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    with style(PAPER):
        figure = learning_curves(data)
        figure.draw_without_rendering()
    assert not figure.texts
    assert figure.legends[0].get_window_extent().y1 <= figure.axes[0].get_window_extent().y0
    assert learning_curves(data).texts, "the look ends with its context"


def test_names_are_broken_between_their_parts() -> None:
    lines = ["Drop(0.5)*Synth(state=0.1,", "action=0.1)*Expl(1.0)[PER(0.7)+", "IS(0.5)]"]
    assert broken("Drop(0.5)*Synth(state=0.1, action=0.1)*Expl(1.0)[PER(0.7)+IS(0.5)]", 34).splitlines() == lines
    assert broken("FIFO[Uniform]", 34) == "FIFO[Uniform]"
    assert broken("x" * 40, 34) == "x" * 40


def test_a_long_title_is_not_cut_off() -> None:
    figure = new_figure(3.0, 2.0, "PendulumDCSC: compared with FIFO[Uniform], condition by condition", "Means.")
    FigureCanvasAgg(figure).draw()
    heading, text = (one.get_window_extent() for one in figure.texts)
    assert heading.x1 < figure.get_size_inches()[0] * figure.dpi
    assert heading.y0 >= text.y1
