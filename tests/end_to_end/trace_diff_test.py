#!/usr/bin/python3
"""trace diff: what was planted in one of two simulated jobs is found and named; in two alike nothing is.

    trace_diff_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import itertools
import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
SOURCE = Path()

BASE = ["emulate.compute_tflops=0.02", "emulate.link_gb_per_s=2",
        "emulate.link_latency_us=5", "model.layers=3", "train.steps=6", "train.warmup=1", "train.seq_len=32",
        "train.batch_per_rank=1", "mesh.ranks=4", "simulate.jitter_pct=2"]
PAIRS = 3  # of each kind
ALIKE = 9  # jobs, each compared with each
COMMUNICATES = {"link_bound", "slow_transfer", "step_boundary", "straggler", "late_prefetch", "all_gather_limit",
                "communicator_serialisation", "inefficient_collective", "slow_link", "reduce_scatter_buffers"}


def planted(kind: str, luck: random.Random) -> list[str]:
    if kind == "slow rank":
        return [f"inject.slow_rank={luck.randrange(4)}", f"inject.slow_rank_factor={luck.uniform(1.2, 2):.3f}"]
    if kind == "slow link":
        return [f"emulate.link_gb_per_s={2 / luck.uniform(1.3, 2):.4f}"]
    if kind == "slow kernels":
        return [f"emulate.compute_tflops={0.02 / luck.uniform(1.1, 1.5):.5f}"]
    return [f"inject.host_sync_after_layer={luck.randrange(2)}", f"inject.host_delay_us={luck.uniform(40, 90):.1f}"]


def names_it(kind: str, keys: list[str], diff: dict) -> bool:
    """Whether what was planted is what the answer says, at the top of what it found."""
    found = [one for one in diff["causes"] if one["found"] and one["change_ns"] > 0]
    if not diff["step"]["found"] or diff["step"]["change_ns"] <= 0 or not found:
        return False
    causes = [one["part"] for one in found]
    if kind == "slow rank":
        rank = keys[0].split("=")[1]
        return f"Rank {rank} is late" in diff["headline"] and "its kernels" in diff["headline"]
    if kind == "slow link":
        return causes[0] in COMMUNICATES
    if kind == "slow kernels":
        return causes[0] == "computation"
    return bool({"host_sync", "host_bound"} & set(causes))


class TraceDiff(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def call(self, *arguments: str) -> str:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=self.folder, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def simulate(self, name: str, seed: int, *keys: str) -> str:
        """The folder of a job; one that is there already is the same one."""
        if (self.folder / name).exists():
            return name
        sets = [word for key in [*BASE, *keys, f"simulate.seed={seed}"] for word in ("--set", key)]
        self.call("simulate", str(SOURCE / "profiles/runs/quickstart.toml"), *sets, "--out", name, "-q")
        return name

    def diff(self, a: str, b: str) -> dict:
        diff = json.loads(self.call("trace", "diff", a, b, "--json"))
        for table in ("causes", "ops"):
            self.assertEqual(sum(one["change_ns"] for one in diff[table]), diff["step"]["change_ns"])
        return diff

    def test_what_was_planted_is_found(self) -> None:
        right, wrong = 0, []
        for kind in ("slow rank", "slow link", "slow kernels", "host"):
            luck = random.Random(kind)
            for number in range(PAIRS):
                keys = planted(kind, luck)
                healthy = self.simulate(f"healthy-{number}", 2 * number + 1)  # the same for each kind
                diff = self.diff(healthy, self.simulate(f"{kind} {number}", 2 * number + 2, *keys))
                good = names_it(kind, keys, diff)
                right += good
                if not good:
                    wrong.append(f"{kind} {keys}: {diff['headline']}")
        self.assertGreaterEqual(right, 95 * 4 * PAIRS / 100, "\n".join(wrong))

    def test_between_two_alike_nothing_is_found(self) -> None:
        wrong = []
        jobs = [self.simulate(f"{number}", 1000 + number) for number in range(ALIKE)]
        pairs = list(itertools.combinations(jobs, 2))
        for a, b in pairs:
            diff = self.diff(a, b)
            if diff["step"]["found"] or any(one["found"] for one in diff["causes"]):
                wrong.append(diff["headline"])
        self.assertLessEqual(len(wrong), len(pairs) * 2 // 100, "\n".join(wrong))

    def test_of_one_job_with_itself_nothing_changes(self) -> None:
        a = self.simulate("a", 1)
        diff = self.diff(a, a)
        self.assertEqual(diff["step"]["change_ns"], 0)
        self.assertFalse([one for one in diff["ops"] if one["found"] or one["change_ns"]])
        self.assertEqual(diff["aligned_by"], "units")
        self.call("trace", "diff", a, a, "--out", "diff")
        self.assertEqual(json.loads((self.folder / "diff/diff.json").read_text()), diff)
        text = self.call("trace", "diff", a, a)
        self.assertIn("No difference found", text)


if __name__ == "__main__":
    PROGRAM, SOURCE = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
