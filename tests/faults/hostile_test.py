#!/usr/bin/python3
"""Files made by somebody who means harm: one sentence, exit code 2, and neither time nor memory without end.

    hostile_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import gzip
import json
import os
import socket
import subprocess

import harness
from harness import BAD_INPUT, BASE, OK, SWEEP, Faults, sealed, sets
from promises import ends_as_documented, speaks_plainly

THREADS = [*harness.TINY, "mesh.ranks=2"]
MOST_MESSAGE = 4000
GIB = 1 << 30


class Hostile(Faults):
    def setUp(self) -> None:
        super().setUp()
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=1))

    def refused(self, *arguments: str | bytes, memory: int = GIB, words: str = "") -> harness.Started:
        """One sentence, of bounded length, from a bounded process."""
        limits = {} if harness.sanitizer() else {"data": memory}
        done = self.bench.call(*arguments, limits=limits)
        said = done.out + done.err
        self.assertEqual(done.popen.returncode, BAD_INPUT, (done.words()[:300], said[:1000]))
        speaks_plainly(said)
        self.assertLess(len(said), MOST_MESSAGE, said[:400])
        self.assertIn(words, said)
        return done

    def readers(self, name: str) -> list[list[str]]:
        """Every command that reads a file, with this one."""
        self.bench.write("with-base.toml", f'base = {json.dumps(name)}\n[axes]\n"mesh.ranks" = [1]\n')
        return [["run", name], ["explain", name], ["compare", name], ["sweep", name], ["sweep", "with-base.toml"],
                ["explain", "--from", name], ["run", "base.toml", *sets(f"data.path={name}")],
                ["gate", name, "--against", name], ["what-if", name, "--link-scale", "2"],
                ["calibrate", "--out", "c.toml", "--beside", name, "base.toml"], ["trace", "explain", name]]


class Locked(Hostile):
    """A file that may not be read is not called missing, or empty."""

    NOBODY = 65534

    def call_as_nobody(self, *arguments: str) -> harness.Started:
        """With no more rights than anybody; who is not root has none to give up."""
        if os.geteuid() != 0:
            return self.bench.call(*arguments)
        give_up = [f"--reuid={self.NOBODY}", f"--regid={self.NOBODY}", "--clear-groups"]
        if subprocess.run(["setpriv", *give_up, harness.PROGRAM, "--version"], capture_output=True).returncode != OK:
            self.skipTest("the program lies where only root may read it")
        self.folder.chmod(0o755)
        return self.bench.call(*give_up, harness.PROGRAM, *arguments, program="setpriv")

    def test_folders_and_files(self) -> None:
        closed = self.folder / "closed"
        closed.mkdir()
        for name in ("result.json", "text"):
            (closed / name).write_text("to be or not to be. " * 100)
        secret = self.bench.write("secret", "to be or not to be. " * 100)
        secret.chmod(0)
        self.addCleanup(closed.chmod, 0o700)
        closed.chmod(0)
        train = ["run", str(harness.SOURCE / "profiles/runs/quickstart.toml"), *sets(*THREADS), "--out", "/dev/null/out"]
        for command in (["explain", "--from", "closed"], ["explain", "--from", "closed/result.json"],
                        [*train, *sets("data.path=closed")], [*train, *sets("data.path=closed/text")],
                        [*train, *sets("data.path=secret")]):
            with self.subTest(command[-1]):
                done = self.call_as_nobody(*command)
                self.assertEqual(done.popen.returncode, BAD_INPUT, done.out + done.err)
                self.assertIn("cannot be read: Permission denied", done.err)
                self.assertIn(command[-1].removeprefix("data.path="), done.err)


class Python(Hostile):
    """Python looks for modules in the current folder first, which may be a result of somebody else."""

    def test_files_of_a_result_are_not_run(self) -> None:
        home = self.folder / "home"
        home.mkdir()
        self.bench.write("result.json", "{}")
        planted = 'import os\nopen(os.path.join(os.environ["HOME"], "ran-" + __name__), "w").close()\n'
        for name in ("fsdpbench", "matplotlib", "numpy", "html", "argparse", "json"):
            self.bench.write(f"{name}.py", planted)
        for python in ("/usr/bin/python3", str(harness.SOURCE / ".venv/bin/python")):
            with self.subTest(python):
                self.bench.call("report", ".", variables=dict(HOME=home, FSDPBENCH_PYTHON=python, PYTHONPATH=":/nowhere"))
                self.assertEqual([path.name for path in home.glob("ran-*")], [])


class NoFiles(Hostile):
    def check(self, name: str) -> None:
        for command in self.readers(name):
            with self.subTest(command[0], name=name):
                done = self.bench.call(*command, limits={} if harness.sanitizer() else {"data": 32 * GIB})
                said = done.out + done.err
                speaks_plainly(said)
                self.assertLess(len(said), MOST_MESSAGE)
                self.assertEqual(done.popen.returncode, BAD_INPUT, said)

    def test_pipes(self) -> None:
        os.mkfifo(self.folder / "pipe.toml")
        self.check("pipe.toml")

    def test_devices(self) -> None:
        for name in ("/dev/zero", "/dev/null"):
            self.check(name)

    def test_where_own_files_are_read_again(self) -> None:
        for name in ("trials.jsonl", "sweep.json", "result.json", "compare.json"):
            with self.subTest(name):
                out = self.folder / f"out-{name}"
                out.mkdir()
                os.mkfifo(out / name)
                for command in (["sweep", "s.toml"], ["compare", "base.toml", "-n", "3"], ["run", "base.toml"]):
                    done = self.bench.call(*command, "--out", str(out))
                    speaks_plainly(done.out + done.err)
                    ends_as_documented(done, done.popen.returncode)
                done = self.bench.call("explain", "--from", str(out))
                self.assertEqual(done.popen.returncode, BAD_INPUT, done.err)

    def test_folders(self) -> None:
        (self.folder / "empty").mkdir()
        self.check("empty")

    def test_sockets(self) -> None:
        with socket.socket(socket.AF_UNIX) as there:
            there.bind(str(self.folder / "socket"))
            self.check("socket")

    def test_links_in_a_circle(self) -> None:
        (self.folder / "round").symlink_to("round")
        self.check("round")


class Json(Hostile):
    DEEP = "[" * 200_000

    def setUp(self) -> None:
        super().setUp()
        done = self.bench.call(*self.run_arguments(*THREADS, base=[]), "-q")
        self.assertEqual(done.popen.returncode, OK, done.err)
        self.good = (self.folder / "out/result.json").read_text()

    def each_reader_of_a_result(self, text: str) -> None:
        self.bench.write("out/result.json", text)
        self.refused("explain", "--from", "out")
        self.refused("compare", "out", "out/result.json")

    def test_deep(self) -> None:
        for text in (self.DEEP, '{"a":' * 200_000, self.good.rstrip().rstrip("}") + ', "x": ' + self.DEEP):
            self.each_reader_of_a_result(text)
        self.bench.write("deep.json", '{"traceEvents":[{"args":' + self.DEEP)
        self.refused("trace", "explain", "deep.json")
        self.bench.write("x.json", self.DEEP)
        self.refused("trace", "explain", "x.json")

    def test_cut_off_anywhere(self) -> None:
        for size in (0, 1, 2, 100, 5000, len(self.good) // 2, len(self.good) - 3):
            self.each_reader_of_a_result(self.good[:size])

    def test_wrong_types(self) -> None:
        good = json.loads(self.good)
        for key in ("schema_version", "config", "world", "metrics", "steps", "train", "memory"):
            for wrong in (None, "\x1b[2J", [{}]):
                with self.subTest(key=key, value=wrong):
                    self.bench.write("out/result.json", sealed(good | {key: wrong}))
                    done = self.bench.call("explain", "--from", "out")
                    speaks_plainly(done.out + done.err)
                    ends_as_documented(done, done.popen.returncode)
                    done = self.bench.call("compare", "out", "out/result.json")
                    speaks_plainly(done.out + done.err)
                    ends_as_documented(done, done.popen.returncode)

    def test_logs_of_sweeps(self) -> None:
        self.ends(self.bench.start("sweep", "s.toml", "--out", "sweep", "-q"), OK)
        log = self.folder / "sweep/trials.jsonl"
        good = log.read_text().splitlines()
        trial = json.loads(good[1])
        # With digests of their own, which would else hide what a hostile line can do further on.
        bad_lines = [self.DEEP, "3", "[]", '"\x1b[2J"',
                     *(sealed(trial | wrong) for wrong in (
                         {"trial": -1}, {"trial": 1e300}, {"cell": 3}, {"status": "\x1b[2J"}, {"metrics": 3},
                         {"config": [3]}, {"trial": 10**15}, {"cell": "x" * 1_000_000}))]
        for line in bad_lines:
            with self.subTest(line=line[:60]):
                log.write_text("\n".join([good[0], line, *good[2:]]) + "\n")
                before = log.read_bytes()
                done = self.bench.call("sweep", "s.toml", "--out", "sweep", "-q")
                speaks_plainly(done.out + done.err)
                self.assertIn(done.popen.returncode, (OK, BAD_INPUT), done.err[:500])
                self.assertLess(len(done.err), MOST_MESSAGE)
                if done.popen.returncode == BAD_INPUT:
                    self.assertIn("trials.jsonl:2", done.err)
                    self.assertEqual(log.read_bytes(), before, "a log that is refused stays as it is")


class Echo(Hostile):
    """Text from outside is cleaned and cut before it is printed."""

    UGLY = "\x1b]0;title\x07\x1b[2J\x1b[31mred\r\nnew line\x00\x7f\u202ereversed\u061c\u200b\ufeff"
    HUGE = "x" * 1_000_000

    def test_in_a_profile(self) -> None:
        for text in (self.UGLY.replace("\x00", ""), "y" * 100_000):
            self.refused("run", "base.toml", *sets(f"model.preset={text}"))
            self.refused("run", "base.toml", *sets(f"{text}=3"))
            self.refused("run", text)
            self.refused(text)
        self.bench.write("ugly.toml", BASE + f'\n[fsdp]\nstrategy = {json.dumps(self.UGLY)}\n')
        self.refused("run", "ugly.toml", words="fsdp.strategy")
        self.bench.write("huge.toml", BASE + f'\n[fsdp]\nstrategy = "{self.HUGE}"\n')
        self.refused("run", "huge.toml", words="fsdp.strategy")
        self.bench.write("key.toml", f"{self.HUGE} = 3\n")
        self.refused("run", "key.toml")

    def test_in_a_trace(self) -> None:
        for text in (self.UGLY, self.HUGE):
            self.bench.write("trace.json", json.dumps({"traceEvents": [
                {"ph": text, "name": text, "pid": 1, "tid": 1, "ts": 1, "dur": -1},
                {"ph": "X", "name": text, "pid": text, "tid": 1, "ts": 1, "dur": -1}]}))
            self.refused("trace", "explain", "trace.json")

    def test_in_a_result(self) -> None:
        for text in (self.UGLY, self.HUGE):
            (self.folder / "out").mkdir(exist_ok=True)
            self.bench.write("out/result.json", json.dumps({"schema_version": text}))
            self.refused("explain", "--from", "out")
            self.bench.write("out/result.json", sealed({"schema_version": 3, "complete": False, "config": {}, "world": {},
                                                        "failure": {"rank": 1, "died": True, "message": text}}))
            self.refused("explain", "--from", "out")

    def test_in_a_sweep(self) -> None:
        self.bench.write("ugly.toml", f'title = {json.dumps(self.UGLY)}\nbase = "base.toml"\ntrials = 1\n'
                                      f'[axes]\n"fsdp.strategy" = [{json.dumps(self.UGLY)}]\n')
        done = self.bench.call("sweep", "ugly.toml", "--out", "out")
        speaks_plainly(done.out + done.err)
        self.bench.write("titled.toml", f'title = {json.dumps(self.UGLY)}\nbase = "base.toml"\ntrials = 1\n'
                                        '[axes]\n"mesh.ranks" = [1]\n')
        done = self.bench.call("sweep", "titled.toml", "--out", "titled")
        self.assertEqual(done.popen.returncode, OK, done.err)
        speaks_plainly(done.out + done.err)
        self.assertNotIn("\nnew line", done.out, "a title makes no line of its own")
        self.assertIn("\\xe2\\x80\\xaereversed", done.out)


class Large(Hostile):
    """Files with a hole: terabytes that take no room. None of it is read."""

    def test_each_kind_has_a_bound(self) -> None:
        for name in ("large.toml", "large.json"):
            path = self.bench.write(name, "{" if name.endswith("json") else "a = 1")
            os.truncate(path, 1 << 36)
        for command in (["run", "large.toml"], ["sweep", "large.toml"], ["explain", "--from", "large.json"],
                        ["compare", "large.json", "large.json"], ["gate", "large.json", "--against", "large.json"],
                        ["calibrate", "--out", "c.toml", "--beside", "large.json", "base.toml"]):
            with self.subTest(command=command):
                self.refused(*command, words="has 64.00 GiB, and of such a file at most ")


class Toml(Hostile):
    def test_deep(self) -> None:
        for text in (".".join(["a"] * 50_000) + " = 1\n", "[" + ".".join(["a"] * 50_000) + "]\n",
                     "a = " + "[" * 100_000 + "\n", "a = " + "{b=" * 50_000 + "\n"):
            self.bench.write("deep.toml", text)
            self.refused("run", "deep.toml")
            self.refused("sweep", "deep.toml")

    def test_numbers(self) -> None:
        for key in ("train.steps", "model.width", "emulate.link_gb_per_s", "emulate.link_latency_us"):
            for value in ("nan", "inf", "-1", "1e400", "9223372036854775808", "-9223372036854775808", "1e-300",
                          "1e300"):
                if (key, value) == ("emulate.link_latency_us", "1e-300"):
                    continue  # as good as none, which is valid
                with self.subTest(key=key, value=value):
                    done = self.bench.call("explain", "base.toml", *sets(f"{key}={value}"), "--format", "collectives")
                    self.assertEqual(done.popen.returncode, BAD_INPUT, done.err)
                    speaks_plainly(done.err)


class Compressed(Hostile):
    def test_a_small_file_that_becomes_large(self) -> None:
        """700 kB of zeros, 700 MB unpacked, in one string."""
        path = self.folder / "bomb.json.gz"
        piece = gzip.compress(b"x" * 1_000_000)  # parts of one file, one behind another
        path.write_bytes(gzip.compress(b'{"traceEvents":[{"name":"') + 700 * piece)
        self.refused("trace", "explain", "bomb.json.gz", memory=400 << 20)

    def test_damage(self) -> None:
        done = self.bench.call(*self.run_arguments(*THREADS, base=[]), "-q")
        self.assertEqual(done.popen.returncode, OK, done.err)
        good = (self.folder / "out/trace/rank_0.json.gz").read_bytes()
        for size in (0, 5, len(good) // 2, len(good) - 1):
            self.bench.write("out/trace/rank_0.json.gz", good[:size])
            self.refused("what-if", "out", "--link-scale", "2", words="rank_0.json.gz")


if __name__ == "__main__":
    harness.main()
