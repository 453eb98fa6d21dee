"""Watch an ellipse draft: python benchmarks/flow/drafting_animation.py [FILE.webp]

A linear policy, found in the free wake by `benchmarks/flow/flow_transfer.py`, keeps an ellipse in the wake of a
cylinder, in the Navier–Stokes twin. It acts once per T, as in the task; the environment runs five times as fast and
holds each action, so that there are pictures in between.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from replaybench.envs.flow.plant import Drafting
from replaybench.envs.population import PopulationEnv

POLICY = Path(__file__).parents[1] / "results" / "flow" / "transfer_policy.json"
FRAMES_PER_ACTION = 5
SKIPPED = 30  # actions before the first picture: the ellipse finds its place
SIZE = (480, 240)


def main(path: str, seconds: float = 14.7, seed: int = 1) -> float:
    """Write an animation of as many T to `path`; return what the ellipse spent per T, ‖a‖²."""
    policy = json.loads(POLICY.read_text())
    weights, bias = np.array(policy["weights"]), np.array(policy["bias"])
    plant = Drafting(fidelity="navier-stokes")
    env = PopulationEnv(plant, 1, frequency=float(FRAMES_PER_ACTION), seed=seed, render_mode="rgb_array")
    observation, _ = env.reset()
    frames, spent = [], []
    for step in range(SKIPPED * FRAMES_PER_ACTION + round(seconds * FRAMES_PER_ACTION)):
        if step % FRAMES_PER_ACTION == 0:
            action = (observation @ weights.T + bias).astype(np.float32)
        observation, reward, _, _, _ = env.step(action)
        if step >= SKIPPED * FRAMES_PER_ACTION:
            pictures = env.render()
            assert pictures is not None
            frames.append(Image.fromarray(pictures[0]).resize(SIZE, Image.Resampling.LANCZOS))
            spent.append(-float(reward[0]))
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=80, loop=0, quality=50, method=6)
    return sum(spent) / len(spent) * FRAMES_PER_ACTION


if __name__ == "__main__":
    file = sys.argv[1] if len(sys.argv) > 1 else "drafting.webp"
    cost = main(file)
    print(f"{file}: the ellipse spends {cost:.3f} per T; holding still in the free stream would cost 0.258")
