"""A task that takes 10 MiB so many times, and then writes its name to ``ran``."""

import sys
import time

held = bytearray()
for _ in range(int(sys.argv[1])):
    held += bytes(10 << 20)
    time.sleep(0.025)
time.sleep(0.6)
with open("ran", "a", encoding="utf-8") as ran:
    ran.write(f"{sys.argv[2]}\n")
