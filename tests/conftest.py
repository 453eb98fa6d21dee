"""One thread for each process of tests: processes that each use all cores wait for each other."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of OpenBLAS and PyTorch; before they are imported; workers inherit it
