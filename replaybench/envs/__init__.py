"""Plants as populations: Numba RK4 kernels behind a Gymnasium vector environment.

Importing the package after Gymnasium registers the plants there, as `replaybench/Pendulum-v0` and so on.
Nothing heavy is imported for it, so that `replaybench.envs.registry` stays cheap for command lines.
"""

import sys

from replaybench.envs.registry import register_gymnasium

if "gymnasium" in sys.modules:
    register_gymnasium()
