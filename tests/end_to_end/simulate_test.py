#!/usr/bin/python3
"""Simulations as their user meets them: the same files as a run's, the same bytes for the same seed, and other commands
on them.

    simulate_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import subprocess
import tomllib
from pathlib import Path

import program
from program import BAD_INPUT, OK, PATIENCE_S, Program, sealed

PROFILE = """
[model]
preset = "llama3-8b"
layers = 8
[mesh]
ranks = 16
[train]
steps = 3
warmup = 1
seq_len = 1024
batch_per_rank = 1
[fsdp]
param_dtype = "bf16"
[device]
backend = "virtual"
[simulate]
cluster = "dgx-h100"
jitter_pct = 2
"""


class Simulate(Program):
    def setUp(self) -> None:
        super().setUp()
        self.write("job.toml", PROFILE)

    def call(self, *arguments: str, code: int = OK, cwd: str = ".") -> subprocess.CompletedProcess[str]:
        done = subprocess.run([program.PROGRAM, *arguments], capture_output=True, text=True, cwd=self.folder / cwd,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def result(self, folder: str) -> dict:
        return json.loads((self.folder / folder / "result.json").read_text(encoding="utf-8"))

    def error(self, *arguments: str) -> str:
        lines = [line for line in self.call(*arguments, code=BAD_INPUT).stderr.splitlines() if line.startswith("error:")]
        self.assertEqual(len(lines), 1)
        return lines[0]

    def test_the_same_seed_gives_the_same_bytes(self) -> None:
        for place in ("one", "two"):
            (self.folder / place).mkdir()
            self.call("simulate", "../job.toml", "--out", "out", "-q", cwd=place)
        files = sorted(path.relative_to(self.folder / "one") for path in (self.folder / "one").rglob("*") if path.is_file())
        self.assertIn(Path("out/trace/rank_15.json.gz"), files)
        for file in files:
            self.assertEqual((self.folder / "one" / file).read_bytes(), (self.folder / "two" / file).read_bytes(), file)

    def test_what_run_writes_and_what_reads_it(self) -> None:
        self.call("simulate", "job.toml", "--out", "a", "-q")
        self.call("run", "job.toml", "--set", "fsdp.backward_prefetch=none", "--out", "b", "-q")  # the profile says virtual
        a = self.result("a")
        self.assertTrue(a["world"]["simulated"])
        self.assertEqual(a["world"]["date"], "")
        self.assertTrue(a["complete"])
        self.assertEqual(len(a["steps"]["slowest_rank_ms"]), 3)
        self.assertGreater(a["simulation"]["p99_ms"], a["simulation"]["without_jitter_ms"])
        self.assertTrue(all(c["done_by"].endswith("inter") for c in a["collectives"]))  # two nodes
        without = ("--set", "simulate.jitter_pct=0")
        self.call("simulate", "job.toml", *without, "--set", "simulate.collectives=hierarchical", "--out", "h", "-q")
        self.assertTrue(all(c["done_by"].startswith("hierarchical") for c in self.result("h")["collectives"]))
        self.assertNotIn("simulation", self.result("h"))
        self.check_traces("a/trace.json", *(f"a/trace/rank_{rank}.json.gz" for rank in range(16)))
        said = self.call("simulate", "a", "--out", "c").stdout  # its config.toml is a profile
        self.assertIn("dgx-h100", said)
        metrics = a["metrics"]
        self.assertAlmostEqual(metrics["mfu_pct"], 100 * metrics["model_tflops_per_rank"] / metrics["peak_tflops"])
        self.assertEqual(metrics["peak_tflops"], 989)  # of bf16, dense
        self.assertEqual(a["memory"]["device_bytes"], 80 << 30)
        self.assertIs(a["memory"]["fits"], True)
        self.call("simulate", "job.toml", "--set", "model.layers=32", "--ranks", "1", "--out", "one", "-q")
        self.assertIs(self.result("one")["memory"]["fits"], False)  # 8 G parameters of 16 bytes each
        a_rank = metrics["tokens_per_s"] / 16
        self.assertRegex(said, rf"tokens/s .* 95 % \d+ to \d+; a rank {a_rank:.0f}, ")
        self.assertIn(f"{metrics['mfu_pct']:.1f}", next(line for line in said.splitlines() if line.startswith("MFU")))
        self.assertEqual(self.result("c")["metrics"], a["metrics"])
        self.assertIn("backward_prefetch", self.call("compare", "a", "b").stdout)
        self.call("explain", "--from", "a")

    def test_sweeps_and_comparisons_of_simulated_cells(self) -> None:
        (self.folder / "sweep.toml").write_text(
            'base = "job.toml"\ntrials = 1\n[axes]\n"mesh.ranks" = [8, 64]\n"simulate.cluster" = ["dgx-h100", "aws-p5"]\n',
            encoding="utf-8")
        self.call("sweep", "sweep.toml", "--out", "s", "-q")
        cells = json.loads((self.folder / "s/sweep.json").read_text(encoding="utf-8"))["cells"]
        self.assertEqual(len(cells), 4)
        said = self.call("compare", "job.toml", "--b-set", "mesh.ranks=8", "--out", "d", "-q").stdout
        self.assertIn("Simulated once each", said)
        self.assertNotIn("A/A", said)
        comparison = json.loads((self.folder / "d/compare.json").read_text(encoding="utf-8"))
        self.assertEqual([len(comparison[side]["trials"]) for side in "ab"], [1, 1])
        exact = self.call("compare", "job.toml", "--set", "simulate.jitter_pct=0", "--b-set", "fsdp.forward_prefetch=none",
                          "--out", "e", "-q").stdout
        self.assertIn("than A, simulated.", exact)
        self.assertNotIn("interval", exact)

    def test_a_calibration_gives_the_run_back(self) -> None:
        rates = ("--set", "simulate.cluster=", "--set", "simulate.jitter_pct=0", "--set", "emulate.compute_tflops=400",
                 "--set", "emulate.link_gb_per_s=100", "--set", "emulate.link_latency_us=5", "--ranks", "8")
        self.call("simulate", "job.toml", *rates, "--out", "truth", "-q")
        self.call("simulate", "job.toml", *rates, "--set", "fsdp.forward_prefetch=none", "--out", "other", "-q")
        self.assertIn("all_gather", self.call("calibrate", "truth", "--out", "c.toml").stdout)
        calibrated = ("--set", "simulate.cluster=", "--set", "simulate.jitter_pct=0", "--ranks", "8",
                      "--set", "simulate.calibration=c.toml")
        self.assertIn("measured: of a step's ops", self.call("simulate", "job.toml", *calibrated, "--out", "again").stdout)
        prediction = self.result("again")["prediction"]
        self.assertEqual((prediction["reach"], prediction["ops"]["extrapolated"]), ("measured", 0))
        step = self.result("again")["metrics"]["step_ms"]["median"]
        self.assertAlmostEqual(prediction["step_ms"]["low"] / step, 1, places=3)
        self.assertAlmostEqual(prediction["step_ms"]["high"] / step, 1, places=3)
        self.call("simulate", "job.toml", *calibrated, "--set", "fsdp.forward_prefetch=none", "--out", "predicted", "-q")
        for truth, predicted in (("truth", "again"), ("other", "predicted")):
            step = self.result(truth)["metrics"]["step_ms"]["median"]
            self.assertAlmostEqual(self.result(predicted)["metrics"]["step_ms"]["median"] / step, 1, places=4)
        self.call("calibrate", "truth", "--out", "c.toml", code=BAD_INPUT)
        (self.folder / "old.toml").write_text(
            (self.folder / "c.toml").read_text(encoding="utf-8").replace("version = 3", "version = 2"), encoding="utf-8")
        self.assertIn("calibrate anew", self.error("simulate", "job.toml", *calibrated, "--set",
                                                   "simulate.calibration=old.toml", "--out", "no"))
        self.assertIn("not of one machine", self.error("calibrate", "truth", "again", "--out", "d.toml"))
        self.assertIn("--set has no effect", self.error("calibrate", "truth", "--set", "train.steps=1", "--out", "d.toml"))

    def test_who_slows_whom_goes_from_collectives_through_calibrate_into_simulations(self) -> None:
        # On a busy machine few products run beside a collective from its begin to its end: then the advice is to raise -n.
        for times in (3, 30, 300):
            (self.folder / "beside.json").unlink(missing_ok=True)
            self.call("collectives", "--ranks", "2", "-b", "16K", "-e", "64K", "-f", "4", "-n", str(times), "--beside", "--matrix",
                      "64,32x64x16", "-J", "beside.json")
            rows = json.loads((self.folder / "beside.json").read_text(encoding="utf-8"))["beside"]
            if any("matrix_product" in row["beside_us"]["all_gather"] for row in rows):
                break
        small = ("--set", "model.layers=2", "--set", "train.steps=2", "--set", "emulate.link_gb_per_s=none", "--ranks", "2")
        self.call("run", "quickstart", *small, "--out", "ran", "-q")
        said = self.call("calibrate", "ran", "--beside", "beside.json", "--out", "with.toml").stdout
        self.assertIn("times as long", said)
        cells = {(one["of"], one["beside"]): one["cells"]
                 for one in tomllib.loads((self.folder / "with.toml").read_text(encoding="utf-8"))["slowdown"]}
        measured = [[*row["shape"], row["size"], 0, row["beside_us"]["all_gather"]["matrix_product"] / row["alone_us"]["all_gather"]]
                    for row in rows if "matrix_product" in row["beside_us"]["all_gather"]]
        self.assertEqual(len(cells.get(("all_gather", "matrix_product"), [])), len(measured))
        for cell, expected in zip(cells.get(("all_gather", "matrix_product"), []), measured, strict=True):
            self.assertEqual(cell[:5], expected[:5])
            self.assertAlmostEqual(cell[5] / expected[5], 1, places=6)

        # The simulation of that: products that take 8 times as long beside collectives make its step longer. The
        # calibration is of a simulation, where they are beside each other whatever this machine does meanwhile.
        def step(calibration: str, out: str) -> float:
            self.call("simulate", "quickstart", *small, "--set", f"simulate.calibration={calibration}", "--out", out, "-q")
            return self.result(out)["metrics"]["step_ms"]["median"]

        rates = ("--set", "emulate.compute_tflops=0.02", "--set", "emulate.link_gb_per_s=0.5")
        self.call("simulate", "quickstart", *small, *rates, "--out", "even", "-q")
        self.call("calibrate", "even", "--out", "without.toml")
        text = (self.folder / "without.toml").read_text(encoding="utf-8")
        for times in (1, 8):
            (self.folder / f"times{times}.toml").write_text(
                text + "".join(f'[[slowdown]]\nof = "matrix_product"\nbeside = "{beside}"\ndtype = "fp32"\n'
                               f"cells = [[64, 64, 64, 65536, 0, {times}]]\n" for beside in ("all_gather", "reduce_scatter")),
                encoding="utf-8")
        self.assertEqual(step("times1.toml", "once"), step("without.toml", "plain"))
        self.assertGreater(step("times8.toml", "eight"), step("without.toml", "plain2"))

        damaged = json.loads((self.folder / "beside.json").read_text(encoding="utf-8"))
        damaged["world"]["cpu"] = "another one"
        (self.folder / "other.json").write_text(sealed(damaged), encoding="utf-8")
        self.assertIn("not of one machine", self.error("calibrate", "ran", "--beside", "other.json", "--out", "no.toml"))
        damaged["beside"] = []
        (self.folder / "none.json").write_text(sealed(damaged), encoding="utf-8")
        self.assertIn("products that ran beside collectives",
                      self.error("calibrate", "ran", "--beside", "none.json", "--out", "no.toml"))
        self.assertIn("collectives --beside -J FILE",
                      self.error("calibrate", "ran", "--beside", "ran/result.json", "--out", "no.toml"))

    def test_many_ranks(self) -> None:
        self.call("simulate", "job.toml", "--ranks", "1024", "--out", "many", "-q")
        many = self.result("many")
        self.assertEqual(many["steps"]["ranks"][0], 0)
        self.assertEqual(len(many["steps"]["ranks"]), 8)
        self.assertEqual(len(many["steps"]["slowest_rank_ms"]), 3)
        self.check_traces("many/trace.json")

    def test_shapes_that_cannot_be_trained_can_be_simulated(self) -> None:
        self.call("simulate", "job.toml", "--set", "model.preset=gpt-oss-20b", "--out", "moe", "-q")
        self.assertIn("simulate", self.error("run", "quickstart", "--set", "model.preset=gpt-oss-20b", "--out", "no"))

    def test_bad_input(self) -> None:
        self.assertIn("the nearest is 'dgx-h100'", self.error("simulate", "job.toml", "--cluster", "dgx-h10"))
        self.assertIn("65 ranks do not fit", self.error("simulate", "job.toml", "--ranks", "65"))
        self.assertIn("name a machine", self.error("simulate", "job.toml", "--set", "simulate.cluster=", "--out", "x"))
        self.assertIn("leave one out",
                      self.error("simulate", "job.toml", "--set", "emulate.compute_tflops=1", "--out", "x"))


if __name__ == "__main__":
    program.main()
