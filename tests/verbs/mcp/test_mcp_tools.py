"""What agents can do: the tools of `weigh mcp`, and a real client of the SDK."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import children_of, is_running, until
from written_programs import write_program

from weigh.flow.mcp_server import TOOLS, AgentLimits, AgentTools, RefusedCall

HOLDS_60_MIB = "b = bytearray(b'x') * (60 << 20); print('done'); raise SystemExit({})"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEIGH_DIR", str(tmp_path / ".weigh"))
    return tmp_path


def server(folder: Path, *names: str, hours: float = 2) -> AgentTools:
    """Return a server with a budget, and plans of one task of an hour each."""
    tools = AgentTools(str(folder), AgentLimits(submit=True, cpu_hours=hours))
    for name in names:
        tools.plan([f"true {name}"], name, 1, "100M", "1h")
    return tools


def confirmed(tools: AgentTools, plan: str, **options: str | None) -> dict[str, Any]:
    return tools.confirm(tools.submit(plan, **options)["token"])


def program(code: int = 0) -> list[str]:
    return [sys.executable, "-c", HOLDS_60_MIB.format(code)]


def test_a_run_returns_its_record_and_output(folder: Path) -> None:
    done = AgentTools(str(folder), AgentLimits()).run(program(3), "big", {"size": 60})
    record = done["record"]
    assert record["usage"]["peak_memory"]["value"] > 60 << 20
    assert (record["label"], record["parameters"]) == ("big", {"size": 60})
    assert (record["exit_code"], done["stdout"]) == (3, "done\n")


def test_a_run_is_stopped_after_its_time_and_killed_if_it_ignores_that(
    folder: Path, shorten: Callable[[str, float], None]
) -> None:
    tools = AgentTools(str(folder), AgentLimits(run_time=2))
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
    done = AgentTools(str(folder), AgentLimits()).run(
        [sys.executable, "-c", prints + "; print('end')"]
    )
    assert done["stdout"].endswith("xend\n")
    assert len(done["stdout"]) == 4000


def test_a_task_file_is_not_written_through_a_link(folder: Path) -> None:
    outside = folder.parent / "outside.txt"
    (folder / "p.txt").symlink_to(outside)
    with pytest.raises(RefusedCall, match=r"p\.txt exists"):
        AgentTools(str(folder), AgentLimits()).plan(["true"], "p")
    assert not outside.exists()


def test_the_settings_of_a_project_let_nothing_heal(folder: Path) -> None:
    (folder / "weigh.toml").write_text("[submit]\nheal = true\n")
    tools = AgentTools(str(folder), AgentLimits())
    tools.plan(["true"], "p", memory="10M", time="1m")
    answer = json.dumps(tools.submit("p", on="local"))
    assert "weigh heal" not in answer
    assert '"heal": true' not in answer


def test_the_request_is_that_of_the_command_line(folder: Path) -> None:
    tools = AgentTools(str(folder), AgentLimits())
    tools.run(program(), "big")
    assert tools.request("big")["memory"] > 70 << 20


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda tools: tools.run([]), "the command is empty"),
        (lambda tools: tools.run(["echo", "a\0b"]), "a NUL byte"),
        (lambda tools: tools.plan(["a\0b"], "x"), "a NUL byte"),
        (lambda tools: tools.request("a\0b"), "a NUL byte"),
        (lambda tools: tools.run(["no-such-program"]), "command not found"),
        (lambda tools: tools.request("nothing"), "no records in"),
        (lambda tools: tools.request("--help"), "no records in"),
        (lambda tools: tools.plan(["true"], "../x"), "is no name for a plan"),
        (lambda tools: tools.plan(["a\nb"], "x"), "one shell command per task"),
        (lambda tools: tools.submit("nothing"), "no plan in plan/nothing"),
        (lambda tools: tools.report("nothing"), "no "),
        (lambda tools: tools.wait("nothing"), "no job nothing"),
        (lambda tools: tools.logs("nothing"), "no job nothing"),
        (lambda tools: tools.cancel("481516"), "no job that this server submitted"),
    ],
)
def test_a_mistake_is_refused_with_the_way_out(
    folder: Path, call: Any, words: str
) -> None:
    with pytest.raises(RefusedCall, match=words):
        call(AgentTools(str(folder), AgentLimits()))


def test_nothing_is_submitted_unless_allowed(folder: Path) -> None:
    tools = AgentTools(str(folder), AgentLimits())
    tools.plan(["true", "true"], "two", cpus=1, memory="100M", time="1h")
    assert "#!/bin/bash" in tools.submit("two")["text"]
    with pytest.raises(RefusedCall, match="--allow-submit"):
        confirmed(tools, "two", on="local")
    assert not (folder / "plan/two/sent").exists()


def test_all_submissions_share_one_budget(folder: Path) -> None:
    allowed = AgentLimits(submit=True, cpu_hours=3, gpu_hours=0)
    tools = AgentTools(str(folder), allowed)
    for name in ("one", "two"):
        plan = tools.plan([f"true {name}", "true"], name, 1, "100M", "1h")
        assert plan["ask"]["cpus"] * len(plan["elements"]) == 2
    done = confirmed(tools, "one", on="local")
    hours = 2 * done["job"]["wanted"]["time_limit"] / 3600
    assert (done["job"]["tasks"], done["hours"]["CPU"]) == (2, hours)
    with pytest.raises(
        RefusedCall, match="5 CPU hours exceed this server's budget of 3"
    ):
        confirmed(tools, "two", on="local")
    with pytest.raises(RefusedCall, match=r"6\.5 CPU hours exceed"):
        confirmed(tools, "two", time="2h", on="local")
    confirmed(tools, "two", time="15m", on="local")


def test_hours_without_a_limit_fit_no_budget(folder: Path) -> None:
    tools = server(folder, hours=1000)
    tools.plan(["true"], "open", 1, "100M")
    assert tools.submit("open")["hours"] == {"CPU": None, "GPU": None}
    with pytest.raises(RefusedCall, match="no hours can be counted: give time"):
        confirmed(tools, "open", on="local")
    assert not (folder / "plan/open/sent").exists()


def test_a_job_that_follows_is_refused_as_no_budget_counts_it(folder: Path) -> None:
    tools = AgentTools(str(folder), RICH)
    tools.plan(["true", "# weigh: then", "sleep 100000"], "a", 1, "100M", "1m")
    with pytest.raises(RefusedCall, match="plan the tasks without it"):
        tools.submit("a", on="local")


def test_submissions_side_by_side_share_one_budget(folder: Path) -> None:
    names = ("a", "b", "c")
    tools = server(folder, *names)

    def submit(name: str) -> bool:
        with suppress(RefusedCall):
            return bool(confirmed(tools, name, on="local"))
        return False

    with ThreadPoolExecutor(len(names)) as pool:
        assert sum(pool.map(submit, names)) == 1  # 1.25 hours each


def test_hours_stay_counted_while_a_job_may_exist(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = server(folder, "a", "b")
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


def test_what_weigh_itself_refused_costs_no_hours(folder: Path) -> None:
    tools = server(folder, "a")
    with pytest.raises(RefusedCall, match="no queue: omit --queue"):
        confirmed(tools, "a", on="local", queue="gpu")

    assert confirmed(tools, "a", on="local")["spent"]["CPU"] == 1.25


RICH = AgentLimits(submit=True, cpu_hours=100)


def test_what_was_shown_is_sent_once_and_only_as_it_was_shown(folder: Path) -> None:
    tools = AgentTools(str(folder), RICH)
    tools.plan(["echo hi"], "a", 1, "100M", "1h")
    changed = tools.submit("a", on="local")["token"]
    (folder / "a.txt").write_text("echo other\n")
    with suppress(RefusedCall):
        tools._call(["plan", "a.txt", "--replace", "--time=2h", "--memory=1G"])
    with pytest.raises(RefusedCall, match="has changed since"):
        tools.confirm(changed)
    token = tools.submit("a", on="local")["token"]
    job = tools.confirm(token)["job"]["id"]
    with pytest.raises(RefusedCall, match="no submission was shown"):
        tools.confirm(token)
    assert tools.wait(job)["why"] == "ended"
    assert "other" in tools.logs(job)["output"]


def test_a_wait_ends_when_a_task_has_failed_though_others_run(folder: Path) -> None:
    tools = AgentTools(str(folder), RICH)
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
    tools = AgentTools(str(folder), RICH)
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
