import shlex

from hypothesis import given
from some_requests import REQUESTS

from weigh.model.record import Allocation, RecordedJob, Request
from weigh.schedulers import gridengine as gridengine_text


@given(REQUESTS)
def test_all_slots_together_hold_the_virtual_memory(request: Request) -> None:
    words = shlex.split(" ".join(gridengine_text.TEXT.directives(request)))
    asked = dict(word.split("=") for word in words if "=" in word)
    slots = int(words[words.index("smp") + 1]) if "smp" in words else 1

    assert slots == request.cpus
    if request.virtual_memory is not None:
        a_slot = gridengine_text.TEXT.parse_memory(asked["h_vmem"])
        assert slots * a_slot >= request.virtual_memory


BATCH = {
    "JOB_ID": "4711",
    "SGE_TASK_ID": "undefined",
    "NSLOTS": "4",
    "NHOSTS": "1",
    "QUEUE": "short",
    "RESTARTED": "0",
}


def test_a_batch_job_reports_its_slots_and_queue() -> None:
    assert gridengine_text.TEXT.allocation_from_environment(BATCH) == Allocation(
        scheduler="gridengine", cpus=4, nodes=1, queue="short"
    )


def test_outside_an_array_there_is_no_element() -> None:
    assert gridengine_text.TEXT.job_from_environment(BATCH) == RecordedJob(
        id="4711", attempt=1
    )


def test_an_array_task_is_an_element() -> None:
    env = BATCH | {"SGE_TASK_ID": "12", "RESTARTED": "1"}

    assert gridengine_text.TEXT.job_from_environment(env) == RecordedJob(
        id="4711", element=12, attempt=2
    )
