#!/usr/bin/python3
"""Ctrl-C and other signals: what was measured is kept and marked. Streams that cannot be written lose no result.

    interrupt_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import program
from program import CANNOT_WRITE, INTERRUPTED, LONG, PATIENCE_S, TINY, Program, sets

THREADS = [*TINY, "mesh.ranks=2"]


class Interrupt(Program):
    def result(self) -> dict:
        return json.loads((self.folder / "out/result.json").read_text())

    @staticmethod
    def await_a_measured_step(process: subprocess.Popen[str]) -> int:
        """The number of steps that were done; one was warm-up."""
        for line in process.stderr:
            if line.startswith("step") and (steps := int(re.findall(r"\d+", line)[0])) >= 2:
                return steps
        raise AssertionError("it ended before it had measured a step")

    def interrupt(self, number: int) -> None:
        process = self.start("run", self.profile, *sets(*LONG, "mesh.ranks=2"), "--out", "out")
        self.await_a_measured_step(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED, out + err)
        self.assertFalse(self.result()["complete"])
        self.assertGreater(self.result()["train"]["steps_done"], 0)
        self.assertIn("interrupted: stopping after this step", err)

    def test_ctrl_c_keeps_a_marked_partial_result(self) -> None:
        self.interrupt(signal.SIGINT)

    def test_sigterm_does_the_same(self) -> None:
        self.interrupt(signal.SIGTERM)

    def test_a_connection_that_goes_away_does_the_same(self) -> None:
        self.interrupt(signal.SIGHUP)

    def test_a_slow_step_is_cut_short(self) -> None:
        keys = ["model.layers=2", "train.steps=50", "train.warmup=1", "emulate.compute_tflops=0.0004"]
        # On a busy machine the ranks may get no turn before the process is ended in the middle of the step: then once more.
        for _ in range(10):
            process = self.start("run", self.profile, *sets(*keys), "--out", "out", "--overwrite")
            before = self.await_a_measured_step(process)  # the next step takes seconds
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, INTERRUPTED, out + err)
            self.assertFalse(self.result()["complete"])
            if "interrupted in the middle of a step" not in err:
                break
        steps = int(re.search(r"interrupted after (\d+) of 51 steps", err)[1])
        self.assertGreaterEqual(steps, before)
        self.assertEqual((self.result()["complete"], self.result()["train"]["steps_done"]), (False, steps))
        if "metrics" in self.result():  # else the machine was so busy that only rank 0's steps were saved
            self.assertEqual(self.result()["metrics"]["step_ms"]["n"], steps - 1)
        for trace in (self.folder / "out/trace").iterdir():
            self.check_traces(str(trace))

    def test_a_simulation_of_many_ranks_is_cut_short_within_its_step(self) -> None:
        keys = sets("simulate.jitter_pct=2", "train.accumulate=40", "train.steps=100")  # seconds of work per step
        # A signal that comes at the end of a step ends the simulation there: then once more.
        for _ in range(10):
            process = self.start("simulate", str(program.SOURCE / "profiles/runs/llama3-8b-emulated.toml"), *keys,
                                 "--ranks", "65536", "--out", "out", "--overwrite")
            for line in process.stderr:
                if "65536 ranks" in line:
                    break
            self.await_work(process, seconds=0.5)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, INTERRUPTED, out + err)
            if "interrupted after" not in err:
                break
            self.assertFalse(self.result()["complete"])
        self.assertIn("interrupted: of a simulation that was not finished nothing is kept", err)
        self.assertNotIn("in the middle of a step", err)
        self.assertFalse((self.folder / "out/result.json").exists())

    @staticmethod
    def await_work(process: subprocess.Popen[str], seconds: float) -> None:
        """Until it has computed for so long, however long the machine takes to let it."""
        def computed() -> float:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) / os.sysconf("SC_CLK_TCK")
        begin = computed()
        while process.poll() is None and computed() < begin + seconds:
            time.sleep(0.01)

    def test_an_acceptance_keeps_the_stages_that_were_measured(self) -> None:
        process = self.start("accept", "cpu", *sets("mesh.ranks=2", "emulate.compute_tflops=0.05"), "--full", "--budget", "10m", "--out", "out")
        for line in process.stderr:
            if "all_gather of" in line or "computation alone" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED, out + err)
        measured = self.result()
        self.assertGreater(len(measured["device_rates_flops_per_s"]), 0)
        last = measured["stages"][-1]
        self.assertTrue(last["skipped"])
        self.assertIn("ended by its user", last["note"])
        self.assertIn(measured["verdict"], ("inconclusive", "fail"))
        self.assertEqual((self.folder / "out/pass_nodes.txt").read_text(), "")
        self.assertIn("what was to follow", (self.folder / "out/junit.xml").read_text())

    def test_standard_output_that_is_full_loses_no_result(self) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = self.start("run", self.profile, *sets(*THREADS), "--out", "out", stdout=full)
            _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, CANNOT_WRITE, err)
        self.assertIn("standard output could not be written: No space left on device", err)
        self.assertIn("files were written as usual", err)
        self.assertTrue(self.result()["complete"])
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = self.start("help", stdout=full)
            self.assertNotIn("files", process.communicate(timeout=PATIENCE_S)[1])  # there are none

    def test_nobody_reading_loses_no_result(self) -> None:
        process = self.start("run", self.profile, *sets(*THREADS), "--out", "out")
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=PATIENCE_S), CANNOT_WRITE)
        self.assertTrue(self.result()["complete"])


if __name__ == "__main__":
    program.main()
