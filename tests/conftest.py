"""Settings of all Python tests."""

import os

# Before torch is imported anywhere, also in the processes that tests start: ranks share few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
