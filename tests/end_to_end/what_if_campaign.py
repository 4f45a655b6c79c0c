#!/usr/bin/python3
"""Checks the intervals of `what-if` and `tune --from`. Each question is asked of a finished run; then the changed
configuration is run, too. Its measured step over that of the first run must lie in the interval 95 times of 100.

    what_if_campaign.py PROGRAM SOURCE_FOLDER [--clock real|computed] [--bases FROM:TO] [--keep FOLDER]

`real` runs ranks on this machine, with emulated links and computation: five minutes on an idle machine, twenty on a busy
one. `computed` simulates them with jitter, and the truth has the luck of another seed:
what_if_test.py asks a sample of it. Prints a line for each question, also for those that are refused, and how many truths
lay inside their interval; the exit code is 1 if fewer than 95 % did. The load of the machine is part of the answer: it is
printed for each configuration.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BASES = [
    ["emulate.compute_tflops=0.06", "train.steps=8"],
    ["emulate.compute_tflops=0.03", "train.steps=6", "emulate.link_gb_per_s=0.05", "mesh.ranks=2"],
    ["emulate.compute_tflops=0.1", "train.steps=8", "fsdp.backward_prefetch=none", "fsdp.forward_prefetch=none",
     "model.layers=6"],
    ["emulate.compute_tflops=0.05", "train.steps=6", "fsdp.strategy=shard_grad_op", "emulate.link_latency_us=200"],
    ["emulate.compute_tflops=0.05", "train.steps=6", "train.accumulate=2", "mesh.ranks=2"],
    # No width was chosen by what follows.
    ["emulate.compute_tflops=0.08", "train.steps=8", "fsdp.param_dtype=bf16", "fsdp.wrap=blocks:2"],
    ["emulate.compute_tflops=0.04", "train.steps=6", "fsdp.preset=deepspeed-z3"],
    ["emulate.compute_tflops=0.05", "train.steps=6", "fsdp.strategy=hybrid_shard", "mesh.shard=2", "mesh.replicate=2"],
    ["emulate.compute_tflops=0.06", "train.steps=6", "fsdp.activation_checkpointing=true",
     "fsdp.all_gather_limit=strict:1", "emulate.link_gb_per_s=0.05"],
]
QUESTIONS = [
    ["fsdp.backward_prefetch=none"], ["fsdp.backward_prefetch=2"], ["fsdp.forward_prefetch=explicit:1"],
    ["fsdp.strategy=shard_grad_op"], ["fsdp.strategy=full_shard"], ["fsdp.reshard_after_forward=false"],
    ["fsdp.wrap=blocks:2"], ["fsdp.activation_checkpointing=true"], ["fsdp.layout=flat"], ["fsdp.param_dtype=bf16"],
    ["emulate.link_gb_per_s=0.2"], ["emulate.link_gb_per_s=0.04"], ["fsdp.preset=fsdp1"], ["fsdp.preset=deepspeed-z2"],
    ["emulate.compute_tflops=0.12"], ["fsdp.separate_reduce_scatter_comm=true"], ["fsdp.all_gather_limit=strict:1"],
    ["fsdp.head_unit=true"], ["train.accumulate=2"], ["fsdp.reduce_scatter_buffers=3"],
]
BAD_INPUT = 2
# Keys that tune may not turn, so that it has several answers to each run.
FIXED = [[], ["fsdp.strategy", "fsdp.reshard_after_forward"], ["fsdp.wrap", "fsdp.head_unit", "train.accumulate"]]


def sets(keys: list[str]) -> list[str]:
    return [argument for key in keys for argument in ("--set", key)]


@dataclass
class Answered:
    """A question, and all shares of the first run's step: longer by so much."""

    asked: str
    predicted: float
    low: float
    high: float
    truth: float

    @property
    def inside(self) -> bool:
        return self.low <= self.truth <= self.high

    def line(self) -> str:
        return (f"{self.asked:70} {100 * self.predicted:+8.2f} % [{100 * self.low:+8.2f} {100 * self.high:+8.2f}] "
                f"truth {100 * self.truth:+8.2f} %{'' if self.inside else '  OUTSIDE'}")


class Refused(Exception):
    """The program says why it cannot answer."""


class Campaign:
    def __init__(self, program: str, source: Path, folder: Path, clock: str, say: bool = False) -> None:
        self.program, self.folder, self.real, self.say = os.path.abspath(program), folder, clock == "real", say
        self.profile = str(source / "profiles/runs/quickstart.toml")
        self.count = 0

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, cwd=self.folder, timeout=600)

    def written(self, file: str, *arguments: str) -> tuple[Path, dict]:
        """The folder that a command wrote, and the file of it that holds the answer."""
        self.count += 1
        out = self.folder / f"out{self.count}"
        done = self.call(*arguments, "--out", str(out), "-q")
        if done.returncode == BAD_INPUT and arguments[0] in ("what-if", "tune"):
            raise Refused(done.stderr.strip())
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
        return out, json.loads((out / file).read_text())

    def run(self, profile: str, keys: list[str], seed: int = 1) -> tuple[Path, float]:
        if not self.real:
            keys = [*keys, "simulate.jitter_pct=2", f"simulate.seed={seed}"]
        out, result = self.written("result.json", "run" if self.real else "simulate", profile, *sets(keys))
        return out, result["metrics"]["step_ms"]["median"]

    def what_if(self, run: Path, was_ms: float, question: list[str]) -> Answered | None:
        """None where the question changes nothing."""
        _, answer = self.written("what_if.json", "what-if", str(run), *sets(question))
        if not answer["keys"]:
            return None
        _, is_ms = self.run(str(run / "config.toml"), question, seed=1 + self.count)
        change = answer["change"]
        return Answered(" ".join(question), change["median"], change["ci_low"], change["ci_high"], is_ms / was_ms - 1)

    def tune(self, run: Path, was_ms: float, fixed: list[str]) -> Answered | None:
        """None where the answer is to keep what the run had."""
        fixes = [argument for key in fixed for argument in ("--fix", key)]
        out, answer = self.written("tune.json", "tune", "--from", str(run), "--evaluations", "150", *fixes)
        if answer["keep"]:
            return None
        _, is_ms = self.run(str(out / "tuned.toml"), [], seed=1 + self.count)
        low, high = answer["gain_low"], answer["gain_high"]
        if low is None:
            low = high = answer["gain"]
        return Answered("tune, fixed " + ", ".join(fixed or ["nothing"]), -answer["gain"], -high, -low,
                        is_ms / was_ms - 1)

    def of_base(self, base: list[str], questions: list[list[str]] = QUESTIONS,
                fixed: list[list[str]] = FIXED) -> list[Answered]:
        run, was_ms = self.run(self.profile, base)
        if self.say:
            print(" ".join(base), f"{was_ms:.2f} ms, load {os.getloadavg()[0]:.1f}", flush=True)
        all_answered = []
        for ask, asked in [*((self.what_if, q) for q in questions), *((self.tune, f) for f in fixed)]:
            try:
                answered = ask(run, was_ms, asked)
            except Refused as refused:
                if self.say:
                    print(f"  {', '.join(asked):70} refused: {refused}", flush=True)
                continue
            if answered is not None:
                if self.say:
                    print(" ", answered.line(), flush=True)
                all_answered.append(answered)
        return all_answered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("source", type=Path)
    parser.add_argument("--clock", choices=["real", "computed"], default="real")
    parser.add_argument("--bases", default=":", metavar="FROM:TO", help="only these configurations, as of a list in Python")
    parser.add_argument("--keep", type=Path, help="a folder for the runs; default: they are removed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        campaign = Campaign(arguments.program, arguments.source.resolve(), folder.resolve(), arguments.clock, say=True)
        first, last = (int(end) if end else None for end in arguments.bases.split(":"))
        answered = [a for base in BASES[first:last] for a in campaign.of_base(base)]
    inside = sum(a.inside for a in answered)
    widths = sorted((a.high - a.low) / 2 / (1 + a.predicted) for a in answered)
    print(f"{inside} of {len(answered)} truths lay in their interval; "
          f"half of the intervals were narrower than ±{100 * widths[len(widths) // 2]:.1f} % of the step")
    return 0 if inside >= 0.95 * len(answered) else 1


if __name__ == "__main__":
    sys.exit(main())
