"""Hold more memory with every step, as a replay buffer that is not full yet."""

import time

held = []
for _step in range(100):
    held.append(bytearray(b"x") * 400_000)
    time.sleep(0.03)
