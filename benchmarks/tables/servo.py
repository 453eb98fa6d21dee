"""Final scores and signals of learners and of controllers on the servo with a rig's channel."""

from typing import Final

from benchmarks.tables.stored import results, runs
from benchmarks.tables.text import captioned, number, spread, table

STUDIES: Final = {"servo": "none", "servo-spread": "inertia ± 30 %, friction ± 50 %"}
"""Studies, with the parameters that differ between episodes."""
_RIVALS: Final = ("PID", "LQI", "MPPI")
_SIGNALS: Final = {"sign reversals": 0, "mean absolute error": 2, "settling time": 2}  # and digits


def texts() -> dict[str, str]:
    scores, signals = [], []
    for study, spreads in STUDIES.items():
        data = results(study).isel(plant=0, noise=0)
        names = [str(name) for name in data["strategy"].values]
        for frequency in data["frequency"].values:
            here = data.sel(frequency=frequency)
            random, best = float(here["reference_random"]), float(here["reference_dp"])
            others = [float(here["reference_dp_unaware"]), *map(float, here["rival_score"].sel(rival=[*_RIVALS]))]
            others = [number((score - random) / (best - random)) for score in others]
            for learner in map(str, data["learner"].values):
                trained = here.sel(learner=learner)
                condition = [spreads, f"{frequency:g}", learner]
                final = [spread(trained["mu_final"].sel(strategy=name).values) for name in names]
                scores.append([*condition, *final, *others])
                measures = trained["measures_greedy"].mean("seed")
                for signal, digits in _SIGNALS.items() if study == "servo" else ():
                    values = [*measures.sel(measure=signal, strategy=names).values]
                    values += [*here["rival_measures"].sel(measure=signal, rival=[*_RIVALS]).values]
                    signals.append([*condition[1:], signal, *(number(float(value), digits) for value in values)])
    condition = ("spread", "rate [Hz]", "learner")
    about = (
        f"{runs('servo')}. Scores are mean μ_final with 95 % intervals. The last four columns are μ_r of controllers: "
        "dynamic programming unaware of the delay, PID tuned on 3,000 episodes, LQR with integral action, and MPPI."
    )
    units = (
        "Without spread, means over the last greedy episodes and seeds, or over the episodes of a controller: sign "
        "reversals of the action per second, the absolute error of the angle in rad, and the 2 % settling time in s."
    )
    return {
        "servo": captioned(about, table((*condition, *names, "DP, unaware", *_RIVALS), scores)),
        "servo.signals": captioned(units, table((*condition[1:], "signal", *names, *_RIVALS), signals)),
    }
