"""Every command and script of the documents runs, page by page, in the folder of the first pages.

Guides that are followed file by file are in `test_docs.py`; settings (`toml`) are planned there.
"""

import contextlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from benchmarks.tables.marks import markdown
from tests.helpers.commands import Patch, call

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIRST = ["README.md", "replaybench/examples/from_python.ipynb", "docs/tutorials/first-study.md"]
"""Pages whose runs the others read."""
ELSEWHERE = [
    "docs/tutorials/own-plant.md",
    "docs/tutorials/your-rig.md",
    "docs/how-to/add-a-strategy.md",
    "docs/how-to/add-a-learner.md",
]
"""Guides that `test_docs.py` follows."""

SHORTER = {
    "sweep demo": "sweep demo --seeds 4 --episodes 8",
    "runs/first": "runs/demo",
    "claims runs/debruin2018-fig12-quick": "claims runs/demo",
    "--updates 20000": "--updates 64",
    "frequency 100 --noise 0.02 --inertia 1.91e-4": "frequency 25 --inertia 1.91e-4 --reference paper",
    "--seeds 8 --episodes 300": "--seeds 2 --episodes 3",
    "range(50)": "range(4)",
    "islice(stream, 1000)": "islice(stream, 3)",
    "learn(10_000)": "learn(120)",
    "seeds=8, episodes=120": "seeds=4, episodes=6",
    "seeds=8,\n    episodes=120": "seeds=4,\n    episodes=6",
}
"""Long commands, and shorter ones that tests run instead."""

NOT_RUN = {
    "replaybench advise": "`test_advice.py` asks on a plant and on a run",
    "replaybench sweep demo --seeds 4 --output": "the demo was run by the README's line",
    "replaybench figures": "`test_figures.py` draws them in both styles",
    "replaybench sweep benchmarks/": "150 seeds take hours; `test_presets.py` continues a small study",
    "replaybench claims benchmarks/results/debruin2018-fig12 runs/": "`test_claims.py` joins the seeds of two folders",
    "replaybench reproduce": "`test_presets.py` runs one of the presets",
    "replaybench watch ": "`test_progress.py` watches a run",
    "git clone": "a placeholder stands for the address",
    "source ": "the environment of the tests is active",
    "make ": "targets of the Makefile, which `.ci/run` uses and `test_docs.py` looks up",
    "tensorboard ": "a viewer that serves until it is stopped",
    "pip install": "`test_packaging.py` builds and installs the wheel",
    "eval ": "`test_packaging.py` asks for the completion script",
    "replaybench --tyro-print-completion": "`test_packaging.py` asks for the completion script",
}
"""Beginnings of the lines that no test runs here, and why."""

EXCERPT = "class CartPole"
"""The README shows a part of an example, which `test_examples.py` runs."""

KEPT = ["demo", "mine"]
"""Runs that several pages read."""


ONCE = ("replaybench sweep demo", "replaybench report runs/demo", "replaybench table runs/demo")
"""Beginnings of commands that give the same each time."""


def blocks(page: str) -> list[tuple[int, str, str]]:
    text = markdown(ROOT / page)
    found = re.finditer(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, block.start()) + 1, block[1], block[2]) for block in found]


def pages() -> list[str]:
    """Return the pages with commands or scripts, those first whose runs the others read."""
    found = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    of_code = [page for page in found if {"sh", "python"} & {language for _, language, _ in blocks(page)}]
    return [*FIRST, *(page for page in of_code if page not in (*FIRST, *ELSEWHERE))]


def shortened(text: str) -> str:
    for long in sorted(SHORTER, key=len, reverse=True):
        text = text.replace(long, SHORTER[long])
    return text


def a_cell(run: str) -> str:
    """Return the id of a run's cell that most pages have in mind."""
    cells = json.loads(Path(run, "provenance.json").read_text(encoding="utf-8"))["cells"]
    wanted = {"plant": "PendulumDCSC", "strategy": "FULL[Uniform]", "noise": 0.0, "frequency": 50.0}
    (found,) = (name for name, facts in cells.items() if wanted.items() <= facts["cell"].items())
    return str(found)


def with_cell(text: str) -> str:
    """Put an id in place of what stands for one."""
    return re.sub(r"(runs/\w+)/cells/<id>", lambda match: f"{match[1]}/cells/{a_cell(match[1])}", text)


def run_page(page: str, done: set[tuple[str, ...]]) -> None:
    """Run the commands and scripts of a page in the working folder; those that only read kept runs once in all."""
    for left in (Path("examples"), Path("rig.h"), *(run for run in Path("runs").glob("*") if run.name not in KEPT)):
        if left.is_dir():  # a reader of a page has not read others
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
    if page == "docs/reference/buffer-format.md":
        shutil.copy(next(Path("runs/demo/cells").glob("*/buffer.h5")), "buffer.h5")
    if page == "docs/how-to/other-languages.md":
        shutil.copy(ROOT / "replaybench" / "examples" / "rig_log.csv", "log.csv")
    names = {"__name__": "__main__"}
    for line, language, text in blocks(page):
        if language == "sh":
            for command in text.replace("\\\n", " ").splitlines():
                words = tuple(shlex.split(command, comments=True))
                if not command.startswith(tuple(NOT_RUN)) and words not in done:
                    name, *others = shlex.split(with_cell(shortened(command)), comments=True)
                    assert name == "replaybench", command
                    assert call(*others) == 0, command
                    done |= {words} if command.startswith(ONCE) else set()
        elif language == "python" and EXCERPT not in text:
            exec(compile(with_cell(shortened(text)), f"{page}:{line}", "exec"), names)


@pytest.fixture(scope="module")
def kept_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[tuple[str, ...]]]:
    """Run the first pages; return their folder, and the commands that need not run again."""
    folder, done = tmp_path_factory.mktemp("documents"), set[tuple[str, ...]]()
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        for page in FIRST:
            run_page(page, done)
    return folder, done


@pytest.mark.parametrize("page", pages()[len(FIRST) :])
def test_what_a_page_shows_runs(page: str, kept_runs: tuple[Path, set[tuple[str, ...]]], monkeypatch: Patch) -> None:
    folder, done = kept_runs
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / f"minari-{Path(page).stem}"))
    run_page(page, done)


def test_all_that_is_left_out_is_shown() -> None:
    shown = [line for page in pages() for _, lang, text in blocks(page) if lang == "sh" for line in text.splitlines()]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in shown)] == []


def test_everything_shortened_is_shown() -> None:
    shown = "\n".join(text for page in pages() for _, _, text in blocks(page))
    assert [long for long in SHORTER if long not in shown] == []
