"""A claim: a published statement as a contrast of cells, with a smallest effect of interest.

Claims are data: one TOML file a paper next to this file. They compare cells of presets, named by what distinguishes
them there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from replaybench.data.configuration import build
from replaybench.data.errors import UserError, unknown
from replaybench.data.formats.documents import read_toml
from replaybench.experiments.presets.preset import read_preset
from replaybench.experiments.training.study import Cell

FOLDER: Final = Path(__file__).parent
AXES: Final = ("plant", "learner", "strategy", "noise", "frequency")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper on cells of one preset.

    The contrast of each seed is the sum of `measure` over the cells `plus`, less that over `minus`, less `level`. Cells
    share seeds, so differences are paired.

    Attributes:
        id: name of the claim, unique in its paper.
        source: section, figure or table of the paper.
        statement: the claim in our words.
        preset: preset of the cells, as in debruin2018/fig12.
        plus, minus: cells, each by the axes (plant, learner, strategy, noise, frequency) that distinguish it, and by
            the `preset` if it is of another one.
        where: axes that all cells share.
        level: number that the contrast is compared with, 0 where cells are compared with each other.
        measure: of each run, "final" (μ_final), "best" (μ_max), "rise" (episodes until μ_r >= 0.8), "greedy" (mean
            μ_r of the last greedy episodes), "reward" (mean reward, or return, of the last training episodes), "whole"
            (of all training episodes), "first STEPS" or "last STEPS" (of those in these steps), "evaluation" (mean
            reward, or return, of all evaluations), "evaluation STEPS" (of those in the last steps), "noise SIGNAL"
            (mean noise of a signal in replayed experiences in units of its mean, table 6) or "metric NAME" (mean of a
            learner's metric over the last tenth).
        logarithm: compare log10 of the measure; values below 1e-6 count as that.
        expects: the contrast is "more" than zero, "less", "not more", "not less", or the "same" within `relevance`.
        relevance: smallest effect of interest, in units of the measure.
        printed: the paper's own numbers, if it prints some.
    """

    id: str
    source: str
    statement: str
    preset: str
    plus: tuple[dict[str, Any], ...]
    minus: tuple[dict[str, Any], ...] = ()
    where: dict[str, Any] = field(default_factory=dict)
    level: float = 0.0
    measure: str = "final"
    logarithm: bool = False
    expects: Literal["more", "less", "not more", "not less", "same"]
    relevance: float
    printed: str = ""

    def cells(self) -> tuple[list[Cell], list[Cell]]:
        """Return the cells of `plus` and `minus`, the first block of seeds of each, at paper scale."""
        cells = [self._cell(named) for named in (*self.plus, *self.minus)]
        return cells[: len(self.plus)], cells[len(self.plus) :]

    def presets(self) -> list[str]:
        """Return the preset of each cell, `plus` first."""
        return [place.get("preset", self.preset) for place in self.places()]

    @property
    def in_scores(self) -> bool:
        """Whether its measure is of μ_r, which depends on references."""
        return self.measure in ("final", "best", "rise", "greedy")

    @property
    def upwards(self) -> int:
        """−1 if less is expected, else 1."""
        return -1 if self.expects.endswith("less") else 1

    @property
    def denies(self) -> bool:
        """Whether it expects "not more" or "not less"."""
        return self.expects.startswith("not ")

    def denied(self) -> Claim:
        """Return the claim without its "not"."""
        return replace(self, expects="less" if self.upwards < 0 else "more")

    def places(self) -> Iterator[dict[str, Any]]:
        """Yield the axes that name each cell, `plus` first."""
        yield from ({**self.where, **named} for named in (*self.plus, *self.minus))

    def _cell(self, named: Mapping[str, Any]) -> Cell:
        axes = {**self.where, **named}
        preset = axes.pop("preset", self.preset)
        cells = _first_cells(preset)
        for axis in axes:
            if axis not in AXES:
                raise unknown(f"claim {self.id}: axis", axis, AXES)
        found = [cell for cell in cells if all(getattr(cell, axis) == value for axis, value in axes.items())]
        if len(found) != 1:
            raise UserError(f"claim {self.id}: {axes} names {len(found)} cells of {preset}, not one")
        return found[0]


@functools.cache
def _first_cells(preset: str) -> tuple[Cell, ...]:
    """Return the cells of a preset at paper scale, the first block of seeds of each."""
    return tuple(cell for cell in read_preset(preset).study("paper").cells() if not cell.first_member)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims of one paper: one family of tests (Holm 1979), run or not."""

    paper: str
    claim: tuple[Claim, ...]


def claim_files() -> list[str]:
    """Return the names of the papers with claims."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_claims(name: str) -> Claims:
    """Read the claims of one paper by the name of its file."""
    if name not in claim_files():
        raise unknown("paper", name, claim_files())
    path = FOLDER / f"{name}.toml"
    return build(Claims, read_toml(path), str(path))
