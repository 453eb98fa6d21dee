"""ReF-ER by network and capacity."""

from typing import Final

import numpy as np

from benchmarks.tables.stored import cell, runs
from benchmarks.tables.text import captioned, difference, number, table

PLAIN, REFER = "[Uniform]", "[Uniform+ReFER]"
NETWORKS: Final = {
    "DDPG": "50-50 and 50-50-20, as in de Bruin et al. (2018) and in the preset",
    "DDPG:two-by-64": "64-64 and 64-64",
}
WHOLE: Final = {"DDPG": "novati2019-fig1mujoco", "NAF": "novati2019-fig3mujoco"}
"""Studies whose buffers hold all experiences, by learner."""
SMALLER: Final = (20_000, 5000)


def texts() -> dict[str, str]:
    return {"refer.networks": _networks(), "refer.memory": _memories()}


def _networks() -> str:
    """Count collapsed learners by network, with plain replay and with ReF-ER."""
    study, rows = "refer-networks", []
    for learner, said in NETWORKS.items():
        plain, refer = (cell(study, learner=learner, strategy=f"FIFO{replay}") for replay in (PLAIN, REFER))
        scores = [one.data["mu_final"].values for one in (refer, plain)]
        deaths = [f"{number(one['dead'], 0)} of {one.data.sizes['seed']}" for one in (plain, refer)]
        means = [number(float(np.nanmean(score)), 2) for score in reversed(scores)]
        rows.append([said, *deaths, *means, *difference(*scores, digits=2)])
    caption = (
        f"Runs: {runs(study)} of DDPG on the pendulum. *Collapsed* is the number of seeds with μ_final below 0.2. "
        "*μ_final* is the mean over seeds. *Difference* is μ_final with ReF-ER minus μ_final with plain replay, as a "
        "mean over paired seeds with its BCa interval. *p* is from a sign-flip test, uncorrected."
    )
    dead = ("collapsed, plain replay", "collapsed, ReF-ER")
    means = ("μ_final, plain replay", "μ_final, ReF-ER")
    return captioned(caption, table(("units of actor and critic", *dead, *means, "difference [95 %]", "p"), rows))


def _memories() -> str:
    """Compare ReF-ER with plain replay on HalfCheetah, by learner and capacity."""
    study, rows = "refer-memory", []
    for learner, whole in WHOLE.items():
        buffers = {"all": (whole, "FIFO"), **{f"{size:,}": (study, f"FIFO({size})") for size in SMALLER}}
        for capacity, (stored, kept) in buffers.items():
            plain, refer = (
                cell(stored, plant="MujocoHalfCheetah", learner=learner, strategy=f"{kept}{replay}")
                for replay in (PLAIN, REFER)
            )
            means = [number(float(np.nanmean(one.final)), 0) for one in (plain, refer)]
            metrics = float(refer.data["metric_kl"].mean()), float(refer.data["metric_beta"][:, -1].mean())
            told = [f"{np.isfinite(refer.final - plain.final).sum()}", *(number(metric, 2) for metric in metrics)]
            rows.append([learner, capacity, *means, *difference(refer.final, plain.final, digits=0), *told])
    caption = (
        f"Runs: {runs(study)} of 1000 steps on HalfCheetah. The runs that keep all experiences are those of the "
        "presets for figures 1 and 3. *Return* is the mean over seeds of the last tenth of training. *Difference* is "
        "the return with ReF-ER minus that with plain replay, as a mean over paired seeds with its BCa interval. *p* "
        "is from a sign-flip test, uncorrected. *n* is the number of pairs without a failed run. *D_KL* is the "
        "divergence D_KL(μ‖π) with ReF-ER, averaged over seeds and evaluations. *β* is the weight of the policy "
        "gradient at the end of training; the penalty has the weight 1 − β."
    )
    returns = ("return, plain replay", "return, ReF-ER")
    headings = ("learner", "capacity", *returns, "difference [95 %]", "p", "n", "D_KL", "β")
    return captioned(caption, table(headings, rows))
