"""Figures of a sweep, their layout and captions."""

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Annotation
from PIL import Image
from rich.console import Console

from replaybench.baselines.fuzzy_q_iteration import solve
from replaybench.baselines.grid import plant_grid
from replaybench.baselines.grid_choice import Refinement, Rule
from replaybench.cli.figures import show_figures
from replaybench.data.policy_file import read_policy
from replaybench.data.run_folder import AUTHOR, RunFolder
from replaybench.envs.ode.plant import OdePlant
from replaybench.exchange.offline_scores import OfflineScores
from replaybench.experiments import snapshots as solved
from replaybench.experiments.cell import make_agent, run_cell
from replaybench.experiments.comparison import Comparison, headline
from replaybench.experiments.dataset import assemble
from replaybench.experiments.effects import paired
from replaybench.experiments.results_file import write_results
from replaybench.experiments.snapshots import median_seed
from replaybench.reports.figures import all_figures, scores, surfaces
from replaybench.reports.figures import style as layout
from replaybench.reports.figures.all_figures import draw_figures, draw_offline
from replaybench.reports.figures.curves import learning_curve, merge_levels, moving_mean, read_others, smoothing_window
from replaybench.reports.figures.distributions import paired_differences, performance_profiles
from replaybench.reports.figures.learning_curves import STEPS_LABEL, learning_curves, length_curves
from replaybench.reports.figures.maps import color_map, condition_map
from replaybench.reports.figures.scores import response, score_dots
from replaybench.reports.figures.style import PAPER, all_series, luminance, new_figure, panels_across, save, style
from replaybench.runtime.errors import UserError
from tests.helpers.cells import small_study
from tests.helpers.drawn_studies import DP, RANDOM, TOO_CLOSE, UNKNOWN, USABLE, caption, line, plant_results, results
from tests.helpers.made_results import made_results
from tests.helpers.tiers import slow

ALWAYS, RESPONSES = ("learning_curves", "scores"), ("response_noise", "response_frequency")
COMPARED = ("differences", "profiles")  # of studies with several seeds; differences need several strategies, too
GRID: dict[str, Any] = {"noise": (0.0, 0.05), "frequency": (50.0, 100.0)}
FEW: dict[str, Any] = {"noise": (0.0, 0.05), "seeds": 1, "episodes": 2}
STRATEGIES = ("FIFO[Uniform]", "FULL[PER]")
MANY = (*(f"FIFO[PER({index / 10})]" for index in range(1, 7)), "FULL[PER]")
MAPPED = ("FULL[Uniform]", "FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")
GAINS = {"FULL[PER]": 0.2, "Resv(500)[Uniform]": -0.3}  # of mapped strategies, at the second rate only
MONITOR = '#{"t_start": 1.0, "env_id": "None"}\nr,l,t\n-20,2,0.1\n-40,4,0.2\n-30,3,0.3\n'


def drawn_groups(paths: list[Path]) -> set[str]:
    """Return the groups of figures; each must be written as PNG and SVG, and no other file next to them."""
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in path.with_suffix(".svg").read_text(encoding="utf-8")[:1000]
        assert len(list(path.parent.iterdir())) == 2 * len(paths)
    return {path.name.split("-")[0] for path in paths}


def test_equal_data_give_equal_bytes(tmp_path: Path) -> None:
    data, folder, cells = results(tmp_path, seeds=1)
    paths = draw_figures(data, folder, cells)
    assert drawn_groups(paths) == {*ALWAYS}
    first = [path.with_suffix(".svg").read_bytes() for path in paths]
    assert first == [path.with_suffix(".svg").read_bytes() for path in draw_figures(data, folder, cells)]


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({"missing": (0, 1)}, set()),
        ({**FEW, "reference": USABLE}, {*ALWAYS, "response_noise"}),
        *slow(({**FEW, "reference": known}, {*ALWAYS, "response_noise"}) for known in (TOO_CLOSE, UNKNOWN)),
        *slow([({**GRID, "missing": (0, 4, 5, 6), "failing": (1,)}, {*ALWAYS, *RESPONSES, *COMPARED})]),
    ],
)
def test_studies_with_gaps_have_their_figures(changes: dict[str, Any], groups: set[str], tmp_path: Path) -> None:
    assert drawn_groups(draw_figures(*results(tmp_path, **changes))) == groups


@pytest.mark.slow
def test_a_long_legend_stays_below_the_caption(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 17))
    with style():
        figure = learning_curves(plant_results(tmp_path, strategies=strategies, seeds=1))
        figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.texts[1].get_window_extent().y0


def test_nothing_is_cut_off_on_the_left(tmp_path: Path) -> None:
    """Text is as wide as whole pixels: at the file's resolution names are longer than at another."""
    strategies = ("FULL[Uniform]", "FIFO(84000)[Uniform]", "FIFO(42000)[PER+IS]")
    with style():
        figure: Any = paired_differences(plant_results(tmp_path / "run", strategies=strategies, seeds=6))
        picture = imread(save(figure, tmp_path, "differences"))
    head = round(0.3 * len(picture))  # title and caption
    assert (picture[head:, :3, :3] == 1.0).all(), "white margin"


def test_a_strategy_of_which_every_run_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(tmp_path, lost=(1,))
    here = found[0].sel(plant="PendulumDCSC")
    panel: Any = learning_curves(here).axes[0]
    assert "4 of 4 FULL[PER]" in panel.get_legend().get_title().get_text()
    assert "4×" in [text.get_text() for text in score_dots(here).axes[0].texts]
    shown: list[list[str]] = []
    monkeypatch.setitem(all_figures._DRAWN, "scores", lambda data, *_: shown.append([*data["strategy"].values]))
    assert drawn_groups(draw_figures(*found)) == {"learning_curves", "profiles"}
    assert shown == [["FIFO[Uniform]", "FULL[PER]"]]


@pytest.mark.parametrize("learners", [("DDPG",), ("DDPG", "TD3"), ("DDPG", "TD3", "SAC")])
def test_no_two_series_look_alike(learners: tuple[str, ...], tmp_path: Path) -> None:
    strategies = tuple(f"FIFO({1000 * n})[Uniform]" for n in range(1, 11))
    data, _, _ = results(tmp_path, strategies=strategies, learners=learners, seeds=1)
    looks = {(one.color, one.marker, one.dashes) for one in all_series(data)}
    assert len(looks) == 10 * len(learners)


def means(axes: Any) -> list[float]:
    return [float(line.get_xdata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]


def test_raw_rewards_are_drawn_if_references_are_too_close(tmp_path: Path) -> None:
    here = plant_results(tmp_path, reference=TOO_CLOSE)
    runs = here.sel(learner="DDPG", strategy="FULL[PER]", noise=0.0, frequency=50.0)["reward"].values
    (axes,) = learning_curves(here).axes
    np.testing.assert_allclose(line(axes, "FULL[PER]")[1], runs.mean(axis=0), rtol=1e-12)
    (dots,) = score_dots(here).axes
    np.testing.assert_allclose(means(dots)[1], runs.mean(), rtol=1e-12)
    assert axes.get_ylabel().startswith("raw")
    assert dots.get_xlabel().startswith("raw")


def test_dots_and_responses_are_the_scores(tmp_path: Path) -> None:
    here = plant_results(tmp_path, noise=(0.05, 0.0), frequency=(50.0, 100.0))
    panels: Any = np.array(score_dots(here).axes).reshape(3, 4)
    for across, name in zip(panels, ("mu_final", "mu_max", "rise_time"), strict=True):
        places = here[f"{name}_mean"].sel(learner="DDPG").transpose("noise", "frequency", "strategy")
        assert [mean for axes in across for mean in means(axes)] == places.values.ravel().tolist()
        assert len({axes.get_xlim() for axes in across}) == 1
    final = here["mu_final_mean"].sel(learner="DDPG", strategy="FULL[PER]")
    by_noise: Any = response(here, "noise")
    by_rate: Any = response(here, "frequency")
    for axes, frequency in zip(by_noise.axes, (50.0, 100.0), strict=True):
        np.testing.assert_array_equal(line(axes, "FULL[PER]")[1], final.sel(frequency=frequency).sortby("noise").values)
    for axes, noise in zip(by_rate.axes, (0.05, 0.0), strict=True):
        x, mean = line(axes, "FULL[PER]")
        np.testing.assert_array_equal(mean, final.sel(noise=noise).values)
        np.testing.assert_allclose(x, (50.0, 100.0), rtol=0.02)


def test_labels_of_near_reference_controllers_do_not_overlap() -> None:
    """A label to the right of its line, and one to the left of a line further to the right."""
    figure = Figure(figsize=(3.0, 1.0), dpi=150)
    axes = figure.add_axes((0.0, 0.2, 1.0, 0.4))
    axes.set_xlim(0.0, 1.0)
    levels = {"rival:PID": 0.4, "rival:MPPI": 0.6, "reference_random": 0.02}
    assert scores._draw_levels(axes, levels, 3.0) == 2
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_collapsed_failed_and_never_risen_runs_are_counted(tmp_path: Path) -> None:
    final, _, rise = score_dots(plant_results(tmp_path, failing=(1,), collapsed=(0,))).axes
    assert [text.get_text() for text in final.texts[:2]] == ["4†", "2×"]
    assert rise.texts[0].get_text() == "4‡"


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
    study = small_study(strategies=("FIFO[Uniform]", "FULL[PER]"), seeds=3, block=2, episodes=3, greedy_every=3)
    cells, folder = study.cells(), RunFolder(tmp_path)
    for cell in cells:
        run_cell(cell, folder.cell(cell.id), buffers="none")
    references = {("PendulumDCSC", 50.0, 0.0): USABLE}
    data = assemble(cells, references, {cell.id: folder.cell(cell.id) for cell in cells})
    assert surfaces.policy_surfaces(data.sel(plant="PendulumDCSC"), folder, []) is None, "results of another study"
    figure: Any = surfaces.policy_surfaces(data.sel(plant="PendulumDCSC"), folder, cells)
    panels = [axes for axes in figure.axes if axes.images]
    titles = [axes.get_title().split("\n")[0] for axes in panels[:3]]
    assert titles == ["dynamic programming", "FIFO[Uniform]", "FULL[PER]"]
    seed: Any = median_seed(data["reward"].sel(strategy="FULL[PER]").values.reshape(3, -1))
    (cell,) = (cell for cell in cells if cell.strategy == "FULL[PER]" and seed in cell.seeds)
    plant: Any = cell.make_plant()
    agent = make_agent(cell, plant)
    agent.load_weights(read_policy(folder.cell(cell.id) / "policy.safetensors")[1])
    (x, y), low, high = (100, 40), np.array(plant.grid_low), np.array(plant.grid_high)
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
    assert drawn_groups([draw_offline(scores, tmp_path)]) == {"offline.png"}


def test_figures_for_print_have_captions_embedded_fonts_and_the_width_of_a_column(tmp_path: Path) -> None:
    *figures, captions = draw_figures(*results(tmp_path), medium=PAPER, output=tmp_path / "paper")
    assert {path.name for path in figures} == {f"{group}-PendulumDCSC.pdf" for group in (*ALWAYS, *COMPARED)}
    for path in figures:
        content = path.read_bytes()
        assert b"/FontFile2" in content, "TrueType, embedded"
        assert b"/Type3" not in content
        (width,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", content)
        assert min(abs(float(width) / 72 * 25.4 - column) for column in (89, 183)) < 0.1
    text = captions.read_text(encoding="utf-8").split("\n\n")
    assert [line.partition(": ")[0] for line in text[1:]] == [path.name for path in figures]
    assert text[1].startswith(
        "learning_curves-PendulumDCSC.pdf: PendulumDCSC: no significant difference from FIFO[Uniform]."
    )


def test_figures_for_print_have_no_text_above_and_the_legend_below(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    with style(PAPER):
        figure = learning_curves(data)
        figure.draw_without_rendering()
    assert not figure.texts
    assert figure.legends[0].get_window_extent().y1 <= figure.axes[0].get_window_extent().y0
    assert learning_curves(data).texts, "the style ends with its context"


def test_names_are_broken_between_their_parts_and_those_of_files_are_plain_and_unique() -> None:
    lines = ["Drop(0.5)*Synth(state=0.1,", "action=0.1)*Expl(1.0)[PER(0.7)+", "IS(0.5)]"]
    assert layout.broken("Drop(0.5)*Synth(state=0.1, action=0.1)*Expl(1.0)[PER(0.7)+IS(0.5)]", 34).splitlines() == lines
    assert layout.broken("FIFO[Uniform]", 34) == "FIFO[Uniform]"
    assert layout.broken("x" * 40, 34) == "x" * 40
    assert layout.file_names(["Magman", "a/cart.py:Cart", "b/cart.py:Cart"]) == ["Magman", "Cart-2", "Cart-3"]


def test_a_long_title_is_not_cut_off() -> None:
    figure = new_figure(3.0, 2.0, "PendulumDCSC: compared with FIFO[Uniform], condition by condition", "Means.")
    FigureCanvasAgg(figure).draw()
    heading, text = (one.get_window_extent() for one in figure.texts)
    assert heading.x1 < figure.get_size_inches()[0] * figure.dpi
    assert heading.y0 >= text.y1


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_monitor_files_and_plain_csv_are_read(tmp_path: Path) -> None:
    monitor = write(tmp_path / "monitor.csv", MONITOR)
    plain = write(tmp_path / "plain.csv", "\ufeffSeed,Step,Return\n1,0,-5\n\n1,100,-4\n")
    first, second = read_others([f"SB3={monitor}", f"SB3={monitor}", f"own={plain}"])
    assert [len(first.runs), len(second.runs)] == [2, 1]
    assert [each.tolist() for each in first.runs[0][:2]] == [[2.0, 6.0, 9.0], [-20.0, -40.0, -30.0]]
    assert first.runs[0][2] is not None
    assert [each.tolist() for each in second.runs[0][:2]] == [[0.0, 100.0], [-5.0, -4.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no column 'step'"),
        ("step,return\n", "no row of data"),
        ("step,return\n1,x\n", "'x' is no finite number"),
        ("step,return\n1\n", "is no finite number"),
        ("step,return\n5,1\n3,1\n", "do not ascend"),
        ("", "no column"),
    ],
)
def test_other_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        read_others([f"x={write(tmp_path / 'x.csv', text)}"])


def test_they_are_drawn_in_the_unit_of_the_panel_over_steps(tmp_path: Path) -> None:
    middle = 10 * (RANDOM + DP) / 2  # of an episode of 10 steps, half-way between the references
    file = write(tmp_path / "monitor.csv", "r,l,t\n" + f"{middle},10,1\n" * 3)
    (axes,) = learning_curves(plant_results(tmp_path), others=read_others([f"SB3={file}"])).axes
    assert axes.get_xlabel() == STEPS_LABEL
    x, y = line(axes, "SB3")
    np.testing.assert_allclose(y, 0.5)
    assert (x[0], x[-1]) == (10.0, 30.0)


def test_own_curves_lie_at_whole_numbers_of_episodes_or_at_the_steps_after_them(tmp_path: Path) -> None:
    data = plant_results(tmp_path, episodes=3, greedy_every=1)
    (by_episode,), (by_steps,) = (learning_curves(data, steps).axes for steps in (False, True))
    assert list(by_episode.get_xticks()) == [0, 1, 2, 3]
    steps, episodes = (line(axes, "FULL[PER]")[0] for axes in (by_steps, by_episode))
    np.testing.assert_allclose(steps, episodes * 200)  # the length of every episode


@pytest.mark.parametrize("smooth", [False, True])
def test_pictures_have_256_colours_unless_this_is_visible(tmp_path: Path, smooth: bool) -> None:
    figure = Figure(figsize=(3.0, 2.0))
    levels = np.linspace(0.0, 1.0, 200)
    if smooth:
        figure.subplots().imshow(np.stack([*np.meshgrid(levels, levels), np.full((200, 200), 0.5)], axis=-1))
    else:
        figure.subplots().plot(levels, levels**2)
    layout.write_figure(figure, tmp_path / "a.png", 150, "the last μ")
    with Image.open(tmp_path / "a.png") as picture:
        texts = {"Software": AUTHOR, "Description": "the last μ"}
        assert (picture.mode, picture.info["dpi"][0]) == ("RGB" if smooth else "P", pytest.approx(150, rel=1e-3))
        assert texts.items() <= picture.info.items()
        reduced = np.asarray(picture.convert("RGB"), float)
    figure.savefig(tmp_path / "full.png", dpi=150)
    change = np.abs(imread(tmp_path / "full.png")[..., :3] * 255 - reduced)
    assert change.mean() < (1e-3 if smooth else 0.3)
    assert change.max() < (1e-3 if smooth else 24)


def test_all_known_references_are_lines_in_view(tmp_path: Path) -> None:
    data = plant_results(tmp_path, reference=dataclasses.replace(USABLE, dp_averaged=-30.0, dp_observer=-25.0))
    (axes,) = learning_curves(data).axes
    levels = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines if len(np.asarray(line.get_xdata())) == 2]
    for reward in (-30.0, -25.0):
        assert any(level == pytest.approx((reward - RANDOM) / (DP - RANDOM)) for level in levels)
    for name in ("reference_dp_averaged", "reference_dp_observer"):
        data[name][:] = np.nan
    assert len(learning_curves(data).axes[0].lines) == len(axes.lines) - 2


def test_references_of_the_legend_are_drawn_or_written_in_every_panel(tmp_path: Path) -> None:
    """Panels share a range; a level that one shows and another cannot is written into the other."""
    data = plant_results(tmp_path, reference=dataclasses.replace(USABLE, dp_averaged=-5.0), noise=(0.0, 0.05))
    data["reference_dp_averaged"].loc[{"noise": 0.05}] = 10.0
    for axes, level in zip(learning_curves(data).axes, (1 + 15 / 140, 1 + 30 / 140), strict=True):
        assert axes.get_ylim()[1] > level
        assert level in [pytest.approx(float(np.asarray(line.get_ydata())[0])) for line in axes.lines]
    for name, level in (("zero", -5.0), ("lqr", -6.0)):
        data[f"reference_{name}"][:] = RANDOM
        data[f"reference_{name}"].loc[{"noise": 0.05}] += level * (DP - RANDOM)
    left, right = (
        [text.get_text() for text in axes.texts if isinstance(text, Annotation)] for axes in learning_curves(data).axes
    )
    assert left[0] == "random, LQR, doing nothing"
    assert left[-1] == "DP averaged"
    assert right[0] == "↓ LQR: −6, doing nothing: −5"


def test_references_that_nearly_coincide_share_a_line() -> None:
    levels = {"reference_lqr": 0.015, "reference_random": 0.0, "reference_zero": 0.03, "reference_dp": 1.0}
    assert merge_levels(levels, 1.0) == {1.0: "DP", 0.0: "random, LQR", 0.03: "doing nothing"}
    assert merge_levels(levels, 2.0) == {1.0: "DP", 0.0: "random, LQR, doing nothing"}


def test_points_that_were_not_run_have_no_axes(tmp_path: Path) -> None:
    data = plant_results(tmp_path, noise=(0.0, 0.05), frequency=(50.0, 100.0), missing=(0, 3, 4, 7))
    panels = learning_curves(data).axes
    empty = [axes for axes in panels if not axes.lines]
    assert [[text.get_text() for text in axes.texts] for axes in empty] == [["no results"]] * 2
    assert not any(axes.axison for axes in empty)
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in panels if axes.lines)


def test_series_take_turns_with_their_greedy_episodes(tmp_path: Path) -> None:
    figure = learning_curves(plant_results(tmp_path, episodes=300, greedy_every=5))
    episodes = [line(figure.axes[0], f"greedy {name}")[0] for name in STRATEGIES]
    assert [len(each) for each in episodes] == [20, 20]
    assert not set(episodes[0]) & set(episodes[1])
    assert "one in 3 greedy evaluations" in caption(figure)
    assert "greedy evaluation" in [text.get_text() for text in figure.legends[0].get_texts()]
    few = learning_curves(plant_results(tmp_path / "few", episodes=100, greedy_every=5))
    assert "one in" not in caption(few)


def test_many_series_have_a_panel_each_and_the_others_behind_in_grey(tmp_path: Path) -> None:
    data = plant_results(tmp_path, strategies=MANY, episodes=240)
    figure = learning_curves(data)
    drawn = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in drawn] == list(MANY)
    for axes, name in zip(drawn, MANY, strict=True):
        assert axes.collections, "a band"
        others = [one for one in axes.lines if str(one.get_label()).startswith("other ")]
        assert {one.get_color() for one in others} == {"0.8"}
        assert len(others) == len(MANY) - 1
        assert name in [one.get_label() for one in axes.lines]
    few = learning_curves(data.isel(strategy=slice(6)))
    assert len(few.axes) == 1
    assert "other series" not in [text.get_text() for text in few.legends[0].get_texts()]


def test_of_many_series_the_first_and_the_best_are_coloured_in_each_condition(tmp_path: Path) -> None:
    data = plant_results(tmp_path, strategies=MANY, noise=(0.0, 0.05))
    data["reward"].loc[{"strategy": MANY[3], "noise": 0.0}] += 20.0
    data["reward"].loc[{"strategy": MANY[0], "noise": 0.05}] += 20.0
    for axes, coloured in zip(learning_curves(data).axes, ({MANY[0], MANY[3]}, {MANY[0]}), strict=True):
        labels = {str(one.get_label()) for one in axes.lines}
        assert labels & set(MANY) == coloured
        assert {f"other {name}" for name in set(MANY) - coloured} <= labels


def test_curves_are_the_means_of_the_runs(tmp_path: Path) -> None:
    data = plant_results(tmp_path, episodes=240, greedy_every=20, failing=(1,), noise=(0.0, 0.05))
    figure = learning_curves(data)
    window = smoothing_window(240)
    assert window == 5
    assert f"moving average over {window} episodes" in caption(figure)
    for axes, noise in zip(figure.axes, (0.0, 0.05), strict=True):
        assert axes.get_title() == f"noise {noise:g}, 50 Hz"
        for strategy in STRATEGIES:
            runs = data.sel(learner="DDPG", strategy=strategy, noise=noise, frequency=50.0)
            rewards, greedy = ((runs[name].values - RANDOM) / (DP - RANDOM) for name in ("reward", "reward_greedy"))
            whole = np.isfinite(rewards).all(axis=1)
            assert whole.sum() == (2 if (noise, strategy) == (0.05, "FIFO[Uniform]") else 4)
            windows = np.lib.stride_tricks.sliding_window_view(rewards[whole].mean(axis=0), window)
            episode, mean = line(axes, strategy)
            np.testing.assert_array_equal(episode, np.arange(3, 239))
            np.testing.assert_allclose(mean, windows.mean(axis=1), rtol=1e-12)
            episode, mean = line(axes, f"greedy {strategy}")
            np.testing.assert_array_equal(episode, data["greedy_episode"].values)
            np.testing.assert_allclose(mean, greedy[whole].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("worse", [False, True])
def test_failed_runs_are_counted_where_no_curve_is_covered(tmp_path: Path, worse: bool) -> None:
    data = plant_results(tmp_path, failing=(1,))
    if worse:  # curves end in the lower corner
        data["reward"][:] = data["reward"].values[..., ::-1]
    figure: Any = learning_curves(data)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    note = axes.get_legend().get_title()
    assert "2 of 4 FULL[PER]" in note.get_text()
    points = axes.transData.transform(line(axes, "FIFO[Uniform]").T)
    assert not any(note.get_window_extent().contains(*point) for point in points)


@pytest.mark.slow
def test_bands_cover_the_true_mean_as_often_as_promised() -> None:
    """95 % nominal; a percentile bootstrap of 30 runs covers about 93 %. 1000 independent episodes: sd 0.8 %."""
    rng = np.random.Generator(np.random.PCG64(3))
    low, high = np.asarray(learning_curve(rng.normal(0.0, 1.0, (30, 600)), 1).band)
    assert 0.89 < ((low < 0) & (high > 0)).mean() < 0.97
    assert learning_curve(np.zeros((1, 5)), 1).band is None


def test_long_runs_are_drawn_with_fewer_points() -> None:
    rewards = np.random.Generator(np.random.PCG64(4)).normal(0.0, 1.0, (2, 3000))
    curve = learning_curve(rewards, smoothing_window(3000))
    assert len(curve.episode) < 1000
    for episode, mean in zip(curve.episode.astype(int), curve.mean, strict=True):
        np.testing.assert_allclose(mean, rewards[:, episode - 13 : episode + 12].mean(), atol=1e-12)


def test_moving_means_are_of_whole_windows_and_exact_after_a_huge_reward() -> None:
    np.testing.assert_allclose(moving_mean(np.array([[1.0, 2.0, 6.0, 1.0]]), 3), [[3.0, 3.0]])
    assert moving_mean(np.array([-1e18, -1.0, -3.0, -5.0]), 2)[1:].tolist() == [-2.0, -4.0]


def test_the_depth_of_a_curve_below_the_view_is_written(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    assert not any("down to" in text.get_text() for text in learning_curves(data).axes[0].texts)
    data["reward"][..., 8:12] -= 300.0
    (axes,) = learning_curves(data).axes
    (cut,) = [text.get_text() for text in axes.texts if "down to" in text.get_text()]
    drawn = [np.asarray(one.get_ydata(), np.float64) for one in axes.lines]
    assert cut == f"↓ down to −{-min(values.min() for values in drawn if len(values) > 5):.1f}"


def shape(figure: Any) -> Any:
    return figure.axes[0].get_subplotspec().get_gridspec().get_geometry()


def test_titles_name_what_ends_significantly_higher_or_lower() -> None:
    def row(strategy: str, rate: float, gain: float, chance: float, seeds: int = 8) -> Comparison:
        effect = paired([np.full(seeds, gain)], [np.zeros(seeds)])
        return Comparison("DDPG", strategy, 0.0, rate, np.full(seeds, gain), effect, chance, None)

    rows = [row("FULL[PER]", 50, 0.2, 0.01), row("FULL[PER]", 100, 0.2, 0.3), row("FIFO[Uniform]", 50, -0.1, 0.01)]
    rows.append(row("FIFO[Uniform]", 100, -0.1, 0.2))
    first, second = headline(rows, "b").split(", ")
    assert first == "FULL[PER] ends significantly higher than b in 1 of 2 conditions"
    assert second == "FIFO[Uniform] lower in 1 of 2 conditions"
    assert headline(rows[:1], "b") == "FULL[PER] ends significantly higher than b"
    assert headline(rows[1:2], "b") == "no significant difference from b"
    assert headline([], "b") == "compared with b"
    many = [row(f"FIFO({n})[Uniform]", 50, 0.2, 0.01) for n in (1, 2, 3)] + [row("FULL[PER]", 50, 0.0, 1.0)]
    assert headline(many, "b") == "3 of 4 strategies end significantly higher than b"


def test_four_panels_stand_in_a_square_and_share_their_range(tmp_path: Path) -> None:
    assert [panels_across(count) for count in range(1, 8)] == [1, 2, 3, 2, 3, 3, 3]
    data = plant_results(tmp_path, seeds=6, **GRID)
    for draw in (paired_differences, performance_profiles):
        figure: Any = draw(data)
        assert shape(figure) == (2, 2)
        assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_no_line_of_a_caption_is_broken_before_a_sign() -> None:
    text = "Means with 95 % intervals of n = 50 seeds, filled where p < 0.05. " * 9
    for width in range(30, 90):
        for row in new_figure(width / 10, 2.0, "t", text).texts[1].get_text().splitlines():
            assert row[0] not in "%=<"
            assert row[-1] not in "=<"


def test_captions_of_scores_describe_what_is_drawn(tmp_path: Path) -> None:
    cases: dict[str, Any] = {"whole": {}, "failing": {"failing": (1,)}, "single": {"seeds": 1}}
    whole, failing, single = (caption(score_dots(plant_results(tmp_path / case, **cases[case]))) for case in cases)
    assert "n = 4 runs" in whole
    assert "Numbers" not in whole
    assert "×" in failing
    assert "†" not in failing
    assert "intervals" not in single


def test_captions_for_print_are_plain_text(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    data["dead"][:] = 1
    with style(PAPER):
        text = layout.caption_of(score_dots(data))
    assert "(final μ_r < 0.2)" in text
    assert not {"$", "\n"} & set(text)


def test_black_numbers_are_readable_on_every_square() -> None:
    """The least contrast of text is 4.5 (WCAG)."""
    assert min((luminance(color) + 0.05) / 0.05 for color in color_map()(np.linspace(0, 1, 101)).tolist()) >= 4.5


def test_series_of_one_colour_and_marker_differ_in_their_faces(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 11))
    data = plant_results(tmp_path, strategies=strategies, noise=(0.0, 0.05), seeds=2)
    series = all_series(data)
    assert (series[0].color, series[0].marker) == (series[8].color, series[8].marker)
    figure: Any = response(data, "noise")
    faces = [line.get_markerfacecolor() for line in figure.legends[0].get_lines()]
    assert (faces[0], faces[8]) == (series[0].color, "white")


def test_lengths_are_drawn_with_noise_down_and_rates_across(tmp_path: Path) -> None:
    data = plant_results(tmp_path, missing=(0, 4), episodes=3, **GRID)
    data["episode_steps"] = data["episode_steps"] - data["episode"]
    figure: Any = length_curves(data)
    assert shape(figure) == (2, 2)
    empty, *others = figure.axes
    assert [text.get_text() for text in empty.texts] == ["no results"]
    assert all(axes.lines for axes in others)
    assert list(others[0].get_xticks()) == [0, 1, 2, 3]


def made(**changes: Any) -> xr.Dataset:
    axes = {"learners": ("DDPG",), "strategies": MAPPED, "noise": (0.0, 0.02), "rates": (50.0, 100.0), **changes}

    def ends(plant: int, learner: int, strategy: int, noise: int, rate: int) -> float:
        gain = GAINS.get(axes["strategies"][strategy], 0.0) * (rate == 1) * (learner == 0)
        return 0.6 + 0.1 * learner * strategy + gain

    return made_results(["P"], *map(list, axes.values()), seeds=12, episodes=40, ends=ends).sel(plant="P")


def test_differences_stand_in_their_squares_and_are_bold_if_significant() -> None:
    data = made()
    figure: Any = condition_map(data)
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["FULL[PER]", "FIFO[Uniform]", "Resv[Uniform]"]  # by their means; all of one capacity
    assert [panel.get_title() for panel in figure.axes[:2]] == ["noise 0", "noise 0.02"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["50", "100"]
    assert ": 500." in caption(figure)
    scores = data["mu_final"].squeeze("learner").mean("seed")
    for panel, noise in zip(figure.axes[:2], (0.0, 0.02), strict=True):
        assert len(panel.texts) == 3 * 2
        for text in panel.texts:
            x, y = map(int, text.get_position())
            here = scores.sel(noise=noise, frequency=(50.0, 100.0)[x])
            named = ("FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")[y]
            difference = float(here.sel(strategy=named) - here.sel(strategy="FULL[Uniform]"))
            assert float(text.get_text().replace("−", "-")) == pytest.approx(difference, abs=0.0051)
            assert np.asarray(panel.images[0].get_array())[y, x] == pytest.approx(difference)
            assert (text.get_fontweight() == "bold") == (named in GAINS and x == 1)


def test_one_axis_alone_and_different_capacities_are_named() -> None:
    strategies = ("FULL[Uniform]", "FIFO(500)[Uniform]", "FIFO(900)[Uniform]")
    figure: Any = condition_map(made(strategies=strategies, noise=(0.0,), rates=(25.0, 50.0, 100.0)))
    axes = figure.axes[0]
    assert axes.get_xlabel() == "control rate [Hz]"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["25", "50", "100"]
    assert {label.get_text() for label in axes.get_yticklabels()} == set(strategies[1:])


def test_learners_have_panels_and_gaps_and_failed_runs_are_left_out() -> None:
    data = made(learners=("DDPG", "TD3"))
    for name in ("reward", "reward_greedy", "mu_final", "reference_random", "reference_dp"):
        data[name].loc[{"noise": 0.02, "frequency": 100.0}] = np.nan
    failed = {"learner": "TD3", "strategy": "FULL[PER]", "noise": 0.0, "frequency": 50.0, "seed": 3}
    data["mu_final"].loc[failed] = np.nan
    figure: Any = condition_map(data)
    titles = [axes.get_title() for axes in figure.axes[:4]]
    assert titles == ["DDPG, noise 0", "DDPG, noise 0.02", "TD3, noise 0", "TD3, noise 0.02"]
    assert [len(axes.texts) for axes in figure.axes[:4]] == [6, 3, 6, 3]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    sizes = np.asarray(figure.axes[2].images[0].get_array())
    assert sizes[names.index("FULL[PER]"), 0] == pytest.approx(0.1, abs=0.02)
    assert "n = 11 to 12 paired seeds" in caption(figure)


@pytest.mark.parametrize("few", [{"noise": (0.0,)}, {"strategies": MAPPED[:2]}, {"strategies": MAPPED[:1]}])
def test_few_comparisons_have_no_map(few: dict[str, Any]) -> None:
    assert condition_map(made(**few)) is None


def test_a_study_of_another_version_has_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder, _ = results(tmp_path / "run", seeds=1)
    write_results(folder.results, data)
    study = 'plants = ["PendulumDCSC"]\nstrategies = ["FULL[PER]"]\n[learner.DDPG]\nformer_setting = 3\n'
    folder.study.write_text(study)
    show_figures(Console(), folder.path, "screen", "png", None)
    assert "unknown key in [learner.DDPG]" in " ".join(capsys.readouterr().out.split())
    assert (folder.figures / "scores-PendulumDCSC.png").is_file()
