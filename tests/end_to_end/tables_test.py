#!/usr/bin/python3
"""Tables of all commands are for people: they fit a terminal, and their numbers are short and in a unit that suits them.

    tables_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import fcntl
import os
import re
import struct
import subprocess
import termios

import program
from program import Program

RULE = re.compile(r"-+(  -+)+$")
ROW = re.compile(r"\S.*?  +[-+]?\d[\d.]*(  +\S|$)")  # of a table without a header
EXPONENT = re.compile(r"\d[eE][-+]?\d+\b")
# Four digits or more before a unit that has a larger one.
LONG = re.compile(r"(?<![\d.])\d{4,}(\.\d+)?  ?(ns|us|ms|KiB|MiB|GiB|KB|MB|GB)\b|\b\d{4,}\.\d")
SHARE = re.compile(r"(?<![-+\d.])(\d+(?:\.\d+)?) %")  # without a sign, which a change has

RUN = ["simulate", "llama3-8b-emulated", "--ranks", "4", "--out", "run", "-q"]
OTHER = ["simulate", "llama3-8b-emulated", "--ranks", "4", "--set", "fsdp.backward_prefetch=none", "--out", "other", "-q"]
AGAIN = ["simulate", "llama3-8b-emulated", "--ranks", "4", "--out", "again", "-q"]
SWEEP = """title = "T"
base = "base.toml"
trials = 1
[axes]
"fsdp.backward_prefetch" = ["none", "pre", "post"]
"fsdp.all_gather_limit" = ["unlimited", "strict:1", "strict:2"]
"mesh.ranks" = [2, 4]
"""
RECORDED = program.SOURCE / "tests/peer/recorded/traces-2.15.0"
COMMANDS = [
    "run base.toml --set train.steps=3 --set emulate.compute_tflops=0.5 --set emulate.link_gb_per_s=0.5 --out ran --overwrite",
    "simulate llama3-8b --set model.layers=4 --cluster dgx-h100 --ranks 64 --out far --overwrite", "compare run other", "doctor",
    "explain llama3-8b",
    "explain --from run", f"explain --hlo {program.SOURCE}/tests/fuzz/seeds/program.hlo.txt",
    f"simulate --hlo {program.SOURCE}/tests/fuzz/seeds/program.hlo.txt --cluster dgx-h100",
    "gate again --against run", "gate again --against run --verbose", "what-if run --link-scale 2",
    "expect llama3-8b --cluster dgx-h100 --ranks 8", "expect llama3-8b --cluster dgx-h100 --ranks 64 --measured 3600",
    "export llama3-8b --to torchtitan --keys", "export llama3-8b", "calibrate run --out calibrated.toml --overwrite",
    "tune llama3-8b --set model.layers=4 --ranks 8 --cluster dgx-h100 --evaluations 15 --out tuned --overwrite",
    f"tune --from {RECORDED}/fsdp1 --least-gain 0 --evaluations 15 --out tuned --overwrite",
    "sweep sweep.toml --out swept", "accept hgx-h100-nodes --plan --nodes 32",
    "accept cpu --verbose --set mesh.ranks=2 --set emulate.compute_tflops=0.05 --budget 2 --out accepted --overwrite",
    "collectives --beside --ranks 2 -b 256K -n 2", "trace explain run/trace", f"trace explain {RECORDED}/fsdp1 --cluster dgx-h100",
    f"trace explain {RECORDED}/fsdp2", f"trace diff {RECORDED}/fsdp1 {RECORDED}/fsdp2", "trace diff run/trace other/trace"]
# The others print pages and profiles, lines, or what they were asked for.
WITHOUT_TABLES = {"report", "open", "watch", "help", "completion", "import"}
ANSWERS = (0, 7, 10, 11, 12, 13)
# Which of them are also asked in a wider terminal: tables of each kind, laid out as all others.
WIDE = {"compare run other", "explain --from run", "what-if run --link-scale 2", "export llama3-8b", "trace explain run/trace"}


def rows_of_tables(text: str) -> list[str]:
    """Headers and rows, without titles and rules."""
    found, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        if RULE.fullmatch(line.strip()) and at > 0:
            end = next((i for i in range(at + 1, len(lines)) if "  " not in lines[i]), len(lines))
            found += [lines[at - 1], *lines[at + 1:end]]
        elif ROW.match(line) and line not in found:
            found.append(line)
    return found


class Tables(Program):
    def test_each_fits_a_terminal_and_has_short_numbers(self) -> None:
        (self.folder / "base.toml").write_text(program.BASE + '[device]\nbackend = "virtual"\n')
        (self.folder / "sweep.toml").write_text(SWEEP)
        for words in (RUN, OTHER, AGAIN):
            self.assertEqual(self.said(words)[0], 0)
        for command in COMMANDS:
            with self.subTest(command):
                rows = 0
                words = command.replace("run base.toml", f"run {self.profile}").split()
                for width in (80, 120) if command in WIDE else (80,):
                    code, text = self.said(words, width)
                    self.assertIn(code, ANSWERS, text)
                    for line in rows_of_tables(text):
                        rows += 1
                        self.assertLessEqual(len(line), width, line)
                        self.assertNotRegex(re.sub(r"^train\.epsilon .*", "", line), EXPONENT)  # as one types it
                        self.assertNotRegex(line, LONG)
                        for share in SHARE.findall(line) if words[0] != "accept" else ():  # whose ratios of rates may exceed it
                            self.assertTrue(0 <= float(share) <= 100, line)
                self.assertGreater(rows, 0)

    def test_each_command_is_among_them(self) -> None:
        listed = re.findall(r"^  ([a-z][a-z-]*(?: [a-z-]+)?)   *[A-Z]", self.said(["--help"])[1], re.MULTILINE)
        self.assertGreater(len(listed), 20)
        for name in listed:
            has = any(command.startswith(name + " ") or command == name for command in COMMANDS)
            self.assertNotEqual(has, name in WITHOUT_TABLES, name)

    def test_a_sweep_answers_first_and_names_what_is_as_fast(self) -> None:
        (self.folder / "base.toml").write_text(program.BASE + '[device]\nbackend = "virtual"\n')
        (self.folder / "sweep.toml").write_text(SWEEP)
        code, text = self.said(["sweep", "sweep.toml", "--out", "swept", "-q"])
        self.assertEqual(code, 0, text)
        self.assertRegex(text.splitlines()[0], r"^mesh\.ranks=2: fastest with fsdp\.backward_prefetch=")
        self.assertEqual(len(re.findall(r"  best$", text, re.MULTILINE)), 2)

    def said(self, words: list[str], width: int = 0) -> tuple[int, str]:
        """width: of the terminal that results go to; 0: none."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        with subprocess.Popen([program.PROGRAM, *words], stdout=theirs if width > 0 else subprocess.PIPE,
                              stderr=subprocess.DEVNULL, cwd=self.folder, env={**os.environ, "NO_COLOR": "1"}) as started:
            os.close(theirs)
            text = b""
            try:
                while piece := os.read(ours, 65536) if width > 0 else started.stdout.read():
                    text += piece
            except OSError:  # how a terminal ends
                pass
            os.close(ours)
        return started.returncode, text.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    program.main()
