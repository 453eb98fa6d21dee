"""Plants, the systems to control, as vectorised environments with Gymnasium's interface.

A plant is given by equations, by a simulator or by a task of Gymnasium. Importing the package registers the plants with
Gymnasium, as `replaybench/Pendulum-v0` and so on.
"""

from replaybench.envs.registry import register_gymnasium

register_gymnasium()
