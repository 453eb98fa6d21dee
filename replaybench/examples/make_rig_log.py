"""Write `rig_log.csv`, a simulated log of a pendulum test rig, as an example for `replaybench import`.

An operator swings the pendulum up with pulses of voltage, and then lets it swing out. The logger fails once for two
seconds. The angle comes from an encoder of 2048 counts, the velocity is noisy, and the clock jitters a little.
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from replaybench import make_plant
from replaybench.extend import Floats, simulate

FREQUENCY = 50.0  # Hz
SECONDS = 22.0
DROPOUT = (9.0, 11.0)  # s
PUMPING = ((1.0, 4.0, 1.5, 0.9), (5.5, 9.0, 2.5, 2.0), (12.0, 14.5, 2.0, 1.4), (15.5, 20.5, 3.0, 2.9))
"""Intervals with voltage: start [s], end [s], largest voltage [V], and the amplitude [rad] from which no voltage is
applied."""
COUNT = 2 * math.pi / 2048  # resolution of the encoder [rad]


def swing(plant: Any, state: Floats) -> float:
    """Return the amplitude [rad] that the pendulum reaches with its present energy, or π if it passes the top."""
    stiffness = plant.mass * plant.gravity * plant.length
    return math.acos(max(-1.0, math.cos(state[0]) - plant.inertia * state[1] ** 2 / (2 * stiffness)))


def record(seed: int = 1) -> str:
    """Return the log as CSV text with time [s], angle [rad], velocity [rad/s] and voltage [V]."""
    rng = np.random.default_rng(seed)
    plant: Any = make_plant("Pendulum")
    state = np.zeros(2)
    lines = ["time,angle,velocity,voltage"]
    for sample in range(round(SECONDS * FREQUENCY)):
        time = sample / FREQUENCY
        voltage = 0.0
        for start, stop, strength, enough in PUMPING:
            if start <= time < stop and swing(plant, state) < enough:
                voltage = round(math.copysign(strength * rng.uniform(0.6, 1.0), state[1]), 3)
        if not DROPOUT[0] <= time < DROPOUT[1]:
            stamp = time + rng.normal(0.0, 2e-4)
            angle = COUNT * round(state[0] / COUNT)
            velocity = state[1] + rng.normal(0.0, 0.02)
            lines.append(f"{stamp:.4f},{angle:.4f},{velocity:.3f},{voltage:.3f}")
        state = simulate(plant, state, np.array([voltage]), 1 / FREQUENCY)[0]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("rig_log.csv")
    path.write_text(record(), encoding="utf-8", newline="\n")
