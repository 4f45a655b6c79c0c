#!/usr/bin/python3
"""Results that an earlier version of the program wrote are read by every command that takes results.

    old_results_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import shutil
import subprocess
import tarfile

import program
from program import Program

INCONCLUSIVE = 11


class OldResults(Program):
    """tests/golden/results-2.tar.gz: from before fields with several names got one."""

    def setUp(self) -> None:
        super().setUp()
        with tarfile.open(program.SOURCE / "tests/golden/results-2.tar.gz") as old:
            old.extractall(self.folder)
        self.run_result = json.loads((self.folder / "old/run/result.json").read_text())

    def figures_of_gate(self, result: str, against: str) -> list[str]:
        """The figures of a gate, which have the same value on both sides."""
        done = subprocess.run([program.PROGRAM, "gate", result, "--against", against, "--out", "gate", "--overwrite"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, INCONCLUSIVE), done.stdout + done.stderr)
        changes = json.loads((self.folder / "gate/gate.json").read_text())["changes"]
        for change in changes:
            self.assertEqual(change["before"]["median"], change["now"]["median"], change["figure"])
        return [change["figure"] for change in changes]

    def test_compare(self) -> None:
        shutil.copytree(self.folder / "old/run", self.folder / "same")
        done = self.call("compare", "old/run", "same", "--out", "out")
        found = json.loads((self.folder / "out/compare.json").read_text())
        self.assertEqual((found["verdict"], found["ratio"]), ("no difference", 1))
        self.assertIn(f"{self.run_result['metrics']['exposed_comm_ms']:.2f}", done.stdout)

    def test_gate_holds_old_results_against_each_other_and_against_an_old_baseline(self) -> None:
        for result in ("run", "accept", "sweep", "collectives.json"):
            with self.subTest(result):
                self.assertTrue(self.figures_of_gate(f"old/{result}", f"old/{result}"))
        self.assertIn("exposed communication", self.figures_of_gate("old/run", "old/baselines"))

    def test_an_old_baseline_takes_a_result_of_today(self) -> None:
        self.call("baseline", "add", "old/run", "--in", "new")
        kept = json.loads(next((self.folder / "new").glob("*.json")).read_text())
        before = json.loads(next((self.folder / "old/baselines").glob("*.json")).read_text())
        self.assertEqual((before["schema_version"], kept["schema_version"]), (2, 3))
        values = [[f["value"]["median"] for f in baseline["results"][0]["figures"]] for baseline in (before, kept)]
        self.assertEqual(*values)

    def test_explain(self) -> None:
        done = self.call("explain", "--from", "old/run")
        for cause in self.run_result["causes"]:
            self.assertIn(f"{cause['cause']} ", done.stdout)
            self.assertIn(f"{cause['ms']:.2f}", done.stdout)

    def test_what_if(self) -> None:
        self.call("what-if", "old/run", "--link-scale", "2", "--out", "out")
        found = json.loads((self.folder / "out/what_if.json").read_text())
        self.assertEqual(found["measured"]["step_ms"]["median"], self.run_result["metrics"]["step_ms"]["median"])

    def test_calibrate(self) -> None:
        self.call("calibrate", "old/run", "--out", "old.toml")
        self.assertIn("[[", (self.folder / "old.toml").read_text())


if __name__ == "__main__":
    program.main()
