"""Count so many rows: the memory goes with them."""

import sys
import time

rows = int(sys.argv[1])
scatter = rows * 7919 % 13 - 6  # per cent
held = bytearray(b"x") * (20_000_000 + 9_000 * rows * (100 + scatter))
time.sleep(0.3)
