import shlex

from hypothesis import given
from some_requests import REQUESTS

from weigh.model.record import Request
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
