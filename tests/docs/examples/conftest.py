"""The modules that type pages lie with the documentation's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
