"""What the real Grid Engine would keep waiting for ever is refused."""

import pytest
from following import Weigh

ELSEWHERE = pytest.mark.integrations


@pytest.mark.gridengine
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-l", "h_vmem=64G"), "has 32.0 GiB"),
        (("--gpus", "9"), "9 GPUs on one node; the cluster has 4"),
        pytest.param(("--cpus", "20"), "20 CPUs on one node", marks=ELSEWHERE),
        (("--queue", "short", "--time", "20h"), "short allows 12 h 00 m"),
        pytest.param(("--l=arch=vax",), "would never start", marks=ELSEWHERE),
    ],
)
def test_what_grid_engine_would_keep_for_ever_is_refused(
    cell: Weigh,
    words: tuple[str, ...],
    reason: str,
) -> None:
    plan = cell.plan("true")

    code, _, err = cell("submit", plan, "--on", "gridengine", *words)

    assert code == 2
    assert reason in err
