"""Users' Python files, their neighbours, and installed packages' entry points."""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.registry import PLANTS, is_installed, make_plant
from replaybench.experiments.study import Study
from replaybench.replay.strategies.interface import Retention
from replaybench.replay.strategies.notation import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime import user_file
from replaybench.runtime.errors import UserError
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.user_file import InFile, Registry, canonical, class_in_file, imports_only, located, names_from
from tests.helpers.commands import Patch

FILE = """
from replaybench.replay.strategies.interface import Retention, RunningRetention

class Mine(Retention):
    def start(self, view):
        return _Running()

class _Running(RunningRetention):
    def __init__(self, *, mine=None):
        pass

    def slots(self, ARGUMENTS):
        pass
"""


def test_legends_leave_out_the_paths_of_users_files_unless_names_would_read_alike() -> None:
    names = ["FIFO[Uniform]", "Drop(0.2)*FIFO[my files/a.py:Newest(0.5)+IS]", "far/own.py:Mine:slow"]
    assert list(user_file.shortened(names).values()) == ["FIFO[Uniform]", "Drop(0.2)*FIFO[Newest(0.5)+IS]", "Mine:slow"]
    names = ["FIFO[a.py:Mine]", "FIFO[b.py:Mine]"]
    assert user_file.shortened(names) == {name: name for name in names}


@pytest.mark.parametrize("given", ["offers, capacity, slots", "offers, *others", "a, b, c, d=0"])
def test_a_method_that_can_be_called_as_the_package_does_is_taken(given: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE.replace("ARGUMENTS", given))
    assert class_in_file(InFile(tmp_path / "mine.py", "Mine"), "retention", Retention).__name__ == "Mine"


@pytest.mark.parametrize("given", ["offers, slots", "offers, capacity, slots, more", "offers, *, capacity, slots"])
def test_a_method_that_cannot_is_told_with_its_line(given: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE.replace("ARGUMENTS", given))
    with pytest.raises(UserError, match=r"mine.py line 12: .*slots must take \(self, offers, capacity, slots\), not"):
        class_in_file(InFile(tmp_path / "mine.py", "Mine"), "retention", Retention)


def test_an_edit_of_the_same_length_and_second_is_another_module(tmp_path: Path) -> None:
    """Python's own loader would find bytecode of the first content. A reload, as by `%autoreload`, changes nothing."""
    path = tmp_path / "mine.py"

    def imported(value: int) -> ModuleType:
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (1e9, 1e9))
        return user_file.import_file(path, "plant", "mine.py:Mine")

    first, second = imported(1), imported(2)
    assert (first.VALUE, second.VALUE) == (1, 2)
    assert importlib.reload(first).VALUE == 1


def test_a_class_in_place_of_a_name_is_refused_in_one_line() -> None:
    described: dict[str, Any] = {"name": "s", "strategies": "FULL[Uniform]"}
    for given, name in ((OdePlant, "'OdePlant'"), (UserFile, "path/to/file.py:UserFile")):
        with pytest.raises(UserError, match=f"plants takes names, not classes; write .*{name}") as refused:
            Study(plants=(given,), **described)  # type: ignore[arg-type]
        assert refused.value._render_traceback_() == [f"UserError: {refused.value}"], "as IPython shows it"


class UserFile:
    """A class that is not of the package."""


UNUSED: list[tuple[Registry, str, str, str]] = [
    (PLANTS, "envs.ode.plant import OdePlant", "perodic", "OdePlant has no perodic (did you mean periodic?), so that"),
    (PLANTS, "envs.foreign.python_plant import PythonPlant", "starts", "has no starts (did you mean start"),
    (
        LEARNERS,
        "controllers.algorithms.ddpg import DDPG",
        "metric_name",
        "has no metric_name (did you mean metric_names",
    ),
    (SAMPLINGS, "replay.strategies.interface import Sampling", "zq", "Sampling has no zq, so that Mine cannot use it"),
]


@pytest.mark.parametrize(("registry", "base", "name", "told"), UNUSED)
def test_a_public_name_that_nothing_uses_is_refused(
    registry: Registry, base: str, name: str, told: str, tmp_path: Path
) -> None:
    body = "\n\nclass Mine({}):\n    _own = {} = 1\n    parameter: float = 2.0\n"
    (tmp_path / "mine.py").write_text(f"from replaybench.{base}" + body.format(base.split()[-1], name))
    with pytest.raises(UserError, match=re.escape(told)):
        registry.load(f"{tmp_path / 'mine.py'}:Mine")
    (tmp_path / "mine.py").write_text(f"from replaybench.{base}" + body.format(base.split()[-1], "_mine"))
    registry.load(f"{tmp_path / 'mine.py'}:Mine")


def test_all_such_names_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from replaybench.envs.ode.plant import OdePlant\n\nclass Mine(OdePlant):\n"
        "    freqency = 100\n    perodic = (True,)\n\n    def start(self, uniform):\n        return uniform\n"
    )
    told = r"no freqency \(.* frequency\?\), perodic \(.* periodic\?\), start \(.* start_spread\?\), so that"
    with pytest.raises(UserError, match=told):
        PLANTS.load(f"{tmp_path / 'mine.py'}:Mine")


def test_paths_are_as_short_as_can_be(tmp_path: Path) -> None:
    assert canonical("./a/../mine.py:Mine") == "mine.py:Mine"
    assert canonical("./own.py:Mine:slow") == "own.py:Mine:slow"
    assert canonical("gymnasium:./mine.py:Mine-v0") == "gymnasium:mine.py:Mine-v0"
    assert canonical("Drop(0.5)*./own.py:Mine(3)[./own.py:Drawn+IS]") == "Drop(0.5)*own.py:Mine(3)[own.py:Drawn+IS]"
    assert canonical(f"{tmp_path}/mine.py:Mine", str(tmp_path)) == "mine.py:Mine"
    assert canonical(f"{tmp_path}/mine.py:Mine", str(tmp_path / "other")) == f"{tmp_path}/mine.py:Mine"
    for same in ("Pendulum", "my (old)/../mine.py:Mine", "FIFO[Uniform]"):
        assert canonical(same) == same


def test_a_file_beside_the_study_comes_before_one_where_this_runs(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "mine.py").write_text("")
    with names_from(str(tmp_path)):
        assert located(Path("mine.py")) == Path("mine.py")
        (tmp_path / "mine.py").write_text("")
        assert located(Path("mine.py")) == tmp_path / "mine.py"
        with names_from(""):
            assert located(Path("mine.py")) == tmp_path / "mine.py"
    assert located(Path("mine.py")) == Path("mine.py")


MINE = """
from replaybench.replay.strategies.interface import Retention
IMPORTED

class Mine(Retention):
    _share = SHARE
"""


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    _forget(before)


def _forget(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helper", "tools") or name.startswith("replaybench_"):
            del sys.modules[name]


def mine(
    folder: Path, helper: str, imported: str = "from helper import SHARE", file: str = "helper.py", own: str = "mine.py"
) -> type[Any]:
    for name, text in ((file, helper), (own, MINE.replace("IMPORTED", imported))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    importlib.invalidate_caches()
    return class_in_file(InFile(folder / own, "Mine"), "retention", Retention)


def assert_both_count(folder: Path, *names: str) -> None:
    """Check that two values of a number in a file that `Mine` imports are two things that the class is made of."""
    told = set()
    for share in (0.25, 0.125):
        before = set(sys.modules)
        found = mine(folder, f"SHARE = {share}\n", *names)
        assert found._share == share
        told.add(made_of(found))
        _forget(before)
    assert len(told) == 2
    assert Path(names[1]).name in told.pop()


@pytest.mark.parametrize("file", ["helper.py", "helper/__init__.py"])
def test_a_file_is_not_given_the_helper_of_another_folder(file: str, tmp_path: Path) -> None:
    assert mine(tmp_path / "a", "SHARE = 0.25\n", file=file)._share == 0.25
    with pytest.raises(UserError, match=r"b/mine.py imports helper, and .*/a/helper.* is loaded already .*; rename"):
        mine(tmp_path / "b", "SHARE = 0.125\n", file=file)


def test_nor_a_file_beside_it(tmp_path: Path) -> None:
    mine(tmp_path / "a", "SHARE = 0.25\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "helper.py").write_text("SHARE = 0.125\n")
    with pytest.raises(UserError, match="imports helper, and"):
        mine(tmp_path / "b", "from helper import SHARE\n", "from tools import SHARE", "tools.py")


@pytest.mark.parametrize(
    ("imported", "file"),
    [
        ("from helper import SHARE", "helper.py"),
        ("try:\n    from .helper import SHARE\nexcept ImportError:\n    from helper import SHARE", "helper.py"),
        ("from tools.helper import SHARE", "tools/helper.py"),
        ("from tools import SHARE", "tools/__init__.py"),
        ("from tools import helper\nSHARE = helper.SHARE", "tools/helper.py"),
    ],
)
def test_a_number_of_another_file_is_part_of_what_a_class_is_made_of(imported: str, file: str, tmp_path: Path) -> None:
    assert_both_count(tmp_path, imported, file)


def test_a_package_counts_by_its_version_though_only_a_number_is_taken(tmp_path: Path) -> None:
    assert "scipy" in made_of(mine(tmp_path, "", "from scipy.constants import g\nSHARE = g"))


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':", "def late():"])
def test_what_the_class_is_made_without_does_not_count(guard: str, tmp_path: Path) -> None:
    assert "helper.py" not in made_of(mine(tmp_path, "NOTHING = 1\n", f"SHARE = 0.5\n{guard}\n    import helper"))


def test_a_folder_named_like_an_installed_package_is_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "replaybench").mkdir()
    (tmp_path / "replaybench" / "__init__.py").write_text("raise RuntimeError\n")
    assert "__init__.py" not in made_of(mine(tmp_path, "SHARE = 0.25\n"))


def test_a_file_called_init_has_the_neighbours_of_its_own_folder(tmp_path: Path) -> None:
    """It is a file as any other, and no package."""
    (tmp_path / "helper.py").write_text("SHARE = 0.5\n")
    assert_both_count(tmp_path / "own", "from helper import SHARE", "helper.py", "__init__.py")
    with pytest.raises(UserError, match="line 3: ImportError: attempted relative import with no known parent package"):
        mine(tmp_path / "own", "SHARE = 0.5\n", "from .helper import SHARE", own="__init__.py")


REGISTRIES: list[Registry] = [PLANTS, LEARNERS, ENTRIES, RETENTIONS, SAMPLINGS, WEIGHTINGS, REFER]

PACKAGE = """
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.replay.strategies.retention import FIFO
from replaybench.replay.strategies.uniform import Uniform

class Swing(Pendulum): pass
class Kept(FIFO): pass
class Drawn(Uniform): pass
class Mine(DQN): pass
class MineConfig(DQNConfig): pass
"""
ENTRY_POINTS = """
[replaybench.plants]
Swing = offering:Swing
Pendulum = offering:Swing

[replaybench.strategies]
Kept = offering:Kept
Drawn = offering:Drawn

[replaybench.learners]
Mine = offering:Mine
Lost = nowhere_to_be_found:Lost
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    """A package as pip leaves one behind, on the path while the test lasts."""
    (tmp_path / "offering.py").write_text(PACKAGE)
    about = tmp_path / "offering-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    (about / "top_level.txt").write_text("offering\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    monkeypatch.undo()
    sys.modules.pop("offering", None)
    forget()


def forget() -> None:
    importlib.invalidate_caches()
    for registry in REGISTRIES:
        vars(registry).pop("offered", None)


@pytest.mark.usefixtures("package")
def test_what_an_installed_package_offers_goes_by_its_name() -> None:
    assert type(make_plant("Swing")).__module__ == "offering"
    assert type(make_plant("Pendulum")).__module__ != "offering"  # the package's own names come first
    assert is_installed("Swing")
    assert "Kept" in RETENTIONS
    assert "Kept" not in SAMPLINGS
    assert list(ENTRIES) == ["Drop", "Synth", "Mix"]
    with imports_only():
        strategy = parse("kept[Drawn+ReFER]")
    assert str(strategy) == "Kept[Drawn+ReFER]"
    assert type(strategy.sampling).__module__ == "offering"
    kind, config = load_learner("Mine:variant")
    assert (kind.__name__, config.__name__) == ("Mine", "MineConfig")
    study = Study(name="t", plants=("Swing",), learners=("Mine",), strategies=("Kept[Drawn]",), seeds=1, episodes=1)
    assert study.cells()[0].sources == "offering 1.2"


@pytest.mark.usefixtures("package")
def test_one_that_cannot_be_imported_is_named_and_hinders_nobody() -> None:
    with pytest.raises(UserError, match=r"learner Lost, which an installed package offers, fails: .*nowhere"):
        load_learner("Lost")
    assert "Lost" in LEARNERS
    assert load_learner("DQN")
