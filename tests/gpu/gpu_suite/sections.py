"""The sections of the suite: each checks one thing, within its own time, and returns its figures."""

import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .machine import peak_bf16
from .ranks import run_ranks
from .summary import summary


class Failed(Exception):
    """The section checked something and it did not hold."""


class Absent(Exception):
    """The section cannot be done here, and why."""


@dataclass
class Section:
    name: str
    seconds: float  # at most
    run: Callable


class Suite:
    """Runs sections and keeps results.json and summary.txt up to date."""

    def __init__(self, root: Path, programs: Path, out: Path, budget: float, gpu: dict):
        self.root, self.programs, self.out, self.gpu = root, programs, out, gpu
        self.deadline = time.monotonic() + budget
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

    def command(self, arguments: list, seconds: float, log: str, environment: dict | None = None):
        """Runs a program; its output goes to <out>/<log>.log whatever happens."""
        done = None
        try:
            done = subprocess.run(
                [str(a) for a in arguments], cwd=self.root, env=os.environ | (environment or {}), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1, min(seconds, self.left())),
            )
            return done
        except subprocess.TimeoutExpired as late:
            output = late.stdout or b""
            done = subprocess.CompletedProcess(arguments, 124, output.decode(errors="replace") if isinstance(output, bytes) else output)
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

    def run_section(self, section: Section) -> None:
        entry = {"name": section.name, "status": "passed", "seconds": 0.0}
        begin = time.monotonic()
        if self.left() < 5:
            entry |= {"status": "left out", "reason": "the suite's time was up"}
        else:
            print(f"{section.name} …", flush=True)
            try:
                entry["figures"] = section.run(self, min(section.seconds, self.left()))
            except Absent as absent:
                entry |= {"status": "absent", "reason": str(absent)}
            except (Failed, OSError, KeyError, ValueError) as failure:
                entry |= {"status": "failed", "reason": f"{failure}" if isinstance(failure, Failed) else repr(failure)}
        entry["seconds"] = round(time.monotonic() - begin, 1)
        self.results["sections"].append(entry)
        (self.out / "results.json").write_text(json.dumps(self.results, indent=2) + "\n", encoding="utf-8")
        (self.out / "summary.txt").write_text(summary(self.results) + "\n", encoding="utf-8")


def gpu_tests(suite: Suite, seconds: float) -> dict:
    """The GoogleTest programs of the label gpu."""
    programs = sorted(suite.programs.glob("*_gpu_test"))
    if not programs:
        raise Absent(f"{suite.programs} holds no *_gpu_test; the tests were not built")
    figures, failures = {}, []
    for program in programs:
        report = suite.out / f"{program.name}.json"
        suite.command([program, f"--gtest_output=json:{report}"], seconds, program.name)
        told = json.loads(report.read_text(encoding="utf-8"))
        cases = [case for group in told["testsuites"] for case in group["testsuite"]]
        skipped = sum(case.get("result") == "SKIPPED" for case in cases)
        figures[program.name] = f"{told['tests'] - skipped - told['failures']} passed, {skipped} skipped, {told['failures']} failed"
        failures += [f"{case['classname']}.{case['name']}" for case in cases if case.get("failures")]
    if failures:
        raise Failed(f"{len(failures)} failed: {', '.join(failures[:5])}")
    return figures


def numerics(suite: Suite, seconds: float) -> dict:
    """Losses of the same training on the GPU and on the CPU backend."""
    common = {"mesh.ranks": 1, "train.steps": 8, "train.warmup": 0, "emulate.link_gb_per_s": "none",
              "emulate.link_latency_us": 0}
    figures = {}
    for dtype, allowed in (("fp32", 1e-4), ("bf16", 2e-2)):
        losses = {}
        for backend in ("cpu", "cuda"):
            result = suite.train("quickstart", f"numerics-{dtype}-{backend}", seconds / 4,
                                 common | {"device.backend": backend, "fsdp.param_dtype": dtype})
            losses[backend] = result["train"]["loss"]
        worst = largest_difference(losses["cuda"], losses["cpu"])
        figures[f"largest relative difference of a loss, {dtype} (at most {allowed:g})"] = worst
        if worst > allowed:
            raise Failed(f"losses in {dtype} differ by {worst:.3g}, more than {allowed:g}: {losses}")
    return figures


def largest_difference(losses: list, reference: list) -> float:
    """Relative, over all steps. A loss that is no number differs by infinitely much."""
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]
    return max(d if d == d else float("inf") for d in differences)


STEP_SIZES = ("100m", "1b", "3b")


def step(suite: Suite, seconds: float) -> dict:
    """Step time and model FLOPs utilisation of about 0.1, 1 and 3 billion parameters, bf16, one rank."""
    peak = peak_bf16(suite.gpu["name"])
    figures = {}
    for size in STEP_SIZES:
        m = suite.train(f"gpu-{size}", f"step-{size}", seconds / len(STEP_SIZES), {})["metrics"]
        time_ms, rate = m["step_ms"], m["model_tflops_per_rank"]
        figures[f"{size}: step"] = f"{time_ms['median']:.2f} ms [{time_ms['ci_low']:.2f}, {time_ms['ci_high']:.2f}]"
        figures[f"{size}: model TFLOP/s"] = rate
        if peak:
            figures[f"{size}: MFU % of the datasheet's {peak / 1e12:g} TFLOP/s"] = 100 * rate * 1e12 / peak
    return figures


def torch(suite: Suite, seconds: float) -> dict:
    """The 1 billion step against PyTorch's FSDP2, eager and compiled, same shapes: theirs between two of ours."""
    python = shutil.which("python3") or sys.executable
    probe = suite.command([python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], 60, "torch-probe")
    if probe.returncode != 0 or "True" not in probe.stdout:
        raise Absent("python3 here has no PyTorch that sees the GPU")
    ours = [suite.train("gpu-1b", "torch-ours-1", seconds / 5, {})["metrics"]["step_ms"]["median"]]
    script = suite.root / "tests" / "gpu" / "torch_fsdp2.py"
    theirs = {}
    for mode in ("eager", "compiled"):
        report = suite.out / f"torch-{mode}.json"
        done = suite.command([python, script, "--config", suite.out / "runs" / "torch-ours-1" / "result.json", "--mode", mode,
                              "--out", report], seconds * (0.2 if mode == "eager" else 0.4), f"torch-{mode}")
        if done.returncode != 0:
            raise Failed(f"torch_fsdp2.py --mode {mode} ended with code {done.returncode}, see torch-{mode}.log")
        theirs[mode] = json.loads(report.read_text(encoding="utf-8"))
    ours.append(suite.train("gpu-1b", "torch-ours-2", seconds / 5, {})["metrics"]["step_ms"]["median"])
    figures = {"PyTorch": probe.stdout.split()[0], "ours, before and after, ms": f"{ours[0]:.2f}, {ours[1]:.2f}"}
    for mode, told in theirs.items():
        figures[f"PyTorch {mode}, ms"] = told["median_ms"]
        figures[f"speed over PyTorch {mode} (1 or more: ours is at least as fast)"] = told["median_ms"] / (sum(ours) / 2)
    return figures


def benchmark(suite: Suite, program: str, seconds: float) -> list:
    """A Google Benchmark program's results; an error of one of its benchmarks is the section's."""
    report = suite.out / f"{program}.json"
    done = suite.command([suite.program(program), f"--benchmark_out={report}", "--benchmark_out_format=json"], seconds, program)
    if done.returncode != 0:
        raise Failed(f"{program} ended with code {done.returncode}, see {program}.log")
    told = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    for result in told:
        if result.get("error_occurred"):
            raise Failed(f"{result['name']}: {result['error_message']}")
    return told


def counters(results: list, wanted: tuple) -> dict:
    return {f"{r['name'].split('/iterations')[0]}: {key}": r[key] for r in results for key in wanted if key in r}


def kernels(suite: Suite, seconds: float) -> dict:
    """Bytes a second of each kernel over those of a copy on the device, in one run."""
    return counters(benchmark(suite, "bench_cuda_kernels", seconds), ("of_copy",))


def gemm(suite: Suite, seconds: float) -> dict:
    """The backend's matrix products over cuBLASLt alone, in one run."""
    return counters(benchmark(suite, "bench_cuda_gemm", seconds), ("TFLOP/s", "of_library"))


def tracer_cost(suite: Suite, seconds: float) -> dict:
    """A step with every op and kernel recorded by CUPTI over one without (at most 1.02), and by events, in turns."""
    figures = counters(benchmark(suite, "bench_cuda_trace", seconds), ("ratio", "ratio_low", "ratio_high"))
    low = [value for name, value in figures.items() if name.endswith("ratio_low")]
    if low and low[0] > 1.02:
        raise Failed(f"tracing makes a step at least {low[0]:.4f} times as long, more than 1.02")
    return figures


def trace(suite: Suite, seconds: float) -> dict:
    """A trace with CUPTI: valid, every kernel under its op, nothing dropped."""
    result = suite.train("gpu-100m", "trace", seconds / 2, {"train.steps": 5, "device.timer": "cupti"})
    folder = suite.out / "runs" / "trace"
    for file in (folder / "trace.json", folder / "trace" / "rank_0.json.gz"):
        done = suite.command([suite.program("fsdpbench"), "trace", "check", file], seconds / 4, f"trace-{file.name}")
        if done.returncode != 0:
            raise Failed(f"trace check finds faults in {file.name}, see trace-{file.name}.log")
    device = result["world"]["devices"][0]
    if not device["timer"].startswith("CUPTI"):
        raise Failed(f"the timer was {device['timer']}")
    return {name: value for name, value in device.items() if "record" in name or name == "timer"}


def functional(suite: Suite, seconds: float) -> dict:
    """2 and 4 ranks as processes on this one GPU, over sockets: that they agree with one rank, never how fast."""
    common = {"train.steps": 4, "train.warmup": 0, "emulate.link_gb_per_s": "none", "emulate.link_latency_us": 0,
              "device.backend": "cuda"}
    figures = {}
    losses = {}
    for ranks in (1, 2, 4):
        batch = {"train.batch_per_rank": 4 // ranks}
        folder = suite.out / "runs" / f"functional-{ranks}"
        shutil.rmtree(folder, ignore_errors=True)
        if ranks == 1:
            result = suite.train("quickstart", "functional-1", seconds / 4, common | batch | {"mesh.ranks": 1})
        else:
            settings = [part for key, value in (common | batch).items() for part in ("--set", f"{key}={value}")]
            command = [suite.program("fsdpbench"), "run", str(suite.root / "profiles/runs/quickstart.toml"), "--out", str(folder),
                       "--quiet", *settings]
            codes = run_ranks(command, ranks, suite.out / f"functional-{ranks}", seconds / 3, one_gpu=True)
            if any(codes):
                raise Failed(f"{ranks} ranks on one GPU ended with codes {codes}, see functional-{ranks}.rank_N.log")
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        losses[ranks] = result["train"]["loss"]
        worst = largest_difference(losses[ranks], losses[1])
        figures[f"{ranks} ranks: largest relative difference of a loss (at most 1e-3)"] = worst
        if worst > 1e-3:
            raise Failed(f"losses of {ranks} ranks differ from one rank's by {worst:.3g}: {losses}")
    return figures


def sanitizer(suite: Suite, seconds: float) -> dict:
    """compute-sanitizer's memcheck and racecheck on a small run."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        raise Absent("compute-sanitizer is not installed")
    figures = {}
    for check in ("memcheck", "racecheck"):
        done = suite.command(
            [tool, "--tool", check, "--error-exitcode", "99", suite.program("fsdpbench"), "run", "profiles/runs/quickstart.toml",
             "--quiet", "--out", suite.out / "runs" / check, "--set", "mesh.ranks=1", "--set", "train.steps=1", "--set",
             "train.warmup=0", "--set", "device.backend=cuda", "--set", "device.timer=events", "--set",
             "emulate.link_gb_per_s=none", "--set", "emulate.link_latency_us=0"], seconds / 2, check)
        if "not supported" in done.stdout:
            raise Absent("compute-sanitizer refuses this device")
        if done.returncode != 0:
            raise Failed(f"{check} ended with code {done.returncode}, see {check}.log")
        figures[check] = "no finding"
    return figures


SECTIONS = [
    Section("tests", 90, gpu_tests),
    Section("numerics", 40, numerics),
    Section("step", 90, step),
    Section("torch", 150, torch),
    Section("gemm", 40, gemm),
    Section("kernels", 40, kernels),
    Section("tracer_cost", 40, tracer_cost),
    Section("trace", 30, trace),
    Section("functional", 60, functional),
    Section("sanitizer", 90, sanitizer),
]
