"""What carries over from the tabulated wakes into the flow itself: python -m benchmarks.flow.flow_transfer [SECTION …]

    python -m benchmarks.flow.flow_transfer fit differences evolved
    python -m benchmarks.flow.flow_transfer search 0 evolved
    python -m benchmarks.flow.flow_transfer learned RUN ...
    python -m benchmarks.flow.flow_transfer tuned RUN ...

`differences` drives ellipses through the Navier–Stokes twin and asks both wakes what the same actions would have done
from the same places; `fit` fits the laws of the free wake to other such actions. `search SEED` finds a linear policy
of the observation in the free wake, each episode with a wake of its own, by evolution (ten minutes), and stores it in
place of `transfer_policy.json`. `evolved` tries that policy, and the one that `benchmarks/flow/drafting.py` found in
the other wake, in all fidelities; `learned` those of runs of `drafting-transfer*.toml`, `tuned` those that went on
learning in the flow (`drafting-tuned*.toml`) and what they began with. What comes out goes to
`benchmarks/results/flow/transfer.json`.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from benchmarks.drafting_plants import Varied
from benchmarks.flow.drafting import CANDIDATES, Evolution, rollout
from replaybench.envs.flow.plant import VARIATIONS, Drafting
from replaybench.envs.flow.vortex_engine import move, observe, settled_coupling
from replaybench.envs.flow.wake import BY_FIDELITY, FREE, HELD, Laws, records, wake_table
from replaybench.envs.population import PopulationEnv

RESULTS = Path(__file__).parents[1] / "results" / "flow"
FIDELITIES = ("wake", "free-wake", "navier-stokes")
STEPS, EPISODES = 400, 32
VARIED = Drafting(fidelity="free-wake", **{name: getattr(Varied, name) for name in VARIATIONS})
NUMBERS = 23
"""Of a linear policy that treats both sides of the wake alike."""
TOGETHER, APART = (0, 3, 6, 8), (1, 2, 4, 5, 7, 9)
"""Observations that stay, and that change their sign, where the wake is seen in a mirror along its middle line."""

Act = Callable[[np.ndarray], np.ndarray]


def mirrored(numbers: np.ndarray) -> np.ndarray:
    """Return linear policies `[K, 3, 15]`, the last column a constant, of `[K, NUMBERS]`.

    What the lower and the upper sensor see is taken together: in a mirror they change places.
    """
    policies = np.zeros((len(numbers), 3, 15))
    policies[:, 0, TOGETHER], policies[:, 0, 14] = numbers[:, :4], numbers[:, 4]
    policies[:, 0, [10, 12]], policies[:, 0, 11], policies[:, 0, 13] = numbers[:, 5:6], numbers[:, 6], -numbers[:, 6]
    for row, first in ((1, 7), (2, 15)):
        policies[:, row, APART] = numbers[:, first : first + 6]
        policies[:, row, 10], policies[:, row, 12] = numbers[:, first + 6], -numbers[:, first + 6]
        policies[:, row, [11, 13]] = numbers[:, first + 7 : first + 8]
    return policies


def search(seed: int) -> np.ndarray:
    """Return a policy `[3, 15]` found in wakes of each episode's own: first to stay, then for the task's return."""
    mean, rng, began = np.zeros(NUMBERS), np.random.Generator(np.random.PCG64(seed)), time.perf_counter()
    for stage, (sigma, generations, steps, members) in enumerate(((0.3, 120, 100, 48), (0.05, 200, 200, 64))):
        env = PopulationEnv(VARIED, CANDIDATES * members, seed=seed + stage)
        evolution = Evolution(mean, sigma, rng)
        for generation in range(1, generations + 1):
            spent, lived = rollout(env, mirrored(evolution.ask()), steps)
            worth = -spent.sum(axis=0) + (2.0 * lived if stage == 0 else -100.0 * (lived < steps))
            evolution.tell(worth.reshape(CANDIDATES, -1).mean(axis=1))
            if generation % 20 == 0:
                kept, cost = (lived == steps).mean(), spent.sum() / lived.sum()
                seconds = time.perf_counter() - began
                print(f"{stage}.{generation}: kept {kept:.2f}, {cost:.3f} per action, {seconds:.0f} s", flush=True)
        mean = evolution.mean
    found: np.ndarray = np.round(mirrored(mean[None])[0], 5)
    return found


def linear(name: str) -> np.ndarray:
    """Return a stored policy `[3, 15]`: normalised observation to normalised action, the last column a constant."""
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return np.column_stack([np.array(stored["weights"]), np.array(stored["bias"])])


def acting(policy: np.ndarray) -> Act:
    return lambda observation: observation @ policy[:, :-1].T + policy[:, -1]


def tried(plant: Drafting, act: Act, episodes: int, observe: Sequence[str] = ()) -> dict[str, float | None]:
    """Return how long a policy stays, and what an action costs in whole episodes, from starts of their own."""
    env = PopulationEnv(plant, episodes, seed=7, role="evaluation", observe=observe)
    observation, _ = env.reset()
    lived, cost, alive = np.zeros(episodes), np.zeros(episodes), np.ones(episodes, np.bool_)
    for _ in range(STEPS):
        observation, _, terminated, _, infos = env.step(np.clip(act(observation), -1.0, 1.0).astype(np.float32))
        cost += np.where(alive, infos["actuation"], 0.0)
        alive &= ~terminated
        lived += alive
        if not alive.any():
            break
    whole = float(cost[alive].mean() / STEPS) if alive.any() else None
    return {"survived": float(lived.mean()), "whole": float(alive.mean()), "cost": whole, "episodes": episodes}


def evolved() -> dict[str, Any]:
    """Try policies that were evolved in one of the wakes, and doing nothing, in all fidelities."""
    policies = {
        "evolved in the wake": linear("drafting_policy"),
        "evolved in the free wake": linear("transfer_policy"),
        "no action": np.zeros((3, 15)),
    }
    return {
        name: {fidelity: tried(Drafting(fidelity=fidelity), acting(policy), EPISODES) for fidelity in FIDELITIES}
        for name, policy in policies.items()
    }


def learned(*runs: str) -> dict[str, Any]:
    """Try what learners found in their wakes there, undisturbed, and in the flow: a few episodes a seed."""
    from replaybench.controllers.policies.policy import load_policy
    from replaybench.data.run_folder import RunFolder
    from replaybench.experiments.study import read_study

    found: dict[str, Any] = {}
    for folder in map(Path, runs):
        for cell in read_study(folder / "study.toml").cells():
            name = cell.plant.split(":")[-1] + (", without sensors" if cell.observe else "")
            own: Any = cell.make_plant()
            for member in range(cell.members):
                policy = load_policy(RunFolder(folder).cell(cell.id) / "policy.safetensors", member)
                for fidelity in (own.fidelity, "navier-stokes"):
                    act: Act = lambda seen, policy=policy: policy.predict(seen)[0]  # noqa: E731
                    outcome = tried(Drafting(fidelity=fidelity), act, EPISODES // 4, cell.observe)
                    found.setdefault(name, {}).setdefault(fidelity, []).append(outcome)
                    print(name, member, fidelity, outcome, flush=True)
    return found


def tuned(*runs: str) -> dict[str, Any]:
    """Try policies that went on learning in the flow, and what the first of them began with: a few episodes a seed."""
    from replaybench.controllers.policies.policy import load_policy
    from replaybench.data.run_folder import RunFolder
    from replaybench.experiments.study import read_study

    found: dict[str, Any] = {}

    def try_out(name: str, path: Path, member: int, observe: Sequence[str], actions: int) -> None:
        policy = load_policy(path, member)
        told = found.setdefault(name, {"actions": actions, "coarse": [], "flow": []})
        for grid, cells in (("coarse", 8.0), ("flow", 16.0)):
            plant = Drafting(fidelity="navier-stokes", cells=cells)
            told[grid].append(tried(plant, lambda seen: policy.predict(seen)[0], EPISODES // 4, observe))
            print(name, member, grid, told[grid][-1], flush=True)

    for folder in map(Path, runs):
        for cell in read_study(folder / "study.toml").cells():
            if not found and cell.start is not None:
                for seed in cell.seeds:
                    try_out("before", Path(cell.start.policy), seed, cell.observe, 0)
            name, actions = f"{folder.name} {cell.learner}", cell.total_steps // cell.members
            for member in range(cell.members):
                try_out(name, RunFolder(folder).cell(cell.id) / "policy.safetensors", member, cell.observe, actions)
    return found


def driven(seed: int, episodes: int = 96, steps: int = 12) -> dict[str, np.ndarray]:
    """Drive ellipses through the flow, more and less steadily, and return before and after of each action."""
    env = PopulationEnv(Drafting(fidelity="navier-stokes"), episodes, seed=seed, role="evaluation")
    engine: Any = env._engine
    poses: list[np.ndarray] = []
    start = env.plant.start  # type: ignore[attr-defined]

    def noted(draws: Any, chosen: Any) -> Any:
        poses[:] = start(draws, chosen)
        return poses

    object.__setattr__(env.plant, "start", noted)
    observation, _ = env.reset()
    rng, act = np.random.Generator(np.random.PCG64(seed)), acting(linear("transfer_policy"))
    stir = np.linspace(0.0, 0.3, episodes)[:, None]
    alive, rows = np.ones(episodes, np.bool_), []
    for step in range(steps):
        action = np.clip(act(observation) + stir * rng.standard_normal((episodes, 3)), -1, 1).astype(np.float32)
        before, seen = engine.body.copy(), env.plant.denormalise_state(observation)
        observation, _, terminated, _, _ = env.step(action)
        fine = alive & ~terminated
        time_passed = np.full(episodes, 0.25 + step)  # it was held for a quarter of a T before
        rows.append([a[fine] for a in (before, engine.body.copy(), 2.0 * action, seen, poses[1], time_passed)])
        alive = fine
    names = ("before", "after", "action", "seen", "phase", "time")
    return {name: np.concatenate(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def told_by(laws: Laws, data: dict[str, np.ndarray], offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Return what a wake makes of the same actions from the same places: the bodies `[n, 6]`, and readings `[n, 8]`."""
    law, table, count = records(laws, 1)[0], wake_table(), len(data["time"])
    state, shown = np.zeros((count, 8)), np.zeros((count, 14))
    state[:, :6] = data["before"]
    state[:, 7] = (data["phase"] + offset + data["time"] / laws.period) % 1.0
    force = data["action"] * np.array(Drafting().forces)
    for n in range(count):
        state[n, 6] = settled_coupling(law, state[n, 0], state[n, 1], np.cos(state[n, 2]))
        observe(state[n], law, table, shown[n])
        move(state, n, *force[n], (-9.0, 9.0, 9.0), 1.0, 20, law, table)
    return state[:, :6], shown[:, 6:]


FITTED = (
    *("inertia_along", "inertia_across", "inertia_turning", "cross_drag", "skin_friction", "munk_bluff"),
    *("turning_drag", "carried", "period"),
)
SHOWN = ("ends_along", "ends_across", "sides_along", "sides_across")


def fit() -> dict[str, Any]:
    """Fit the laws of the free wake to what the flow makes of actions, from where the wake's laws are."""
    data = driven(12)
    scale = (data["after"] - data["before"]).std(axis=0)
    begin = FREE._replace(**{name: getattr(HELD, name) for name in FITTED} | {"cross_drag": 1.0})

    def laws(numbers: np.ndarray) -> Laws:
        return begin._replace(**dict(zip(FITTED, map(float, numbers), strict=False)))

    def residuals(numbers: np.ndarray) -> np.ndarray:
        bodies: np.ndarray = (told_by(laws(numbers), data, numbers[-1])[0] - data["after"]) / scale
        return bodies.ravel()

    first = np.array([*(getattr(begin, name) for name in FITTED), 0.55])
    done = least_squares(residuals, first, loss="soft_l1", x_scale=np.maximum(first, 0.05), diff_step=1e-4)
    found = laws(done.x)._replace(**dict.fromkeys(SHOWN, 1.0))
    turn = data["before"][:, 2, None]
    axes = np.cos(turn), np.sin(turn)

    def in_body_axes(readings: np.ndarray) -> np.ndarray:
        u, v = readings[:, ::2], readings[:, 1::2]
        return np.stack([axes[0] * u + axes[1] * v, axes[0] * v - axes[1] * u])

    water, seen = in_body_axes(told_by(found, data, done.x[-1])[1]), in_body_axes(data["seen"][:, 6:])
    shares = [
        float((water[axis][:, pair] * seen[axis][:, pair]).sum() / (water[axis][:, pair] ** 2).sum())
        for pair in (slice(0, 2), slice(2, 4))
        for axis in (0, 1)
    ]
    found = found._replace(**dict(zip(SHOWN, shares, strict=True)))
    return {"actions": len(data["time"]), **{name: getattr(found, name) for name in (*FITTED, *SHOWN)}}


def differences() -> dict[str, Any]:
    """Return by wake and quantity which share of its variance over an action is not explained; the phase is fitted."""
    data = driven(11)
    change = data["after"] - data["before"]
    found: dict[str, Any] = {"actions": len(data["time"])}
    for fidelity, laws in BY_FIDELITY.items():
        worst = [
            (float(np.mean(((told_by(laws, data, o)[0] - data["after"]) / change.std(axis=0))[:, 3:5] ** 2)), o)
            for o in np.arange(40) / 40
        ]
        offset = min(worst)[1]
        bodies, shown = told_by(laws, data, offset)
        readings = data["seen"][:, 6:]
        names = ("x", "y", "angle", "velocity x", "velocity y", "angular velocity")
        body = ((bodies - data["after"]) ** 2).mean(axis=0) / change.var(axis=0)
        sensed = ((shown - readings) ** 2).mean(axis=0) / readings.var(axis=0)
        ends, sides = sensed[:4].mean(), sensed[4:].mean()
        found[fidelity] = {
            "offset of the phase": offset,
            **{name: float(share) for name, share in zip(names, body, strict=True)},
            "sensors at the ends": float(ends),
            "sensors at the sides": float(sides),
        }
    return found


def main(words: list[str]) -> None:
    """Do the sections named, and store what comes out beside what others brought."""
    path = RESULTS / "transfer.json"
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    words = words or ["fit", "differences", "evolved"]
    while words:
        section = words.pop(0)
        if section == "search":
            policy = search(int(words.pop(0)))
            text = json.dumps({"weights": policy[:, :-1].tolist(), "bias": policy[:, -1].tolist()})
            (RESULTS / "transfer_policy.json").write_text(text + "\n", encoding="utf-8")
            continue
        stored[section] = {
            "fit": fit,
            "differences": differences,
            "evolved": evolved,
            "learned": lambda: learned(*words),
            "tuned": lambda: tuned(*words),
        }[section]()
        if section in ("learned", "tuned"):
            words.clear()
        print(json.dumps(stored[section], indent=1, ensure_ascii=False), flush=True)
        path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
