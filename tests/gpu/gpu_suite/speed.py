"""Sections that say how fast it is: whole steps, single decisions, products and kernels."""

import json

from .machine import path_python, peak_bf16
from .suite import Absent, Clock, Failed, Figures, Problems, Suite, compare_losses

STEP_SIZES = ("100m", "1b", "3b")


def step(suite: Suite, seconds: float, figures: Figures) -> None:
    """Step time and model FLOPs utilisation of about 0.1, 1 and 3 billion parameters, bf16, one rank."""
    peak = peak_bf16(suite.gpu["name"])
    clock = Clock(seconds)
    for size in STEP_SIZES:
        m = suite.timed(f"gpu-{size}", f"step-{size}", clock.left(), {})["metrics"]
        time_ms, rate = m["step_ms"], m["model_tflops_per_rank"]
        figures[f"{size}: step"] = f"{time_ms['median']:.2f} ms [{time_ms['ci_low']:.2f}, {time_ms['ci_high']:.2f}]"
        figures[f"{size}: model TFLOP/s"] = rate
        if peak:
            figures[f"{size}: MFU % of the datasheet's {peak / 1e12:g} TFLOP/s"] = 100 * rate * 1e12 / peak


def median_of(result: dict) -> float:
    return result["metrics"]["step_ms"]["median"]


def torch(suite: Suite, seconds: float, figures: Figures) -> None:
    """The 1 billion step against PyTorch's FSDP2, eager and compiled, same shapes and tokens: theirs between ours, neither
    profiled."""
    clock = Clock(seconds)
    python = path_python()
    probe = suite.command([python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], 60, "torch-probe")
    if probe.returncode != 0 or "True" not in probe.stdout:
        raise Absent("python3 here has no PyTorch that sees the GPU")
    figures["PyTorch"] = probe.stdout.split()[0]

    def ours(turn: int) -> float:
        told = median_of(suite.timed("gpu-1b", f"torch-ours-{turn}", clock.left(), {"device.timer": "events"}))
        figures[f"ours, turn {turn}, ms"] = told
        return told

    script = suite.root / "tests" / "gpu" / "torch_fsdp2.py"
    before, problems = ours(1), Problems()
    for turn, mode in enumerate(("eager", "compiled"), 2):
        report = suite.files / f"torch-{mode}.json"
        done = suite.command([python, script, "--config", suite.files / "runs" / "torch-ours-1" / "result.json", "--mode", mode,
                              "--out", report], clock.left(seconds * (0.5 if mode == "eager" else 0.1)), f"torch-{mode}", partial=True)
        if done.returncode != 0:
            problems.append(f"torch_fsdp2.py --mode {mode} ended with code {done.returncode}, see torch-{mode}.log")
            continue
        theirs = json.loads(report.read_text(encoding="utf-8"))["median_ms"]
        figures[f"PyTorch {mode}, ms"] = theirs
        after = ours(turn)
        figures[f"speed over PyTorch {mode} (1 or more: ours is at least as fast)"] = theirs / ((before + after) / 2)
        before = after
    problems.raise_all()


def timers(suite: Suite, seconds: float, figures: Figures) -> None:
    """The 1 billion step timed by CUPTI between two that events time, and what each says of its computation."""
    clock, told = Clock(seconds), []
    for index, timer in enumerate(("events", "cupti", "events"), 1):
        told.append(suite.timed("gpu-1b", f"timers-{index}-{timer}", clock.left(), {"device.timer": timer})["metrics"])
        figures[f"{timer}, turn {index}: step, ms"] = told[-1]["step_ms"]["median"]
    for what, value in (("step", lambda metrics: metrics["step_ms"]["median"]), ("computation", lambda metrics: metrics["compute_ms"])):
        before, with_cupti, after = (value(metrics) for metrics in told)
        figures[f"{what} by CUPTI over events (0.99 to 1.01 expected)"] = with_cupti / ((before + after) / 2)


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
    report = suite.files / f"{program}.json"
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
    if not told:
        lines = done.stdout.strip().splitlines()
        raise Failed(f"{program} measured nothing: {lines[-1] if lines else 'no output'}")


def counters(results: list, wanted: tuple) -> dict:
    return {f"{r['name'].split('/iterations')[0]}: {key}": r[key] for r in results for key in wanted if key in r}


# Keys of a whole step of 1 billion parameters, each against the default, and what the default has instead.
STEP_CHANGES = (("device.deterministic", "true", "attention's backward in any order"),)
# The same of keys that are no default: what they bring.
STEP_OFFERS = (("fsdp.cast_in_optimizer", "true", "an update that rounds parameters"),
               ("fsdp.fp32_gradients", "true", "gradients that nothing casts"))


def changes(suite: Suite, seconds: float, figures: Figures) -> None:
    """What single decisions are worth, each against doing without it in the same call: parts of a step, and whole steps."""
    clock, problems = Clock(seconds), Problems()

    def median(log: str, overrides: dict, profile: str) -> float | None:
        told = problems.part(suite.timed, profile, f"changes-{log}", clock.left(),
                             {"device.timer": "events", "train.steps": 10} | overrides)
        return None if told is None else median_of(told)

    def of_default(arms: list, profile: str):
        """Each arm's step between two defaults, over their mean: (arm, ratio), without those that failed."""
        before = median(f"{profile}-default-0", {}, profile)
        for index, arm in enumerate(arms, 1):
            changed = median(f"{profile}-{arm[0].split('.')[1]}", {arm[0]: arm[1]}, profile)
            after = median(f"{profile}-default-{index}", {}, profile)
            defaults = [value for value in (before, after) if value is not None]
            before = after
            if changed is not None and defaults:
                yield arm, changed * len(defaults) / sum(defaults)

    try:
        problems.part(benchmark, suite, "bench_cuda_changes", clock.left(seconds / 2), figures, ("speedup",))
    except Absent as absent:
        problems.append(str(absent))
    for (key, value, what), ratio in of_default(list(STEP_CHANGES + STEP_OFFERS), "gpu-1b"):
        if (key, value, what) in STEP_CHANGES:
            figures[f"1b step: speedup by {what} ({key} = {value} is without)"] = ratio
        else:
            figures[f"1b step: speedup by {what} ({key} = {value})"] = 1 / ratio
    problems.raise_all()


def kernels(suite: Suite, seconds: float, figures: Figures) -> None:
    """Bytes a second of each kernel over those of a copy on the device, in one run."""
    benchmark(suite, "bench_cuda_kernels", seconds, figures, ("of_copy",))


def gemm(suite: Suite, seconds: float, figures: Figures) -> None:
    """The backend's matrix products over cuBLASLt alone, in one run."""
    benchmark(suite, "bench_cuda_gemm", seconds, figures, ("TFLOP/s", "of_library"))


def tracer_cost(suite: Suite, seconds: float, figures: Figures) -> None:
    """A step with every op and kernel recorded by CUPTI over one without (at most 1.02), by events, and watched through NVML."""
    benchmark(suite, "bench_cuda_trace", seconds, figures, ("ratio", "ratio_low", "ratio_high", "same"))
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
        result = suite.timed("gpu-100m", log, clock.left(), {"fsdp.cpu_offload": kept, "train.steps": 5, "train.warmup": 2})
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
        events = json.loads((suite.files / "runs" / log / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
        for direction, rate in copy_rates(events).items():
            figures[f"{kept}: {direction}, GB/s"] = rate
        compare_losses(figures, f"fsdp.cpu_offload = {kept}", losses[kept], losses["none"], 1e-3)
