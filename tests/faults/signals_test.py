#!/usr/bin/python3
"""Signals at any moment: a run ends with what it measured, and every file that is there is whole.

    signals_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import random
import signal
import time
import unittest

import harness
from harness import BASE, INTERRUPTED, OK, SWEEP, Faults, long_fault
from promises import KILLED, each_once, no_drafts, nothing_lost, result_of, speaks_plainly, whole_json
from streams_test import NO_PACKAGE, has_report

THREADS = [*harness.TINY, "mesh.ranks=2"]
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals(Faults):
    def setUp(self) -> None:
        super().setUp()
        self.bench.write("base.toml", BASE)
        self.seed = random.randrange(2**32)
        self.moments = random.Random(self.seed)

    def struck(self, *arguments: str, number: int, within_s: float) -> harness.Started:
        """Started, and given the signal at a random moment."""
        started = self.bench.start(*arguments)
        time.sleep(self.moments.uniform(0, within_s))
        started.signal(number)
        started.wait()
        speaks_plainly(started.err)
        return started

    def test_a_run(self) -> None:
        # Steps enough to be hit before, in and after training.
        for turn in harness.moments(3, 6):
            number = ENDING[turn % 3]
            with self.subTest(seed=self.seed, turn=turn, signal=number):
                out = f"out{turn}"
                # As under nohup or behind `&` a signal may be ignored from the start, which stays so.
                started = self.struck(*self.run_arguments(*THREADS, "train.steps=150", out=out, base=[]),
                                      number=number, within_s=0.5)
                self.assertIn(started.popen.returncode, (OK, INTERRUPTED, -number), started.err)
                result = result_of(self.folder / out)
                if started.popen.returncode == OK:
                    self.assertTrue(result["complete"])
                elif result is not None:
                    self.assertFalse(result["complete"])
                    self.assertEqual(result["train"]["steps_done"], len(result["train"].get("loss", [])))
                    self.assertIn("interrupted after", started.err)
                no_drafts(self.folder)

    def test_a_second_signal_ends_at_once_and_leaves_whole_files(self) -> None:
        started = self.bench.start(*self.run_arguments("mesh.ranks=2", base=harness.LONG))
        self.training(started)
        for _ in range(2):
            started.signal(signal.SIGINT)
        self.ends(started, INTERRUPTED)
        result = result_of(self.folder / "out")
        self.assertFalse(result and result["complete"])

    def test_what_was_ignored_from_the_start_stays_ignored(self) -> None:
        self.bench.write("nohup.sh", "#!/bin/sh\ntrap '' HUP\nexec \"$@\"\n").chmod(0o700)
        started = self.bench.start(harness.PROGRAM, *self.run_arguments(*THREADS, "train.steps=150", base=[]),
                                   program=str(self.folder / "nohup.sh"))
        self.training(started)
        for _ in range(3):
            started.signal(signal.SIGHUP)
        self.ends(started, OK)
        self.assertTrue(result_of(self.folder / "out")["complete"])

    def test_a_run_of_threads_that_is_stopped_goes_on(self) -> None:
        started = self.bench.start(*self.run_arguments(*THREADS, "train.steps=150", base=[]))
        self.training(started)
        for _ in range(3):
            started.signal(signal.SIGSTOP)
            time.sleep(0.05)
            started.signal(signal.SIGCONT)
        self.ends(started, OK)
        self.assertTrue(result_of(self.folder / "out")["complete"])

    def test_kills_of_a_run_leave_a_whole_result_or_none(self) -> None:
        for turn in harness.moments(2, 5):
            with self.subTest(seed=self.seed, turn=turn):
                out = f"out{turn}"
                started = self.struck(*self.run_arguments(*THREADS, out=out, base=[]), number=signal.SIGKILL,
                                      within_s=0.3)
                self.assertIn(started.popen.returncode, (OK, KILLED))
                result_of(self.folder / out)
                self.ends(self.bench.start(*self.run_arguments(*THREADS, out=out, base=[]), "--overwrite"), OK)

    def test_a_sweep_that_is_interrupted_again_and_again_has_each_trial_once(self) -> None:
        self.bench.write("s.toml", SWEEP.format(trials=8))
        log = self.folder / "out/trials.jsonl"
        command = ["sweep", "s.toml", "--out", "out"]
        lines: list[bytes] = []
        for turn in harness.moments(4, 8):
            with self.subTest(seed=self.seed, turn=turn):
                number = (*ENDING, signal.SIGKILL)[turn % 4]
                started = self.struck(*command, number=number, within_s=0.3)
                self.assertIn(started.popen.returncode, (OK, INTERRUPTED, -number), started.err)
                lines = nothing_lost(lines, log)
                whole_json(self.folder / "out/sweep.json")
        self.ends(self.bench.start(*command), OK)
        nothing_lost(lines, log)
        each_once(log, cells=4, trials=8)

    def test_a_comparison(self) -> None:
        for turn in harness.moments(2, 4):
            number = (signal.SIGKILL, *ENDING)[turn]
            with self.subTest(seed=self.seed, turn=turn):
                started = self.struck("compare", "base.toml", "--trials", "12", "--out", f"out{turn}", number=number,
                                      within_s=0.6)
                self.assertIn(started.popen.returncode, (OK, INTERRUPTED, -number), started.err)
                whole_json(self.folder / f"out{turn}/compare.json")

    def test_commands_that_keep_nothing_end(self) -> None:
        self.bench.write("big.json", json.dumps({"traceEvents": [
            {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(200000)]}))
        for arguments in (["explain", "llama3-405b-emulated"], ["doctor"], ["trace", "explain", "big.json"]):
            with self.subTest(arguments[0]):
                started = self.struck(*arguments, number=signal.SIGTERM, within_s=0.2)
                self.assertIn(started.popen.returncode, (OK, harness.BAD_INPUT, INTERRUPTED, -signal.SIGTERM),
                              started.err)

    @unittest.skipUnless(has_report(), NO_PACKAGE)
    @long_fault
    def test_a_report(self) -> None:
        self.bench.call(*self.run_arguments(*THREADS, base=[]), "-q")
        for turn in range(12):
            number = (*ENDING, signal.SIGKILL)[turn % 4]
            with self.subTest(seed=self.seed, turn=turn):
                started = self.struck("report", "out", "--out", f"page{turn}", number=number, within_s=4)
                self.assertIn(started.popen.returncode, (OK, INTERRUPTED, -number), started.err)
                page = self.folder / f"page{turn}/report.html"
                if page.exists():
                    self.assertTrue(page.read_text().rstrip().endswith("</html>"))
                if started.popen.returncode == OK:
                    self.assertTrue(page.exists())


if __name__ == "__main__":
    harness.main()
