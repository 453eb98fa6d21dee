"""Plants as populations: Numba RK4 kernels behind a Gymnasium vector environment.

Importing the package makes the plants known to Gymnasium, as `replaybench/Pendulum-v0` and so on.
"""

from replaybench.envs.registry import register_gymnasium

register_gymnasium()
