"""The schedulers of the table as parameters of tests: a new one is tested as they are.

Each needs ``ci/NAME-up.sh`` and ``ci/NAME-down.sh``, and a mark that has its name.
"""

import pytest

from weigh.schedulers import KINDS

RIGS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in KINDS]
EACH_RIG = pytest.mark.parametrize("scheduler", RIGS)
EACH_KIND = pytest.mark.parametrize("name", list(KINDS))
