"""fsdpbench.torch.trace_handler without torch: traces that PyTorch has written, explained, and the line that is said."""

from __future__ import annotations

import shutil
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Dict

import support

import fsdpbench as fb
from fsdpbench.torch.explained import explain_traces, line_of, trace_file, wait_for_traces

RECORDED = Path(__file__).resolve().parents[2] / "tests/peer/recorded"


def explanation(**changes: Any) -> Dict[str, Any]:
    ranks = [{"rank": rank, "mean": {"step_ms": step, "exposed_comm_ms": exposed}} for rank, step, exposed in ((0, 90.0, 25.0), (1, 100.0, 20.0))]
    causes = [{"cause": "copy", "ms": 5.0, "advice": ""}, {"cause": "late_prefetch", "ms": 15.0, "advice": "set_x(2): 12.00 ms less a step."}]
    return {"ranks": ranks, "causes": causes, "knobs": [], **changes}


class TheLine(support.FolderTest):
    def test_it_is_of_the_slowest_rank_and_the_largest_cause(self) -> None:
        self.assertEqual(line_of(explanation()), "step 100.0 ms; exposed communication 20.0 ms (20 %); first cause late_prefetch, "
                                                 "15.0 ms. Set_x(2): 12.00 ms less a step.")

    def test_a_cause_without_advice_leaves_it_to_the_best_setting_that_the_job_has_a_word_for(self) -> None:
        knob = {"advised": True, "no_word": False, "set": "fsdp.a=1", "gain_ms": 3.0}
        knobs = [knob, {**knob, "words": "a=True", "gain_ms": 4.0}, {**knob, "no_word": True, "gain_ms": 9.0},
                 {**knob, "advised": False, "gain_ms": 9.0}]
        silent = [{"cause": "copy", "ms": 5.0, "advice": ""}]
        self.assertTrue(line_of(explanation(causes=silent, knobs=knobs)).endswith("5.0 ms. A=True: 4.00 ms less a step."))
        self.assertTrue(line_of(explanation(causes=silent)).endswith("first cause copy, 5.0 ms."))
        self.assertTrue(line_of(explanation(causes=[])).endswith("(20 %)."))

    def test_it_names_a_late_rank_missing_traces_and_the_page(self) -> None:
        line = line_of(explanation(late_rank=0), self.folder, 2)
        self.assertIn("; rank 0 comes last in most of the waiting.", line)
        said = line_of(explanation(late_rank=0, headline="Rank 0 is late by 50.0 ms a step: its host."))
        self.assertTrue(said.endswith("the waiting. Rank 0 is late by 50.0 ms a step: its host."), said)
        self.assertIn(" The traces of 2 ranks are missing. ", line)
        self.assertTrue(line.endswith(str(self.folder / "explain.json")))
        (self.folder / "report").mkdir()
        (self.folder / "report/report.html").touch()
        self.assertTrue(line_of(explanation(), self.folder).endswith("report.html"))

    def test_a_rank_that_waits_much_less_than_the_others_is_named_where_the_program_names_none(self) -> None:
        ranks = [{"rank": rank, "mean": {"step_ms": 100.0, "exposed_comm_ms": exposed}} for rank, exposed in ((0, 90.0), (1, 2.0))]
        self.assertIn("; rank 1 has least exposed communication, so that the others may wait for it.", line_of(explanation(ranks=ranks)))

    def test_traces_without_a_whole_step(self) -> None:
        self.assertEqual(line_of({"ranks": [], "causes": []}), "no whole step in the traces.")


class Traces(support.FolderTest):
    def copied(self, ranks: int) -> Path:
        (source,) = RECORDED.glob("traces-*/fsdp2")
        for rank in range(ranks):
            file = trace_file(self.folder, 4, rank)
            file.parent.mkdir(exist_ok=True)
            shutil.copy(source / f"rank_{rank}.json.gz", file)
        return self.folder / "step_4"

    def test_they_are_explained_by_the_program(self) -> None:
        folder = self.copied(2)
        out = folder / "explained"
        found = explain_traces(wait_for_traces(folder, 2, 0), out)
        self.assertEqual(len(found["ranks"]), 2)
        self.assertRegex(line_of(found, out), r"^step [\d.]+ ms; exposed communication [\d.]+ ms \(\d+ %\); first cause \w+, [\d.]+ ms")
        self.assertEqual(fb.load(out).data["kind"], "trace_explanation")
        self.assertTrue((out / "trace.json").exists())

    def test_those_of_other_ranks_are_waited_for(self) -> None:
        folder = self.copied(1)
        self.assertEqual(len(wait_for_traces(folder, 2, 0)), 1)  # patience is over

        def later() -> None:
            time.sleep(0.1)
            self.copied(2)

        other = threading.Thread(target=later)
        other.start()
        self.assertEqual([path.name for path in wait_for_traces(folder, 2, 600)], ["rank_0.json.gz", "rank_1.json.gz"])
        other.join()

    def test_what_is_no_trace_is_an_error_with_a_sentence(self) -> None:
        file = trace_file(self.folder, 4, 0)
        file.parent.mkdir()
        file.write_text("{")
        with self.assertRaises(fb.ProgramError) as error:
            explain_traces([file], file.parent / "explained")
        self.assertIn("rank_0.json.gz", str(error.exception))


if __name__ == "__main__":
    unittest.main()
