"""Send a record to MLflow or W&B: ``log_record.py mlflow|wandb < record.json``.

It runs without weigh, in any Python that has the package; exit code 3 where it has not.
The last line of stdout names where the figures are.
"""

import json
import os
import sys
from typing import Any

MISSING = 3
_MOST = 1000  # points of a curve


def figures(record: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a record: bytes, seconds, CPUs."""
    usage = record.get("usage") or {}
    peak = usage.get("peak_memory") or {}
    found = {
        "peak_memory": peak.get("value"),
        "wall_time": usage.get("wall_time"),
        "cpu_time": usage.get("cpu_time"),
        "cpus_used": usage.get("cpus_used"),
        "read_bytes": usage.get("read_bytes"),
        "write_bytes": usage.get("write_bytes"),
        "exit_code": record.get("exit_code"),
    }
    for number, gpu in enumerate(usage.get("gpus") or ()):
        found[f"gpu{number}_peak_memory"] = gpu.get("peak_memory")
        found[f"gpu{number}_utilization"] = gpu.get("utilization_mean")
    return {f"weigh/{key}": value for key, value in found.items() if value is not None}


def curve(record: dict[str, Any]) -> list[tuple[float, float]]:
    """Return (seconds, bytes) of the memory over time."""
    series = record.get("series") or {}
    points = list(zip(series.get("t") or (), series.get("memory") or (), strict=False))
    return points[:: max(1, -(-len(points) // _MOST))]


def words(record: dict[str, Any]) -> dict[str, str]:
    """Return what names the run."""
    return {
        "weigh.id": record["id"],
        "weigh.state": record.get("state", "UNKNOWN"),
        "weigh.command": " ".join(record["command"])[:500],
        "weigh.host": (record.get("host") or {}).get("name", ""),
    }


def to_mlflow(record: dict[str, Any]) -> str:
    """Log to the run that MLFLOW_RUN_ID names, else to a new one."""
    import mlflow  # noqa: PLC0415 - only one of the two
    from mlflow.entities import Metric  # noqa: PLC0415 - as above

    is_known = bool(os.environ.get("MLFLOW_RUN_ID"))
    name = None if is_known else record.get("label") or record["id"]
    run = mlflow.start_run(run_name=name)
    own = run.data.params  # MLflow refuses another value of one
    given = record.get("parameters") or {}
    mlflow.log_params({name: one for name, one in given.items() if name not in own})
    mlflow.set_tags(words(record))
    mlflow.log_metrics(figures(record))
    points = [
        Metric("weigh/memory", float(memory), round(seconds * 1000), step)
        for step, (seconds, memory) in enumerate(curve(record))
    ]
    mlflow.MlflowClient().log_batch(run.info.run_id, metrics=points)
    mlflow.end_run("FINISHED" if record.get("state") == "COMPLETED" else "FAILED")
    return f"run {run.info.run_id} in {mlflow.get_tracking_uri()}"


def to_wandb(record: dict[str, Any]) -> str:
    """Log to the run that WANDB_RUN_ID names, else to a new one."""
    import wandb  # noqa: PLC0415 - only one of the two

    run = wandb.init(
        name=record.get("label") or record["id"],
        config={**(record.get("parameters") or {}), **words(record)},
        resume="allow" if os.environ.get("WANDB_RUN_ID") else None,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
    )
    for seconds, memory in curve(record):
        run.log({"weigh/seconds": seconds, "weigh/memory": memory})
    run.summary.update(figures(record))
    place = run.url or run.dir
    run.finish(exit_code=record.get("exit_code") or 0)
    return f"run {run.id} at {place}"


def main() -> int:
    """Send the record on stdin to the tool that is named."""
    tool = sys.argv[1]
    try:
        __import__(tool)
    except ImportError:
        return MISSING
    record = json.load(sys.stdin)
    place = to_mlflow(record) if tool == "mlflow" else to_wandb(record)
    sys.stdout.write(f"{place}\n")
    return 0


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules have the names of frameworks
    sys.exit(main())
