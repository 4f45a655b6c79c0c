#!/usr/bin/python3
"""`gate`: a slower result than those of a folder is found, another machine is not compared.

    gate_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import shutil
import xml.etree.ElementTree as ElementTree

import program
from program import CANNOT_WRITE, OK, PATIENCE_S, SLOWER, Program, sealed, sets

INCONCLUSIVE, OTHER_MACHINE = 11, 12
# On the computed clock: the same seed gives the same step times, on any machine.
SIMULATED = ["model.layers=2", "train.steps=8", "train.warmup=1", "emulate.compute_tflops=0.02",
             "emulate.link_gb_per_s=0.5", "simulate.jitter_pct=1"]


class Gate(Program):
    def simulate(self, out: str, *keys: str) -> str:
        self.call("simulate", "quickstart", "--ranks", "4", *sets(*SIMULATED, *keys), "--out", out, "-q")
        return out

    def gate(self, result: str, *arguments: str, code: int = OK) -> dict:
        done = self.call("gate", result, "--out", "gate", "--overwrite", *arguments, code=code)
        self.printed = done.stdout
        return json.loads((self.folder / "gate/gate.json").read_text())

    def simulated_slow(self, out: str) -> str:
        """The configuration in its file, and a step that takes 1.5 times as long."""
        self.simulate(out)
        path = self.folder / out / "result.json"
        result = json.loads(path.read_text())
        result["steps"]["slowest_rank_ms"] = [1.5 * ms for ms in result["steps"]["slowest_rank_ms"]]
        path.write_text(sealed(result))
        return out

    def test_an_equal_result_passes_and_a_slower_one_fails(self) -> None:
        self.earlier("good")
        gate = self.gate(self.simulate("again", "train.warmup=2"), "--against", "kept")
        self.assertEqual(gate["verdict"], "pass")
        gate = self.gate(self.simulated_slow("slow"), "--against", "kept", code=SLOWER)
        self.assertIn("WORSE", self.printed)
        worse = [change for change in gate["changes"] if change["verdict"] == "fail"]
        self.assertEqual([change["figure"] for change in worse], ["step time"])
        self.assertAlmostEqual(worse[0]["ratio"], 1.5, delta=0.01)
        self.assertGreater(worse[0]["ratio_low"], 1)
        suite = ElementTree.parse(self.folder / "gate/junit.xml").getroot().find("testsuite")
        self.assertEqual([case.get("name") for case in suite if case.find("failure") is not None], ["step time"])
        self.assertIn("| step time |", (self.folder / "gate/summary.md").read_text())

    def earlier(self, *names: str) -> None:
        """Results in kept/, whose steps differ by 1 %."""
        for i, name in enumerate(names):
            path = self.folder / self.simulate(f"kept/{name}") / "result.json"
            result = json.loads(path.read_text())
            result["steps"]["slowest_rank_ms"] = [ms * (1 + i / 100) for ms in result["steps"]["slowest_rank_ms"]]
            path.write_text(sealed(result))

    def test_a_folder_of_results_is_a_baseline(self) -> None:
        self.earlier("one", "two", "three")
        shutil.copytree(self.folder / "kept/one", self.folder / "kept/copy")
        gate = self.gate(self.simulated_slow("slow"), "--against", "kept", code=SLOWER)
        self.assertEqual(gate["baseline"], "kept")
        self.assertEqual([result["name"] for result in gate["before"]["results"]], ["copy", "three", "two"])
        step = next(change for change in gate["changes"] if change["figure"] == "step time")
        self.assertEqual((step["verdict"], step["by"]), ("fail", "several results"))
        others = self.gate("kept/one", "--against", "kept")["before"]["results"]
        self.assertEqual([result["name"] for result in others], ["three", "two"], "it is not compared with itself")

    def test_only_what_was_accepted_counts(self) -> None:
        self.earlier("one", "two")
        path = self.folder / "kept/two/result.json"
        path.write_text(sealed(json.loads(path.read_text()) | {"complete": False}))
        gate = self.gate(self.simulate("again"), "--against", "kept")
        self.assertEqual(gate["left_out"], ["two was not accepted: the run was stopped before its last step"])
        self.assertIn("left out: two was not accepted", self.printed)

    def test_another_machine_is_compared_on_purpose_only(self) -> None:
        self.simulate("good")
        path = self.folder / self.simulate("other") / "result.json"
        result = json.loads(path.read_text())
        result["world"]["compiler"] = "another compiler"
        path.write_text(sealed(result))
        gate = self.gate("other", "--against", "good", code=OTHER_MACHINE)
        self.assertEqual((gate["verdict"], gate["changes"]), ("not comparable", []))
        self.assertEqual([(d["name"], d["part"], d["now"]) for d in gate["differences"]],
                         [("compiler", "software", "another compiler")])
        self.assertIn("--other-software", self.printed)
        self.assertEqual(self.gate("other", "--against", "good", "--other-software")["verdict"], "pass")

    def test_another_configuration_is_not_compared(self) -> None:
        self.simulate("good")
        gate = self.gate(self.simulate("other", "fsdp.backward_prefetch=none"), "--against", "good", code=OTHER_MACHINE)
        self.assertEqual([key["key"] for key in gate["differing_keys"]], ["fsdp.backward_prefetch"])

    def test_one_step_cannot_be_judged(self) -> None:
        for out, tflops in (("before", 0.02), ("now", 0.02)):
            self.simulate(out, "train.steps=1", f"emulate.compute_tflops={tflops}")
        gate = self.gate("now", "--against", "before", code=INCONCLUSIVE)
        verdicts = {change["figure"]: (change["verdict"], change["by"]) for change in gate["changes"]}
        self.assertEqual(verdicts["step time"], ("inconclusive", "single numbers"))

    def test_what_was_changed_or_lost_something_is_refused(self) -> None:
        path = self.folder / self.simulate("good") / "result.json"
        result = json.loads(path.read_text())
        path.write_text(json.dumps(result, indent=7))
        self.call("gate", "good", "--against", "good")  # laid out otherwise, it is the same
        (self.folder / "other").mkdir()

        def other(text: str) -> str:
            (self.folder / "other/result.json").write_text(text)
            return self.error("gate", "other", "--against", "good")

        slow = result | {"steps": {"slowest_rank_ms": [86.0]}}
        self.assertIn("it was changed after it was written", other(json.dumps(slow)))
        for reader in (("report",), ("explain", "--from"), ("gate", "--against", "good")):
            self.assertIn("it was changed after it was written", self.error(*reader, "other"))
        for key in ("digest", "complete", "rated", "schema_version"):
            text = json.dumps({k: v for k, v in result.items() if k != key}) if key == "digest" else sealed(
                {k: v for k, v in result.items() if k != key})
            self.assertIn(key, other(text))
        self.assertIn("config.train: expected an object, found 3", other(sealed(result | {"config": {"train": 3}})))

    def test_an_answer_that_nobody_could_read_is_none(self) -> None:
        self.simulate("good")
        self.simulated_slow("slow")
        with open("/dev/full", "w", encoding="ascii") as full:
            process = self.start("gate", "slow", "--against", "good", stdout=full)
            self.assertIn("standard output could not be written", process.communicate(timeout=PATIENCE_S)[1])
        self.assertEqual(process.returncode, CANNOT_WRITE)

    def test_what_is_wrong_is_said(self) -> None:
        self.simulate("good")
        self.assertIn("no such file or folder", self.error("gate", "good", "--against", "nothing"))
        (self.folder / "empty").mkdir()
        self.assertIn("holds no result", self.error("gate", "good", "--against", "empty"))
        self.assertIn("--threshold", self.error("gate", "good", "--against", "good", "--threshold", "-1"))
        self.assertIn("is no result", self.error("gate", self.write("x.json", "{}"), "--against", "good"))
        self.assertIn("--against", self.error("gate", "good"))
        self.call("gate", "good", "--against", "good", "--out", "gate")
        self.assertIn("holds a result already", self.error("gate", "good", "--against", "good", "--out", "gate"))
        self.assertIn("Examples", self.call("gate", "--help", code=OK).stdout)


if __name__ == "__main__":
    program.main()
