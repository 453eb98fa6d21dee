"""The public Python interface of replaybench, a testbed for experience replay in control.

Each name is imported on first use, so `import replaybench` is fast. Names that neither this module nor
`replaybench.extend` lists may change between versions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from replaybench.runtime.version import VERSION

if TYPE_CHECKING:
    from replaybench.api import advise as advise
    from replaybench.api import open_results as open_results
    from replaybench.api import replay_offline as replay_offline
    from replaybench.api import report as report
    from replaybench.api import solve as solve
    from replaybench.api import sweep as sweep
    from replaybench.controllers.policies.torch_module import load_torch_policy as load_torch_policy
    from replaybench.data.record import open_record as open_record
    from replaybench.data.record import read_record as read_record
    from replaybench.envs.foreign.python_plant import PythonPlant as PythonPlant
    from replaybench.envs.interface.channel import Channel as Channel
    from replaybench.envs.ode.plant import OdePlant as OdePlant
    from replaybench.envs.population import PopulationEnv as PopulationEnv
    from replaybench.envs.registry import make_plant as make_plant
    from replaybench.experiments.cell_lookup import load_policy as load_policy
    from replaybench.experiments.study import Study as Study
    from replaybench.experiments.study import read_study as read_study
    from replaybench.replay.buffer import Replay as Replay
    from replaybench.replay.buffer_file import load_replay as load_replay
    from replaybench.replay.buffer_stream import BufferStream as BufferStream
    from replaybench.replay.sb3.buffer import StrategyReplayBuffer as StrategyReplayBuffer
    from replaybench.replay.sb3.learners import StrategyDDPG as StrategyDDPG
    from replaybench.replay.sb3.learners import StrategySAC as StrategySAC
    from replaybench.replay.sb3.learners import StrategyTD3 as StrategyTD3
    from replaybench.replay.strategies.notation import parse as parse


__version__ = VERSION

_PLACES = {
    "BufferStream": "replay.buffer_stream:BufferStream",
    "Channel": "envs.interface.channel:Channel",
    "OdePlant": "envs.ode.plant:OdePlant",
    "PopulationEnv": "envs.population:PopulationEnv",
    "PythonPlant": "envs.foreign.python_plant:PythonPlant",
    "Replay": "replay.buffer:Replay",
    "StrategyDDPG": "replay.sb3.learners:StrategyDDPG",
    "StrategyReplayBuffer": "replay.sb3.buffer:StrategyReplayBuffer",
    "StrategySAC": "replay.sb3.learners:StrategySAC",
    "StrategyTD3": "replay.sb3.learners:StrategyTD3",
    "Study": "experiments.study:Study",
    "advise": "api:advise",
    "load_policy": "experiments.cell_lookup:load_policy",
    "load_replay": "replay.buffer_file:load_replay",
    "load_torch_policy": "controllers.policies.torch_module:load_torch_policy",
    "make_plant": "envs.registry:make_plant",
    "open_record": "data.record:open_record",
    "open_results": "api:open_results",
    "parse": "replay.strategies.notation:parse",
    "read_record": "data.record:read_record",
    "read_study": "experiments.study:read_study",
    "replay_offline": "api:replay_offline",
    "report": "api:report",
    "solve": "api:solve",
    "sweep": "api:sweep",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name].split(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
