#!/usr/bin/python3
"""Limits that a system, a shell or a container sets: what cannot be done is said in a sentence with the limit.

    limits_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import unittest
from pathlib import Path

import harness
from harness import BASE, CANNOT_WRITE, NO_RESOURCES, OK, RANK_FAILED, SWEEP, Faults
from promises import each_once, ends_as_documented, nothing_lost, result_of, speaks_plainly, whole_lines

THREADS = [*harness.TINY, "mesh.ranks=2"]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Limits(Faults):
    def setUp(self) -> None:
        super().setUp()
        self.turns = 0

    def limited(self, **limits: int) -> harness.Started:
        """A tiny run with the limits that prlimit knows by these names. It ends as documented, whatever they are."""
        self.turns += 1
        out = f"out{self.turns}"
        done = self.bench.call(*self.run_arguments(*THREADS, out=out, base=[]), limits=limits)
        if done.popen.returncode == 127 and "shared" in done.err:
            return done  # not even the program could be loaded
        # The limit of a file's size is that of the test's own logs, too.
        ends_as_documented(done, done.popen.returncode, heard=limits.get("fsize", MIB) > 16 * KIB)
        speaks_plainly(done.err)
        result = result_of(self.folder / out)
        if done.popen.returncode == OK:
            self.assertTrue(result["complete"])
        else:
            self.assertLess(len(done.err), 6000)
        return done

    def test_open_files(self) -> None:
        if harness.sanitizer():
            self.skipTest("a sanitizer needs files of its own, and says so in its own words")
        for most in (7, 9, 15, 38, 64):
            with self.subTest(most=most):
                done = self.limited(nofile=most)
                self.assertEqual(done.popen.returncode, OK if most == 64 else NO_RESOURCES, done.err)
                if most != 64:
                    self.assertRegex(done.err, rf"2 ranks need \d+ open files, and `ulimit -n` allows {most}\.")

    def test_size_of_a_file(self) -> None:
        for most in (0, 1, 4 * KIB, 20 * KIB, 50 * KIB, MIB):
            with self.subTest(most=most):
                done = self.limited(fsize=most)
                self.assertIn(done.popen.returncode, (OK, CANNOT_WRITE), done.err)
                if done.popen.returncode == CANNOT_WRITE and most > KIB:  # else it cannot say it either
                    self.assertIn("ulimit -f", done.err)
        self.assertEqual(done.popen.returncode, OK, done.err)

    def test_size_of_the_log_of_a_sweep(self) -> None:
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=2))
        command = ["sweep", "s.toml", "--out", "out", "-q"]
        done = self.bench.call(*command, limits={"fsize": 12 * KIB})
        self.assertEqual(done.popen.returncode, CANNOT_WRITE, done.err)
        log = self.folder / "out/trials.jsonl"
        before = whole_lines(log)
        self.ends(self.bench.start(*command), OK)
        nothing_lost(before, log)
        each_once(log, cells=4, trials=2)

    def test_address_space(self) -> None:
        if harness.sanitizer():
            self.skipTest("sanitizers reserve address space of their own")
        for most in (100, 200, 300, 400, 600, 900, 2000, 4000):
            with self.subTest(MiB=most):
                done = self.limited(**{"as": most * MIB})
                self.assertIn(done.popen.returncode, (OK, NO_RESOURCES, 127), done.err)
                if done.popen.returncode == NO_RESOURCES:
                    self.assertRegex(done.err, "ulimit -v|address space|[Mm]emory")
        self.assertEqual(done.popen.returncode, OK, done.err)

    def test_threads(self) -> None:
        group = self.bench.control_group("pids", {"pids.max": 3})
        done = self.bench.call(*self.run_arguments(*THREADS, base=[]), group=group)
        ends_as_documented(done, done.popen.returncode)
        speaks_plainly(done.err)
        self.assertIn(done.popen.returncode, (NO_RESOURCES, RANK_FAILED), done.err)
        self.assertIn("pids.max", done.err)

    def test_a_sweep_without_threads_for_some_cells_says_so_and_goes_on(self) -> None:
        """A resource that the machine lacked is no answer of a cell: it is no clean end, and the same command tries again."""
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", 'base = "base.toml"\ntrials = 2\n[axes]\n"mesh.ranks" = [1, 8]\n')
        group = self.bench.control_group("pids", {"pids.max": 20})
        done = self.bench.call("sweep", "s.toml", "--out", "out", group=group)
        self.assertEqual(done.popen.returncode, NO_RESOURCES, done.err)
        self.assertRegex(done.err, r"error: not all cells could be measured.*pids\.max")
        log = self.folder / "out/trials.jsonl"
        before = whole_lines(log)
        self.assertEqual([json.loads(line)["status"] for line in before[1:]].count("ok"), 2)
        done = self.bench.call("sweep", "s.toml", "--out", "out")
        self.assertEqual(done.popen.returncode, OK, done.err)
        nothing_lost(before, log)
        cells = json.loads((self.folder / "out/sweep.json").read_text(encoding="utf-8"))["cells"]
        self.assertEqual([(cell["status"], cell["trials"]) for cell in cells], [("ok", 2)] * 2)

    def memory_group(self, most: int) -> Path:
        try:
            return self.bench.control_group("memory", {"memory.limit_in_bytes": most})
        except unittest.SkipTest:
            return self.bench.control_group("memory", {"memory.max": most})

    def test_memory_of_a_control_group(self) -> None:
        group = self.memory_group(300 * MIB)
        done = self.bench.call("run", "quickstart", *harness.sets(
            "model.layers=16", "model.width=1024", "model.ffn_width=4096", "model.heads=16", "train.seq_len=512"),
            "--out", "out", group=group)
        self.assertEqual(done.popen.returncode, NO_RESOURCES, done.err)
        self.assertRegex(done.err, "control group")
        self.assertFalse((self.folder / "out").exists())

    def test_doctor_sees_the_control_group(self) -> None:
        group = self.memory_group(1000 * MIB)
        done = self.bench.call("doctor", "--json", group=group)
        self.assertEqual(done.popen.returncode, OK, done.err)
        self.assertLessEqual(json.loads(done.out)["available_bytes"], 1000 * MIB)


if __name__ == "__main__":
    harness.main()
