"""Runs that psutil measures; how they end is among the tests of ``weigh run``."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weigh import waits
from weigh.errors import UsageError
from weigh.measure.portable import run_portable_command
from weigh.measure.watcher import WatchSettings
from weigh.model.record import PeakMemory, RunMeasurement
from weigh.probe.own_memory import max_rss_bytes
from weigh.units import KIB, MIB

HUNDRED = "x = bytearray(100 << 20); import sys, time; time.sleep(0.3)"
SAYS_PEAK = """
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open({path!r}, "w").write(str(peak * (1 if sys.platform == "darwin" else 1024)))
"""
SAYS_CPU_TIME = """
import resource, subprocess, sys
for _ in range(10):
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"])
used = [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
open({path!r}, "w").write(str(sum(each.ru_utime + each.ru_stime for each in used)))
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run_here(*command: str, **settings: Any) -> RunMeasurement:
    return run_portable_command(command, None, WatchSettings(**settings))


def peak_of(measured: RunMeasurement) -> PeakMemory:
    assert measured.usage.peak_memory is not None
    return measured.usage.peak_memory


SMALL_PROCESS = """
import json, sys, msgspec
from weigh.measure.portable import run_portable_command
from weigh.measure.watcher import WatchSettings
watch = WatchSettings(interval=float(sys.argv[1]))
for command in json.loads(sys.argv[2]):
    measured = run_portable_command(command, None, watch)
sys.stdout.buffer.write(msgspec.json.encode(measured))
"""


def run_from_a_small_process(
    *commands: list[str], interval: float = 0.05
) -> RunMeasurement:
    """Run them as weigh does: a large process, as these tests are, puts a floor below.

    The measurement is that of the last.
    """
    words = (str(interval), json.dumps(commands))
    argv = [sys.executable, "-c", SMALL_PROCESS, *words]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=RunMeasurement)


def test_a_process_of_100_mib_is_seen_as_that_after_a_larger_run(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    code = f"{HUNDRED}\n{SAYS_PEAK.format(path=str(said))}"
    larger = python("bytearray(250 << 20)")
    peak = peak_of(run_from_a_small_process(larger, python(code)))
    assert peak.value == pytest.approx(float(said.read_text()), rel=0.02)
    assert peak.value == pytest.approx(100 * MIB, rel=0.15)  # and a bare Python
    assert peak.high < 150 * MIB


def test_a_child_counts_with_its_parent_and_a_checkpoint_states_what_is_known() -> None:
    seen: list[RunMeasurement] = []
    code = "import subprocess, sys; x = bytearray(50 << 20); subprocess.run({})"
    measured = run_here(
        *python(code.format(repr(python(HUNDRED)))),
        checkpoint=lambda so_far, _leader: seen.append(so_far),
    )
    assert peak_of(measured).value > 150 * MIB
    assert measured.usage.processes == 2
    assert (seen[0].ended, seen[0].exit_code) == (None, None)
    assert seen[0].usage.peak_memory is not None


def test_a_spike_between_samples_is_caught() -> None:
    # larger than this process, whose size passes on to what it starts
    resource = pytest.importorskip("resource")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = max_rss_bytes(own, sys.platform) + 200 * MIB
    spike = f"import time; time.sleep(0.3); bytearray({size}); time.sleep(0.3)"
    measured = run_from_a_small_process(python(spike), interval=5.0)
    assert peak_of(measured).value > size


def test_cpu_time_counts_children_however_short(tmp_path: Path) -> None:
    said = tmp_path / "said"
    measured = run_here(*python(SAYS_CPU_TIME.format(path=str(said))))
    assert measured.usage.cpu_time == pytest.approx(float(said.read_text()), rel=0.1)


def test_a_nul_byte_is_refused_in_words_and_signal_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(UsageError, match="NUL"):
        run_here("true\0false")
    assert signal.getsignal(signal.SIGTERM) == before


OUTLIVED = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {code!r}], start_new_session=True)
time.sleep(0.6)
"""


AT_TERM = "import signal, time; signal.signal(15, lambda *_: {}); time.sleep(600)"
# what outlives the command and leaves a mark, and whether weigh waits for it
OUTLIVING = {
    "is waited for": ("import time; time.sleep(1.2); {}", True),
    "is terminated": (AT_TERM.format("exit({})"), False),
    "and does not end is killed": (AT_TERM, False),
}


@pytest.mark.parametrize("what", OUTLIVING)
def test_what_outlives_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(waits, "times", waits.WaitTimes(orphans_of_run_killed=1))
    mark, (code, is_waited_for) = tmp_path / "mark", OUTLIVING[what]
    code = code.format(f"open({str(mark)!r}, 'w').close()")
    run_here(*python(OUTLIVED.format(code=code)), wait_orphans=is_waited_for)
    assert mark.exists()


def test_ru_maxrss_is_bytes_on_macos_and_kib_on_linux() -> None:
    assert max_rss_bytes(300 * MIB, "darwin") == 300 * MIB
    assert max_rss_bytes(300 * MIB, "linux") == 300 * MIB * KIB
