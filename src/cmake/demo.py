#!/usr/bin/python3
"""Runs a profile with and without prefetching, says in six lines what prefetching does, then what else was printed.

    demo.py PROGRAM PROFILE
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

EMULATED = "emulate.compute_tflops=0.06"
OFF = ["--set", "fsdp.forward_prefetch=none", "--set", "fsdp.backward_prefetch=none"]


def run(program: str, profile: str, folder: Path, more: List[str]) -> Tuple[dict, str]:
    done = subprocess.run([program, "run", profile, "--set", EMULATED, *more, "--out", str(folder), "--overwrite"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr or done.returncode)
    return json.loads((folder / "result.json").read_text(encoding="utf-8")), done.stdout


def summary(with_it: dict, without: dict, names: List[str], program: str) -> List[str]:
    """Six lines. On a machine that did not keep up they say what the schedule itself would take, which is simulated."""
    a, b = with_it["metrics"], without["metrics"]
    step, longer = a["step_ms"]["median"], b["step_ms"]["median"]
    first = f"A step takes {step:.0f} ms with prefetching and {longer:.0f} ms without, for the same communication"
    noise = max(a.get("aa_noise_pct") or 0, b.get("aa_noise_pct") or 0) / 100
    rated = with_it["rated"] and without["rated"]
    if rated and abs(step / longer - 1) > noise:
        first += f": {abs(1 - step / longer):.0%} {'less' if step < longer else 'more'}."
    elif rated:
        first += f": no difference beyond this machine's noise of {noise:.0%}."
    else:
        first += "."
    return [first,
            f"With prefetching {a['overlap_pct']:.0f} % of communication is hidden behind computation, without it "
            f"{b['overlap_pct']:.0f} %.",
            "Both are measured on this machine, with emulated computation and links." if rated else
            "This machine was too busy to emulate computation and links exactly: take these times as rough.",
            f"As it would be without other work: {program} simulate quickstart --set {EMULATED}",
            f"Timelines: {names[0]}/trace.json and {names[1]}/trace.json, for https://ui.perfetto.dev",
            f"One page with both: make analysis, then {program} report {names[0]} {names[1]}"]


def main() -> None:
    program, profile = sys.argv[1:]
    names = ["runs/demo/prefetch", "runs/demo/no-prefetch"]
    print("Two runs of 12 steps, with prefetching and without: about 10 seconds", flush=True)
    with_it, said = run(program, profile, Path(names[0]), [])
    without, said_without = run(program, profile, Path(names[1]), OFF)
    print("\n" + "\n".join(summary(with_it, without, names, program)))
    for title, text in (("with prefetching", said), ("without prefetching", said_without)):
        print(f"\n== {title} ==\n{text.rstrip()}")


if __name__ == "__main__":
    main()
