#!/usr/bin/python3
"""The answers of bench_published for published figures: complete, as recorded, and as near as the goals want it.

    published_test.py BENCH_PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import collections
import csv
import math
import statistics
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

PROGRAM = ""
SOURCE = Path()
BAD_INPUT = 2


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Published(unittest.TestCase):
    known: dict[str, list[dict[str, str]]] = {}
    accuracy = ""
    printed = ""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def call(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=self.folder, timeout=240)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def predicted(self) -> dict[str, list[dict[str, str]]]:
        """Rows of both tables, by their names; asked for once."""
        if not Published.known:
            Published.printed = self.call("--csv", "collectives.csv", "--training-csv", "training.csv", "--accuracy",
                                          "accuracy.toml").stdout
            Published.accuracy = (self.folder / "accuracy.toml").read_text(encoding="utf-8")
            Published.known = {name: rows(self.folder / f"{name}.csv") for name in ("collectives", "training")}
        return Published.known

    def test_what_is_recorded_is_what_is_predicted(self) -> None:
        for name, now in self.predicted().items():
            recorded = rows(SOURCE / f"profiles/recorded/published/{name}.csv")
            self.assertEqual([row["id"] for row in now], [row["id"] for row in recorded])
            for row, old in zip(now, recorded, strict=True):
                self.assertEqual(row["not_predicted"], old["not_predicted"])
                if not row["not_predicted"]:
                    self.assertAlmostEqual(float(row["predicted"]) / float(old["predicted"]), 1, 3, row["id"])

    def test_simulations_take_their_intervals_from_it(self) -> None:
        self.predicted()
        now = tomllib.loads(Published.accuracy)
        kept = tomllib.loads((SOURCE / "profiles/published/accuracy.toml").read_text(encoding="utf-8"))
        self.assertEqual(now.keys(), kept.keys())
        for efficiency, old in zip(now.pop("efficiency"), kept.pop("efficiency"), strict=True):
            self.assertAlmostEqual(efficiency.pop("value"), old.pop("value"), 3)
            self.assertEqual(efficiency, old)
        now.pop("version"), kept.pop("version")
        for kind in now:
            ratios, old = now[kind].pop("time_ratios"), kept[kind].pop("time_ratios")
            self.assertEqual(now[kind], kept[kind])
            for ratio, known in zip(ratios, old, strict=True):
                self.assertAlmostEqual(ratio, known, 3)

    def test_every_row_has_a_prediction_or_a_reason(self) -> None:
        now = self.predicted()
        for name, predicted in now.items():
            self.assertEqual([row["id"] for row in predicted],
                             [row["id"] for row in rows(SOURCE / f"profiles/published/{name}.csv")])
            for row in predicted:
                self.assertNotEqual(bool(row["predicted"]), bool(row["not_predicted"]), row["id"])
        self.assertEqual([row["id"] for row in now["training"]], [f"T{i:03}" for i in range(1, 186, 2)])

    def test_no_row_is_predicted_by_its_own_source(self) -> None:
        """Each is predicted by other sources of its group, or does not count; so rows of one source agree on it."""
        counted = [row for row in self.predicted()["training"] if row["counts"] == "true"]
        sources = collections.defaultdict(set)
        efficiencies = collections.defaultdict(set)
        for row in self.predicted()["training"]:
            sources[row["group"]].add(row["source"])
            efficiencies[row["group"], row["source"]].add(row["how"])
        for row in self.predicted()["training"]:
            if row["predicted"] and len(sources[row["group"]]) == 1:
                self.assertEqual(row["counts"], "false", row["id"])
                self.assertIn(row["calibrates"], ("efficiency; alone", "attention of flash2 on H100"), row["id"])
        for row in counted:
            self.assertGreater(len(sources[row["group"]]), 1, row["id"])
            self.assertEqual(len(efficiencies[row["group"], row["source"]]), 1, row["id"])
        self.assertEqual(len(counted), 18)

    def test_intervals_hold_what_other_sources_say_nothing_of(self) -> None:
        """Intervals of 95 %, made from the rows of all other sources: about as many are inside, of each kind and in all."""
        self.predicted()
        table = Published.printed.split("Interval of 95 %")[1].splitlines()[3:]
        rows = inside = 0
        for line in table:
            kind, count, *_, share, _ = line.split()
            held = round(int(count) * float(share) / 100)
            rows, inside = rows + int(count), inside + held
            # As many outside as one in a hundred would have by chance, if 95 % were true of each row for itself.
            self.assertGreaterEqual(held, statistics.NormalDist(0.95 * int(count), math.sqrt(0.0475 * int(count))).inv_cdf(0.01) - 0.5, kind)
        self.assertEqual(len(table), 6)
        self.assertTrue(0.93 <= inside / rows <= 0.98, inside / rows)

    def test_medians_reach_their_goals(self) -> None:
        for (name, predicted), goal in zip(self.predicted().items(), (0.10, 0.08), strict=True):
            errors = [abs(float(row["error"])) for row in predicted if row["counts"] == "true"]
            self.assertGreater(len(errors), 15)
            self.assertLessEqual(statistics.median(errors), goal, name)

    def test_a_row_that_cannot_be_read_is_named(self) -> None:
        text = (SOURCE / "profiles/published/training.csv").read_text(encoding="utf-8")
        (self.folder / "t.csv").write_text(text.replace(",every:2,", ",sometimes,", 1), encoding="utf-8")
        self.assertIn("checkpointing = sometimes is not valid; expected none, all, every:N, share:X or "
                      "keeps:OUTPUTS",
                      self.call("--training", "t.csv", code=BAD_INPUT).stderr)

    def refused(self, table: str, old: str, new: str) -> str:
        """The message for a table of one row, changed."""
        lines = (SOURCE / f"profiles/published/{table}.csv").read_text(encoding="utf-8").splitlines()
        self.assertIn(old, lines[1])
        (self.folder / "t.csv").write_text(f"{lines[0]}\n{lines[1].replace(old, new, 1)}\n", encoding="utf-8")
        return self.call("--" + table, "t.csv", code=BAD_INPUT).stderr

    def test_what_no_machine_does_is_refused_by_its_line(self) -> None:
        self.assertIn("t.csv:2: numbers = fp4 is not valid; expected bf16, fp16 or fp8",
                      self.refused("training", ",bf16,", ",fp4,"))
        self.assertIn("t.csv:2: abacus: there is no such file", self.refused("training", ",h100-500w,", ",abacus,"))
        self.assertIn("t.csv:2: ", self.refused("training", ",llama3-8b,", ",llama9-8b,"))
        self.assertIn("t.csv:2: ranks = 16 on nodes = 1 are 16 a node; expected at most 8",
                      self.refused("collectives", ",8,1,", ",16,1,"))
        self.assertIn("t.csv:2: algorithm = nvls cannot do an all_gather of 8 ranks on 1 node of hgx-b200",
                      self.refused("collectives", "hgx-b200,,,", "hgx-b200,,nvls,"))

    def test_columns_that_only_some_tables_have(self) -> None:
        """A training with a tensor group, one with offloading, and one whose preset learns in its first step."""
        with (SOURCE / "profiles/published/training.csv").open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file)) | {"cluster": "dgx-h100", "checkpointing": "all"}
        for column in ("expert", "expert_rows", "fp8_recipe", "loss", "shard"):
            del row[column]
        kinds = ({}, {"tensor": "2"}, {"offload": "all"}, {"system": "deepspeed-z3"})
        told = []
        for number, change in enumerate(kinds):
            told.append(row | {"id": f"U{number}", "tensor": "", "offload": ""} | change)
        with (self.folder / "t.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, told[0].keys())
            writer.writeheader()
            writer.writerows(told)
        self.call("--training", "t.csv", "--training-csv", "out.csv")
        predicted = [float(one["predicted"]) for one in rows(self.folder / "out.csv")]
        self.assertEqual(len(predicted), 4)
        self.assertLess(max(predicted[1:3]), predicted[0])
        self.assertEqual(len(set(predicted)), 4)


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv.pop(1)).resolve())
    SOURCE = Path(sys.argv.pop(1)).resolve()
    unittest.main()
