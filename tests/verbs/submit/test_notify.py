"""``weigh submit --notify``: a command or an address learns of the end, once."""

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from following import Weigh, until
from rigs import mainly
from some_requests import some_job_script

from weigh.model.job import JobRequest
from weigh.schedulers.job_script import at_exit


def events(path: Path) -> list[dict[str, object]]:
    """Return the events so far, one JSON line each."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


@mainly("gridengine", "htcondor", "local")
def test_the_element_that_ends_last_notifies_once(weigh: Weigh) -> None:
    plan = weigh.plan("true", "sleep 1; false")
    path = weigh.folder / "events"

    job = weigh.submit(plan, "--notify", f"cat >>{path}")
    weigh.finish(job)

    until(lambda: bool(events(path)))
    (event,) = events(path)
    assert event["job"] == job
    assert event["state"] == "failed"
    assert (event["elements"], event["failed"]) == (2, 1)


@mainly("slurm")
def test_a_job_that_is_cancelled_notifies(weigh: Weigh) -> None:
    path = weigh.folder / "events"
    job = weigh.submit(weigh.plan("sleep 300"), "--notify", f"cat >>{path}")
    weigh.wait_for(job, lambda one: "RUNNING" in one["tasks"])

    weigh("cancel", job)

    until(lambda: bool(events(path)))
    assert [one["state"] for one in events(path)] == ["failed"]


def test_an_address_gets_the_line(here: Weigh) -> None:
    got: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/hook?key=1"

        job = here.submit(here.plan("true"), "--notify", url)

        until(lambda: bool(got))
        server.shutdown()

    assert json.loads(got[0])["state"] == "completed"
    assert json.loads(got[0])["job"] == job


@pytest.mark.parametrize("elements", [1, 12])
def test_of_elements_that_end_together_one_notifies(
    tmp_path: Path, elements: int
) -> None:
    script = some_job_script(
        name='a "quoted" 100% name',
        folder=str(tmp_path),
        elements=elements,
        request=JobRequest(notify=f"cat >>{tmp_path}/events"),
    )
    (tmp_path / "job.sh").write_text(
        "\n".join((*at_exit(script, "7"), f"plan={tmp_path} element=$1", "exit 3"))
    )

    running = [
        subprocess.Popen(
            ["bash", tmp_path / "job.sh", str(n)], stdout=subprocess.DEVNULL
        )
        for n in range(elements)
    ]
    codes = [one.wait(timeout=60) for one in running]

    (event,) = events(tmp_path / "events")
    assert event["name"] == script.name
    assert event["failed"] == elements
    assert set(codes) == {3}  # the notification changes no exit code
