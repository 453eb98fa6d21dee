"""Installed packages offer plants, strategies and learners by entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.envs.registry import PLANTS, is_installed, make_plant
from replaybench.experiments.study import Study
from replaybench.replay.strategies.notation import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import Registry, imports_only

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
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    """Let registries look again for what is installed."""
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
    assert list(ENTRIES) == ["Drop", "Synth"]
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
