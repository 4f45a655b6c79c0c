"""Sections in which NVIDIA's own tools look at this project's kernels."""

import csv
import gzip
import io
import json
import re
import shutil
from pathlib import Path

from .checks import NO_LINK
from .suite import Absent, Clock, Failed, Figures, Problems, Suite


def tool(name: str, *places: str) -> str:
    """On PATH, or in one of the places."""
    found = shutil.which(name) or next((place for place in places if Path(place).exists()), None)
    if not found:
        raise Absent(f"{name} is not installed")
    return found


def sanitizer(suite: Suite, seconds: float, figures: Figures) -> None:
    """compute-sanitizer's memcheck and racecheck of this project's kernels in a small run."""
    checker = tool("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
    clock = Clock(seconds)
    for index, check in enumerate(("memcheck", "racecheck")):
        command, _ = suite.training("quickstart", check, NO_LINK | {
            "mesh.ranks": 1, "train.steps": 1, "train.warmup": 0, "device.backend": "cuda", "device.timer": "events"})
        # Kernels of NVIDIA's libraries are NVIDIA's matter and would take all the time; calls of the API that fail by
        # design, as a question whether an event is over, are no findings.
        done = suite.command([checker, "--tool", check, "--error-exitcode", "99", "--report-api-errors", "no", "--kernel-name",
                              "kns=fsdpbench", *command], clock.left(seconds / 2 if index == 0 else 0), check,
                             environment=suite.own)
        if "not supported" in done.stdout:
            raise Absent("compute-sanitizer refuses this device")
        if done.returncode != 0:
            raise Failed(f"{check} ended with code {done.returncode}, see {check}.log")
        figures[check] = "no finding"


def function_of(kernel: str) -> str:
    """The name that ncu knows a kernel by: without namespaces, template arguments and parameters."""
    plain = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", plain, maxsplit=1)[0].strip().rsplit("::", 1)[-1]


def slowest_kernels(events: list, count: int) -> list[tuple[str, float]]:
    """Functions of the kernels of a trace that took longest in all, and their share of the kernels' time."""
    took = {}
    for event in events:
        if event.get("cat") == "kernel" and event.get("ph") == "X":
            name = function_of(event["name"])
            took[name] = took.get(name, 0.0) + event["dur"]
    whole = sum(took.values())
    return [(name, time / whole) for name, time in sorted(took.items(), key=lambda pair: -pair[1])[:count]] if whole > 0 else []


# What ncu asks the counters for, and what it is called here.
NCU_METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "% of the memory's peak",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "% of the multiprocessors' peak",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "% of warps active",
}


def ncu_figures(told: str) -> dict:
    """Of the first kernel of a table by `ncu --csv --page raw`: a line of names, one of units, one a kernel."""
    lines = told.splitlines()
    begin = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[begin:])))) if begin is not None else []
    if len(rows) < 2:
        return {}
    units, values = rows[0], rows[1]
    return {what: f"{values[metric]} {units.get(metric, '')}".replace(" %", "") for metric, what in NCU_METRICS.items() if values.get(metric)}


def ncu(suite: Suite, seconds: float, figures: Figures) -> None:
    """Nsight Compute's counters of the five functions that take most of a step of 1 billion parameters."""
    profiler = tool("ncu", "/usr/local/cuda/bin/ncu")
    clock, problems = Clock(seconds), Problems()
    suite.timed("gpu-1b", "ncu-trace", clock.left(), {"train.steps": 2, "train.warmup": 2, "device.timer": "cupti"})
    with gzip.open(suite.files / "runs" / "ncu-trace" / "trace" / "rank_0.json.gz", "rt", encoding="utf-8") as file:
        slowest = slowest_kernels(json.load(file)["traceEvents"], 5)
    if not slowest:
        raise Failed("the trace of ncu-trace has no kernels")
    for index, (name, share) in enumerate(slowest):
        figures[f"{name}: share of all kernels' time"] = share
        command, _ = suite.training("gpu-1b", f"ncu-{index}", {"train.params_digest": "false", "train.steps": 1, "train.warmup": 1, "device.timer": "events"})
        # One launch, and then the run is not needed any more: the clocks stay as the step has them.
        done = suite.command([profiler, "--kernel-name", f"regex:^{re.escape(name)}$", "--launch-count", "1", "--kill", "yes",
                              "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(NCU_METRICS), *command],
                             clock.left(), f"ncu-{index}", environment=suite.own, partial=True)
        told = ncu_figures(done.stdout)
        if not told:
            problems.append(f"ncu says nothing of {name} (code {done.returncode}), see ncu-{index}.log")
        figures.add({f"{name}: {what}": value for what, value in told.items()})
    problems.raise_all()
