"""Array types by dtype, for annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Integers32 = NDArray[np.int32]
