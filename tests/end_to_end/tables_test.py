#!/usr/bin/python3
"""Tables of all commands are for people: they fit a terminal, and their numbers are short and in a unit that suits them.

    tables_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import re
import subprocess

import program
from program import Program

WIDTH = 100  # where there is no terminal
RULE = re.compile(r"-+(  -+)+$")
EXPONENT = re.compile(r"\d[eE]\+\d")
# Four digits or more before a unit that has a larger one.
LONG = re.compile(r"(?<![\d.])\d{4,}(\.\d+)?  ?(ns|us|ms|KiB|MiB|GiB|KB|MB|GB)\b|\b\d{4,}\.\d")

CLUSTER = ["--cluster", "dgx-h100"]
RUN = ["simulate", "llama3-8b-emulated", "--out", "run", "-q"]
OTHER = ["simulate", "llama3-8b-emulated", "--set", "fsdp.backward_prefetch=none", "--out", "other", "-q"]
AGAIN = ["simulate", "llama3-8b-emulated", "--out", "again", "-q"]
SWEEP = """title = "T"
base = "base.toml"
trials = 1
[axes]
"fsdp.backward_prefetch" = ["none", "pre", "post"]
"fsdp.all_gather_limit" = ["unlimited", "strict:1", "strict:2"]
"mesh.ranks" = [2, 4]
"""
FAST_AND_SLOW = ["explain llama3-8b", "explain llama3-8b --format summary", "explain --from run", "compare run other", "gate again --against run",
                 "gate again --against run --verbose", "what-if run --link-scale 2", "doctor",
                 "expect llama3-8b --cluster dgx-h100 --set mesh.ranks=8", "export llama3-8b --to torchtitan --keys",
                 "export llama3-8b", "tune llama3-8b --set mesh.ranks=8 --cluster dgx-h100 --evaluations 60 --out tuned",
                 "sweep sweep.toml --out swept", "calibrate run --out calibrated.toml"]


def tables(text: str) -> list[list[str]]:
    """Lines of each table, without its title and rule."""
    found, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        if RULE.fullmatch(line.strip()) and at > 0:
            end = next((i for i in range(at + 1, len(lines)) if "  " not in lines[i]), len(lines))
            found.append([lines[at - 1], *lines[at + 1:end]])
    return found


class Tables(Program):
    def test_each_fits_a_terminal_and_has_short_numbers(self) -> None:
        (self.folder / "base.toml").write_text(program.BASE + '[device]\nbackend = "virtual"\n')
        (self.folder / "sweep.toml").write_text(SWEEP)
        seen = 0
        for words in (RUN, OTHER, AGAIN):
            self.assertEqual(self.said(words)[0], 0)
        for command in FAST_AND_SLOW:
            with self.subTest(command):
                code, text = self.said(command.split())
                self.assertIn(code, (0, 7, 11), text)
                for table in tables(text):
                    seen += 1
                    for line in table:
                        self.assertLessEqual(len(line), WIDTH, line)
                        self.assertNotRegex(line, EXPONENT)
                        self.assertNotRegex(line, LONG)
        self.assertGreaterEqual(seen, len(FAST_AND_SLOW))

    def test_a_sweep_answers_first_and_names_what_is_as_fast(self) -> None:
        (self.folder / "base.toml").write_text(program.BASE + '[device]\nbackend = "virtual"\n')
        (self.folder / "sweep.toml").write_text(SWEEP)
        code, text = self.said(["sweep", "sweep.toml", "--out", "swept", "-q"])
        self.assertEqual(code, 0, text)
        self.assertRegex(text.splitlines()[0], r"^mesh\.ranks=2: fastest with fsdp\.backward_prefetch=")
        self.assertEqual(len(re.findall(r"  best$", text, re.MULTILINE)), 2)

    def said(self, words: list[str]) -> tuple[int, str]:
        done = subprocess.run([program.PROGRAM, *words], capture_output=True, text=True, cwd=self.folder,
                              timeout=program.PATIENCE_S)
        return done.returncode, done.stdout + (done.stderr if done.returncode not in (0, 7, 11) else "")


if __name__ == "__main__":
    program.main()
