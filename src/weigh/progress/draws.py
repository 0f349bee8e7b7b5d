"""Draws that look random and are the same every time: a forecast must not flicker."""

import math


class Draws:
    """Draws by a linear congruential generator (Knuth, MMIX)."""

    def __init__(self) -> None:
        self._state = 0x9E3779B97F4A7C15

    def share(self) -> float:
        """Draw evenly from 0 to 1."""
        state = self._state * 6364136223846793005 + 1442695040888963407
        self._state = state & (1 << 64) - 1
        return ((self._state >> 11) + 0.5) / (1 << 53)

    def normal(self) -> float:
        """Draw from the standard normal distribution (Box and Muller, 1958)."""
        radius = math.sqrt(-2.0 * math.log(self.share()))
        return radius * math.cos(2.0 * math.pi * self.share())

    def beyond(self, least: float) -> float:
        """Draw from the part of the standard normal beyond *least* (Robert, 1995)."""
        if least <= 0:
            found = self.normal()
            while found < least:
                found = self.normal()
            return found
        rate = (least + math.sqrt(least * least + 4.0)) / 2.0
        while True:
            found = least - math.log(self.share()) / rate
            if self.share() <= math.exp(-((found - rate) ** 2) / 2.0):
                return found

    def chi_square(self, freedom: float) -> float:
        """Draw from chi-square, 0.01 or more (Wilson and Hilferty, 1931)."""
        part = 2.0 / (9.0 * freedom)
        return max(0.01, freedom * (1.0 - part + self.normal() * math.sqrt(part)) ** 3)

    def around_one(self, spread: float) -> float:
        """Draw a factor, of mean 1, from a log-normal distribution."""
        return math.exp(spread * self.normal() - spread * spread / 2)
