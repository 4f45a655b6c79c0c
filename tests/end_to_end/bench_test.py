#!/usr/bin/python3
"""The cells of a sweep as Google Benchmark cases: names, filter, repetitions, and the same figures as `sweep`.

    bench_test.py PROGRAM BENCH_PROGRAM [unittest arguments]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from program import BASE, PATIENCE_S, environment, free_port

PROGRAM = ""
BENCH = ""

SWEEP = 'base = "base.toml"\ntrials = 1\n[axes]\n"fsdp.layout" = ["flat", "per_param"]\n"mesh.ranks" = [1, 2]\n'
NAMES = [f"fsdp.layout:{layout}/mesh.ranks:{ranks}" for layout in ("flat", "per_param") for ranks in (1, 2)]


class Bench(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "base.toml").write_text(BASE, encoding="utf-8")
        (self.folder / "s.toml").write_text(SWEEP, encoding="utf-8")

    def bench(self, *arguments: str, code: int = 0) -> dict:
        done = subprocess.run([BENCH, "--sweep", "s.toml", "--benchmark_format=json", *arguments],
                              capture_output=True, text=True, cwd=self.folder, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_cases_are_cells_and_figures_are_those_of_the_sweep(self) -> None:
        out = self.bench()
        cases = out["benchmarks"]
        self.assertEqual([case["name"] for case in cases], [f"{n}/iterations:1/manual_time" for n in NAMES])
        self.assertIn("Debian", out["context"]["google_benchmark"])
        subprocess.run([PROGRAM, "sweep", "s.toml", "--out", "out", "-q"], check=True, capture_output=True,
                       cwd=self.folder, timeout=PATIENCE_S)
        cells = json.loads((self.folder / "out" / "sweep.json").read_text())["cells"]
        for case, cell in zip(cases, cells, strict=True):
            with self.subTest(case["name"]):
                self.assertEqual(case["time_unit"], "ms")
                self.assertEqual(case["peak_MiB"], cell["memory"]["peak_bytes"]["total"] / 2**20)
                # The figures of a trial at one moment fit together: tokens a step, at the median step.
                tokens = cell["axes"]["mesh.ranks"] * 16
                self.assertAlmostEqual(case["tokens_per_s"] * case["real_time"] / 1000, tokens, places=6)
                self.assertEqual("overlap_pct" in case, "overlap_pct" in cell["metrics"])
                self.assertLessEqual(case["exposed_ms"], case["real_time"])

    def test_filter_and_repetitions(self) -> None:
        cases = self.bench("--benchmark_filter=per_param/mesh.ranks:2", "--benchmark_repetitions=3")["benchmarks"]
        times = [case["real_time"] for case in cases if case["run_type"] == "iteration"]
        self.assertEqual(len(times), 3)
        median = next(case for case in cases if case.get("aggregate_name") == "median")
        self.assertAlmostEqual(median["real_time"], statistics.median(times), places=6)

    def test_a_cell_that_cannot_run_says_why_and_the_others_run(self) -> None:
        (self.folder / "s.toml").write_text(SWEEP.replace("[1, 2]", "[2, 4]"), encoding="utf-8")
        cases = self.bench("--set", "fsdp.strategy=hybrid_shard", "--set", "mesh.replicate=2", code=2)["benchmarks"]
        self.assertEqual(["ranks:2" in case["name"] for case in cases], [True, False, True, False])
        for case in cases:
            if "ranks:2" in case["name"] and "flat" in case["name"]:
                self.assertIn("shards nothing", case["error_message"])
            else:
                self.assertNotIn("error_message", case)
                self.assertGreater(case["real_time"], 0)

    def test_in_a_job_rank_0_reports_and_the_others_serve_it(self) -> None:
        (self.folder / "s.toml").write_text(SWEEP.replace('"mesh.ranks" = [1, 2]\n', ""), encoding="utf-8")
        port = free_port()
        command = [BENCH, "--sweep", "s.toml", "--benchmark_format=json", "--benchmark_repetitions=2"]
        processes = [
            subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2,
                                             MASTER_ADDR="127.0.0.1", MASTER_PORT=port)) for rank in range(2)]
        for process in processes:
            self.addCleanup(process.kill)
        (out, errors), other = [process.communicate(timeout=PATIENCE_S) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], errors + other[1])
        self.assertIn("2 ranks: one process each", errors)
        self.assertEqual(other, ("", ""))
        measured = [case for case in json.loads(out)["benchmarks"] if case["run_type"] == "iteration"]
        self.assertEqual(len(measured), 4)
        for case in measured:
            self.assertAlmostEqual(case["tokens_per_s"] * case["real_time"] / 1000, 2 * 16, places=6)

    def test_an_option_that_nobody_knows_is_refused(self) -> None:
        done = subprocess.run([BENCH, "--sweeep", "s.toml"], capture_output=True, text=True, cwd=self.folder,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--sweeep", done.stderr)


if __name__ == "__main__":
    PROGRAM, BENCH = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
