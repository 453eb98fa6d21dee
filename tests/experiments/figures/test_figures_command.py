"""The command `figures` on run folders from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_studies import results
from rich.console import Console

from replaybench.experiments.results_file import write_results
from replaybench.reports.figures.all_figures import show_figures
from replaybench.runtime.errors import UserError


@pytest.mark.parametrize(
    ("study", "words"),
    [
        (b'plants = ["evil.py:Foo"]', r"holds no results\.nc; run the sweep again"),
        (b'plants = ["evil\\u002epy:Foo"]', r"holds no results\.nc; run the sweep again"),
        (b'plants = ["gymnasium:evil:Foo-v0"]', r"holds no results\.nc; run the sweep again"),
        (b'plants = ["PendulumDCSC"]\nstrategies = ["FIFO[evil\\u002epy:Foo]"]', r"holds no results\.nc; run"),
        (b'plants = ["PendulumDCSC"]\n[learner."evil\\u002epy:Foo"]', r"holds no results\.nc; run the sweep again"),
        (b'plants = ["\xff"]', r"study\.toml"),
    ],
)
def test_no_code_that_a_study_names_is_run(
    study: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cells" / "x").mkdir(parents=True)
    (tmp_path / "cells" / "x" / "scores.h5").touch()
    (tmp_path / "study.toml").write_bytes(study)
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=words):
        show_figures(Console(quiet=True), tmp_path, "screen", None, None)


def test_a_study_of_another_version_has_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder, _ = results(tmp_path / "run")
    write_results(folder.results, data)
    study = 'plants = ["PendulumDCSC"]\nstrategies = ["FULL[PER]"]\n[learner.DDPG]\nformer_setting = 3\n'
    folder.study.write_text(study)
    show_figures(Console(), folder.path, "screen", "png", None)
    assert "unknown key in [learner.DDPG]" in " ".join(capsys.readouterr().out.split())
    assert (folder.figures / "scores-PendulumDCSC.png").is_file()
