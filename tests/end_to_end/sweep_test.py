#!/usr/bin/python3
"""Sweeps and comparisons as their user meets them: resuming, kills at any moment, failed cells, verdicts.

    sweep_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import signal
import subprocess
import time

import program
from program import BAD_INPUT, BASE, CANNOT_WRITE, INTERRUPTED, OK, PATIENCE_S, Program

SWEEP = 'base = "base.toml"\ntrials = 2\n[axes]\n"mesh.ranks" = [1, 2]\n"fsdp.layout" = ["flat", "per_param"]\n'


class Case(Program):
    def setUp(self) -> None:
        super().setUp()
        self.base = self.write("base.toml", BASE)
        self.out = self.folder / "out"

    def sweep(self, text: str = SWEEP, *arguments: str, code: int = OK) -> subprocess.CompletedProcess[str]:
        return self.call("sweep", self.write("s.toml", text), "--out", "out", *arguments, code=code)

    def summary(self) -> dict:
        return json.loads((self.out / "sweep.json").read_text())

    def trials(self) -> list[dict]:
        """Whole lines only, without the header; each must be JSON."""
        path = self.out / "trials.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines[1:]]


class Sweep(Case):
    def test_runs_every_cell_and_says_what_it_gave(self) -> None:
        done = self.sweep()
        self.assertIn("step, ", done.stdout)
        sweep = self.summary()
        self.assertTrue(sweep["complete"])
        self.assertEqual([axis["key"] for axis in sweep["axes"]], ["mesh.ranks", "fsdp.layout"])
        self.assertEqual(len(sweep["cells"]), 4)
        for cell in sweep["cells"]:
            self.assertEqual((cell["status"], cell["trials"]), ("ok", 2))
            step = cell["metrics"]["step_ms"]
            self.assertLessEqual(step["min"], step["median"])
            self.assertLessEqual(step["ci_low"], step["median"])
            self.assertLessEqual(step["median"], step["ci_high"])
            for name in ("compute_ms", "comm_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms", "tokens_per_s"):
                self.assertIsInstance(cell["metrics"][name], (int, float), name)
            self.assertGreater(cell["memory"]["peak_bytes"]["total"], 0)
            self.assertIn("all_gather", cell["comm"]["wire_bytes_per_rank"])
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["sweep.json", "trials.jsonl"])
        self.assertTrue(sweep["world"]["emulated_compute"])

    def test_rounds_interleave_the_cells(self) -> None:
        self.sweep()
        self.assertEqual([trial["trial"] for trial in self.trials()], [0] * 4 + [1] * 4)

    def test_a_cell_whose_training_diverges_has_failed(self) -> None:
        self.sweep('base = "base.toml"\ntrials = 2\n[set]\n"emulate.compute_tflops" = "none"\n'
                   '[axes]\n"train.learning_rate" = [1e-3, 1e30]\n')
        ok, diverged = self.summary()["cells"]
        self.assertEqual((ok["status"], diverged["status"]), ("ok", "failed"))
        self.assertIn("training diverged: the loss is NaN at step ", diverged["reason"])
        self.assertEqual([trial.get("exit_code") for trial in self.trials() if trial["cell"] == diverged["id"]], [8])

    def test_a_finished_sweep_runs_nothing_again(self) -> None:
        self.sweep()
        before = (self.out / "trials.jsonl").read_bytes()
        self.assertIn("0 are missing", self.sweep().stderr)
        self.assertEqual((self.out / "trials.jsonl").read_bytes(), before)

    def test_more_trials_can_be_added(self) -> None:
        self.sweep()
        before = (self.out / "trials.jsonl").read_bytes()
        done = self.sweep(SWEEP, "--trials", "3")
        self.assertIn("4 are missing", done.stderr)
        self.assertTrue((self.out / "trials.jsonl").read_bytes().startswith(before))
        self.assertEqual([trial["trial"] for trial in self.trials()], [0] * 4 + [1] * 4 + [2] * 4)
        summary = self.summary()
        self.assertEqual(summary["trials"], 3)
        self.assertEqual([(cell["status"], cell["trials"]) for cell in summary["cells"]], [("ok", 3)] * 4)
        self.assertIn("0 are missing", self.sweep(SWEEP.replace("trials = 2", "trials = 3")).stderr)

    def test_ranks_as_an_axis_are_one_machine(self) -> None:
        done = self.sweep()
        self.assertNotIn("different programs or machines", done.stderr)
        self.assertFalse(self.summary()["mixed_worlds"])

    def test_goes_on_after_a_torn_line(self) -> None:
        self.sweep()
        path = self.out / "trials.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
        done = self.sweep()
        self.assertIn("torn", done.stderr)
        self.assertIn("1 are missing", done.stderr)
        self.assertTrue(self.summary()["complete"])
        self.assertEqual(len(self.trials()), 8)

    def test_another_sweep_in_the_same_folder_is_refused(self) -> None:
        self.sweep()
        changed = SWEEP.replace("[1, 2]", "[1, 2, 4]")
        self.assertIn("another sweep", self.error("sweep", self.write("s.toml", changed), "--out", "out"))
        self.write("s.toml", SWEEP)
        self.assertIn("another sweep", self.error("sweep", "s.toml", "--out", "out", "--set", "train.steps=4"))
        self.write("base.toml", BASE.replace("steps = 3", "steps = 5"))
        self.assertIn("another sweep", self.error("sweep", "s.toml", "--out", "out"))

    def test_a_failed_cell_is_recorded_and_the_others_run(self) -> None:
        text = 'base = "base.toml"\ntrials = 2\n[axes]\n"model.kv_heads" = [2, 3]\n'
        done = self.sweep(text)
        self.assertIn("cell failed", done.stderr)
        cells = self.summary()["cells"]
        self.assertEqual([cell["status"] for cell in cells], ["ok", "failed"])
        self.assertIn("model.kv_heads = 3", cells[1]["reason"])
        self.assertTrue(self.summary()["complete"])
        self.assertEqual(len(self.trials()), 3)
        self.sweep(text)
        self.assertEqual(len(self.trials()), 3)
        self.sweep(text, "--retry-failed")
        self.assertEqual(len(self.trials()), 4)

    def test_a_sweep_that_could_measure_nothing_says_so_with_its_exit_code(self) -> None:
        done = self.sweep('base = "base.toml"\ntrials = 2\n[axes]\n"model.kv_heads" = [3, 5]\n', code=BAD_INPUT)
        self.assertIn("error: no cell could be measured: ", done.stderr)
        self.assertEqual({cell["status"] for cell in self.summary()["cells"]}, {"failed"})

    def test_hostile_values_make_safe_names(self) -> None:
        data = self.folder / "<i>&\"'"
        data.mkdir()
        (data / "text").write_text("0123456789" * 100)
        name = json.dumps(str(data))
        self.sweep(f'base = "base.toml"\ntrials = 1\ntitle = "<b>"\n[axes]\n'
                   f'"data.path" = [{name}, "../../../no such"]\n')
        cells = self.summary()["cells"]
        self.assertEqual([cell["status"] for cell in cells], ["ok", "failed"])

    def test_ctrl_c_keeps_what_is_done(self) -> None:
        sweep = self.write("s.toml", SWEEP.replace("trials = 2", "trials = 500"))
        process = subprocess.Popen([program.PROGRAM, "sweep", sweep, "--out", "out"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + PATIENCE_S
        while len(self.trials()) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertIn("the same command continues", stderr)
        self.assertFalse(self.summary()["complete"])
        self.assertGreaterEqual(len(self.trials()), 3)

    def test_only_one_process_a_folder(self) -> None:
        sweep = self.write("s.toml", SWEEP.replace("trials = 2", "trials = 500"))
        process = subprocess.Popen([program.PROGRAM, "sweep", sweep, "--out", "out", "-q"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not self.trials() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertIn("in use", self.error("sweep", sweep, "--out", "out", code=CANNOT_WRITE))
        finally:
            process.kill()
            process.wait()

    def test_bad_files(self) -> None:
        def error(text: str) -> str:
            return self.error("sweep", self.write("s.toml", text), "--out", "out")

        self.assertIn("there is no base", error('[axes]\n"mesh.ranks" = [1]\n'))
        self.assertIn("no such file", error('base = "nowhere.toml"\n[axes]\n"mesh.ranks" = [1]\n'))
        self.assertIn("'mesh.ranks'", error('base = "base.toml"\n[axes]\n"mesh.rank" = [1]\n'))
        self.assertIn("has no values", error('base = "base.toml"\n[axes]\n"mesh.ranks" = []\n'))
        self.assertIn("there are no axes", error('base = "base.toml"\n'))
        self.assertIn("not valid TOML", error("["))
        self.assertIn("no such file", self.error("sweep", "nowhere.toml"))
        self.assertFalse(self.out.exists())


class Compare(Case):
    def compare(self, *arguments: str) -> dict:
        self.call("compare", *arguments, "--out", "out", "-q")
        return json.loads((self.out / "compare.json").read_text())

    def test_trials_and_verdict(self) -> None:
        found = self.compare(self.base, "--trials", "5", "--b-set", "emulate.compute_tflops=0.0005")
        # Which verdict is right for which times is tests/account/compare_test.cpp's; the times are this machine's.
        self.assertIn(found["verdict"], ("faster", "slower", "no difference", "inconclusive"))
        self.assertLessEqual(found["ci_low"], found["ratio"])
        self.assertGreaterEqual(found["ci_high"], found["ratio"])
        for side in ("a", "b"):
            self.assertEqual(len(found[side]["trials"]), 5)
            self.assertEqual({len(trial["steps_ms"]) for trial in found[side]["trials"]}, {3})
        self.assertEqual(found["b"]["config"]["emulate"]["compute_tflops"], 0.0005)
        self.assertGreaterEqual(found["aa_noise"], 0)

    def test_the_verdict_is_said_in_words(self) -> None:
        done = self.call("compare", self.base, self.base, "--trials", "3", "--out", "out", "--threshold", "100")
        # Two equal sides may differ by chance and by what else the machine does, but never by 100 %.
        self.assertRegex(done.stdout, "No (relevant )?difference")
        self.assertIn("% interval of B / A", done.stdout)
        self.assertIn("same configuration", done.stderr)

    def test_ctrl_c_compares_what_is_done(self) -> None:
        process = subprocess.Popen([program.PROGRAM, "compare", self.base, "--trials", "500", "--out", "out"], text=True,
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        said = ""
        while "trial 5 of 500" not in said and process.poll() is None:
            said += process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED, said + err)
        found = json.loads((self.out / "compare.json").read_text())
        done = len(found["a"]["trials"])
        self.assertGreaterEqual(done, 4)
        self.assertEqual(len(found["b"]["trials"]), done)
        self.assertIn(f"interrupted after {done} of 500 trials", err)
        self.assertIn("B / A", out)

    def test_a_sweeps_folder_is_not_taken(self) -> None:
        self.call("sweep", self.write("s.toml", SWEEP), "--out", "sweep", "-q")
        self.assertIn("holds a sweep", self.error("compare", self.base, "--trials", "3", "--out", "sweep"))

    def test_result_folders_can_be_compared(self) -> None:
        self.call("run", self.base, "--out", "one", "-q")
        self.compare("one", "base.toml", "--trials", "3")

    def test_too_few_trials_are_refused(self) -> None:
        self.assertIn("--trials 2 is too few", self.error("compare", self.base, "--trials", "2"))
        self.assertFalse((self.folder / "runs").exists())

    def test_bad_sides(self) -> None:
        self.assertIn("no such file", self.error("compare", self.base, "nowhere.toml"))
        self.assertIn("'mesh.ranks'", self.error("compare", self.base, "--b-set", "mesh.rank=3"))


if __name__ == "__main__":
    program.main()
