"""HolisticTraceAnalysis reads the files of ranks as they are and finds the same numbers as result.json.

    hta_agreement.py FSDPBENCH GPU_TRACE CORPUS_FILES SOURCE_FOLDER VENV_FOLDER

Makes a virtual environment in VENV_FOLDER with HTA from PyPI, under either of its names, if FSDPBENCH_HTA=1 allows to
download it (`make check-hta` does); where that fails it says why and exits with 77 (skipped). Five runs: overlap within
0.1 point, computation and everything else that is busy within 0.1 % of the step of what the result says, rank by rank. Likewise traces of GPUs (made by GPU_TRACE), where HTA sees
kernels and our figures come from the ops; one of them has values known beforehand. And of traces of other programs (made
by CORPUS_FILES, where it was built) `trace explain` says the overlap that HTA does of the whole file, within 0.1 point.
FSDPBENCH_HTA_TRACES may name a folder with recorded traces of GPUs, a folder per job, to be compared likewise.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
PACKAGES = ("HolisticTraceAnalysis", "tracesinght")
EMULATED = ["model.preset=llama3-8b", "train.seq_len=4096", "train.batch_per_rank=1", "train.steps=1",
            "train.warmup=1", "emulate.compute_tflops=400", "emulate.link_latency_us=5"]
RUNS = {
    "full_shard": ["mesh.ranks=4", "emulate.link_gb_per_s=100"],
    "no_prefetch": ["mesh.ranks=4", "emulate.link_gb_per_s=100", "fsdp.backward_prefetch=none",
                    "fsdp.forward_prefetch=none"],
    "slow_link_fsdp1": ["mesh.ranks=4", "emulate.link_gb_per_s=25", "fsdp.preset=fsdp1"],
    "shard_grad_op": ["mesh.ranks=8", "emulate.link_gb_per_s=50", "fsdp.strategy=shard_grad_op"],
    "hybrid": ["mesh.ranks=8", "mesh.shard=4", "mesh.replicate=2", "emulate.link_gb_per_s=50",
               "fsdp.strategy=hybrid_shard"],
}

# The synthetic corpus has: one stream a kind of collective, a late rank, a host that waits, one stream for all.
CORPUS = ("fsdp2 hybrid", "fsdp2 straggler", "fsdp1 no-backward-prefetch", "fsdp1 one-stream")


def skip(reason: str) -> None:
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def prepare(folder: Path) -> Path:
    """The environment's Python, HTA installed."""
    python = folder / "bin/python"
    imports = [str(python), "-c", "import hta.trace_analysis"]
    if python.exists() and subprocess.run(imports, capture_output=True).returncode == 0:
        return python
    if os.environ.get("FSDPBENCH_HTA") != "1":
        skip("HTA is not installed; `make check-hta` downloads it from PyPI and compares")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], capture_output=True, text=True)
    if made.returncode != 0:
        skip(f"no virtual environment: {(made.stderr or made.stdout).strip()[-300:]}")
    reasons = []
    for package in PACKAGES:
        try:
            done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package],
                                  capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            reasons.append(f"{package}: ten minutes were not enough")
            continue
        if done.returncode == 0 and subprocess.run(imports, capture_output=True).returncode == 0:
            return python
        reasons.append(f"{package}: {done.stderr.strip()[-300:]}")
    skip("HTA cannot be installed: " + "; ".join(reasons))


# Runs in the environment: a folder a line, with "all" behind it where the last step is whole, too; for each it prints
# one JSON object, by rank. One process for all, since importing HTA takes longer than what it does here.
ANALYSE = """
import json, sys
from hta.trace_analysis import TraceAnalysis
for line in sys.stdin:
    folder, _, more = line.strip().partition("\t")
    analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=more == "all")
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    times = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    print("RESULT " + json.dumps({int(rank): {
        "overlap_pct": float(overlap.loc[rank, "comp_comm_overlap_pctg"]),
        "compute_us": float(times.loc[rank, "compute_time(us)"]),
        "non_compute_us": float(times.loc[rank, "non_compute_time(us)"]),
        "busy_us": float(times.loc[rank, "kernel_time(us)"] - times.loc[rank, "idle_time(us)"]),
        "idle_us": float(times.loc[rank, "idle_time(us)"])} for rank in overlap.index}), flush=True)
"""


class Hta:
    """HTA in a process of its own, which answers folder by folder."""

    def __init__(self, python: Path, errors: Path) -> None:
        self.errors = errors
        self.process = subprocess.Popen([str(python), "-c", ANALYSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=errors.open("w"), text=True,
                                        env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"})

    def analyse(self, folder: Path, more: str = "") -> dict[str, dict[str, float]]:
        """more: "all" for files whose last step is whole, too."""
        self.process.stdin.write(f"{folder}\t{more}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        raise AssertionError(f"HTA failed on {folder}:\n{self.errors.read_text()[-4000:]}")


def near(what: str, ours: float, theirs: float, tolerance: float) -> None:
    if abs(ours - theirs) > tolerance:
        raise AssertionError(f"{what}: ours {ours}, HTA's {theirs}, allowed difference {tolerance}")


def outside_lanes_us(events: list[dict], rank: int) -> float:
    """The time of a step before the first op on a lane and after the last: HTA's window is that of the lanes, ours
    begins with the step and ends when the host has also issued everything. The tracks that explain a step are no lanes."""
    slices = [event for event in events if event["ph"] == "X" and event["pid"] == rank + 1]
    step = next(event for event in slices if event["cat"] == "step")
    ops = [event for event in slices if event["tid"] > 1 and event["cat"] not in ("exposed", "bound")]
    before = min(op["ts"] for op in ops) - step["ts"]
    after = step["ts"] + step["dur"] - max(op["ts"] + op["dur"] for op in ops)
    return before + after


def compare(hta: Hta, name: str, folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())["metrics"]
    theirs = hta.analyse(folder / "trace")
    ranks = result["ranks"]
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert len(ranks) == len(theirs), f"{name}: HTA sees {len(theirs)} of {len(ranks)} ranks"
    for rank, ours in enumerate(ranks):
        their = theirs[str(rank)]
        step_us = ours["step_ms"]["median"] * 1000
        allowed = step_us * 0.001
        what = f"{name}, rank {rank}"
        near(f"{what}, computation in us", ours["compute_ms"] * 1000, their["compute_us"], allowed)
        busy = step_us - ours["idle_ms"] * 1000 - ours["compute_ms"] * 1000
        near(f"{what}, busy without computation in us", busy, their["non_compute_us"], allowed)
        idle = ours["idle_ms"] * 1000 - outside_lanes_us(events, rank)
        near(f"{what}, idle in us", idle, their["idle_us"], allowed)
        near(f"{what}, overlap in %", ours["overlap_pct"], their["overlap_pct"], 0.1)
    print(f"{name}: overlap of rank 0: HTA {theirs['0']['overlap_pct']:.2f} %, "
          f"computation {theirs['0']['compute_us'] / 1000:.3f} ms; {len(ranks)} ranks agree")


def compare_gpus(hta: Hta, gpu_trace: str, folder: Path) -> None:
    subprocess.run([gpu_trace, str(folder)], check=True, timeout=60)
    for name in ("golden", "synthetic"):
        ours, theirs = json.loads((folder / f"{name}.json").read_text()), hta.analyse(folder / name)
        assert sorted(ours) == sorted(theirs), f"{name}: HTA sees the ranks {sorted(theirs)} of {sorted(ours)}"
        for rank, figures in ours.items():
            their, what = theirs[rank], f"{name} GPU, rank {rank}"
            near(f"{what}, overlap in %", 100 * figures["overlap_us"] / figures["communication_us"],
                 their["overlap_pct"], 0.01)
            near(f"{what}, computation in us", figures["compute_us"], their["compute_us"], 0.01)
            near(f"{what}, busy in us", figures["busy_us"], their["busy_us"], 0.01)
            print(f"{what}: overlap {their['overlap_pct']:.2f} %, computation {their['compute_us']:.3f} us")
    golden = hta.analyse(folder / "golden")["0"]
    known = {"overlap_pct": 50, "compute_us": 140, "non_compute_us": 50, "busy_us": 190, "idle_us": 10}
    for key, value in known.items():
        near(f"golden GPU, {key}", value, golden[key], 0.001)


def compare_others(hta: Hta, program: str, corpus_files: str, folder: Path) -> None:
    subprocess.run([corpus_files, str(folder), *CORPUS], check=True, stdout=subprocess.DEVNULL, timeout=300)
    for name in CORPUS:
        traces = folder / name.replace(" ", "-")
        (traces / "truth.txt").unlink()  # HTA takes it for a trace
        done = subprocess.run([program, "trace", "explain", str(traces), "--json"], check=True, capture_output=True,
                              text=True, timeout=300)
        answer = json.loads(done.stdout)
        compare_overlap(name, answer, hta.analyse(traces, "all"))


def compare_overlap(name: str, answer: dict, theirs: dict[str, dict[str, float]]) -> None:
    """The answer of `trace explain` for each rank."""
    ours = {str(rank["rank"]): rank["overlap_pct"] for rank in answer["ranks"]}
    assert sorted(ours) == sorted(theirs), f"{name}: HTA sees the ranks {sorted(theirs)} of {sorted(ours)}"
    for rank, overlap in ours.items():
        near(f"trace explain of {name}, rank {rank}, overlap in %", overlap, theirs[rank]["overlap_pct"], 0.1)
    first = min(ours, key=int)
    print(f"trace explain of {name}: overlap of rank {first}: HTA {theirs[first]['overlap_pct']:.2f} %, "
          f"ours {ours[first]:.2f} %; {len(ours)} ranks agree")


def compare_recorded(hta: Hta, program: str, folder: Path) -> None:
    jobs = sorted(path for path in folder.iterdir() if path.is_dir())
    assert jobs, f"{folder}: no folder of traces"
    for job in jobs:
        done = subprocess.run([program, "trace", "explain", str(job), "--json"], check=True, capture_output=True,
                              text=True, timeout=300)
        compare_overlap(job.name, json.loads(done.stdout), hta.analyse(job, "all"))


def main() -> None:
    program, gpu_trace, corpus_files = map(os.path.abspath, sys.argv[1:4])
    source = Path(sys.argv[4]).resolve()
    python = prepare(Path(sys.argv[5]).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        all_of = Path(temporary)
        hta = Hta(python, all_of / "errors")
        if os.path.exists(corpus_files):
            compare_others(hta, program, corpus_files, all_of / "others")
        else:
            print(f"{corpus_files} was not built: traces of other programs are not compared")
        if recorded := os.environ.get("FSDPBENCH_HTA_TRACES"):
            compare_recorded(hta, program, Path(recorded))
        compare_gpus(hta, gpu_trace, all_of / "gpus")
        for name, keys in RUNS.items():
            sets = [word for key in EMULATED + keys for word in ("--set", key)]
            subprocess.run([program, "run", str(source / "profiles/runs/llama3-8b-emulated.toml"), *sets, "--out",
                            str(all_of / name), "-q"], check=True, stdout=subprocess.DEVNULL, timeout=300)
            compare(hta, name, all_of / name)
        hta.process.stdin.close()
        hta.process.wait()
    print("HTA agrees with result.json in all runs, and with trace explain.")


if __name__ == "__main__":
    main()
