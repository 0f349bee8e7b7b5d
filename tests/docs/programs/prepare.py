"""Stand in for what comes before a training."""

held = bytearray(b"x") * 100_000_000
print("words", len(held))
