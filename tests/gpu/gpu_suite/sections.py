"""The sections of the suite: each checks one thing, within its own time, and returns its figures."""

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .machine import peak_bf16, program_environment
from .ranks import run_ranks
from .summary import summary


class Failed(Exception):
    """The section checked something and it did not hold."""


class Absent(Exception):
    """The section cannot be done here, and why."""


@dataclass
class Section:
    name: str
    seconds: float  # that it is planned with; what others leave of theirs it may have, too
    run: Callable  # (suite, seconds, figures); puts each figure into `figures` when it has it


class Figures(dict):
    """A section's figures by name; each is on the disk as soon as it is there."""

    def __init__(self, write: Callable):
        super().__init__()
        self.write = write

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        self.write()

    def add(self, others: dict) -> None:
        for name, value in others.items():
            self[name] = value


class Clock:
    """The time of a section, for its parts: a part may have what is left, less what is kept for the others."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    def left(self, others: float = 0) -> float:
        return max(1.0, self.end - time.monotonic() - others)


class Suite:
    """Runs sections and keeps results.json and summary.txt up to date."""

    def __init__(self, root: Path, programs: Path, out: Path, budget: float, gpu: dict):
        self.root, self.programs, self.out, self.gpu = root, programs, out, gpu
        self.deadline = time.monotonic() + budget
        self.own = program_environment(programs)
        self.out.mkdir(parents=True, exist_ok=True)
        version = self.command([self.program("fsdpbench"), "--version"], 30, "version").stdout.strip()
        self.results = {
            "schema_version": 1,
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": " ".join(sys.argv),
            "program": version.splitlines()[0] if version else "fsdpbench of unknown version",
            "gpu": gpu,
            "sections": [],
        }

    def program(self, name: str) -> str:
        path = self.programs / name
        if not path.exists():
            raise Absent(f"{name} was not built")
        return str(path)

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def command(self, arguments: list, seconds: float, log: str, environment: dict | None = None, partial: bool = False):
        """Runs a program; its output goes to <out>/<log>.log whatever happens. One that overruns is ended: Failed, or code
        124 and what it had said with `partial`."""
        done = None
        own = self.own if Path(str(arguments[0])).parent == self.programs else {}
        try:
            done = subprocess.run(
                [str(a) for a in arguments], cwd=self.root, env=os.environ | own | (environment or {}), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1, min(seconds, self.left())),
            )
            return done
        except subprocess.TimeoutExpired as late:
            output = late.stdout or b""
            done = subprocess.CompletedProcess(arguments, 124, output.decode(errors="replace") if isinstance(output, bytes) else output)
            if partial:
                return done
            raise Failed(f"{Path(str(arguments[0])).name} had not ended after {late.timeout:.0f} s, see {log}.log") from late
        finally:
            if done is not None:
                (self.out / f"{log}.log").write_text(done.stdout or "", encoding="utf-8")

    def train(self, profile: str, log: str, seconds: float, overrides: dict, environment: dict | None = None) -> dict:
        """`fsdpbench run` of a profile; the content of its result.json."""
        folder = self.out / "runs" / log
        shutil.rmtree(folder, ignore_errors=True)
        settings = [part for key, value in overrides.items() for part in ("--set", f"{key}={value}")]
        done = self.command(
            [self.program("fsdpbench"), "run", f"profiles/runs/{profile}.toml", "--out", folder, "--quiet", *settings],
            seconds, log, environment,
        )
        if done.returncode != 0:
            lines = done.stdout.strip().splitlines()
            raise Failed(f"run ended with code {done.returncode}: {lines[-1] if lines else 'no output'}")
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))

    def write(self) -> None:
        for name, text in (("results.json", json.dumps(self.results, indent=2)), ("summary.txt", summary(self.results))):
            partial = self.out / f"{name}.partial"
            partial.write_text(text + "\n", encoding="utf-8")
            partial.rename(self.out / name)

    def run_section(self, section: Section, later: float = 0) -> None:
        """`later`: the seconds that the sections after it are planned with."""
        entry = {"name": section.name, "status": "running", "seconds": 0.0}
        self.results["sections"].append(entry)
        begin = time.monotonic()
        if self.left() < 5:
            entry |= {"status": "left out", "reason": "the suite's time was up"}
        else:
            print(f"{section.name} …", flush=True)
            entry["figures"] = Figures(self.write)
            try:
                section.run(self, min(self.left(), max(section.seconds, self.left() - later)), entry["figures"])
                entry["status"] = "passed"
            except Absent as absent:
                entry |= {"status": "absent", "reason": str(absent)}
            except (Failed, OSError, KeyError, ValueError) as failure:
                entry |= {"status": "failed", "reason": f"{failure}" if isinstance(failure, Failed) else repr(failure)}
        entry["seconds"] = round(time.monotonic() - begin, 1)
        self.write()


def gpu_tests(suite: Suite, seconds: float, figures: Figures) -> None:
    """The GoogleTest programs of the label gpu."""
    programs = sorted(suite.programs.glob("*_gpu_test"))
    if not programs:
        raise Absent(f"{suite.programs} holds no *_gpu_test; the tests were not built")
    clock, failures = Clock(seconds), []
    for index, program in enumerate(programs):
        done = suite.command([program, "--gtest_color=no"], clock.left((len(programs) - 1 - index) * 5), program.name, partial=True)
        told = {}
        for verdict, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+) \(\d+ ms\)", done.stdout, re.MULTILINE):
            told.setdefault(verdict, []).append(name)
        figures[program.name] = ", ".join(f"{len(told.get(verdict, []))} {word}" for verdict, word in
                                          (("OK", "passed"), ("SKIPPED", "skipped"), ("FAILED", "failed")))
        failures += told.get("FAILED", [])
        if done.returncode != 0 and not told.get("FAILED"):
            begun = re.findall(r"^\[ RUN +\] (\S+)", done.stdout, re.MULTILINE)
            how = "had not ended in its time" if done.returncode == 124 else f"ended with code {done.returncode}"
            failures.append(f"{program.name} {how} in {begun[-1] if begun else 'its start'}")
    if failures:
        raise Failed(f"{len(failures)} failed: {', '.join(failures[:5])}")


def numerics(suite: Suite, seconds: float, figures: Figures) -> None:
    """Losses of the same training on the GPU and on the CPU backend."""
    common = {"mesh.ranks": 1, "train.steps": 8, "train.warmup": 0, "emulate.link_gb_per_s": "none",
              "emulate.link_latency_us": 0}
    clock = Clock(seconds)
    for dtype, allowed in (("fp32", 1e-4), ("bf16", 2e-2)):
        losses = {}
        for backend in ("cpu", "cuda"):
            result = suite.train("quickstart", f"numerics-{dtype}-{backend}", clock.left(),
                                 common | {"device.backend": backend, "fsdp.param_dtype": dtype})
            losses[backend] = result["train"]["loss"]
        worst = largest_difference(losses["cuda"], losses["cpu"])
        figures[f"largest relative difference of a loss, {dtype} (at most {allowed:g})"] = worst
        if worst > allowed:
            raise Failed(f"losses in {dtype} differ by {worst:.3g}, more than {allowed:g}: {losses}")


def largest_difference(losses: list, reference: list) -> float:
    """Relative, over all steps. A loss that is no number differs by infinitely much."""
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]
    return max(d if d == d else float("inf") for d in differences)


STEP_SIZES = ("100m", "1b", "3b")


def step(suite: Suite, seconds: float, figures: Figures) -> None:
    """Step time and model FLOPs utilisation of about 0.1, 1 and 3 billion parameters, bf16, one rank."""
    peak = peak_bf16(suite.gpu["name"])
    clock = Clock(seconds)
    for size in STEP_SIZES:
        m = suite.train(f"gpu-{size}", f"step-{size}", clock.left(), {})["metrics"]
        time_ms, rate = m["step_ms"], m["model_tflops_per_rank"]
        figures[f"{size}: step"] = f"{time_ms['median']:.2f} ms [{time_ms['ci_low']:.2f}, {time_ms['ci_high']:.2f}]"
        figures[f"{size}: model TFLOP/s"] = rate
        if peak:
            figures[f"{size}: MFU % of the datasheet's {peak / 1e12:g} TFLOP/s"] = 100 * rate * 1e12 / peak


def torch(suite: Suite, seconds: float, figures: Figures) -> None:
    """The 1 billion step against PyTorch's FSDP2, eager and compiled, same shapes: theirs between ours, neither profiled."""
    clock = Clock(seconds)
    python = shutil.which("python3") or sys.executable
    probe = suite.command([python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], 60, "torch-probe")
    if probe.returncode != 0 or "True" not in probe.stdout:
        raise Absent("python3 here has no PyTorch that sees the GPU")
    figures["PyTorch"] = probe.stdout.split()[0]

    def ours(turn: int) -> float:
        told = suite.train("gpu-1b", f"torch-ours-{turn}", clock.left(), {"device.timer": "events"})["metrics"]["step_ms"]["median"]
        figures[f"ours, turn {turn}, ms"] = told
        return told

    script = suite.root / "tests" / "gpu" / "torch_fsdp2.py"
    before, problems = ours(1), []
    for turn, mode in enumerate(("eager", "compiled"), 2):
        report = suite.out / f"torch-{mode}.json"
        done = suite.command([python, script, "--config", suite.out / "runs" / "torch-ours-1" / "result.json", "--mode", mode,
                              "--out", report], clock.left(seconds * (0.5 if mode == "eager" else 0.1)), f"torch-{mode}", partial=True)
        if done.returncode != 0:
            problems.append(f"torch_fsdp2.py --mode {mode} ended with code {done.returncode}, see torch-{mode}.log")
            continue
        theirs = json.loads(report.read_text(encoding="utf-8"))["median_ms"]
        figures[f"PyTorch {mode}, ms"] = theirs
        after = ours(turn)
        figures[f"speed over PyTorch {mode} (1 or more: ours is at least as fast)"] = theirs / ((before + after) / 2)
        before = after
    if problems:
        raise Failed("; ".join(problems))


def results_of(report: str) -> list:
    """The results of a report of Google Benchmark in JSON, also of one that breaks off: it is written result by result."""
    _, found, rest = report.partition('"benchmarks": [')
    results, decoder = [], json.JSONDecoder()
    while found:
        rest = rest.lstrip(" \n,")
        try:
            result, end = decoder.raw_decode(rest)
        except ValueError:
            break
        results.append(result)
        rest = rest[end:]
    return results


def benchmark(suite: Suite, program: str, seconds: float, figures: Figures, wanted: tuple) -> None:
    """A Google Benchmark program's counters; an error of one of its benchmarks is the section's."""
    report = suite.out / f"{program}.json"
    report.unlink(missing_ok=True)
    done = suite.command([suite.program(program), f"--benchmark_out={report}", "--benchmark_out_format=json"], seconds, program,
                         partial=True)
    told = results_of(report.read_text(encoding="utf-8")) if report.exists() else []
    figures.add(counters([result for result in told if not result.get("error_occurred")], wanted))
    for result in told:
        if result.get("error_occurred"):
            raise Failed(f"{result['name']}: {result['error_message']}")
    if done.returncode != 0:
        how = "had not ended in its time" if done.returncode == 124 else f"ended with code {done.returncode}"
        raise Failed(f"{program} {how} after {len(told)} results, see {program}.log")


def counters(results: list, wanted: tuple) -> dict:
    return {f"{r['name'].split('/iterations')[0]}: {key}": r[key] for r in results for key in wanted if key in r}


# Keys of a whole step of 1 billion parameters, each against the default, and what the default has instead.
STEP_CHANGES = (("device.deterministic", "true", "attention's backward in any order, and timed products"),
                ("device.product_choice", "first", "the fastest of eight products"))
# The same of keys that are no default: what they bring.
STEP_OFFERS = (("model.fused_projections", "true", "one product of queries, keys and values, and one of gate and up"),
               ("fsdp.cast_in_optimizer", "true", "an update that rounds parameters"),
               ("fsdp.fp32_gradients", "true", "gradients that nothing casts"))


# Models of which a step is measured as one CUDA graph and op by op: small ones, on which the host has little time for an op.
GRAPH_PROFILES = ("gpu-100m",)


def changes(suite: Suite, seconds: float, figures: Figures) -> None:
    """What single decisions are worth, each against doing without it in the same call: parts of a step, and whole steps."""
    clock = Clock(seconds)

    def median(log: str, overrides: dict, profile: str = "gpu-1b") -> float:
        told = suite.train(profile, log, clock.left(), {"device.timer": "events", "train.steps": 10} | overrides)
        return told["metrics"]["step_ms"]["median"]

    before = median("changes-default", {})
    for key, value, what in STEP_CHANGES + STEP_OFFERS:
        name = key.split(".")[1]
        changed = median(f"changes-{name}", {key: value})
        after = median(f"changes-{name}-default", {})
        of_default = changed / ((before + after) / 2)
        before = after
        if (key, value, what) in STEP_CHANGES:
            figures[f"1b step: speedup by {what} ({key} = {value} is without)"] = of_default
        else:
            figures[f"1b step: speedup by {what} ({key} = {value})"] = 1 / of_default
    for profile in GRAPH_PROFILES:
        before = median(f"changes-{profile}-ops-before", {}, profile)
        graph = median(f"changes-{profile}-graph", {"device.graphs": "step"}, profile)
        after = median(f"changes-{profile}-ops-after", {}, profile)
        figures[f"{profile} step: speedup by one graph over ops one by one (device.graphs)"] = (before + after) / 2 / graph
    benchmark(suite, "bench_cuda_changes", clock.left(), figures, ("speedup",))


def kernels(suite: Suite, seconds: float, figures: Figures) -> None:
    """Bytes a second of each kernel over those of a copy on the device, in one run."""
    benchmark(suite, "bench_cuda_kernels", seconds, figures, ("of_copy",))


def gemm(suite: Suite, seconds: float, figures: Figures) -> None:
    """The backend's matrix products over cuBLASLt alone, in one run."""
    benchmark(suite, "bench_cuda_gemm", seconds, figures, ("TFLOP/s", "of_library"))


def tracer_cost(suite: Suite, seconds: float, figures: Figures) -> None:
    """A step with every op and kernel recorded by CUPTI over one without (at most 1.02), and by events, in turns."""
    benchmark(suite, "bench_cuda_trace", seconds, figures, ("ratio", "ratio_low", "ratio_high"))
    low = [value for name, value in figures.items() if name.endswith("ratio_low")]
    if low and low[0] > 1.02:
        raise Failed(f"tracing makes a step at least {low[0]:.4f} times as long, more than 1.02")


# Of one lane in one direction, by generation, after 128b/130b coding (from 6 on: 242/256); protocol comes off it yet.
PCIE_GB_PER_S = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def copy_rates(events: list) -> dict:
    """GB/s of all copies between the memories, by direction: their bytes over the time that they took."""
    rates = {}
    for direction in ("device_to_host", "host_to_device"):
        copies = [e for e in events if e.get("ph") == "X" and e["name"].startswith(direction) and e["args"].get("bytes")]
        took_us = sum(e["dur"] for e in copies)
        if took_us > 0:
            rates[direction] = sum(e["args"]["bytes"] for e in copies) / took_us / 1e3
    return rates


def offload(suite: Suite, seconds: float, figures: Figures) -> None:
    """Steps of 0.1 billion parameters with state in pinned host memory, and GB/s of the copies in each direction."""
    clock, losses = Clock(seconds), {}
    for kept in ("none", "optimizer", "all"):
        log = f"offload-{kept}"
        result = suite.train("gpu-100m", log, clock.left(), {"fsdp.cpu_offload": kept, "train.steps": 5, "train.warmup": 2})
        figures[f"{kept}: step, ms"] = result["metrics"]["step_ms"]["median"]
        losses[kept] = result["train"]["loss"]
        if kept == "none":
            limits = (result.get("gpus") or [{}])[0].get("limits") or {}
            lane, lanes = PCIE_GB_PER_S.get(limits.get("pcie_generation")), limits.get("pcie_width")
            if lane and lanes:
                figures["PCIe, GB/s each direction at most"] = lane * lanes
            continue
        for name in ("pinned host memory", "host updates"):
            figures[f"{kept}: {name}"] = result["world"]["devices"][0][name]
        events = json.loads((suite.out / "runs" / log / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
        for direction, rate in copy_rates(events).items():
            figures[f"{kept}: {direction}, GB/s"] = rate
        worst = largest_difference(losses[kept], losses["none"])
        figures[f"{kept}: largest relative difference of a loss (at most 1e-3)"] = worst
        if worst > 1e-3:
            raise Failed(f"losses with fsdp.cpu_offload = {kept} differ from those without by {worst:.3g}: {losses}")


def trace(suite: Suite, seconds: float, figures: Figures) -> None:
    """A trace with CUPTI: valid, every kernel under its op, nothing dropped."""
    clock = Clock(seconds)
    result = suite.train("gpu-100m", "trace", clock.left(), {"train.steps": 5, "device.timer": "cupti"})
    folder = suite.out / "runs" / "trace"
    for file in (folder / "trace.json", folder / "trace" / "rank_0.json.gz"):
        done = suite.command([suite.program("fsdpbench"), "trace", "check", file], clock.left(), f"trace-{file.name}")
        if done.returncode != 0:
            raise Failed(f"trace check finds faults in {file.name}, see trace-{file.name}.log")
    device = result["world"]["devices"][0]
    if not device["timer"].startswith("CUPTI"):
        raise Failed(f"the timer was {device['timer']}")
    figures.add({name: value for name, value in device.items() if "record" in name or name == "timer"})


def functional(suite: Suite, seconds: float, figures: Figures) -> None:
    """2 and 4 ranks as processes on this one GPU, over sockets: that they agree with one rank, never how fast. And what
    launching a collective takes of the host, by communicators of both kinds."""
    common = {"train.steps": 4, "train.warmup": 0, "emulate.link_gb_per_s": "none", "emulate.link_latency_us": 0,
              "device.backend": "cuda"}
    clock, losses = Clock(seconds), {}
    for ranks, blocking in ((1, False), (2, False), (2, True), (4, False)):
        batch = {"train.batch_per_rank": 4 // ranks, "nccl.blocking": str(blocking).lower()}
        name = f"functional-{ranks}{'-blocking' if blocking else ''}"
        folder = suite.out / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        if ranks == 1:
            result = suite.train("quickstart", "functional-1", clock.left(), common | batch | {"mesh.ranks": 1})
        else:
            settings = [part for key, value in (common | batch).items() for part in ("--set", f"{key}={value}")]
            command = [suite.program("fsdpbench"), "run", str(suite.root / "profiles/runs/quickstart.toml"), "--out", str(folder),
                       "--quiet", *settings]
            codes = run_ranks(command, ranks, suite.out / name, clock.left(), one_gpu=True,
                              environment=suite.own)
            if any(codes):
                raise Failed(f"{ranks} ranks on one GPU ended with codes {codes}, see {name}.rank_N.log")
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            launches = result["world"]["devices"][0].get("nccl launches", "not told")
            figures[f"{ranks} ranks, {'blocking' if blocking else 'non-blocking'} communicators"] = launches
        losses[ranks] = result["train"]["loss"]
        worst = largest_difference(losses[ranks], losses[1])
        figures[f"{ranks} ranks: largest relative difference of a loss (at most 1e-3)"] = worst
        if worst > 1e-3:
            raise Failed(f"losses of {ranks} ranks differ from one rank's by {worst:.3g}: {losses}")


def sanitizer(suite: Suite, seconds: float, figures: Figures) -> None:
    """compute-sanitizer's memcheck and racecheck of this project's kernels in a small run."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        raise Absent("compute-sanitizer is not installed")
    clock = Clock(seconds)
    for index, check in enumerate(("memcheck", "racecheck")):
        # Kernels of NVIDIA's libraries are NVIDIA's matter and would take all the time; calls of the API that fail by
        # design, as a question whether an event is over, are no findings.
        done = suite.command(
            [tool, "--tool", check, "--error-exitcode", "99", "--report-api-errors", "no", "--kernel-name", "kns=fsdpbench",
             suite.program("fsdpbench"), "run", "profiles/runs/quickstart.toml", "--quiet", "--overwrite", "--out",
             suite.out / "runs" / check, "--set", "mesh.ranks=1", "--set", "train.steps=1", "--set", "train.warmup=0", "--set",
             "device.backend=cuda", "--set", "device.timer=events", "--set", "emulate.link_gb_per_s=none", "--set",
             "emulate.link_latency_us=0"], clock.left(seconds / 2 if index == 0 else 0), check, environment=suite.own)
        if "not supported" in done.stdout:
            raise Absent("compute-sanitizer refuses this device")
        if done.returncode != 0:
            raise Failed(f"{check} ended with code {done.returncode}, see {check}.log")
        figures[check] = "no finding"


BUDGET = 540  # seconds of all, which the sections below fit into

SECTIONS = [
    Section("tests", 60, gpu_tests),
    Section("numerics", 30, numerics),
    Section("step", 60, step),
    Section("torch", 100, torch),
    Section("changes", 60, changes),
    Section("gemm", 30, gemm),
    Section("kernels", 30, kernels),
    Section("tracer_cost", 30, tracer_cost),
    Section("offload", 20, offload),
    Section("trace", 20, trace),
    Section("functional", 40, functional),
    Section("sanitizer", 60, sanitizer),
]
