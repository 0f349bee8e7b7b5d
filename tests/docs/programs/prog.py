def count() -> int:
    """Spend time in the interpreter, then memory."""
    total = 0
    for i in range(3_000_000):
        total += i * i
    return total


def fill() -> list[bytes]:
    return [bytes(1000) for _ in range(200_000)]


print(count(), len(fill()))
