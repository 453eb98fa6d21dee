"""Plants as populations behind a Gymnasium vector environment: equations, simulators, and Gymnasium's tasks.

Importing the package makes the plants known to Gymnasium, as `replaybench/Pendulum-v0` and so on.
"""

from replaybench.envs.registry import register_gymnasium

register_gymnasium()
