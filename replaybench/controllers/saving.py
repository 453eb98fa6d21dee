"""What a policy file and a checkpoint hold of a learner: its networks, their slow copies, optimisers, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.device import OnDevice
from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.network import Population
from replaybench.controllers.normaliser import Normaliser
from replaybench.controllers.registry import name_of
from replaybench.data.errors import UserError

Arrays = dict[str, NDArray[Any]]


class SavedLearner:
    """Base that saves and restores.

    Attributes:
        networks: learned, and kept in policy files, by name.
        targets: slow copies, under the names of the networks that they follow.
        adams: optimisers, of networks and of what else is learned.
        on_device: what updates the networks, where that is not done on the CPU.
        normaliser: what scales observations and rewards, if asked to.
        steps: int64 `[1]`, updates done.
    """

    networks: Mapping[str, Population]
    targets: Mapping[str, Population]
    adams: dict[str, Adam]
    on_device: OnDevice | None = None
    normaliser: Normaliser
    steps: NDArray[np.int64]

    def fetch(self, *names: str) -> None:
        """Bring `trained` arrays of these names, or all of them, up to date, should they be kept on a device."""
        if self.on_device is not None:
            self.on_device.fetch(*names)

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return the networks layer by layer: weights `[M, in, out]`, biases `[M, out]`; and what normalises.

        Where observations are normalised, networks take clip((s − mean) · scale, ±bound) of `observation.mean`,
        `observation.scale` `[M, S]` and `observation.bound` `[M]`.
        """
        self.fetch()
        named: dict[str, NDArray[np.generic]] = {}
        for name, network in self.networks.items():
            named.update(network.named_weights(name))
        return {**named, **self.normaliser.state_dict()}

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Take over `weights` of as many members, the targets with them; optimisers and exploration stay as they are.

        Raises:
            UserError: the weights are those of other networks.
        """
        mine = self.weights()
        shapes, theirs = ({name: array.shape for name, array in named.items()} for named in (mine, weights))
        if shapes != theirs:
            kind = name_of(type(self))
            raise UserError(
                f"these weights do not fit the networks of this {kind}; build it with the settings they had"
            )
        for name, array in mine.items():
            array[...] = weights[name]
        self._aim_targets()
        self._push()

    def _aim_targets(self) -> None:
        for name, target in self.targets.items():
            target.parameters[:] = self.networks[name].parameters

    def _push(self) -> None:
        if self.on_device is not None:
            self.on_device.push()

    def trained(self) -> Arrays:
        """Return the arrays `[M, P]` that updates change: networks, targets, Adam's moments."""
        return {
            **{name: network.parameters for name, network in self.networks.items()},
            **{f"{name}_target": target.parameters for name, target in self.targets.items()},
            **{f"{name}_first": adam.first for name, adam in self.adams.items()},
            **{f"{name}_second": adam.second for name, adam in self.adams.items()},
        }

    def state_dict(self) -> Arrays:
        """Return networks, targets, optimisers, and whatever else the next updates and actions depend on."""
        self.fetch()
        return {**self.trained(), "steps": self.steps, **self.normaliser.state_dict(), **self._further()}

    def _further(self) -> Arrays:
        """Return further arrays that change, such as random streams; they are overwritten in place on loading."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`, bit for bit."""
        for name, array in self.state_dict().items():
            array[...] = state[name]
        self._push()
