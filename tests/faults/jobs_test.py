#!/usr/bin/python3
"""Jobs of processes whose ranks are killed or stopped, or whose launcher is: the others end, and say who it was.

    jobs_test.py PROGRAM SOURCE_FOLDER [unittest arguments]

Kills of a rank in training are in tests/end_to_end/launch_test.py.
"""

import random
import re
import shutil
import signal
import time
import unittest

import harness
from harness import BASE, INTERRUPTED, LONG, OK, RANKS, RANK_FAILED, SWEEP, Faults, kill, long_fault, until
from promises import KILLED, each_once, nobody_left, nothing_lost, result_of, speaks_plainly, whole_lines

class Job(Faults):
    def check_left(self, dead: int) -> None:
        """The survivors' messages about a job that had begun to train."""
        result = result_of(self.folder / "out")
        self.assertFalse(result["complete"])
        self.assertEqual((result["failure"]["rank"], result["failure"]["died"]), (dead, True))
        self.assertRegex(result["failure"]["message"], rf"\brank {dead}\b")
        self.assertEqual(len(result["steps"]["rank_ms"]), max(0, result["train"]["steps_done"] - 1))


class Torchrun(Job):
    def stop_and_wake(self, stopped: int) -> list[harness.Started]:
        """A rank that is silent for so long that the others give it up, and then goes on."""
        ranks = self.bench.torchrun(*self.run_arguments(base=LONG))
        self.training(ranks[0])
        ranks[stopped].signal(signal.SIGSTOP)
        for rank, process in enumerate(ranks):
            if rank != stopped:
                self.ends(process, RANK_FAILED)
        self.check_left(stopped)
        before = (self.folder / "out/result.json").read_bytes()
        ranks[stopped].signal(signal.SIGCONT)
        self.ends(ranks[stopped], RANK_FAILED)
        self.assertEqual((self.folder / "out/result.json").read_bytes(), before, "the verdict was overwritten")
        return ranks

    def test_a_rank_that_was_stopped_is_given_up_and_blames_nobody_when_it_wakes(self) -> None:
        ranks = self.stop_and_wake(1)
        self.assertIn("rank 1", ranks[0].err)
        self.assertNotRegex(ranks[1].err, r"rank [02] .*(has been silent|was lost|died)")

    @long_fault
    def test_rank_0_that_was_stopped_does_not_overwrite_the_verdict(self) -> None:
        ranks = self.stop_and_wake(0)
        self.assertNotRegex(ranks[0].err, r"rank [12] .*(has been silent|was lost|died)")

    @long_fault
    def test_a_pause_shorter_than_the_patience_costs_nothing(self) -> None:
        ranks = self.bench.torchrun(*self.run_arguments(*harness.TINY, "train.steps=400", base=[]))
        self.training(ranks[0])
        for process in ranks:
            process.signal(signal.SIGSTOP)
            time.sleep(0.3)
            process.signal(signal.SIGCONT)
        for process in ranks:
            self.ends(process, OK)
        self.assertTrue(result_of(self.folder / "out")["complete"])

    def test_a_sweep_whose_rank_is_killed_goes_on_with_the_same_command(self) -> None:
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=4))
        log = self.folder / "out/trials.jsonl"
        seed = random.randrange(2**32)
        moments = random.Random(seed)
        lines: list[bytes] = []
        for dead in (1, 0):
            with self.subTest(seed=seed, dead=dead):
                ranks = self.bench.torchrun("sweep", "s.toml", "--out", "out", ranks=2)
                until(lambda: len(whole_lines(log)) > len(lines) + 2, "trials are logged")
                time.sleep(moments.uniform(0, 0.05))
                ranks[dead].signal(signal.SIGKILL)
                self.assertEqual(ranks[dead].wait(), KILLED)
                self.ends(ranks[1 - dead], RANK_FAILED)
                lines = nothing_lost(lines, log)
        for process in self.bench.torchrun("sweep", "s.toml", "--out", "out", ranks=2):
            self.ends(process, OK)
        nothing_lost(lines, log)
        each_once(log, cells=4, trials=4)

    def test_ranks_that_are_not_what_the_variables_say(self) -> None:
        for name, value in (("WORLD_SIZE", 2_000_000_000), ("LOCAL_WORLD_SIZE", 2_000_000_000), ("WORLD_SIZE", -1),
                            ("RANK", "two"), ("RANK", 7),
                            ("MASTER_PORT", 99999), ("MASTER_ADDR", ""), ("LOCAL_RANK", 9)):
            with self.subTest(f"{name}={value}"):
                variables = self.bench.rank_variables(0, 2, harness.free_port()) | {name: value}
                started = self.bench.start(*self.run_arguments(*harness.TINY, base=[]), variables=variables)
                if name == "MASTER_ADDR":
                    time.sleep(0.2)
                    started.signal(signal.SIGTERM)  # nothing is wrong with it as long as others may come
                    self.ends(started, harness.BAD_INPUT, RANK_FAILED, INTERRUPTED, -signal.SIGTERM, OK)
                else:
                    self.ends(started, harness.BAD_INPUT, RANK_FAILED)
                    self.assertIn(name, started.err)
                speaks_plainly(started.err)


class Mpirun(Job):
    @classmethod
    def setUpClass(cls) -> None:
        if not shutil.which("mpirun"):
            raise unittest.SkipTest("there is no mpirun on this machine")
        if harness.sanitizer():
            raise unittest.SkipTest("under sanitizers ranks with torchrun's variables are enough")

    def test_a_rank_killed_at_any_moment(self) -> None:
        seed = random.randrange(2**32)
        moments = random.Random(seed)
        for turn in range(6 if harness.all_faults() else 2):
            dead = moments.randrange(RANKS)
            with self.subTest(seed=seed, turn=turn, dead=dead):
                self.ends(self.bench.start("run", "quickstart", *harness.sets(*harness.TINY), "--out", "out", "-q",
                                           "--overwrite"), OK)
                job = self.bench.mpirun(*self.run_arguments(base=LONG), "--overwrite")
                until(lambda: len(self.bench.rank_processes()) == RANKS, "all ranks are there")
                ranks = self.bench.rank_processes()
                time.sleep(moments.uniform(0, 1.5))
                trained = re.search(r"^step +[2-9]", job.err, re.MULTILINE)
                kill(ranks[dead])
                self.assertNotEqual(job.wait(), OK)
                nobody_left(self.bench)
                result = result_of(self.folder / "out")
                if trained:
                    self.check_left(dead)
                    self.assertIn(result["failure"]["message"], job.err)
                elif result is not None and "failure" not in result:
                    self.assertTrue(result["complete"])  # the old one: the job had not begun
                    self.assertNotEqual(result["config"]["train"]["steps"], 20000)

    def test_a_launcher_that_is_killed_takes_its_ranks_along(self) -> None:
        job = self.bench.mpirun(*self.run_arguments(base=LONG))
        self.training(job)
        kill(job.pid)
        job.wait()
        nobody_left(self.bench)
        result_of(self.folder / "out")

    @long_fault
    def test_a_rank_that_is_stopped(self) -> None:
        job = self.bench.mpirun(*self.run_arguments(base=LONG))
        self.training(job)
        kill(self.bench.rank_processes()[RANKS - 1], signal.SIGSTOP)
        self.assertNotEqual(job.wait(), OK)
        nobody_left(self.bench)
        self.check_left(RANKS - 1)


if __name__ == "__main__":
    harness.main()
