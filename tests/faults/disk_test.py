#!/usr/bin/python3
"""Disks that are full, folders that are somebody else's, names that are no text: what was measured is kept.

    disk_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import os
import random
import re
import signal
import time
import unittest
from pathlib import Path

import harness
from harness import BAD_INPUT, BASE, CANNOT_WRITE, OK, SWEEP, Faults, sets
from promises import each_once, no_drafts, nothing_lost, result_of, whole_lines

THREADS = [*harness.TINY, "mesh.ranks=2"]
FILES = ["result.json", "config.toml", "trace.json", "trace/rank_0.json.gz", "trace/rank_1.json.gz"]
PAGE = 4096


def pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


@unittest.skipUnless(os.environ.get("FAULTS_OWN_MOUNTS"), "small disks need root, or user namespaces with tmpfs")
class FullDisk(Faults):
    """Filled while the program trains: a disk that is too small from the start is said before."""

    def filled(self, leave: int) -> tuple[Path, harness.Started]:
        """A run whose disk has so many bytes left when its files are written."""
        disk = self.bench.small_disk(16 * 1024)
        started = self.bench.start(*self.run_arguments("mesh.ranks=2", "train.steps=40", out=str(disk / "out"),
                                                       base=harness.LONG))
        self.training(started)
        started.signal(signal.SIGSTOP)
        room = os.statvfs(disk)
        (disk / "filler").write_bytes(b"x" * (room.f_bavail * room.f_frsize - leave))
        started.signal(signal.SIGCONT)
        started.wait()
        return disk / "out", started

    def check(self, out: Path, done: harness.Started) -> None:
        """Whatever is not there is named, and the table was printed."""
        self.assertIn("step time", done.out)
        missing = [name for name in FILES if not (out / name).exists()]
        self.assertEqual(done.popen.returncode, CANNOT_WRITE if missing else OK, done.err)
        for name in missing:
            self.assertIn(str(out / (name if (out / "trace").is_dir() else name.split("/")[0])), done.err)
        result_of(out)
        no_drafts(out)

    def test_every_file_that_fits_is_there_and_every_other_is_named(self) -> None:
        whole, done = self.filled(8 << 20)
        self.check(whole, done)
        self.assertEqual(done.popen.returncode, OK, done.err)
        # A run's numbers have a few digits more or less than another's.
        needed = pages((whole / "result.json").stat().st_size) + 2 * PAGE
        everything = sum(pages((whole / name).stat().st_size) for name in FILES)
        leaves = [0, needed]
        if harness.all_faults():
            leaves += [everything // 2, 2 * PAGE, 5 * PAGE, needed + 4 * PAGE, everything - 2 * PAGE]
        for leave in leaves:
            with self.subTest(leave=leave):
                out, done = self.filled(leave)
                self.check(out, done)
                if leave >= needed:
                    result = result_of(out)
                    self.assertTrue(result and result["complete"], done.err)

    def test_a_disk_that_is_too_small_is_said(self) -> None:
        for kib in (4, 40, 200):
            with self.subTest(kib=kib):
                disk = self.bench.small_disk(kib)
                done = self.bench.call(*self.run_arguments(*THREADS, out=str(disk / "out"), base=[]))
                self.assertEqual(done.popen.returncode, CANNOT_WRITE, done.err)
                self.assertIn(str(disk / "out"), done.err)
                self.check(disk / "out", done)

    def test_a_disk_without_a_free_name_says_so(self) -> None:
        for inodes in (2, 4, 6):
            with self.subTest(inodes=inodes):
                disk = self.bench.small_disk(4096, inodes)
                done = self.bench.call(*self.run_arguments(*THREADS, out=str(disk / "out"), base=[]))
                self.assertEqual(done.popen.returncode, CANNOT_WRITE, done.err)
                self.assertIn("No space left on device", done.err)
                if "step time" in done.out:
                    self.check(disk / "out", done)

    def test_a_sweep_goes_on_when_there_is_room_again(self) -> None:
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=2))
        disk = self.bench.small_disk(20)
        command = ["sweep", "s.toml", "--out", str(disk / "out"), "-q"]
        first = self.bench.call(*command)
        self.assertEqual(first.popen.returncode, CANNOT_WRITE, first.err)
        self.assertIn(str(disk / "out"), first.err)
        log = disk / "out/trials.jsonl"
        before = whole_lines(log)
        self.bench.grow(disk, 2048)
        again = self.bench.call(*command)
        self.assertEqual(again.popen.returncode, OK, again.err)
        nothing_lost(before, log)
        each_once(log, cells=4, trials=2)

    def test_a_comparison_is_printed_if_not_written(self) -> None:
        self.bench.write("base.toml", BASE)
        disk = self.bench.small_disk(4)
        done = self.bench.call("compare", "base.toml", "--trials", "3", "--out", str(disk / "out"), "-q")
        self.assertEqual(done.popen.returncode, CANNOT_WRITE, done.err)
        self.assertIn(str(disk / "out"), done.err)


class Folders(Faults):
    def run_in(self, *arguments: str, code: int = OK) -> harness.Started:
        done = self.bench.call(*arguments)
        self.assertEqual(done.popen.returncode, code, done.out + done.err)
        return done

    def test_a_kill_never_leaves_an_old_result_beside_a_new_configuration(self) -> None:
        seed = random.randrange(2**32)
        moments = random.Random(seed)
        old = self.run_arguments(*THREADS, "mesh.ranks=4", "train.steps=5", base=[])
        new = [*self.run_arguments(*THREADS, "train.steps=7", base=[]), "--overwrite"]
        for turn in harness.moments(2, 5):
            with self.subTest(seed=seed, turn=turn):
                self.run_in(*old, "--overwrite")
                started = self.bench.start(*new)
                time.sleep(moments.uniform(0, 0.3))
                started.signal(signal.SIGKILL)
                started.wait()
                result = result_of(self.folder / "out")
                if result is not None and (self.folder / "out/config.toml").exists():
                    steps = re.search(r"^steps = (\d+)", (self.folder / "out/config.toml").read_text(), re.MULTILINE)
                    self.assertEqual(int(steps.group(1)), result["config"]["train"]["steps"])
        self.run_in(*new)  # whatever the kills left
        self.assertEqual(sorted(path.name for path in (self.folder / "out/trace").iterdir()
                                if not path.name.startswith(".")), ["rank_0.json.gz", "rank_1.json.gz"])

    def test_of_two_runs_in_one_folder_one_is_refused(self) -> None:
        for turn in harness.moments(2, 5):  # who makes the folder need not be who locks it
            with self.subTest(turn=turn):
                folder = f"out-{turn}"
                arguments = self.run_arguments(*THREADS, base=[], out=folder)
                both = [self.bench.start(*arguments), self.bench.start(*arguments)]
                codes = sorted(one.wait() for one in both)
                self.assertEqual(codes[0], OK)
                self.assertIn(codes[1], (BAD_INPUT, CANNOT_WRITE))
                self.assertRegex("".join(one.err for one in both), "is in use|holds a result already")
                self.assertTrue(result_of(self.folder / folder)["complete"])
                self.check_traces(*(f"{folder}/{name}" for name in (
                    "trace.json", "trace/rank_0.json.gz", "trace/rank_1.json.gz")))

    def test_runs_of_the_same_second_get_folders_of_their_own(self) -> None:
        runs = [self.bench.start("run", self.profile, *sets(*THREADS), "-q") for _ in range(3)]
        self.assertEqual([run.wait() for run in runs], [OK] * 3)
        results = [result_of(folder) for folder in (self.folder / "runs").iterdir()]
        self.assertEqual([result["complete"] for result in results], [True] * 3)

    def test_planted_links_are_not_followed(self) -> None:
        victim = self.bench.write("victim", "mine")
        out = self.folder / "out"
        out.mkdir()
        for name in ("result.json.part", ".result.json.part", "trace.json.part", "config.toml.part"):
            (out / name).symlink_to(victim)
        for name in ("config.toml", "trace.json"):
            (out / name).symlink_to(victim)
        (out / "result.json").symlink_to(self.folder / "nowhere")
        self.run_in(*self.run_arguments(*THREADS, base=[]))
        self.assertEqual(victim.read_text(), "mine")
        self.assertFalse((self.folder / "nowhere").exists())
        for name in ("result.json", "config.toml", "trace.json"):
            self.assertFalse((out / name).is_symlink(), name)
        self.assertTrue(result_of(out)["complete"])

    def test_names_that_are_no_utf8(self) -> None:
        out = os.path.join(os.fsencode(self.folder), b"o\xff\xfet")
        for command in (["run", self.profile, *sets(*THREADS)], ["compare", self.profile, *sets(*THREADS), "-n", "3"]):
            done = self.bench.call(*command, "--out", os.path.join(out, command[0].encode()))
            self.assertEqual(done.popen.returncode, OK, done.err)
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=1))
        done = self.bench.call("sweep", "s.toml", "--out", os.path.join(out, b"sweep"))
        self.assertEqual(done.popen.returncode, OK, done.err)
        for name in (b"run/result.json", b"compare/compare.json", b"sweep/sweep.json"):
            with open(os.path.join(out, name), encoding="utf-8") as file:
                json.load(file)

    def test_a_folder_that_goes_away_meanwhile_is_named(self) -> None:
        # Short steps: one that goes on 0.8 s after the signal is not waited for, and nothing is written then. On a busy
        # machine that happens all the same: then once more.
        for trial in range(10):
            started = self.bench.start(*self.run_arguments("mesh.ranks=2", "emulate.compute_tflops=2", base=harness.LONG))
            self.training(started)
            (self.folder / "out").rename(self.folder / f"elsewhere{trial}")
            started.signal(signal.SIGINT)
            started.wait()
            if "interrupted in the middle of a step" not in started.err:
                break
        self.ends(started, CANNOT_WRITE)
        self.assertIn("step time", started.out)
        self.assertIn("out/result.json", started.err)


if __name__ == "__main__":
    harness.main(needs_mounts=True)
