"""Updates per second of every learner beside Stable-Baselines3's, one thread, interleaved; ratios are of medians.

Both sides draw their batches from real buffers. Sections: `small` (64-64 units, batch 64, 32 members) and `large`
(256-256, batch 256, 4 members), where the arithmetic of an update, as a share of the core's peak, tells what is left to
gain. A learner is a line in `LEARNERS`; without a peer it is set beside our own SAC. `sweep` shows which part of
V-RACER's updates goes into returns along stored episodes.
"""

# First: it fixes the number of threads.
from timings import Timing, compared, interleaved, main, timed  # isort: skip

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
from bench_core import EPISODE, PEER, FixedLength

Parameters = Mapping[str, float]


class Learner(NamedTuple):
    """A learner to be timed.

    Attributes:
        name: as in a study.
        settings: what differs from its defaults, given the hidden units and the batch.
        peer: name of its class in Stable-Baselines3; empty if it has none.
        passes: multiples of a network's parameters, by name, that one update of one sample multiplies and adds:
            1 a forward pass, 1 for gradients to weights, 1 for gradients to what lies below.
        target: least ratio asked for at 64-64; 0 if none is.
        strategy: what it replays.
    """

    name: str
    settings: Callable[[tuple[int, ...], int], dict[str, Any]]
    peer: str
    passes: Parameters
    target: float
    strategy: str = "FIFO[Uniform]"


def one_network(hidden: tuple[int, ...], batch: int) -> dict[str, Any]:
    return {"hidden": hidden, "batch_size": batch}


def actor_critic(hidden: tuple[int, ...], batch: int) -> dict[str, Any]:
    return {"actor_hidden": hidden, "critic_hidden": hidden, "batch_size": batch}


LEARNERS = (
    Learner("TD3", actor_critic, "TD3", {"actor": 2.5, "critic1": 9}, 6),
    Learner("SAC", actor_critic, "SAC", {"actor": 4, "critic1": 12}, 6),
    Learner(
        "SAC:first",
        lambda hidden, batch: {**actor_critic(hidden, batch), "version": "first", "temperature": 0.2},
        "",
        {"actor": 3, "critic1": 10, "value": 4},
        0,
    ),
    Learner("DQN", one_network, "DQN", {"critic": 4}, 0),
    Learner("NAF", one_network, "", {"network": 4}, 1),
    Learner("V-RACER", one_network, "", {"network": 3}, 1, "FIFO[Uniform+ReFER]"),
    Learner(
        "ACER",
        lambda hidden, batch: {
            "policy_hidden": hidden,
            "value_hidden": hidden,
            "advantage_hidden": hidden,
            "segment": 16,
            "batch_size": batch // 16,
        },
        "",
        {"policy": 4, "value": 3, "advantage": 10},
        1,
    ),
)


LARGE = ("TD3", "SAC", "DQN")
"""Those with a peer: the others' arithmetic is the same."""


class FixedChoices(FixedLength):
    """The same for learners of discrete actions."""

    action_space = gymnasium.spaces.Discrete(15)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step([int(action) / 7 - 1])


def peer_of(name: str, hidden: tuple[int, ...], batch: int) -> Any:
    """Return a learner of Stable-Baselines3 that has run two episodes."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.logger import Logger

    torch.set_num_threads(1)
    env = FixedChoices() if name == "DQN" else FixedLength()
    model = getattr(stable_baselines3, name)(
        "MlpPolicy", env, learning_rate=1e-3, batch_size=batch, gamma=0.95, learning_starts=0,
        train_freq=(1, "episode"), gradient_steps=1, buffer_size=10_000, device="cpu",
        policy_kwargs={"net_arch": list(hidden)},
    )  # fmt: skip
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(2 * EPISODE)
    return model


def our_run(learner: Learner, hidden: tuple[int, ...], batch: int, members: int, plant: str = "PendulumDCSC") -> Any:
    """Return a cell of this learner that has not begun."""
    from replaybench.experiments.cell import CellRun
    from replaybench.experiments.study import Study

    settings = {learner.name: learner.settings(hidden, batch)}
    study = Study(
        name="speed", plants=(plant,), learners=(learner.name,), strategies=(learner.strategy,),
        seeds=members, block=members, episodes=100, greedy_every=100, learner=settings,
    )  # fmt: skip
    return CellRun(study.cells()[0])


def our_updates(
    learner: Learner, hidden: tuple[int, ...], batch: int, members: int, count: int, plant: str = "PendulumDCSC"
) -> tuple[Any, float]:
    """Return a piece of work of `count` updates per member, and the floating-point operations of one update."""
    from replaybench.experiments.loop import training_episode, update_phase

    run = our_run(learner, hidden, batch, members, plant)
    for _ in range(run.agent.schedule.warmup_episodes + 2):
        seen = training_episode(run.env, run.agent, run.replay, 0)
    shapes = {name: network.shape for name, network in run.agent.networks.items()}
    operations = 2 * batch * sum(shapes[name].parameter_count * times for name, times in learner.passes.items())
    return lambda: update_phase(run.agent, run.replay, count, 0.0, seen), operations


@functools.cache
def core_peak() -> float:
    """Return the float32 operations per second of this core, as the best of many library products shows them."""
    import torch

    torch.set_num_threads(1)
    a, b = torch.rand(768, 768), torch.rand(768, 768)
    best = 0.0
    for _ in range(100):
        began = time.process_time()
        torch.mm(a, b)
        best = max(best, 2 * 768**3 / (time.process_time() - began))
    return best


def beside(learner: Learner, hidden: tuple[int, ...], batch: int, members: int, target: float) -> list[Timing]:
    """Time one learner beside its peer, or beside our SAC."""
    scale = sum(hidden) * batch / 8192  # a piece of work takes a fifth of a second or so
    count = max(3, int(1500 / scale / members))
    work, operations = our_updates(learner, hidden, batch, members, count)
    if learner.peer:
        peer, steps = peer_of(learner.peer, hidden, batch), max(5, int(100 / scale))
        side = functools.partial(timed, lambda: peer.train(steps, batch), steps)
    else:
        theirs = our_updates(LEARNERS[1], hidden, batch, members, count)[0]
        side = functools.partial(timed, theirs, count * members)
    ours, rate = interleaved(lambda: timed(work, count * members), side)
    where = {"units": hidden[0], "batch": batch, "members": members}
    facts = {"% of peak": 100 * operations * ours / core_peak(), "peak [GFLOP/s]": core_peak() / 1e9}
    rival, asked = PEER if learner.peer else "SAC of replaybench", target or None
    return [compared(f"{learner.name} updates", ours, rate, "/s", rival, least_ratio=asked, at=where, more=facts)]


def small(learner: Learner) -> list[Timing]:
    return beside(learner, (64, 64), 64, 32, learner.target)


def large(learner: Learner) -> list[Timing]:
    return beside(learner, (256, 256), 256, 4, 1.0 if learner.target else 0.0)


def sweep(learner: Learner) -> list[Timing]:
    """Time phases of V-RACER's updates as it learns, then without the sweeps that renew returns: the rest is theirs."""
    from replaybench.controllers.losses import refer as stored_returns
    from replaybench.experiments import loop

    run = our_run(learner, (64, 64), 64, 32)
    for _ in range(60):
        run.advance()
    seen = loop.training_episode(run.env, run.agent, run.replay, 60)

    def phase() -> float:
        began = time.perf_counter()
        loop.update_phase(run.agent, run.replay, 200, 0.0, seen)
        return time.perf_counter() - began

    whole = statistics.median(phase() for _ in range(7))
    renew = stored_returns._renew_values
    stored_returns._renew_values = lambda *_: None
    rest = statistics.median(phase() for _ in range(7))
    stored_returns._renew_values = renew
    return [Timing("V-RACER's back-sweep", 100 * (1 - rest / whole), "% of its updates", most=10)]


SECTIONS = {
    **{f"small:{learner.name}": functools.partial(small, learner) for learner in LEARNERS},
    **{f"large:{learner.name}": functools.partial(large, learner) for learner in LEARNERS if learner.name in LARGE},
    "sweep:V-RACER": functools.partial(sweep, LEARNERS[5]),
}

if __name__ == "__main__":
    main("bench_learners.py", SECTIONS)
