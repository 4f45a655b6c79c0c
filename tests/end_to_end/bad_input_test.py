#!/usr/bin/python3
"""Input that cannot be right is refused in one line that says what and where.

    bad_input_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import subprocess

import program
from program import BAD_INPUT, CANNOT_WRITE, NO_RESOURCES, TINY, Program, sets

THREADS = [*TINY, "mesh.ranks=2"]


class BadInput(Program):
    def test_missing_profile(self) -> None:
        self.assertIn("nowhere.toml: there is no such file", self.error("run", "nowhere.toml"))

    def test_variables_that_are_none(self) -> None:
        for name, value in (("FSDPBENCH_STALL_S", "soon"), ("FSDPBENCH_STALL_S", "-1"), ("FSDPBENCH_SHARE_MEMORY", "yes")):
            done = self.call("run", self.profile, *sets(*THREADS), "--out", "out", code=BAD_INPUT, **{name: value})
            self.assertIn(f"error: {name} is '{value}'; expected", done.stderr)
            self.assertFalse((self.folder / "out").exists())
        done = self.call("run", self.profile, code=BAD_INPUT, RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                         MASTER_ADDR="http://node1")
        self.assertIn("MASTER_ADDR='http://node1' in the environment is neither", done.stderr)

    def test_a_file_that_is_there_already_is_refused_alike(self) -> None:
        there = self.write("there", "")
        for arguments in (("calibrate", "quickstart", "--out", there), ("collectives", "all_gather", "-J", there)):
            self.assertIn("is there already; replace it with --overwrite, or choose another", self.error(*arguments))

    def test_what_names_nothing(self) -> None:
        self.assertIn("--from '' names nothing", self.error("tune", "--from", ""))

        self.assertIn("is neither a result folder", self.error("tune", "--from", "nowhere"))

    def test_a_folder_that_is_a_file(self) -> None:
        there = self.write("there", "")
        for arguments in (("run", self.profile, "--out", there), ("simulate", "quickstart", *sets("emulate.compute_tflops=1"), "--out", f"{there}/x"),
                          ("tune", "llama3-8b", "--cluster", "dgx-h100", "--out", there),
                          ("export", "quickstart", "--to", "pytorch-fsdp2", "--out", there)):
            self.assertIn("is a file; expected a folder", self.error(*arguments, code=CANNOT_WRITE))

    def test_words_and_numbers_of_options(self) -> None:
        self.assertIn("--format: 'tabel' is not valid; expected table, json, collectives; the nearest is 'table'",
                      self.error("explain", "quickstart", "--format", "tabel"))
        self.assertIn("--link-scale: 'two' is not valid; expected a number", self.error("what-if", "x", "--link-scale", "two"))
        self.assertIn("has no option --sizes", self.error("collectives", "--sizes", "1K"))
        self.assertIn("50GB/s", self.error("expect", "llama3-8b", "--cluster", "dgx-h100", "--between-nodes", "400Gb"))

    def test_what_is_no_trace(self) -> None:
        for name, text in (("a.csv", "a,b"), ("cut.json.gz", "\x1f")):
            message = self.error("trace", "explain", self.write(name, text))
            self.assertIn("Expected a trace of torch.profiler (JSON), Nsight Systems (.sqlite) or jax.profiler", message)
            self.assertNotIn("<fd:", message)

    def test_a_machine_that_run_does_not_simulate(self) -> None:
        done = self.call("run", self.profile, *sets("simulate.cluster=dgx-h100"), "--out", "out")
        self.assertIn('simulate.cluster has no effect: device.backend = "cpu" measures this machine; `fsdpbench simulate`', done.stderr)
        self.assertNotIn("ignoring", done.stderr)

    def test_unknown_key_with_the_nearest(self) -> None:
        profile = self.write("p.toml", "[mesh]\nranks = 2\nshrad = 2\n")
        message = self.error("run", profile)
        self.assertIn("p.toml:3", message)
        self.assertIn("'mesh.shard'", message)

    def test_missing_empty_and_short_data(self) -> None:
        self.assertIn("data.path", self.error("run", self.profile, *sets("data.path=nowhere")))
        self.assertIn("no text", self.error("run", self.profile, *sets(f"data.path={self.write('empty', '')}")))
        short = self.write("short", "a few bytes")
        self.assertIn("too few", self.error("run", self.profile, *sets(f"data.path={short}")))

    def test_output_that_cannot_be_written(self) -> None:
        file = self.write("file", "")
        for out in (file, file + "/below", "/proc/fsdpbench"):
            self.assertIn(out, self.error("run", self.profile, *sets(*THREADS), "--out", out, code=CANNOT_WRITE))

    def test_a_folder_of_two_uses_and_ranks_that_are_none(self) -> None:
        message = self.error("run", self.profile, *sets(*THREADS, "checkpoint.folder=both"), "--out", "./both")
        self.assertIn("is --out, too", message)
        for ranks in ("-3", "0", "1048577"):
            self.assertIn("a number from 1 to 1048576", self.error("import", "config.json", f"--ranks={ranks}"))

    def test_memory_that_will_not_suffice_is_said_before_the_run(self) -> None:
        message = self.error("run", self.profile, *sets("model.preset=llama3-405b", "train.seq_len=4096"), "--out",
                             "out", code=NO_RESOURCES)
        self.assertIn("available", message)

    def test_what_is_repeated_is_cleaned_and_cut(self) -> None:
        long = self.write("long.toml", '[fsdp]\nstrategy = "' + "x" * 20_000_000 + '"\n')
        self.assertLess(len(self.error("run", long)), 2200)
        message = self.error("run", self.profile, *sets("data.path=\x1b[2J\nerror: forged"))
        self.assertIn("\\x1b[2J\\x0aerror: forged", message)
        done = subprocess.run([program.PROGRAM, "run", self.profile], capture_output=True, cwd=self.folder,
                              timeout=program.PATIENCE_S,
                              env={"RANK": "\x1b[2J" + "9" * 100_000, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"})
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertLess(len(done.stderr), 2300)
        name = "\x1b]0;title\x07" * 1000
        trace = self.write("t.json", json.dumps({"traceEvents": [
            {"ph": "X", "name": name, "cat": name, "pid": 1, "tid": 1, "ts": 1, "dur": -1},
            {"ph": "M", "name": name, "pid": name, "tid": 1}]}))
        done = self.call("trace", "explain", trace, code=BAD_INPUT)
        self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_a_trace_that_cannot_be_read_says_why(self) -> None:
        cut_off = self.write("cut.json", '{"traceEvents":[')
        self.assertIn("line 1", self.error("trace", "explain", cut_off))
        self.assertIn("nowhere.json", self.error("trace", "explain", "nowhere.json"))
        self.assertIn("fsdpbench trace --help", self.error("trace"))

    def test_command_line(self) -> None:
        self.assertIn("nearest is 'run'", self.error("rum"))
        self.assertIn("PROFILE", self.error("run"))
        self.assertIn("key=value", self.error("run", self.profile, *sets("mesh.ranks")))
        self.assertIn("xml", self.error("explain", self.profile, "--format", "xml"))


if __name__ == "__main__":
    program.main()
