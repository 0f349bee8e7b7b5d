"""Stand in for reinforcement learning: each algorithm has its own need."""

import sys
import time

NEEDS = {"ppo": 60_000_000, "dqn": 300_000_000, "a2c": 30_000_000}
held = bytearray(b"x") * NEEDS[sys.argv[sys.argv.index("--algo") + 1]]
time.sleep(0.4)
