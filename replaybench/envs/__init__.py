"""Plants as populations with Gymnasium's vector interface: equations, simulators, and Gymnasium's tasks.

Importing the package registers the plants with Gymnasium, as `replaybench/Pendulum-v0` and so on.
"""

from replaybench.envs.registry import register_gymnasium

register_gymnasium()
