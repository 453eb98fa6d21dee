"""A population of SAC or TD3 in plain JAX: `jit(vmap(scan))`, members by `vmap`, many updates in one compiled call.

Run as a process of its own, `python jax_population.py SAC|TD3 BATCH UNITS MEMBERS CACHE`, it reads numbers of updates
from standard input, does as many of every member, batches drawn from each member's own buffer within the compiled loop,
and answers with the CPU seconds that took. Losses, rates and the order of steps are those of replaybench's learners.
"""

import itertools
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

OBSERVATION, ACTION, CAPACITY = 3, 1, 10_000
RATE, GAMMA, TAU, BETA_1, BETA_2, EPSILON = 1e-3, 0.99, 0.005, 0.9, 0.999, 1e-8
SMOOTHING, SMOOTHING_CLIP = 0.2, 0.5
LOG_STD_BOUNDS = (-20.0, 2.0)

Tree = Any
Array = jax.Array


class Member(NamedTuple):
    """What one member learns: weights by network, slow copies, both moments of Adam, updates done, its random key."""

    weights: Tree
    slow: Tree
    first: Tree
    second: Tree
    step: Array
    key: Array


class Memory(NamedTuple):
    """A member's experiences, `[N, …]`."""

    observation: Array
    action: Array
    reward: Array
    successor: Array
    terminated: Array


def network(rng: np.random.Generator, members: int, *widths: int) -> Tree:
    """Return weights `[M, I, O]` and biases `[M, O]` of multilayer perceptrons, by layer."""
    layers = itertools.pairwise(widths)
    return [(rng.uniform(-1, 1, (members, i, o)) / i**0.5, np.zeros((members, o))) for i, o in layers]


def forward(layers: Tree, x: Array) -> Array:
    """Return the outputs `[B, O]` for inputs `[B, I]`; ReLU between layers."""
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def values(critics: Tree, observation: Array, action: Array) -> Array:
    """Return both critics' values `[2, B]`."""
    x = jnp.concatenate([observation, action], axis=1)
    return jnp.stack([forward(critic, x)[:, 0] for critic in critics])


def sampled(actor: Tree, observation: Array, key: Array) -> tuple[Array, Array]:
    """Return squashed Gaussian actions `[B, A]` and their log-probabilities `[B]`."""
    mean, log_std = jnp.split(forward(actor, observation), 2, axis=1)
    log_std = jnp.clip(log_std, *LOG_STD_BOUNDS)
    noise = jax.random.normal(key, mean.shape)
    before = mean + jnp.exp(log_std) * noise
    squashing = 2 * (jnp.log(2.0) - before - jax.nn.softplus(-2 * before))
    log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi) - squashing
    return jnp.tanh(before), log_prob.sum(axis=1)


def adam(member: Member, name: str, gradient: Tree) -> Member:
    """Return the member after a step on one network's gradient."""
    t = member.step
    first = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, member.first[name], gradient)
    second = jax.tree.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, member.second[name], gradient)
    size = RATE * jnp.sqrt(1 - BETA_2**t) / (1 - BETA_1**t)
    moved = jax.tree.map(lambda w, m, v: w - size * m / (jnp.sqrt(v) + EPSILON), member.weights[name], first, second)
    return member._replace(
        weights={**member.weights, name: moved},
        first={**member.first, name: first},
        second={**member.second, name: second},
    )


def tracked(member: Member) -> Member:
    """Return the member with its slow copies moved towards the weights."""
    slow = {
        name: jax.tree.map(lambda s, w: s + TAU * (w - s), copy, member.weights[name])
        for name, copy in member.slow.items()
    }
    return member._replace(slow=slow)


def fitted(member: Member, batch: Memory, target: Array) -> Member:
    """Return the member after a step of both critics towards the targets `[B]`."""

    def loss(critics: Tree) -> Array:
        return 0.5 * ((values(critics, batch.observation, batch.action) - target) ** 2).mean(axis=1).sum()

    return adam(member, "critics", jax.grad(loss)(member.weights["critics"]))


def sac(member: Member, batch: Memory, key: Array, late: bool) -> Member:
    """One update of soft actor-critic with a learned temperature (Haarnoja et al. 2018b, Algorithm 1)."""
    key_next, key_now = jax.random.split(key)
    weights = member.weights
    alpha = jnp.exp(weights["temperature"])
    action, log_prob = sampled(weights["actor"], batch.successor, key_next)
    value = values(member.slow["critics"], batch.successor, action).min(axis=0) - alpha * log_prob
    member = fitted(member, batch, batch.reward + GAMMA * (1 - batch.terminated) * value)

    def loss(actor: Tree) -> tuple[Array, Array]:
        action, log_prob = sampled(actor, batch.observation, key_now)
        value = values(member.weights["critics"], batch.observation, action).min(axis=0)
        return (alpha * log_prob - value).mean(), log_prob.mean()

    gradient, entropy = jax.grad(loss, has_aux=True)(weights["actor"])
    member = adam(member, "actor", gradient)
    return tracked(adam(member, "temperature", -(entropy - ACTION)))


def td3(member: Member, batch: Memory, key: Array, late: bool) -> Member:
    """One update of twin delayed DDPG (Fujimoto et al. 2018, Algorithm 1), a `late` one with the actor's."""
    noise = jnp.clip(SMOOTHING * jax.random.normal(key, batch.action.shape), -SMOOTHING_CLIP, SMOOTHING_CLIP)
    action = jnp.clip(jnp.tanh(forward(member.slow["actor"], batch.successor)) + noise, -1, 1)
    value = values(member.slow["critics"], batch.successor, action).min(axis=0)
    member = fitted(member, batch, batch.reward + GAMMA * (1 - batch.terminated) * value)
    if not late:
        return member

    def loss(actor: Tree) -> Array:
        action = jnp.tanh(forward(actor, batch.observation))
        return -forward(member.weights["critics"][0], jnp.concatenate([batch.observation, action], axis=1)).mean()

    return tracked(adam(member, "actor", jax.grad(loss)(member.weights["actor"])))


LEARNERS = {"SAC": sac, "TD3": td3}
GROUP = {"SAC": 1, "TD3": 2}
"""Updates of the critics to one of the actor; updates come in such groups, of which the last is `late`."""


def made(learner: str, units: int, members: int) -> tuple[Member, Memory]:
    """Return new members and full memories; made by NumPy, since JAX would compile every line of it."""
    rng = np.random.Generator(np.random.PCG64(0))
    outputs = 2 * ACTION if learner == "SAC" else ACTION
    weights = {
        "actor": network(rng, members, OBSERVATION, units, units, outputs),
        "critics": [network(rng, members, OBSERVATION + ACTION, units, units, 1) for _ in range(2)],
        "temperature": np.zeros(members),
    }
    slow = {name: weights[name] for name in (("critics",) if learner == "SAC" else ("actor", "critics"))}
    zeros = jax.tree.map(np.zeros_like, weights)
    columns = (
        rng.normal(size=(members, CAPACITY, *width)) for width in ((OBSERVATION,), (ACTION,), (), (OBSERVATION,))
    )
    memory = Memory(*columns, np.zeros((members, CAPACITY)))
    member, memory = jax.tree.map(
        lambda values: jnp.array(values, jnp.float32),
        (Member(weights, slow, zeros, zeros, np.zeros(members), 0), memory),
    )
    return member._replace(key=jax.random.split(jax.random.key(0), members)), memory


def phase(member: Member, memory: Memory, learner: str, batch_size: int, updates: int) -> Member:
    """Return the member after so many updates."""

    def update(member: Member, late: bool) -> Member:
        key, key_rows, key_noise = jax.random.split(member.key, 3)
        rows = jax.random.randint(key_rows, (batch_size,), 0, CAPACITY)
        batch = jax.tree.map(lambda column: column[rows], memory)
        member = member._replace(step=member.step + 1, key=key)
        return LEARNERS[learner](member, batch, key_noise, late)

    def group(member: Member, _: None) -> tuple[Member, None]:
        for number in range(1, GROUP[learner] + 1):
            member = update(member, number == GROUP[learner])
        return member, None

    return jax.lax.scan(group, member, None, length=updates // GROUP[learner])[0]


def main() -> None:
    """Serve one population until standard input ends."""
    learner, batch_size, units, members = sys.argv[1], *map(int, sys.argv[2:5])
    jax.config.update("jax_compilation_cache_dir", sys.argv[5])
    member, memory = made(learner, units, members)
    compiled: dict[int, Any] = {}
    for line in sys.stdin:
        updates = int(line)
        if updates not in compiled:
            whole = jax.vmap(partial(phase, learner=learner, batch_size=batch_size, updates=updates))
            compiled[updates] = jax.jit(whole, donate_argnums=0).lower(member, memory).compile()
        began = time.process_time()
        member = jax.block_until_ready(compiled[updates](member, memory))
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()
