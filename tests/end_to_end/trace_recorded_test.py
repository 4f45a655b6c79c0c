#!/usr/bin/python3
"""`trace explain` of jobs that were recorded (tests/foreign/recorded-h100, recorded-cpu) and whose settings are known:
each answer is right, wrong or not given, and what is said with confidence may not be wrong.

    trace_recorded_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import gc
import json
import marshal
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import program
from program import Program

gc.disable()  # which looks through millions of events, none of which is in a cycle
FOREIGN = Path(__file__).resolve().parent.parent / "foreign"
RECORDED, ON_PROCESSORS = FOREIGN / "recorded-h100", FOREIGN / "recorded-cpu"
sys.path.insert(0, str(FOREIGN))
from transformed_traces import TRANSFORMATIONS  # noqa: E402
from truth_table import RIGHT, WRONG, score  # noqa: E402

OF_COLLECTIVES = ("link_bound", "slow_transfer", "straggler", "step_boundary", "late_prefetch", "all_gather_limit",
                  "communicator_serialisation", "inefficient_collective", "serialised")


def contradictions(answer: dict) -> list[str]:
    """Causes without their evidence, and shares of what is not there."""
    found = []
    step, causes = answer["step"], {cause["cause"]: cause for cause in answer["causes"]}
    whole = step["slowest_rank"]["steps_ms"]
    if step["comm_ms"] == 0:
        found += [f"{cause} without communication" for cause in causes if cause in OF_COLLECTIVES]
        found += ["exposed communication, and none"] if step["exposed_comm_ms"] else []
        found += ["overlap without communication" for rank in answer["ranks"] if rank.get("overlap_pct") is not None]
    if "late_launches_pct" not in answer and "host_bound" in causes:
        found.append("host_bound, and nothing tells when the host launched what")
    for rank in answer["critical_path"]["ranks"] if step["compute_ms"] == 0 else []:
        found += ["a path by the host, and nothing tells what it did"] if "host" in rank["kinds_ms"] else []
    if step["compute_ms"] == 0:
        found += [f"{cause} without computation" for cause in causes if cause not in ("straggler", "unknown")]
    if "straggler" in causes and len(answer["ranks"]) < 2:
        found.append("a late rank, and one file")
    if sum(cause["ms"] for cause in causes.values()) > max(whole) * 1.0001:
        found.append("causes of more than a step")
    stalled = step["mean_ms"] - step["compute_ms"]
    if abs(sum(cause["ms"] for cause in causes.values()) - stalled) > 0.01 + stalled * 1e-6:
        found.append(f"causes do not add up to the {stalled} ms without computation")
    if answer["headline"].startswith("No setting was tried") and answer.get("knobs"):
        found.append("settings were tried, and none was")
    return found


class TraceRecorded(Program):
    answers: dict[str, dict] = {}
    cases: dict[str, dict] = {}

    def setUp(self) -> None:
        super().setUp()
        if self.answers:
            return
        places = {}
        for place in (RECORDED, ON_PROCESSORS):
            of_place = {case["name"]: case for case in json.loads((place / "truth.json").read_text())}
            self.cases.update(of_place)
            places.update(dict.fromkeys(of_place, place))

        def explain(name: str) -> dict:
            folder = self.folder / name
            with tarfile.open(places[name] / f"{name}.tar.xz") as archive:
                archive.extractall(folder)
            return json.loads(self.call("trace", "explain", str(folder), "--json").stdout)

        with ThreadPoolExecutor(2) as pool:
            self.answers.update(zip(self.cases, pool.map(explain, self.cases)))

    def test_nothing_is_wrong_with_confidence(self) -> None:
        table = {name: score(case, self.answers[name]) for name, case in self.cases.items()}
        for name, row in table.items():
            for column, result in row.items():
                with self.subTest(case=name, column=column):
                    self.assertFalse(result.startswith(WRONG), result)
        for column in {column for row in table.values() for column in row}:
            results = [row[column] for row in table.values() if column in row]
            with self.subTest(column=column):
                self.assertGreaterEqual(results.count(RIGHT), 0.9 * len(results), results)

    def test_the_host_is_ahead_of_the_device(self) -> None:
        for name in ("fsdp2", "first-fsdp2", "fsdp1-busy-unlimited"):
            answer = self.answers[name]
            self.assertGreater(answer["host_most_ahead_ms"], 100, name)
            self.assertNotIn("host_bound", [cause["cause"] for cause in answer["causes"] if cause["share_pct"] > 1], name)

    def test_a_replay_is_no_longer_than_its_step(self) -> None:
        for name, answer in self.answers.items():
            if "typical_ms" in answer:
                steps = answer["step"]["slowest_rank"]["steps_ms"]
                self.assertLess(answer["typical_ms"], 1.01 * max(steps), name)

    def test_nobody_is_accused_on_few_steps(self) -> None:
        for name, answer in self.answers.items():
            self.assertLess(answer["step"]["slowest_rank"]["n"], 5)
            self.assertNotIn("is late by", answer["headline"], name)
        slow = self.answers["fsdp2-slow-gpu"]["headline"]
        self.assertIn("In these 3 steps rank 1 took", slow)
        self.assertIn("FLOP of the others'", self.answers["fsdp2-uneven-sequences"]["headline"])

    def test_an_all_to_all_is_not_an_expert(self) -> None:
        """Each block exchanges equal parts before and after its products, without a router."""
        answer = self.answers["fsdp2-experts-4"]
        said = {one["what"]: one["value"] for one in answer["recognition"]["findings"]}
        self.assertEqual((said["job"], said["exchanges"]), ("sharded", "of activations, kind unknown"))

    def test_no_sentence_contradicts_another(self) -> None:
        for name, answer in self.answers.items():
            with self.subTest(case=name):
                self.assertEqual(contradictions(answer), [])

    def test_what_nobody_recorded_is_not_wrong_with_confidence(self) -> None:
        """Recorded jobs as other profilers, programs and accidents would have them."""
        every = list(TRANSFORMATIONS.items())  # each of one of two jobs
        for name, changes in {"fsdp2": dict(every[::2]), "fsdp1-grad-op": dict(every[1::2])}.items():
            case = self.cases[name]
            with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
                archive.extractall(self.folder / name)
            files = marshal.dumps([json.loads(file.read_text()) for file in sorted((self.folder / name).glob("*.json"))])
            for what, (change, may_be_unknown) in changes.items():
                folder = self.folder / f"{name}-{what}"
                folder.mkdir()
                for rank, file in enumerate(change(marshal.loads(files))):
                    (folder / f"rank_{rank}.json").write_text(json.dumps(file, check_circular=False))
                answer = json.loads(self.call("trace", "explain", str(folder), "--json").stdout)
                with self.subTest(case=name, changed=what):
                    self.assertEqual(contradictions(answer), [])
                    for column, result in score(case, answer).items():
                        if may_be_unknown is not None and column not in may_be_unknown:
                            self.assertEqual(result, RIGHT, column)
                        elif column not in ("late", "step"):
                            self.assertFalse(result.startswith(WRONG), f"{column} {result}")


if __name__ == "__main__":
    program.main()
