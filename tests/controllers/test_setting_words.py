"""Every setting of the package's learners is described, in `list` and on the learners' page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from replaybench.controllers.registry import LEARNERS, SETTING_WORDS, load_learner
from replaybench.reports.inspection.inspect import _flat


def test_every_setting_has_a_line_and_no_line_is_left_over() -> None:
    configs = [load_learner(name)[1]() for name in LEARNERS.own]
    assert {key for config in configs for key in _flat(dataclasses.asdict(config))} == set(SETTING_WORDS)


def test_the_page_says_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "learners.md").read_text(encoding="utf-8")
    for name, words in SETTING_WORDS.items():
        assert f"| `{name}` | {words} |" in page
