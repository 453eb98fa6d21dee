"""Write what stored results say of the contrasts that advice cites: `python -m benchmarks.evidence.advice_evidence`."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables.stored import RESULTS, cell, results
from replaybench.evidence.advice.rules import FOLDER
from replaybench.experiments.effects import Effect, paired

STORED = FOLDER / "evidence.json"


def evidence() -> dict[str, dict[str, Any]]:
    """Return all contrasts by name."""
    return {
        "full-per-over-fifo": _contrast("separation", "PendulumDCSC", "FULL[PER]", "FIFO[Uniform]"),
        "resv-over-fifo": _contrast("debruin2018-fig12", "PendulumDCSC", "Resv[Uniform]", "FIFO[Uniform]"),
        "magman-fifo-full": _contrast("debruin2018-fig12", "Magman", "FIFO[Uniform]", "FULL[PER]"),
        "magman-reservoir-at-high-rate": _contrast("debruin2018-fig13", "Magman", "Resv[Uniform]", "FIFO[Uniform]"),
        "magman-exploration-at-high-rate": _contrast("debruin2018-fig13", "Magman", "Expl[Uniform]", "FIFO[Uniform]"),
        "late-one-period": _contrast("delay", "PendulumDCSC:delay=0.02", "FULL[PER]", "FULL[Uniform]"),
        "late-two-periods": _contrast("delay", "PendulumDCSC:delay=0.04", "FULL[PER]", "FULL[Uniform]"),
        "late-magman": _contrast("delay", "Magman:delay=0.04", "FULL[PER]", "FULL[Uniform]"),
        "noise-replayed": _replayed(),
        "weights-under-noise": _weights(0.05),
        "weights-without-noise": _weights(0.0),
        "magman-weights": _contrast("debruin2018-fig18", "Magman", "FIFO(42000)[PER+IS]", "FIFO(42000)[PER]"),
    }


def _contrast(study: str, plant: str, plus: str, minus: str) -> dict[str, Any]:
    one, other = (cell(study, plant=plant, learner="DDPG", strategy=name) for name in (plus, minus))
    seeds = min(one.data.sizes["seed"], other.data.sizes["seed"])
    effect = paired([one.data["mu_final"].values[:seeds]], [other.data["mu_final"].values[:seeds]])
    rate = float(one.data["frequency"])
    return _told(study, f"μ_final on {plant} at {rate:g} Hz, {plus} − {minus}", effect)


def _weights(noise: float) -> dict[str, Any]:
    """Return what importance weights add to prioritised replay of everything, at 50 Hz."""
    point = {"plant": "PendulumDCSC", "noise": noise, "frequency": 50.0}
    data = results("when-map").sel(point).squeeze(drop=True)["mu_final"]
    effect = paired([data.sel(strategy="FULL[PER+IS]").values], [data.sel(strategy="FULL[PER]").values])
    return _told("when-map", f"μ_final on PendulumDCSC with noise {noise:g}, FULL[PER+IS] − FULL[PER]", effect)


def _replayed() -> dict[str, Any]:
    """Return how much more noise than there is TDE[PER] replays in the pendulum's angle."""
    found = cell("debruin2018-table6", plant="PendulumDCSC", strategy="TDE[PER]").data
    level = float(found["noise"]) * np.sqrt(2 / np.pi)
    noise = found["replayed_noise"].sel(signal="angle").values / level
    return _told(
        "debruin2018-table6", "noise of the angle replayed by TDE[PER] on PendulumDCSC − 1", paired([noise], [], 1.0)
    )


def _told(study: str, contrast: str, effect: Effect) -> dict[str, Any]:
    data = results(study)
    return {
        "contrast": contrast,
        "effect": round(effect.estimate, 4),
        "interval": [round(end, 4) for end in effect.interval()],
        "n": effect.n,
        "episodes": data.sizes["episode"],
        "stored": f"{(RESULTS / study).relative_to(Path(__file__).resolve().parents[2])}",
    }


def main() -> None:
    STORED.write_text(json.dumps(evidence(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(STORED)


if __name__ == "__main__":
    main()
