"""What agents can do: the tools of `weigh mcp`, and a real client of the SDK."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import WEIGH, children_of, is_running, until
from run_captured import run_captured
from sessions import check_session
from written_programs import write_program

from weigh.flow.mcp_server import TOOLS, AgentLimits, AgentTools, RefusedCall

HOLDS_60_MIB = "b = bytearray(b'x') * (60 << 20); print('done'); raise SystemExit({})"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEIGH_DIR", str(tmp_path / ".weigh"))
    return tmp_path


def a_server(
    folder: Path, limits: AgentLimits | None = None, *names: str
) -> AgentTools:
    """Return a server, and plans of one task of an hour each."""
    tools = AgentTools(str(folder), limits or AgentLimits())
    for name in names:
        tools.plan([f"true {name}"], name, 1, "100M", "1h")
    return tools


TWO_HOURS = AgentLimits(submit=True, cpu_hours=2)


def confirmed(tools: AgentTools, plan: str, **options: str | None) -> dict[str, Any]:
    return tools.confirm(tools.submit(plan, **options)["token"])


def program(code: int = 0) -> list[str]:
    return [sys.executable, "-c", HOLDS_60_MIB.format(code)]


def test_worked_examples_of_budgets(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = dict[int, Path]()

    # what a plan may cost is counted here, however weigh is started
    def forked(
        tools: AgentTools, argv: Sequence[str], *_: float
    ) -> tuple[int, str, str]:
        if "\0" in "".join(argv):  # no program can get it
            return started(tools, argv)
        done = run_captured([*WEIGH, *argv], cwd=tools._folder)
        return done.returncode, done.stdout, done.stderr

    started = AgentTools._call
    monkeypatch.setattr(AgentTools, "_call", forked)

    def in_a_folder(limits: AgentLimits | None = None, *names: str) -> AgentTools:
        folder = tmp_path_factory.mktemp("agent")
        monkeypatch.setenv("WEIGH_DIR", str(folder / ".weigh"))
        tools = a_server(folder, limits, *names)
        folders[id(tools)] = folder
        return tools

    names = {
        "a_server": in_a_folder,
        "confirmed": confirmed,
        "folder_of": lambda tools: folders[id(tools)],
        "RefusedCall": RefusedCall,
    }
    check_session(Path(__file__).with_name("budget.session"), names)


def test_a_run_returns_its_record_and_output_and_makes_a_request(folder: Path) -> None:
    tools = a_server(folder)
    done = tools.run(program(3), "big", {"size": 60})
    record = done["record"]
    assert record["usage"]["peak_memory"]["value"] > 60 << 20
    assert (record["label"], record["parameters"]) == ("big", {"size": 60})
    assert (record["exit_code"], done["stdout"]) == (3, "done\n")
    tools.run(program(), "good")
    assert tools.request("good")["memory"] > 70 << 20


def test_a_run_is_stopped_after_its_time_and_killed_if_it_ignores_that(
    folder: Path, shorten: Callable[[str, float], None]
) -> None:
    tools = a_server(folder, AgentLimits(run_time=2))
    done = tools.run(["sleep", "100"])
    assert "stopped after 00:00:02" in done["stderr"]
    assert done["record"]["usage"]["wall_time"] < 60

    shorten("flow.mcp_server._GRACE", 1.0)
    script = "trap '' TERM; echo $$ > pid; sleep 1000 & sleep 1000; sleep 1000"
    with pytest.raises(RefusedCall, match="stopped after"):
        tools.run(["bash", "-c", script])
    pid = int((folder / "pid").read_text())
    until(lambda: not is_running(pid))


def test_of_much_output_the_end_is_kept(folder: Path) -> None:
    prints = "import sys; [sys.stdout.write('x' * (1 << 20)) for _ in range(200)]"
    done = a_server(folder).run([sys.executable, "-c", f"{prints}; print('end')"])
    assert done["stdout"].endswith("xend\n")
    assert len(done["stdout"]) == 4000


def test_submissions_side_by_side_share_one_budget(folder: Path) -> None:
    names = ("a", "b", "c")
    tools = a_server(folder, TWO_HOURS, *names)

    def submit(name: str) -> bool:
        with suppress(RefusedCall):
            return bool(confirmed(tools, name, on="local"))
        return False

    with ThreadPoolExecutor(len(names)) as pool:
        assert sum(pool.map(submit, names)) == 1  # 1.25 hours each


def test_hours_stay_counted_while_a_job_may_exist(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = a_server(folder, TWO_HOURS, "a", "b")
    programs = tmp_path / "programs"
    for name in ("sbatch", "squeue", "sacct", "scontrol", "sinfo"):
        lost = "echo Unable to contact slurm controller >&2; exit 1"
        write_program(programs / name, lost)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        with pytest.raises(RefusedCall, match="its hours stay counted: jobs"):
            confirmed(tools, "a", on="slurm")

        with pytest.raises(RefusedCall, match="exceed this server's budget of 2"):
            confirmed(tools, "b", on="local")


RICH = AgentLimits(submit=True, cpu_hours=100)


def test_a_wait_ends_when_a_task_has_failed_though_others_run(folder: Path) -> None:
    tools = a_server(folder, RICH)
    go = folder / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.1; done"
    tools.plan([f"{waits}; exit 3", "sleep 1000"], "a", 1, "100M", "1h")
    job = confirmed(tools, "a", on="local")["job"]["id"]
    assert tools.wait(job, seconds=0)["why"] == "time"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(tools.wait, job)
        go.touch()
        answer = waiting.result(timeout=100)
    assert answer["why"] == "failed"
    tasks = answer["jobs"][0]["tasks"]
    # the other one may be about to start
    assert tasks.get("RUNNING", 0) + tasks.get("PENDING", 0) == 1
    assert "cancelled" in tools.cancel(job)["output"]
    assert tools.wait(job)["why"] == "ended"


def test_a_wait_ends_when_its_client_leaves(folder: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed: pip install mcp")
    tools = a_server(folder, RICH)
    tools.plan(["sleep 1000"], "a", 1, "100M", "1h")
    job = confirmed(tools, "a", on="local")["job"]["id"]
    words = [sys.executable, "-m", "weigh", "mcp", str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdin is not None
        for call in (
            {"id": 1, "method": "initialize", "params": HELLO},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "wait"}},
        ):
            one.stdin.write(json.dumps({"jsonrpc": "2.0", **call}).encode() + b"\n")
            one.stdin.flush()
        try:
            # it looks at the job: the wait has begun
            until(lambda: bool(children_of(one.pid)))
            one.stdin.close()
            assert one.wait(timeout=100) == 0
        finally:
            one.kill()
    assert "cancelled" in tools.cancel(job)["output"]


def test_a_client_that_reads_no_answer_ends_it_quietly(folder: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed: pip install mcp")
    reader, writer = os.pipe()
    os.close(reader)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    ended = subprocess.run(
        [sys.executable, "-m", "weigh", "mcp", str(folder)],
        input=json.dumps(hello).encode() + b"\n",
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=100,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


HELLO = {
    "protocolVersion": "2025-03-26",
    "capabilities": {},
    "clientInfo": {"name": "an agent", "version": "1"},
}


@pytest.mark.integrations
def test_a_client_of_the_sdk_uses_the_tools(folder: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed: pip install mcp")
    import anyio  # noqa: PLC0415 - comes with the SDK

    anyio.run(_walk, folder)


async def _walk(folder: Path) -> None:
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 - as above

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "weigh", "mcp", str(folder)],
        env={**os.environ},
    )
    async with Client(server) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert [*listed] == [*TOOLS]
        assert all(tool.description for tool in listed.values())
        done = await client.call_tool("run", {"command": program(), "label": "big"})
        assert _document(done)["record"]["label"] == "big"
        asked = _document(await client.call_tool("request", {"record": "big"}))
        assert asked["schema"] == "weigh.request/1"
        plan = {"commands": ["true"], "name": "one", "memory": "1G", "time": "1h"}
        assert _document(await client.call_tool("plan", plan))["tasks"] == 1
        dry = _document(await client.call_tool("submit", {"plan": "one"}))
        assert dry["text"].startswith("#!/bin/bash")
        odd = await client.call_tool("submit", {"plan": "one", "time": "soon"})
        assert "not a time: 'soon'" in odd.content[0].text
        wet = await client.call_tool("confirm", {"token": dry["token"]})
        assert wet.is_error
        assert "--allow-submit" in wet.content[0].text
        report = await client.call_tool("report", {"name": "big"})
        assert _document(report)["schema"] == "weigh.report/1"


def _document(result: Any) -> dict[str, Any]:
    assert not result.is_error, result
    found: dict[str, Any] = result.structured_content or json.loads(
        result.content[0].text
    )
    return found
