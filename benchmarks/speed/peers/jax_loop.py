"""A population of DDPG with plant and replay in plain JAX, `jit(vmap(scan))`: `python jax_loop.py MEMBERS EPISODES`.

It is the DDPG of de Bruin et al. (2018) on PendulumDCSC at 50 Hz with FIFO[Uniform]: 200 steps an episode, then 100
updates of 16. After one episode that compiles it prints, as JSON, member-updates per second and the last mean reward.
"""

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

STEPS, UPDATES, BATCH, CAPACITY = 200, 100, 16, 10_000
GAMMA, TAU, SCALE, ACTOR_RATE, CRITIC_RATE = 0.95, 0.01, 0.01, 1e-4, 1e-3
INERTIA, MASS, GRAVITY, LENGTH, DAMPING, TORQUE, RESISTANCE = 1.91e-4, 5.5e-2, 9.81, 4.2e-2, 3e-6, 5.36e-2, 9.5
Tree = Any


def layers(key: Any, *sizes: int) -> Tree:
    """Return weights and zero biases by layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    bounds = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.random.uniform(k, (i, o), minval=-1, maxval=1) / i**0.5, jnp.zeros(o)) for k, i, o in bounds]


def actor(net: Tree, x: Any) -> Any:
    """Return the policy's actions."""
    for weight, bias in net[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    return jnp.tanh(x @ net[-1][0] + net[-1][1])


def critic(net: Tree, x: Any, action: Any) -> Any:
    """Return values; the action joins at the second layer."""
    x = jnp.concatenate([jax.nn.relu(x @ net[0][0] + net[0][1]), action], axis=-1)
    for weight, bias in net[1:-1]:
        x = jax.nn.relu(x @ weight + bias)
    return (x @ net[-1][0] + net[-1][1])[..., 0]


def rates(x: Any, u: Any) -> Any:
    """Return the rates of angle and velocity."""
    swing = -MASS * GRAVITY * LENGTH * jnp.sin(x[0]) - (DAMPING + TORQUE**2 / RESISTANCE) * x[1]
    return jnp.stack([x[1], (swing + TORQUE / RESISTANCE * u) / INERTIA])


def plant(x: Any, action: Any) -> tuple[Any, Any]:
    """Return the state after a sample of two Runge-Kutta steps, and the reward."""
    u, h = 3.0 * action, 0.01
    for _ in range(2):
        a = rates(x, u)
        b = rates(x + h / 2 * a, u)
        c = rates(x + h / 2 * b, u)
        d = rates(x + h * c, u)
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
        x = x.at[0].set((x[0] + jnp.pi) % (2 * jnp.pi) - jnp.pi)
    return x, -(50 * (jnp.pi - jnp.abs(x[0])) + jnp.abs(x[1]) + 10 * jnp.abs(u))


def adam(net: Tree, moments: Tree, gradient: Tree, t: Any, rate: float) -> tuple[Tree, Tree]:
    """Return weights and moments after a step."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradient)
    size, root = rate / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)
    net = jax.tree.map(lambda w, m, v: w - size * m / (jnp.sqrt(v) / root + 1e-8), net, first, second)
    return net, (first, second)


def update(learner: Tree, batch: Any, t: Any) -> Tree:
    """Return networks, targets and moments after an update."""
    (pi, q), (slow_pi, slow_q), (m_pi, m_q) = learner
    s, a, r, after = batch[:, :2], batch[:, 2:3], SCALE * batch[:, 3], batch[:, 4:]
    target = r + GAMMA * critic(slow_q, after, actor(slow_pi, after))
    q, m_q = adam(q, m_q, jax.grad(lambda net: jnp.mean((target - critic(net, s, a)) ** 2))(q), t, CRITIC_RATE)
    pi, m_pi = adam(pi, m_pi, jax.grad(lambda net: -jnp.mean(critic(q, s, actor(net, s))))(pi), t, ACTOR_RATE)
    slow = jax.tree.map(lambda old, new: old + TAU * (new - old), (slow_pi, slow_q), (pi, q))
    return (pi, q), slow, (m_pi, m_q)


def episode(member: Tree, number: Any) -> tuple[Tree, Any]:
    """Run an episode of one member and its updates; return the member and its mean reward."""
    learner, buffer, key = member
    key, noise_key, draw_key = jax.random.split(key, 3)
    scale = 1 - 0.9 * jnp.minimum(1.0, number / 499)

    def step(carry: Any, noise: Any) -> Any:
        x, process = carry
        process = process + 5.14 * noise - 0.3 * process
        seen = x / jnp.array([jnp.pi, 30.0])
        action = jnp.clip(actor(learner[0][0], seen)[0] + scale * jnp.clip(process, -1, 1), -1, 1)
        x, reward = plant(x, action)
        row = jnp.concatenate([seen, jnp.stack([action, reward]), x / jnp.array([jnp.pi, 30.0])])
        return (x, process), (row, reward)

    _, (rows, reward) = jax.lax.scan(step, (jnp.zeros(2), 0.0), jax.random.normal(noise_key, (STEPS,)))
    buffer = jax.lax.dynamic_update_slice(buffer, rows, (number * STEPS % CAPACITY, 0))
    stored = jnp.minimum((number + 1) * STEPS, CAPACITY)
    drawn = jax.random.randint(draw_key, (UPDATES, BATCH), 0, stored)
    times = number * UPDATES + 1.0 + jnp.arange(UPDATES)
    learner, _ = jax.lax.scan(lambda now, at: (update(now, buffer[at[0]], at[1]), None), learner, (drawn, times))
    return (learner, buffer, key), reward.mean()


def born(key: Any) -> Tree:
    """Return a member."""
    key, of_pi, of_q = jax.random.split(key, 3)
    q = layers(of_q, 2, 50, 50, 20, 1)
    second = jax.random.uniform(of_q, (51, 50), minval=-1, maxval=1) / 51**0.5
    nets = layers(of_pi, 2, 50, 50, 1), [q[0], (second, q[1][1]), *q[2:]]
    nothing = jax.tree.map(jnp.zeros_like, nets)
    moments = tuple((zero, zero) for zero in nothing)
    return (nets, nets, moments), jnp.zeros((CAPACITY, 6)), key


def main() -> None:
    """Run, and print."""
    members, episodes = map(int, sys.argv[1:])
    population = jax.tree.map(jnp.copy, jax.vmap(born)(jax.random.split(jax.random.key(0), members)))
    run = jax.jit(jax.vmap(episode, in_axes=(0, None)), donate_argnums=0)
    population, reward = run(population, 0)
    reward.block_until_ready()
    began = time.perf_counter()
    for number in range(1, episodes):
        population, reward = run(population, number)
    reward.block_until_ready()
    rate = members * UPDATES * (episodes - 1) / (time.perf_counter() - began)
    print(json.dumps({"member_updates_per_second": rate, "reward": float(reward.mean())}))


if __name__ == "__main__":
    main()
