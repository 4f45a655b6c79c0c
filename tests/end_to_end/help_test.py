#!/usr/bin/python3
"""`doctor`, `help`, `--help`, `--version`.

    help_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import fcntl
import json
import os
import re
import struct
import subprocess
import termios

import program
from program import BAD_INPUT, Program


class Doctor(Program):
    def test_json(self) -> None:
        machine = json.loads(self.call("doctor", "--json").stdout)
        self.assertGreaterEqual(machine["threads"], 1)
        self.assertGreater(machine["memory_bytes"], machine["available_bytes"])
        self.assertTrue(machine["nvtx"])

    def test_text(self) -> None:
        text = self.call("doctor").stdout
        for words in ("cpu", "memory", "cuda driver", "nvtx", "libraries"):
            self.assertIn(words, text)


class Help(Program):
    def test_help_and_version(self) -> None:
        everything = self.call("--help").stdout
        self.assertEqual(self.call().stdout, everything)
        self.assertEqual(self.call("help").stdout, everything)
        self.assertLessEqual(len(everything.splitlines()), 46)
        for group in ("Measure", "Predict", "Understand", "Operate", "Exchange"):
            self.assertIn(f"\n{group}\n", everything)
        self.assertEqual(self.call("help", "run").stdout, self.call("run", "--help").stdout)
        self.assertIn("fsdp.backward_prefetch", self.call("help", "keys").stdout)
        self.assertIn("trace.json", self.call("run", "--help").stdout)
        self.assertRegex(self.call("--version").stdout, r"^fsdpbench \d+\.\d+\.\d+ \(")

    def test_it_is_as_wide_as_the_terminal(self) -> None:
        for columns in (80, 120):
            self.assertLessEqual(len(self.on_terminal(columns, "--help").splitlines()), 46)
            options = self.on_terminal(columns, "help", "accept").split("\n\n")[1]
            longest = max(map(len, options.splitlines()))
            self.assertTrue(columns - 15 < longest <= columns, (columns, longest))

    def test_only_commands_are_wider_than_the_terminal(self) -> None:
        """A terminal breaks a command so that it can be copied; prose and tables are broken at blanks."""
        names = re.findall(r"^  ([a-z-]+(?: [a-z-]+)?)  +[A-Z]", self.call("--help").stdout, re.MULTILINE)
        self.assertGreater(len(names), 20)
        for about in [name.split() for name in names] + [["keys"], ["keys", "fsdp"], ["exit-codes"]]:
            lines = self.on_terminal(80, "help", *about).splitlines()
            self.assertFalse([line for line in lines if len(line) > 80 and not re.match("  .*fsdpbench ", line)], about)
            paragraphs = [line for line in lines if line[:1] not in ("", " ") and len(line) > 66]
            self.assertTrue(paragraphs or about in (["exit-codes"], ["keys", "fsdp"]) or len(lines) < 25, about)
            if about == ["keys"]:
                self.assertRegex("\n".join(lines), r"\n  model\.preset  +quickstart, .*\n {26}\S")

    def on_terminal(self, columns: int, *arguments: str) -> str:
        """The program's output on a terminal of so many columns."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with subprocess.Popen([program.PROGRAM, *arguments], stdout=theirs, cwd=self.folder) as running:
            os.close(theirs)
            text = b""
            try:
                while more := os.read(ours, 65536):
                    text += more
            except OSError:  # Linux's end of a terminal
                pass
            self.assertEqual(running.wait(program.PATIENCE_S), 0)
        os.close(ours)
        return text.decode().replace("\r\n", "\n")

    def test_what_is_not_near_is_not_suggested(self) -> None:
        for given, said in {"fsdp.prefetch=1": "nearest valid keys are 'fsdp.forward_prefetch', 'fsdp.backward_prefetch'.",
                            "model=8b": "nearest valid key is 'model.preset'.",
                            "train.global_batch=8": "nearest valid key is 'train.batch_global'.",
                            "fsdp.zq=1": "unknown key 'fsdp.zq'; the keys of [fsdp] are preset, strategy,"}.items():
            self.assertIn(said, self.error("explain", "quickstart", "--set", given))
        self.assertIn("no command 'zzzz'; see fsdpbench --help.", self.error("zzzz"))
        self.assertIn("the nearest is 'pytorch-fsdp2'", self.error("export", "quickstart", "--to", "fsdp2"))

    def test_colours_only_on_terminals(self) -> None:
        self.assertNotIn("\033", self.call("rum", code=BAD_INPUT).stderr)


if __name__ == "__main__":
    program.main()
