"""DDPG's update of a whole population in PyTorch, on a CUDA device. Importing this module imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch, Floats
from replaybench.controllers.cuda.mlp import DeviceMLP, adam_factors, adam_step, track
from replaybench.controllers.cuda.update_phase import DevicePhase, Inputs
from replaybench.controllers.learner import Learner


class DeviceDDPG:
    """`DDPG._update` for all members at once; symbols of de Bruin et al. (2018), eqs 4 to 6.

    Args:
        learner: a DDPG without ReF-ER, parameter noise and memory; its arrays become a copy of those on the device.
        device: a CUDA device; a CPU, slowly, for tests.
        graphs: whether updates are captured in CUDA graphs.
    """

    def __init__(self, learner: Learner, device: torch.device | str, graphs: bool = True) -> None:
        self.learner, self.device = learner, torch.device(device)
        learner.several_at_once = False  # what is here gathers updates itself
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("highest")  # no TF32: the CPU has none
        arrays, config, task = learner.trained(), learner.config, learner.task
        self.tensors = {name: torch.from_numpy(array).to(self.device, copy=True) for name, array in arrays.items()}
        self._stale: set[str] = set()
        m, b = len(learner.networks["actor"].parameters), config.batch_size
        self.actor, self.actor_target, self.critic, self.critic_target = (
            DeviceMLP(network, self.tensors[name], b)
            for name, network in (
                ("actor", learner.networks["actor"]), ("actor_target", learner.networks["actor"]),
                ("critic", learner.networks["critic"]), ("critic_target", learner.networks["critic"]),
            )
        )  # fmt: skip
        self.td_error = torch.zeros((m, b), dtype=self.tensors["actor"].dtype, device=self.device)
        one = (m, b, 1)
        self.shapes: dict[str, tuple[int, ...]] = {
            "observation": (m, b, task.observation_size),
            "action": (m, b, task.action_size),
            "reward": one,
            "next_observation": (m, b, task.observation_size),
            "terminated": one,
            "weight": one,
            "actor_weight": one,
            "actor_factors": (m, 3),
            "critic_factors": (m, 3),
        }
        self._phase = DevicePhase(self.device, self.shapes, self._update, list(self.tensors.values()), graphs)

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one critic and one actor update; return `td_error` `[M, B]` (eq. 4, before it)."""
        self.update_all([batch])
        return {"td_error": self.td_error.to("cpu", copy=True).numpy()}

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Do one update with each batch, without waiting for the last of them."""
        self._stale.update(self.tensors)
        self._phase.run(map(self._given, batches))

    def fetch(self, *names: str) -> None:
        """Copy those of the learner's `trained` arrays, or all of them, from the device."""
        arrays = self.learner.trained()
        for name in self._stale & set(names or arrays):
            torch.from_numpy(arrays[name]).copy_(self.tensors[name])
            self._stale.remove(name)

    def push(self) -> None:
        """Copy the learner's `trained` arrays to the device."""
        for name, array in self.learner.trained().items():
            self.tensors[name].copy_(torch.from_numpy(array))
        self._stale.clear()

    def _given(self, batch: Batch) -> dict[str, NDArray[np.floating]]:
        """Return an update's inputs, with the factors that differ from step to step."""
        learner = self.learner
        learner.steps += 1
        step, seen = int(learner.steps[0]), learner.normaliser.observations
        factor = learner.normaliser.rewards.factor.astype(learner.networks["actor"].parameters.dtype)
        return {
            "observation": seen(batch.observation),
            "action": batch.action,
            "reward": factor[:, None, None] * batch.reward,
            "next_observation": seen(batch.next_observation),
            "terminated": batch.terminated,
            "weight": batch.weight[:, :, None],
            "actor_weight": batch.actor_weight[:, :, None],
            "actor_factors": adam_factors(learner.adams["actor"], step, batch.rate_factor),
            "critic_factors": adam_factors(learner.adams["critic"], step, batch.rate_factor),
        }

    def _update(self, given: Inputs) -> None:
        actor, critic, learner, tensors = self.actor, self.critic, self.learner, self.tensors
        batch, tau = self.td_error.shape[1], learner.config.tau
        q_next = self.critic_target.forward(
            given["next_observation"], self.actor_target.forward(given["next_observation"])
        )
        q = critic.forward(given["observation"], given["action"])
        delta = given["reward"] + learner.task.discount * (1 - given["terminated"]) * q_next - q
        self.td_error.copy_(delta[:, :, 0])
        critic.backward(-2 / batch * given["weight"] * delta)
        moments = tensors["critic_first"], tensors["critic_second"]
        adam_step(critic, *moments, learner.adams["critic"], given["critic_factors"])

        critic.forward(given["observation"], actor.forward(given["observation"]))
        actor.backward(critic.action_gradient(-1 / batch * given["actor_weight"]))
        moments = tensors["actor_first"], tensors["actor_second"]
        adam_step(actor, *moments, learner.adams["actor"], given["actor_factors"])

        track(self.critic_target, critic, tau)
        track(self.actor_target, actor, tau)
