"""Names for the arrays that pass between the parts of a buffer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

State = dict[str, NDArray[np.generic]]
"""What a resumed run needs, by name; every array begins with M."""
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
