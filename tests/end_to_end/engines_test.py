#!/usr/bin/python3
"""The simulated steps in profiles/recorded/engines are those of today, to the nanosecond and the byte.

    engines_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import csv
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import engine_questions
import program
from program import Program


# Cells of the large sweeps that are asked here: the others of an axis are worked out in the same way.
ASKED = {"engines": {"mesh.ranks": ["64"], "simulate.cluster": ["ethernet-h100"]},
         "engines-experts": {"fsdp.preset": ["deepspeed-moe", "megatron-moe", "megatron-v2-moe"], "mesh.expert": ["8"]},
         "experts": {"train.seq_len": ["1024"], "mesh.expert": ["64"], "simulate.cluster": ["dgx-h100"]}}
EACH = 17  # of the questions, on both clusters


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


class Recorded(Program):
    def setUp(self) -> None:
        super().setUp()
        self.recorded = program.SOURCE / "profiles/recorded/engines"

    def table(self, folder: str) -> list[list[str]]:
        environment = os.environ | {"PYTHONPATH": str(program.SOURCE / "analysis")}
        subprocess.run([sys.executable, "-B", "-m", "fsdpbench.analysis", "table", folder, "--out", "table.csv"],
                       check=True, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL)
        return rows(self.folder / "table.csv")

    def test_simulated_steps_are_as_recorded(self) -> None:
        for sweep, recorded in (("engines", "simulated"), ("engines-experts", "engines-experts"), ("experts", "experts")):
            with self.subTest(sweep):
                text = (program.SOURCE / f"profiles/sweeps/{sweep}.toml").read_text(encoding="utf-8")
                text = text.replace('base = "../', f'base = "{program.SOURCE}/profiles/')
                header, *cells = rows(self.recorded / f"{recorded}.csv")
                text, skipped, when = text.partition("[[")
                for key, values in ASKED[sweep].items():
                    quoted = ", ".join(value if value.isdigit() else f'"{value}"' for value in values)
                    text, found = re.subn(rf'(?ms)^"{key}" = \[.*?\]$', f'"{key}" = [{quoted}]', text)
                    self.assertEqual(found, 1)
                    cells = [cell for cell in cells if cell[header.index(key)] in values]
                text += skipped + when
                self.assertGreater(len(cells), 0)
                # As long as it takes: a busy machine needs minutes for some seconds' work.
                subprocess.run([program.PROGRAM, "sweep", self.write(f"{sweep}.toml", text), "--out", sweep, "--quiet"],
                               check=True, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.assertEqual(self.table(sweep), [header, *cells])

    def test_answers_are_as_recorded(self) -> None:
        path = self.recorded / "questions.csv"
        questions = engine_questions.asked(path)
        self.assertEqual(path.read_text(encoding="utf-8"), engine_questions.text_of(questions))
        for row in questions[::EACH]:
            with self.subTest(row["keys"], cluster=row["cluster"]):
                self.assertEqual(engine_questions.answer(program.PROGRAM, program.SOURCE, row), row)

    def test_every_engine_is_recorded(self) -> None:
        valid = re.search(r"fsdp\.preset = .*expected (.*)\.", self.error("explain", "scaling-base", "--set",
                                                                          "fsdp.preset=none"))
        # The model of these sweeps has no experts, without which these presets do as others do.
        of_experts = ("torchtitan-moe", "megatron-moe", "megatron-v2-moe", "deepspeed-moe")
        known = [name for name in re.findall(r'"([^"]+)"', valid.group(1)) if name not in of_experts]
        self.assertGreater(len(known), 10)
        for name in ("engines", "engines-emulated"):
            axes = tomllib.loads((program.SOURCE / f"profiles/sweeps/{name}.toml").read_text())["axes"]
            self.assertEqual(axes["fsdp.preset"], known, name)
        for name in ("simulated", "emulated", "emulated-simulated"):
            header, *cells = rows(self.recorded / f"{name}.csv")
            self.assertEqual(sorted({cell[header.index("fsdp.preset")] for cell in cells}), sorted(known), name)


if __name__ == "__main__":
    program.main()
