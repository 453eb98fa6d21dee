"""Tables of the documents, timings, and peers of the benchmarks."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from benchmarks.evidence import acer_settings
from benchmarks.speed.peers.process import Peer
from benchmarks.tables import claims_picture, coverage, pages
from benchmarks.tables.marks import filled, names, prose
from benchmarks.tables.text import number, significant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.evidence.preset import preset_names, read_preset
from tests.helpers.commands import Patch

MEASUREMENT = re.compile(
    r"−\d+\.?\d* \[|\d \[[−\d]|\d+(\.\d+)?× (as|faster|slower|cheaper)|\d (updates|steps|actions|items|M)?/s\b"
)
"""How measurements look: means with intervals, factors, rates."""


EVERY_PAGE = pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(pages.ROOT).as_posix())


@pytest.mark.slow
@EVERY_PAGE
def test_tables_and_sentences_are_as_the_stored_files_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == pages.rewritten(page), "run `make tables`"
    assert [sentence for sentence in pages.sentences(page) if sentence not in pages.plain(text)] == []


@pytest.mark.slow
def test_a_changed_number_is_noticed(monkeypatch: Patch) -> None:
    readme = pages.ROOT / "README.md"
    pattern = next(pattern for pattern, name in pages.patterns()["README.md"].items() if name == "findings.furthest")
    monkeypatch.setattr(pages, "patterns", lambda: {"README.md": {pattern: "findings.furthest"}})
    for value, found in (("0.020", True), ("0.021", False)):
        monkeypatch.setattr(pages, "texts", lambda value=value: {"findings.furthest": value})
        (sentence,) = pages.sentences(readme)
        assert (sentence in pages.plain(readme.read_text(encoding="utf-8"))) is found


@pytest.mark.slow
def test_the_pictures_of_claims_show_what_their_tables_say() -> None:
    assert not claims_picture.outdated(), "run `make tables`"


PAGE_OF_OTHERS = {
    "fedus2020": "fedus2020",
    "panahi2024": "panahi2024",
    "when": "conditions",
    **dict.fromkeys(("fujimoto2020", "korniak2026", "pleiss2025", "saglam2023"), "since2020"),
}
"""Pages of `docs/results` with the results of presets that are not of the five papers."""


def test_every_preset_is_on_a_page() -> None:
    named = {paper: set().union(*found.values()) for paper, found in coverage.parts().items()}
    assert named.keys() == {"debruin2018", "novati2019", "wang2017", "sun2020", "wang2019"}
    for preset in preset_names():
        paper = preset.partition("/")[0]
        if paper in named:
            assert preset in named[paper], f"add {preset} to benchmarks/tables/coverage.toml"
        else:
            page = (pages.ROOT / f"docs/results/{PAGE_OF_OTHERS[paper]}.md").read_text(encoding="utf-8")
            assert preset in page or preset.replace("/", "-") in page, (
                f"name {preset} on the page {PAGE_OF_OTHERS[paper]}"
            )


def test_presets_have_the_best_settings_of_acer() -> None:
    for plant, label, setting, *_ in acer_settings.stored():
        suffix = "magman" if plant == "Magman" else ""
        tables = [read_preset(f"wang2017/{figure}{suffix}").figure.study["learner"] for figure in ("fig3", "fig4")]
        for table in (table[label] for table in tables if label in table):
            wanted = {key: value for key, value in setting.items() if key != "delta" or table.get("trust_region", True)}
            assert {key: value for key, value in table.items() if key in setting} == wanted


@pytest.mark.slow
def test_every_text_is_shown_somewhere() -> None:
    shown = set().union(*(names(page.read_text(encoding="utf-8")) for page in pages.PAGES))
    for sentences in pages.patterns().values():
        shown |= {name for of in sentences.values() for name in ([of] if isinstance(of, str) else of)}
    assert set(pages.texts()) == shown
    assert set(pages.patterns()) <= {page.relative_to(pages.ROOT).as_posix() for page in pages.PAGES}


@pytest.mark.slow
@EVERY_PAGE
def test_no_measurement_stands_outside_tables_and_checked_sentences(page: Path) -> None:
    text = pages.plain(prose(page.read_text(encoding="utf-8")))
    for sentence in pages.sentences(page):
        text = text.replace(pages.plain(prose(sentence)), "")
    assert not MEASUREMENT.findall(text)


def test_marked_tables_are_filled_and_missing_ones_named() -> None:
    page = "a b\n<!-- table: two -->\nold\n<!-- end -->\n"
    done = filled(page, {"two": "| x |"})
    assert done == "a b\n<!-- table: two -->\n\n| x |\n\n<!-- end -->\n"
    assert filled(done, {"two": "| x |"}) == done
    with pytest.raises(KeyError, match="two"):
        filled(page, {})
    with pytest.raises(ValueError, match="no other end"):
        filled("<!-- table: two --> b", {})


def test_numbers_keep_their_digits_and_are_written_with_signs_and_separators() -> None:
    kept = {0.0436: "0.044", 1630.0: "1,600", 26.4: "26", -0.5: "−0.50", 2.1e22: "above 10²²"}
    assert {value: significant(value) for value in kept} == kept
    assert [number(-1234.56, 1), number(-0.001), number(float("nan"))] == ["−1,234.6", "0.00", "–"]


BENCHMARKS = Path(__file__).parents[2] / "benchmarks/speed"
SCRIPT = """
import sys, timings
from pathlib import Path
timings.FOLDER = Path(sys.argv.pop(1))
value = float(sys.argv.pop(1))
row = timings.compared("stepping", value, 2.0, "/s", "a peer", least_ratio=3, at={"members": 8})
timings.main("bench_none.py", {"one:a": lambda: [row], "two": lambda: [timings.Timing("start", value, "s", most=1)]})
"""


def python(program: str, *words: object, status: int = 0) -> str:
    """Run a program beside the scripts; return what it prints."""
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_sections_are_stored_one_by_one(tmp_path: Path) -> None:
    first = python(SCRIPT, tmp_path, 8.0, "--note", "a busy machine")
    assert "4.00×  ok ≥ 3" in first
    assert "MISSED ≤ 1" in first
    python(SCRIPT, tmp_path, 5.0, "a")
    stored = json.loads((tmp_path / "bench_none.json").read_text(encoding="utf-8"))
    assert stored["one:a"]["timings"] == [
        {
            "what": "stepping", "ours": 5.0, "unit": "/s", "peer": 2.0, "rival": "a peer", "ratio": 2.5,
            "least_ratio": 3, "at": {"members": 8},
        }
    ]  # fmt: skip
    assert stored["two"]["timings"][0]["ours"] == 8.0
    assert stored["two"]["made"]["note"] == "a busy machine"
    assert "note" not in stored["one:a"]["made"]
    assert {"date", "commit", "processor", "cores", "load", "versions"} <= set(stored["one:a"]["made"])
    assert "no section three; there are one:a, two" in python(SCRIPT, tmp_path, 1.0, "three", status=2)


@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARKS.glob("bench_*.py")))
def test_every_script_is_run_by_make(script: str) -> None:
    makefile = (BENCHMARKS.parents[1] / "Makefile").read_text(encoding="utf-8")
    assert f"benchmarks/speed/{script}" in makefile


def test_no_script_is_taken_for_a_module_that_others_import() -> None:
    """A script's folder comes first on the path: one named like an installed or optional module would be imported."""
    python("import numba")


WITHOUT = """
import importlib.metadata, runpy
there = importlib.metadata.version
def version(name):
    if name in ("rltools", "jax"):
        raise importlib.metadata.PackageNotFoundError(name)
    return there(name)
importlib.metadata.version = version
runpy.run_path("bench_peers.py", run_name="__main__")
"""


def test_missing_peers_are_named_with_the_remedy() -> None:
    said = python(WITHOUT)
    assert said.startswith("peers left out: rltools,")
    assert "jax not installed: pip install -c constraints.txt -e '.[bench]'" in said


def test_a_peers_rate_is_per_second_that_it_says_it_took() -> None:
    served = "import sys\nfor line in sys.stdin: print(int(line) / 64, flush=True)"
    with Peer([sys.executable, "-c", served]) as peer:
        assert peer.rate(10) == 64
        assert peer.rate(7, members=4) == 256
    with Peer([sys.executable, "-c", "raise SystemExit(3)"]) as peer, pytest.raises(RuntimeError, match="status 3"):
        peer.rate(10)


def test_the_peers_plant_is_gymnasiums_pendulum() -> None:
    """A fine Euler integration of Gymnasium's equations agrees; rewards are Gymnasium's own."""
    env = PopulationEnv(make_plant(f"{BENCHMARKS / 'peers' / 'pendulum_v1.py'}:PendulumV1"), 3, seed=5)
    observation, _ = env.reset()
    assert env.steps_per_episode == 200
    assert np.abs(observation[:, 2]).max() <= 1
    assert len(np.unique(observation[:, 0])) == 3
    peer = gymnasium.make("Pendulum-v1").unwrapped
    angle, speed = math.atan2(observation[0, 1], observation[0, 0]), float(observation[0, 2])
    rng = np.random.Generator(np.random.PCG64(0))
    for _ in range(60):
        action = rng.uniform(-1, 1)
        peer.state = np.array([angle, speed])  # type: ignore[attr-defined]
        expected = peer.step(np.array([2 * action], np.float32))[1]
        observation, reward, *_ = env.step(np.full((3, 1), action, np.float32))
        for _ in range(5000):
            speed += 1e-5 * (15 * math.sin(angle) + 6 * action)
            angle += 1e-5 * speed
        speed = min(max(speed, -8.0), 8.0)
        assert reward[0] == np.float32(expected) or abs(reward[0] - expected) < 2e-3
        np.testing.assert_allclose(observation[0], [math.cos(angle), math.sin(angle), speed], atol=5e-3)
        angle, speed = math.atan2(observation[0, 1], observation[0, 0]), float(observation[0, 2])


def test_a_seed_has_solved_it_at_the_end_of_its_first_five_good_episodes() -> None:
    code = """
import numpy as np
from bench_solved import Curve
good, late, never = np.full(8, -150.0), np.array([-900.0, *[-150.0] * 7]), np.full(8, -201.0)
curve = Curve([200 * n for n in range(1, 9)], list(np.arange(1.0, 9.0)), np.stack([good, late, never]), 9.0)
print(*curve.solved)
"""
    assert python(code).split() == ["5.0", "6.0", "inf"]
