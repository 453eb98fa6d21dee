"""A population of SAC that learns Pendulum-v1 with RLtools' settings, as a process of its own: `learn.py SEED MEMBERS`.

It writes the returns `[M]` of each round of episodes, and the CPU seconds since learning began, as a line of JSON each.
"""

import json
import os
import sys
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

EPISODES = 50
"""Of 200 steps each, an update after each step but those of the first round."""
SETTINGS = {
    "batch_size": 100, "replays_per_experience": 100.0, "warmup_episodes": 1, "tau": 0.005, "epsilon": 1e-7,
    "actor_rate": 1e-3, "critic_rate": 1e-3, "temperature_rate": 1e-3, "first_temperature": 0.5,
}  # fmt: skip


def main() -> None:
    """Learn, and tell."""
    from replaybench.experiments.cell import CellRun
    from replaybench.experiments.study import Study

    plant = f"{Path(__file__).with_name('pendulum_v1.py')}:PendulumV1"
    seed, members = map(int, sys.argv[1:])
    study = Study(
        name="solved", plants=(plant,), learners=("SAC",), strategies=("FIFO[Uniform]",), seeds=members, block=members,
        root_seed=seed, episodes=EPISODES, greedy_every=EPISODES + 1, update_every=1, capacity=10_000,
        learner={"SAC": SETTINGS},
    )  # fmt: skip
    run = CellRun(study.cells()[0])
    began = time.process_time()
    for episode in range(EPISODES):
        run.advance()
        print(json.dumps([time.process_time() - began, run.reward[:, episode].tolist()]), flush=True)


if __name__ == "__main__":
    main()
