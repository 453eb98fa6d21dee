"""Inspection of cells and stored buffers, and refusal of forged buffer files."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.data.record import read_record, write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import make_plant
from replaybench.exchange.recording import plane_coverage, state_dimensions
from replaybench.experiments.recorded_buffer import read_recording
from replaybench.experiments.study_record import write_provenance, write_toml
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.buffer_stream import BufferStream
from replaybench.replay.storage.schema import open_buffer
from replaybench.replay.storage.slots import STEP, segment
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.reports.inspection import composition
from replaybench.reports.inspection.composition import Composition, FloatHistogram, Visits, measure
from replaybench.reports.inspection.composition_report import SHARES, bar, histogram_edges
from replaybench.runtime.errors import UserError
from tests.helpers.cells import small_study
from tests.helpers.commands import Capsys, Patch, call, refused
from tests.helpers.tiers import slow

Stored = Callable[[str], Path]

CART_POLE = Path(__file__).parents[2] / "replaybench" / "examples" / "cart_pole.py"

MEMBERS = 3
SAME = 2.0**-11
"""How far a number may lie from the one that stands for its class."""

CASES = {
    "TDE(1.0)[PER]": (STEP, 2),
    "Resv[Uniform]": (STEP, 2),
    "Expl[PERprop+FIS]": (STEP, 3),
    "Drop(0.5)*FIFO[Uniform]": (STEP, 1),
    "TDE[PER+FIS]": (segment(7), 5),
}


def make(path: Path, case: str, compressed: bool = False) -> Path:
    """Write a buffer of random experiences, replayed and annotated; the last member stops collecting early."""
    unit, states = CASES[case]
    rng = np.random.default_rng(7)
    fields = {**step_fields(states, 1), "exploration": 1}
    replay = Replay(parse(case), fields, 400, 0, range(20, 20 + MEMBERS), 16, unit)
    for step in range(1000):
        row = {name: rng.normal(0, 0.5, (MEMBERS, width)).astype(np.float32) for name, width in fields.items()}
        replay.add(row, np.array([True, True, step < 700]), np.full(MEMBERS, step % 100 == 99))
        if step > 50 and step % 5 == 0:
            batch = replay.sample(Context())
            replay.annotate(batch, {"td_error": rng.exponential(1, batch.idx.shape).astype(np.float32)})
    known = {**replay_facts(replay), "plant": "Pendulum", "parameters": {}, "frequency": 50.0, "noise": 0.0}
    write_record(path, "buffer", known, replay_arrays(replay), "gzip" if compressed else None)
    return path


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a buffer file of each case, made when first asked for."""
    folder = tmp_path_factory.mktemp("buffers")
    return cache(lambda case: make(folder / f"{list(CASES).index(case)}.h5", case))


def rewrite(source: Path, path: Path, /, **facts: Any) -> Path:
    header, arrays = read_record(source)
    write_record(path, "buffer", {**header.facts, **facts}, arrays)
    return path


def measured(path: Path, member: int | None = None) -> Composition:
    with open_buffer(path) as file:
        return measure(file, member)


def expected(arrays: Mapping[str, NDArray[Any]], members: list[int], name: str) -> NDArray[Any]:
    """Return all values of a quantity, or all observations `[n, S]`, by loops over members, slots and steps."""
    found: list[Any] = []
    for m in members:
        for slot in range(arrays["count"][m]):
            if name in ("td_error", "priority", "replays"):
                found.append(arrays[name][m, slot])
                continue
            for step in range(arrays["length"][m, slot] if "length" in arrays else 1):
                if name == "age":
                    found.append(int(arrays["collected"][m]) - int(arrays["serial"][m, slot]) - step)
                else:
                    row = arrays[name][m, slot, step] if "length" in arrays else arrays[name][m, slot]
                    found.append(row if name == "observation" else row[0])
    return np.array(found)


@pytest.mark.parametrize("strategy", CASES)
@pytest.mark.parametrize("member", [None, 2])
def test_composition(strategy: str, member: int | None, stored: Stored, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(composition, "PIECE", 257)  # many pieces, that no chunk is a multiple of
    packed = member is None and strategy == "TDE[PER+FIS]"
    path = make(tmp_path / "b.h5", strategy, compressed=True) if packed else stored(strategy)
    _, arrays = read_record(path)
    members = list(range(MEMBERS)) if member is None else [member]
    found = measured(path, member)
    ages = expected(arrays, members, "age")
    assert found.stored == len(ages)
    for name, own in (("count", found.slots), ("collected", found.collected), ("offers", found.offers)):
        np.testing.assert_array_equal(own, arrays[name][members])
    edges = np.arange(len(found.ages.stored) + 1) * found.ages.width
    np.testing.assert_array_equal(found.ages.stored, np.histogram(ages, edges)[0])
    all_ages = np.concatenate([np.arange(total) for total in arrays["collected"][members]])
    np.testing.assert_array_equal(found.ages.collected, np.histogram(all_ages, edges)[0])
    of_members = [expected(arrays, [m], "age") for m in members]
    assert found.young == sum((own < len(own)).sum() for own in of_members)
    by_strategy = {"td_error", "priority", "replays"} & arrays.keys()
    assert set(found.quantities) == {"age", "exploration", "reward"} | by_strategy
    for name, counted in found.quantities.items():
        values = expected(arrays, members, name).astype(np.float64)
        finite = values[np.isfinite(values)]
        assert counted.infinite == len(values) - len(finite)
        exact = np.quantile(finite, SHARES, method="inverted_cdf")
        np.testing.assert_allclose(counted.quantiles(SHARES), exact, rtol=SAME, err_msg=name)
    states = expected(arrays, members, "observation")
    assert found.visits is not None
    assert found.visits.total == len(states)
    for s, along in enumerate(found.visits.along):
        np.testing.assert_array_equal(along, np.histogram(states[:, s], 63, (-1, 1))[0])


def test_counted_numbers_keep_their_order_and_their_size() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(0, 10.0 ** rng.integers(-30, 30, 5000)), [0.0, -0.0, 3e-45, 3.4e38]])
    values = values.astype(np.float32)
    counted = FloatHistogram()
    for part in np.array_split(values, 7):
        counted.add(part)
    counted.add(np.array([np.inf, -np.inf, np.nan, 1e300]))
    shares = np.linspace(0, 1, 401).tolist()
    exact = np.asarray(np.quantile(values.astype(np.float64), shares, method="inverted_cdf"))
    np.testing.assert_allclose(counted.quantiles(shares), exact, rtol=SAME, atol=1e-41)
    assert (counted.infinite, counted.undefined) == (3, 1)
    whole = FloatHistogram()
    whole.add(np.arange(4096))
    assert whole.quantiles([0.25, 0.5, 1.0]).tolist() == [1023, 2047, 4095]
    assert np.isnan(FloatHistogram().quantiles([0.5])).all()


def test_coverage_is_that_of_an_imported_recording() -> None:
    plant = make_plant("Magman")
    axes: Any = composition.plant_axes(plant)
    x = np.random.default_rng(2).normal(0, 0.4, (300, 2)).astype(np.float32)
    physical = plant.denormalise_state(x)
    visits = Visits(axes)
    visits.add(x[:100])
    visits.add(x[100:])
    for mine, theirs in zip(visits.dimensions(), state_dimensions(plant, physical, physical, physical), strict=True):
        assert (mine.name, mine.unit, mine.visited) == (theirs.name, theirs.unit, theirs.visited)
        np.testing.assert_allclose((mine.low, mine.high), (theirs.low, theirs.high))
        np.testing.assert_allclose(mine.unvisited, theirs.unvisited)
    assert visits.plane_coverage() == plane_coverage(plant, physical)


def test_states_beyond_the_range_and_no_numbers_are_counted_apart() -> None:
    visits = Visits(composition.nameless_axes(2))
    visits.add(np.array([[0, 0], [-1, 1], [1.5, 0], [np.nan, 0], [np.inf, 0.5]], np.float32))
    assert visits.along.sum(axis=1).tolist() == [2, 5]
    assert visits.outside.tolist() == [1, 0]
    assert visits.plane.sum() == 2
    assert Visits(composition.nameless_axes(17)).planes == [(s, s + 1) for s in range(6)]
    assert len(Visits(composition.nameless_axes(4)).planes) == 6
    assert Visits(composition.nameless_axes(1)).planes == []


@pytest.mark.parametrize(
    ("low", "high", "whole", "log"),
    [(0, 0, True, False), (3, 700, True, False), (-2, -2, False, False), (0, 0, False, False), (1e-6, 3, False, True)],
)
def test_histograms_hold_all_they_count(low: float, high: float, whole: bool, log: bool) -> None:
    edges = histogram_edges(low, high, whole, log)
    assert edges[0] < low <= high < edges[-1]
    assert len(edges) <= 42
    assert (np.diff(edges) > 0).all()


def test_bars_show_eighths_and_never_nothing_for_something() -> None:
    assert [bar(share, 2) for share in (0, 1e-9, 0.5, 0.5625, 1)] == ["", "▏", "█", "█▏", "██"]


@pytest.mark.parametrize("strategy", ["TDE[PER+FIS]", *slow(["TDE(1.0)[PER]", "Drop(0.5)*FIFO[Uniform]"])])
def test_inspect_prints_and_draws_a_composition(strategy: str, stored: Stored, tmp_path: Path, capsys: Capsys) -> None:
    path, figure = stored(strategy), tmp_path / "new" / "composition.png"
    assert call("inspect", path, "--verify", "--member", 1, "--figure", figure) == 0
    text = capsys.readouterr().out
    assert "member 1 (seed 21)" in text
    assert all(word in text for word in ("collected", "age", "retained", "quantiles", "exploration", "visited"))
    assert ("rad/s" in text) == ("┌" in text) == (CASES[strategy][1] == 2)
    assert ("units of up to 7 steps" in text) == (strategy == "TDE[PER+FIS]")
    before = figure.read_bytes()
    assert before.startswith(b"\x89PNG")
    assert call("inspect", path, "--figure", figure) == 2
    assert "exists already" in capsys.readouterr().err
    assert figure.read_bytes() == before
    assert call("inspect", path) == 0
    assert "3 members pooled" in capsys.readouterr().out


def test_wrong_options_are_refused_in_one_line(stored: Stored, tmp_path: Path, capsys: Capsys) -> None:
    path, scores = stored("Resv[Uniform]"), tmp_path / "scores.h5"
    write_record(scores, "scores", {}, {"reward": np.zeros((2, 3))})
    wrong: dict[str, tuple[object, ...]] = {
        "--member must be 0 … 2": (path, "--member", 3),
        "must end in .png": (path, "--figure", tmp_path / "a.jpeg"),
        "is no buffer file": (scores, "--figure", tmp_path / "a.png"),
        "no such file": (tmp_path / "none.h5", "--member", 1),
        "holds 2 states": (path, "--plant", f"{CART_POLE}:CartPole"),
    }
    for reason, words in wrong.items():
        assert reason in refused(capsys, "inspect", *words)
    assert call("inspect", scores) == 0


def test_a_file_does_not_run_a_python_file(stored: Stored, tmp_path: Path, capsys: Capsys) -> None:
    plant, mark = tmp_path / "trap.py", tmp_path / "mark"
    imported = "import pathlib\nfrom replaybench.envs.ode.pendulum import Pendulum as Mine\n"
    plant.write_text(f"{imported}pathlib.Path({str(mark)!r}).touch()\n")
    path = rewrite(stored("Resv[Uniform]"), tmp_path / "b.h5", plant=f"{plant}:Mine", strategy="$x_[/bold]")
    assert call("inspect", path, "--figure", tmp_path / "a.png") == 0
    text = capsys.readouterr().out
    assert "--plant" in text
    assert "normalised" in text
    assert not mark.exists()
    assert call("inspect", path, "--plant", f"{plant}:Mine") == 0
    assert "rad/s" in capsys.readouterr().out
    assert mark.exists()


@pytest.mark.parametrize("parameters", [{"mass": -1}, {"name": 1}, {"mass": 1e-320}, {"inertia": "x"}])
def test_impossible_parameters_are_ignored(parameters: object, stored: Stored, tmp_path: Path, capsys: Capsys) -> None:
    path = rewrite(stored("Resv[Uniform]"), tmp_path / "b.h5", parameters=parameters)
    assert call("inspect", path) == 0
    assert "normalised" in capsys.readouterr().out


def test_a_buffer_without_experiences_or_with_nan_is_shown(stored: Stored, tmp_path: Path, capsys: Capsys) -> None:
    header, arrays = read_record(stored("TDE(1.0)[PER]"))
    for name in ("reward", "observation", "td_error"):
        arrays[name][:] = np.nan
    empty = {**arrays, **{name: np.zeros(MEMBERS, np.int64) for name in ("count", "collected", "offers")}}
    for name, changed in (("nan", arrays), ("empty", empty)):
        write_record(tmp_path / f"{name}.h5", "buffer", header.facts, changed)
        assert call("inspect", tmp_path / f"{name}.h5", "--verify", "--figure", tmp_path / f"{name}.png") == 0
        assert ("1,200 NaN" in capsys.readouterr().out) == (name == "nan")


@pytest.mark.parametrize("name", ["collected", "serial", "length", "td_error"])
def test_contradictions_are_one_line(name: str, stored: Stored, tmp_path: Path) -> None:
    """Of counts and of the shapes of fields there are more in the tests of streams."""
    header, arrays = read_record(stored("TDE[PER+FIS]"))
    change = {"collected": arrays["collected"] - 50, "serial": arrays["serial"] * 0}
    changed = {**change, "td_error": arrays["td_error"][:, :5]}.get(name)
    arrays = {key: array for key, array in arrays.items() if key != name} | ({} if changed is None else {name: changed})
    write_record(tmp_path / "wrong.h5", "buffer", header.facts, arrays)
    with pytest.raises(UserError, match=r"^.*wrong\.h5[^\n]*$"):
        measured(tmp_path / "wrong.h5")


DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]

NUMBERS = ["1", [], [[]], {}, True, math.nan, -1, 1e300, 10**400]
WHOLE = [*NUMBERS, 1.5, math.inf]
TEXTS = [5, True, [], [[]], {"a": {}}]

REFUSED: dict[str, list[Any]] = {
    "fields": [None, 5, "x", [], [[]], {}, {"reward": None}, {"reward": 0}, {"reward": 10**30}, {"reward": [1]}],
    "order": [5, "x", [[]], [None], {"reward": 1}, ["reward"], ["reward", "reward"]],
    "source": TEXTS,
    "plant": TEXTS,
    "parameters": [None, 5, "x", [1], [[]], {"mass": None}, {"mass": []}, {"mass": 10**400}, {"mass": {}}],
    "plant_fingerprint": TEXTS,
    "frequency": [*NUMBERS, 0, math.inf],
    "noise": [*NUMBERS, 11, math.inf],
    "observe": ["angle", 5, [[]], [None], {"angle": 1}],
    "strategy": TEXTS,
    "unit": [None, 5, "x", [], {"steps": 0}, {"steps": "x"}, {"steps": 10**9}, {"episode": 3}],
    "capacity": [*WHOLE, 0, 10**10],
    "batch_size": [*WHOLE, 0, 10**10],
    "root_seed": WHOLE,
    "members": [5, "x", [[]], [-1, 1], [0, 0], [0, 1, 2], [0.5, 1], [0, 10**400]],
    "traces": [5, "x", [[]], [None], {}],
    "window": [*WHOLE, 0],
    "cell": [5, "x", [], {}, {"learner": 5, "settings": {}}, {"learner": "DDPG", "settings": []},
             {"learner": "DDPG", "settings": {}, "discount": "x"}],
    "reward_final": [5, "x", [[]], [None], {}, ["x"], [10**400]],
    "reward_greedy": [5, "x", [[]], [None], {}, ["x"], [10**400]],
    "version": TEXTS,
    "anything": [DEEP],
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A buffer of two members, as a sweep would write it."""
    replay = Replay(parse("FIFO[PER]"), {**step_fields(2, 1), "exploration": 1}, 60, 0, range(2), 8)
    rng = np.random.default_rng(0)
    for step in range(80):
        rows = {name: rng.normal(size=(2, width)).astype(np.float32) for name, width in replay.columns.fields.items()}
        replay.add(rows, np.ones(2, np.bool_), np.full(2, step % 20 == 19))
    cell = {"learner": "DDPG", "settings": {}, "discount": "fixed"}
    facts: dict[str, Any] = {
        "source": "sweep",
        "plant": "Pendulum",
        "parameters": {"mass": 0.055},
        **replay_facts(replay),
    }
    facts |= {"plant_fingerprint": "x", "frequency": 50.0, "noise": 0.0, "observe": [], "cell": cell}
    facts |= {"reward_final": [-1.0, math.nan], "reward_greedy": [], "version": "0.1.0"}
    path = tmp_path_factory.mktemp("sound") / "buffer.h5"
    write_record(path, "buffer", facts, replay_arrays(replay))
    return path


def inspect(path: Path) -> None:
    if call("inspect", path, "--verify"):
        raise UserError("see stderr")


def stream(path: Path) -> None:
    with BufferStream(path, 4, 0, range(2)) as batches:
        batches.sample()


READERS: list[Callable[[Path], Any]] = [read_recording, load_replay, stream]


@contextlib.contextmanager
def one_line(path: Path, label: str) -> Iterator[None]:
    with pytest.raises(UserError) as caught:
        yield
    text = str(caught.value)
    assert "\n" not in text, label
    assert str(path) in text, label
    assert len(text) < 400, label


def test_all_readers_accept_a_sound_file_and_facts_of_a_later_version(sound: Path, tmp_path: Path) -> None:
    assert set(read_record(sound)[0].facts) <= set(REFUSED), "every fact is forged below"
    later = rewrite(sound, tmp_path / "later.h5", further=[1, {"a": None}])
    for read in (inspect, *READERS):
        read(sound)
        read(later)


@pytest.mark.parametrize("fact", REFUSED)
@pytest.mark.parametrize("count", [2, *slow([None])])
def test_a_wrong_fact_is_one_line(count: int | None, fact: str, sound: Path, tmp_path: Path, capsys: Capsys) -> None:
    for value in REFUSED[fact][:count]:
        path = rewrite(sound, tmp_path / "forged.h5", **{fact: value})
        label = f"{fact} = {str(value)[:40]}"
        if value is REFUSED[fact][0]:  # the command takes its time
            assert str(path) in refused(capsys, "inspect", path), label
        for read in READERS:
            with one_line(path, label):
                read(path)


@pytest.mark.parametrize(
    ("change", "readers"),
    [
        ({"fields": {**step_fields(2, 1), "exploration": 1, "reward": 2}}, READERS),
        ({"members": [0, 1, 2]}, READERS),
        *((change, [load_replay]) for change in ({"capacity": 59}, {"capacity": 10**9}, {"unit": {"steps": 2}})),
    ],
)
def test_facts_that_contradict_the_arrays_are_one_line(
    change: dict[str, Any], readers: list[Callable[[Path], Any]], sound: Path, tmp_path: Path
) -> None:
    path = rewrite(sound, tmp_path / "forged.h5", **change)
    for read in readers:
        with one_line(path, str(change)):
            read(path)


@pytest.mark.parametrize(
    ("command", "learner", "strategy"),
    [("replay", "--from-learner", "--from-strategy"), ("export-policy", "--learner", "--strategy")],
)
def test_remedies_are_options(command: str, learner: str, strategy: str, tmp_path: Path, capsys: Capsys) -> None:
    """In a folder of eight cells, none of which has begun."""
    study = small_study(
        learners=("DDPG", "TD3"), strategies=("FULL[Uniform]", "FIFO[PER]"), noise=(0.0, 0.02), seeds=2, episodes=3
    )
    folder = RunFolder(tmp_path / "run")
    write_provenance(folder, study.name, study.cells(), complete=False)
    folder.study.write_text(write_toml(study))
    told = f"say which: {learner} DDPG or TD3; {strategy} 'FULL[Uniform]' or 'FIFO[PER]'; --noise 0 or 0.02"
    assert told in refused(capsys, command, folder.path)
    given = f"leave out {strategy}, which chooses among its cells"
    assert given in refused(capsys, command, folder.study, strategy, "FIFO[PER]")
