#!/usr/bin/python3
"""Standard output and error that are closed, full, or read by nobody: files are whole, and the exit code says it.

    streams_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""


import harness
from harness import BASE, CANNOT_WRITE, OK, SWEEP, Faults, sets
from promises import each_once, result_of, speaks_plainly

THREADS = [*harness.TINY, "mesh.ranks=2"]
UNWRITABLE = ("closed", "gone", "/dev/full")
NO_PACKAGE = "the report's package is not installed: make analysis"


def has_report() -> bool:
    return (harness.SOURCE / ".venv/bin/python").exists()


class Streams(Faults):
    def setUp(self) -> None:
        super().setUp()
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=1))

    def check(self, *arguments: str, code: int = CANNOT_WRITE, **streams: str) -> harness.Started:
        done = self.bench.call(*arguments, **streams)
        self.assertEqual(done.popen.returncode, code, (arguments, streams, done.err))
        speaks_plainly(done.err)
        return done

    def test_commands_that_only_print_fail_if_they_cannot(self) -> None:
        self.bench.call(*self.run_arguments(*THREADS, base=[]), "-q")
        commands = [["explain", "quickstart", "--format", "collectives"], ["explain", "quickstart", "--format", "json"],
                    ["explain", "--from", "out"], ["trace", "explain", "out/trace"], ["--help"], ["--version"],
                    ["run", "--help"], ["compare", "out", "base.toml", "--trials", "3", "-q"]]
        if has_report() and harness.all_faults():
            commands.append(["report", "out"])
        for i, command in enumerate(commands):
            with self.subTest(" ".join(command)):
                if command == ["explain", "--from", "out"]:
                    if not result_of(self.folder / "out").get("causes"):
                        continue  # on a busy machine a run may be without
                done = self.check(*command, stdout=UNWRITABLE[i % len(UNWRITABLE)])
                # A reader that went away knows why it has no more.
                self.assertEqual("standard output could not be written" in done.err, UNWRITABLE[i % len(UNWRITABLE)] != "gone")

    def test_a_run_keeps_its_files(self) -> None:
        pairs = [("closed", "file"), ("closed", "closed"), ("gone", "gone"), ("/dev/full", "/dev/full")]
        for i, (out, err) in enumerate(pairs):
            with self.subTest(stdout=out, stderr=err):
                self.check(*self.run_arguments(*THREADS, out=f"out{i}", base=[]), stdout=out, stderr=err)
                self.assertTrue(result_of(self.folder / f"out{i}")["complete"])
                self.check_traces(f"out{i}/trace.json")

    def test_nothing_that_is_printed_gets_into_the_log_of_a_sweep(self) -> None:
        """The first file that was opened took the number of a closed stream."""
        for i, (out, err, code) in enumerate([("file", "closed", OK), ("closed", "closed", CANNOT_WRITE)]):
            with self.subTest(stdout=out, stderr=err):
                self.check("sweep", "s.toml", "--out", f"out{i}", stdout=out, stderr=err, code=code)
                each_once(self.folder / f"out{i}/trials.jsonl", cells=4, trials=1)

    def test_errors_that_nobody_reads_are_still_exit_codes(self) -> None:
        for err in UNWRITABLE:
            self.check("run", "quickstart", *sets("mesh.ranks=four"), stderr=err, code=harness.BAD_INPUT)


if __name__ == "__main__":
    harness.main()
