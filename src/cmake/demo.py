#!/usr/bin/python3
"""Runs a profile with and without prefetching, and says in three lines what prefetching does.

    demo.py PROGRAM PROFILE
"""

import json
import subprocess
import sys
from pathlib import Path

EMULATED = "emulate.compute_tflops=0.06"
OFF = ["--set", "fsdp.forward_prefetch=none", "--set", "fsdp.backward_prefetch=none"]


def run(program: str, profile: str, title: str, folder: Path, more: list[str]) -> dict:
    print(f"== {title} ==", flush=True)
    subprocess.run([program, "run", profile, "--set", EMULATED, *more, "--out", str(folder), "--overwrite"], check=True)
    print(flush=True)
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))["metrics"]


def main() -> None:
    program, profile = sys.argv[1:]
    folders = [Path("runs/demo/prefetch"), Path("runs/demo/no-prefetch")]
    with_it = run(program, profile, "with prefetching", folders[0], [])
    without = run(program, profile, "without prefetching", folders[1], OFF)
    step, longer = with_it["step_ms"]["median"], without["step_ms"]["median"]
    print(f"A step takes {step:.0f} ms with prefetching and {longer:.0f} ms without, for the same communication: "
          f"{abs(1 - step / longer):.0%} {'less' if step < longer else 'more'}.")
    print(f"With prefetching {with_it['overlap_pct']:.0f} % of communication is hidden behind computation, without it "
          f"{without['overlap_pct']:.0f} %.")
    print(f"See it: open {folders[0]}/trace.json and {folders[1]}/trace.json at https://ui.perfetto.dev; or\n"
          f"`make analysis`, then `{program} report {folders[0]} {folders[1]}` draws both on one page.")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
