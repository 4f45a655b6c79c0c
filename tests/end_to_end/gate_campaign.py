#!/usr/bin/python3
"""How often `accept` and `gate` are wrong about a machine that has not changed, and what they say of one that is slower.

    gate_campaign.py PROGRAM SOURCE_FOLDER [--kind accept|run|simulate] [--gates N] [--load N] [--slower PERCENT]
                     [--steps N] [--keep FOLDER]

Measures N + 5 times on this machine, beside --load busy loops; `simulate` stands for an idle machine, whose ops and ranks
scatter by 3 and 1 %. Each result is gated against the one before it and against the five
before it; then again with all its times longer, by 5 % unless --slower says otherwise. The exit code is 1 if more than 2 %
of the verdicts on the unchanged machine are false: an acceptance that fails, a gate that calls a figure worse; if a gate
passes a figure that is slower and gives no interval; if a result that is slower passes against the one before it; or if
simulated and 5 % slower, more than 5 % pass against five, or five find fewer of them than one or fewer than 90 %. Several
minutes; `profiles/recorded/accept` has what it printed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import program
from program import sealed, sets

PROFILE = 'version = 1\nfabric = "the same machine"\nrun = "quickstart"\nmatrix = 128\nmemory_mib = 4\nexposed_pct = 100\n' \
          'cliff_pct = 60\nscale_pct = 50\n'
SMALL = ["model.layers=2", "model.width=64", "model.ffn_width=128", "train.seq_len=32", "train.batch_per_rank=1",
         "train.warmup=1", "mesh.ranks=3", "emulate.link_gb_per_s=none", "emulate.link_latency_us=0"]
SIMULATED = ["model.layers=2", "train.steps=40", "train.warmup=1", "emulate.compute_tflops=0.02",
             "emulate.link_gb_per_s=0.5", "simulate.jitter_pct=3", "simulate.rank_jitter_pct=1"]
BASELINE = 5
CODES = {0: "pass", 5: "lost", 7: "WORSE", 9: "WRONG DATA", 10: "FAIL", 11: "inconclusive", 12: "other machine"}


class Campaign:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.kind, self.folder, self.steps = arguments.kind, folder, arguments.steps
        self.factor = 1 + arguments.slower / 100
        (folder / "wanted.toml").write_text(PROFILE)

    def call(self, *words: str) -> int:
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            print("$", *words, file=log, flush=True)
            return subprocess.run([program.PROGRAM, *words], cwd=self.folder, stdout=log, stderr=log, check=False,
                                  env=program.environment()).returncode

    def measure(self, name: str) -> int:
        if self.kind == "simulate":
            code = self.call("simulate", "quickstart", *sets(*SIMULATED, f"simulate.seed={name[1:]}"), "--out", name,
                             "--overwrite", "-q")
            path = self.folder / name / "result.json"
            result = json.loads(path.read_text())
            result["config"]["simulate"]["seed"] = 0  # it is what differs from run to run of a machine, not a setting
            result["world"]["backend"] = "cpu"  # what a computed clock says would be taken for exact
            path.write_text(sealed(result))
            return code
        if self.kind == "accept":
            return self.call("accept", "wanted.toml", *sets(*SMALL, "train.steps=5"), "--out", name, "--overwrite", "-q")
        return self.call("run", "quickstart", *sets(*SMALL, f"train.steps={self.steps}"), "--out", name, "--overwrite", "-q")

    def slower(self, name: str) -> str:
        """The same result with all times longer."""
        path = self.folder / name / "result.json"
        result = json.loads(path.read_text())
        if self.kind != "accept":
            result["steps"]["slowest_rank_ms"] = [self.factor * ms for ms in result["steps"]["slowest_rank_ms"]]
        else:
            for judgement in result["judgements"]:
                if judgement["rule"] in ("floor", "tail") and judgement.get("value"):
                    factor = 1 / self.factor if judgement["rule"] == "floor" else self.factor
                    judgement["value"] |= {key: factor * judgement["value"][key] for key in ("median", "ci_low", "ci_high")}
            for part in result["arms"]["rounds"]:
                for key in part:
                    part[key] = self.factor * part[key] if key.endswith("_ms") else part[key]
        out = self.folder / f"{name}-slower"
        out.mkdir(exist_ok=True)
        (out / "result.json").write_text(sealed(result))
        return out.name

    def baseline(self, names: list[str]) -> str:
        folder = f"baseline-of-{names[0]}"
        for name in names:
            shutil.copytree(self.folder / name, self.folder / folder / name, dirs_exist_ok=True)
        return folder

    def gate(self, name: str, against: str) -> tuple[int, dict]:
        code = self.call("gate", name, "--against", against, "--out", "gate", "--overwrite", "-q")
        path = self.folder / "gate/gate.json"
        return code, json.loads(path.read_text()) if path.exists() else {}


def without_interval(gate: dict) -> int:
    """Figures that pass although nobody is told how much worse they may be."""
    return sum(change["verdict"] == "pass" and change["by"] != "counted" and "ratio_high" not in change
               for change in gate.get("changes", []))


def outside(gate: dict, kind: str, factor: float) -> tuple[int, int]:
    """Slower figures whose interval of now / before does not include `factor` or its reciprocal; and all with one."""
    wrong = total = 0
    for change in gate.get("changes", []):
        if change["by"] in ("counted", "nothing", "single numbers") or (kind != "accept" and change["figure"] != "step time"):
            continue
        total += 1
        truth = 1 / factor if change["better"] == "more" else factor
        wrong += not change["ratio_low"] <= truth <= change["ratio_high"]
    return wrong, total


def run_campaign(arguments: argparse.Namespace, folder: Path) -> int:
    campaign = Campaign(arguments, folder)
    loops = [subprocess.Popen(["sh", "-c", f"while kill -0 {os.getpid()}; do :; done"]) for _ in range(arguments.load)]
    try:
        names, own = [], Counter()
        for i in range(arguments.gates + BASELINE):
            names.append(f"r{i}")
            own[CODES.get(code := campaign.measure(names[-1]), str(code))] += 1
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    print(f"{arguments.kind}, {arguments.load} busy loops, load average {os.getloadavg()[1]:.1f}: {len(names)} measured: "
          f"{dict(own)}")
    false, asked = (sum(own[word] for word in ("FAIL", "lost", "WRONG DATA")), len(names)) \
        if arguments.kind == "accept" else (0, 0)
    blind, passed, found = 0, [], []
    for what, against_of in (("the one before", lambda i: names[i - 1]),
                             ("the five before", lambda i: campaign.baseline(names[i - BASELINE:i]))):
        same, worse, off, figures = Counter(), Counter(), 0, 0
        for i in range(BASELINE, len(names)):
            against = against_of(i)
            code, gate = campaign.gate(names[i], against)
            same[CODES.get(code, str(code))] += 1
            code, gate = campaign.gate(campaign.slower(names[i]), against)
            worse[CODES.get(code, str(code))] += 1
            blind += without_interval(gate)
            wrong, total = outside(gate, arguments.kind, campaign.factor)
            off, figures = off + wrong, figures + total
        print(f"  gated against {what}: unchanged {dict(same)}; {arguments.slower:g} % slower {dict(worse)}, {off} of {figures} intervals do not "
              "include that")
        false, asked = false + same["WORSE"], asked + sum(same.values())
        passed.append(worse["pass"])
        found.append(worse["WORSE"])
    print(f"  {false} of {asked} verdicts on the unchanged machine are false; {blind} figures passed without an interval")
    missed = arguments.kind == "simulate" and arguments.slower == 5 and (
        passed[1] > 0.05 * arguments.gates or found[1] < max(found[0], 0.9 * arguments.gates))
    return int(false > 0.02 * asked or blind > 0 or passed[0] > 0 or missed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("source")
    parser.add_argument("--kind", choices=("accept", "run", "simulate"), default="accept")
    parser.add_argument("--gates", type=int, default=40)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--slower", type=float, default=5, help="percent")
    parser.add_argument("--steps", type=int, default=60, help="of each run; with --kind run")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    program.PROGRAM = str(Path(arguments.program).resolve())
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        return run_campaign(arguments, arguments.keep)
    with tempfile.TemporaryDirectory() as folder:
        return run_campaign(arguments, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
