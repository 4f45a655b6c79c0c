#!/usr/bin/python3
"""`compare` on two results that exist already.

    stored_compare_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json

import program
from program import SLOWER, TINY, Program, sealed, sets


class StoredCompare(Program):
    """Two results are compared as they are."""

    # B computes at half the speed. What a busy machine makes of that is no matter of these tests: the step times that
    # both results hold are replaced by these.
    EMULATED = [*TINY[:-2], "mesh.ranks=2", "emulate.link_gb_per_s=1", "emulate.compute_tflops=0.001"]
    STEPS_MS = {"a": [10.0, 10.1, 10.2], "b": [20.0, 20.1, 20.2]}

    def setUp(self) -> None:
        super().setUp()
        self.call("run", "quickstart", *sets(*self.EMULATED), "--out", "a", "-q")
        self.call("run", "quickstart", *sets(*self.EMULATED, "emulate.compute_tflops=0.0005"), "--out", "b", "-q")
        for side, steps in self.STEPS_MS.items():
            path = self.folder / side / "result.json"
            result = json.loads(path.read_text())
            result["steps"]["slowest_rank_ms"] = steps
            path.write_text(sealed(result))

    def test_differing_keys_and_the_verdict(self) -> None:
        done = self.call("compare", "a", "b", "--out", "out")
        self.assertRegex(done.stdout, r"emulate\.compute_tflops +0\.001 +0\.0005")
        self.assertIn("did not take turns", done.stdout)
        found = json.loads((self.folder / "out/compare.json").read_text())
        self.assertEqual(found["differing_keys"], [{"key": "emulate.compute_tflops", "a": 0.001, "b": 0.0005}])
        self.assertFalse(found["interleaved"])
        self.assertEqual((found["verdict"], round(found["ratio"], 2)), ("slower", 1.99))
        for side, steps in self.STEPS_MS.items():
            self.assertEqual(found[side]["trials"][0]["steps_ms"], steps)

    def test_nothing_runs_and_nothing_is_written_unasked(self) -> None:
        self.call("compare", "a", "b")
        self.assertFalse((self.folder / "runs").exists())

    def test_slower_can_be_a_failure(self) -> None:
        self.call("compare", "a", "b", "--fail-if-slower", code=SLOWER)
        self.call("compare", "b", "a", "--fail-if-slower")
        self.call("compare", "a", "b")

    def test_rerun(self) -> None:
        self.call("compare", "a", "b", "--rerun", "--trials", "3", "--out", "out", "-q")
        found = json.loads((self.folder / "out/compare.json").read_text())
        self.assertTrue(found["interleaved"])
        self.assertEqual(len(found["a"]["trials"]), 3)
        self.assertEqual([key["key"] for key in found["differing_keys"]], ["emulate.compute_tflops"])

    def test_trials_save_nothing_and_say_so(self) -> None:
        said = self.call("compare", "mlp", *sets("train.steps=2", "train.warmup=1", "mesh.ranks=2", "checkpoint.folder=c"),
                         "--trials", "3", "--out", "out").stderr
        self.assertIn("[checkpoint] has no effect: each trial begins anew", said)
        self.assertFalse((self.folder / "c").exists())

    def test_damaged_results_are_said_to_be(self) -> None:
        (self.folder / "b/result.json").write_text('{"schema_version": 1, "metrics": 3}')
        self.assertIn("b/result.json: is damaged", self.error("compare", "a", "b"))
        (self.folder / "b/result.json").write_text('{"schema_version"')
        self.assertIn("b/result.json: is not JSON, or was cut off", self.error("compare", "a", "b"))

    def test_thresholds_that_are_none(self) -> None:
        for threshold in ("nan", "-1", "101"):
            self.assertIn("expected a number from 0 to 100", self.error("compare", "a", "b", f"--threshold={threshold}"))


if __name__ == "__main__":
    program.main()
