"""Stand in for a tagger: the memory goes with the last argument, the batch size."""

import sys
import time

batch = int(sys.argv[-1])
held = bytearray(b"x") * (20_000_000 + 400_000 * batch)
time.sleep(0.2 + 0.002 * batch)
print(f"batch {batch}: {len(held)} bytes")
