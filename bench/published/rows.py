"""What programs say of measured trainings: a table with a row each, then coverage, error and width.

    rows.py ROWS.csv PROGRAM [PROGRAM BEFORE]

ROWS.csv has the columns name, profile, set, measured_ms: a run profile (relative to the file, or a name), overrides of
`fsdpbench simulate` with blanks between, and what a step took. PROGRAM is build/bin/fsdpbench of a source tree, whose
profiles it reads.
"""

import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile


def step_ms(program, profile, overrides):
    """The predicted step, and its 95 % interval."""
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for override in overrides.split() for word in ("--set", override)]
        done = subprocess.run([program, "simulate", str(profile), *sets, "--out", f"{folder}/out"],
                              capture_output=True, text=True, cwd=program.parents[2])
        if done.returncode != 0:
            return None
        step = json.loads((pathlib.Path(folder) / "out/result.json").read_text())
    metrics = step["metrics"]
    interval = step.get("prediction", {}).get("step_ms", {})
    return metrics["step_ms"]["median"], interval.get("low"), interval.get("high")


def judged(rows, program, folder):
    files = [folder / row["profile"] for row in rows]
    return [step_ms(program, file if file.exists() else row["profile"], row["set"]) for file, row in zip(files, rows)]


def summary(name, rows, found):
    known = [(float(row["measured_ms"]), *step) for row, step in zip(rows, found) if step and step[1] is not None]
    if not known:
        return f"{name}: nothing was predicted with an interval"
    inside = sum(low <= measured <= high for measured, _, low, high in known)
    error = statistics.median(abs(predicted / measured - 1) for measured, predicted, _, _ in known)
    low = statistics.median(low / predicted - 1 for _, predicted, low, _ in known)
    high = statistics.median(high / predicted - 1 for _, predicted, _, high in known)
    return (f"{name}: {inside} of {len(known)} inside, median error {error:.1%}, "
            f"median interval {low:+.0%} to {high:+.0%}")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1]).resolve()
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    programs = dict(zip(("now", "before"), (pathlib.Path(program).resolve() for program in sys.argv[2:])))
    found = {name: judged(rows, program, path.parent) for name, program in programs.items()}
    print(f"{'row':28} {'measured':>9}" + "".join(f" {name:>9} {'95 %':>19} in" for name in programs))
    for number, row in enumerate(rows):
        line = f"{row['name']:28} {float(row['measured_ms']):9.1f}"
        for name in programs:
            if found[name][number] is None:
                line += f" {'-':>9} {'':>19}   "
                continue
            predicted, low, high = found[name][number]
            bounds = "" if low is None else f"[{low:.1f}, {high:.1f}]"
            inside = "" if low is None else "yes" if low <= float(row["measured_ms"]) <= high else "no"
            line += f" {predicted:9.1f} {bounds:>19} {inside:3}"
        print(line)
    for name in programs:
        print(summary(name, rows, found[name]))


if __name__ == "__main__":
    main()
