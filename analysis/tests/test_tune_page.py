"""The page of a tuning: its answer, its figure, and what is wrong with a file."""

from __future__ import annotations

import json

from support import UndrawnTest

from fsdpbench.analysis.report import write_report
from fsdpbench.fields import ReportError


def tried(step_ms: float, memory: int, settings: dict, fits: bool = True) -> dict:
    return {"settings": settings, "step_ms": step_ms, "tokens_per_s": 1000, "live_bytes": memory,
            "reserved_bytes": memory, "predicted_bytes": memory, "margin_bytes": 0, "fits": fits}


TUNING = {
    "schema_version": 1, "name": "a <b>profile</b>", "ranks": 8, "basis": "given rates", "objective": "step", "seed": 1,
    "budget": {"bytes": 3 << 30, "kind": "live"}, "keep": False, "gain": 0.25, "gain_low": 0.2, "gain_high": 0.3,
    "optimality_gap": 0.0125, "interrupted": False,
    "in_force": tried(100, 2 << 30, {}), "best": tried(75, 3 << 30, {"fsdp.wrap": "fsdp.wrap=blocks:2"}),
    "policies": {"walked": 12345, "same": 1, "contradictory": 0, "pruned": 0, "left": 0},
    "turned": [{"key": "fsdp.wrap", "was": "fsdp.wrap=block", "is": "fsdp.wrap=blocks:2", "alone": 0.25,
                "last_in": None, "more_bytes": 1 << 30}],
    "left": [{"key": "fsdp.all_gather_limit", "least": 0, "most": 0.5, "matters": True}],
    "front": [tried(100, 2 << 30, {}), tried(75, 3 << 30, {"fsdp.wrap": "fsdp.wrap=blocks:2"})],
    "points": [[100, 2 << 30, True], [75, 3 << 30, True], [70, 4 << 30, False], [9000, 1 << 40, False]],
    "config": {"fsdp": {"wrap": "blocks:2"}},
}


class TunePageTest(UndrawnTest):
    def page(self, **changes: object) -> str:
        (self.folder / "tune.json").write_text(json.dumps({**TUNING, **changes}), encoding="utf-8")
        return write_report([self.folder]).read_text(encoding="utf-8")

    def test_says_the_answer(self) -> None:
        page = self.page()
        for words in ("25.0 % less step time with fsdp.wrap=blocks:2", "20.0 to 30.0 %", "12,345 policies",
                      "more than 1.25 % better", "fsdp.all_gather_limit", "a &lt;b&gt;profile"):
            self.assertIn(words, page)
        self.assertNotIn("<b>profile", page)
        for name in ("policies.svg", "policies.png"):
            self.assertTrue((self.folder / "report" / name).is_file())

    def test_says_to_keep_what_is_there(self) -> None:
        page = self.page(keep=True, optimality_gap=0, gain_low=None, gain_high=None)
        self.assertIn("Keep what you have", page)
        self.assertIn("nothing in the space is better", page)

    def test_says_first_that_the_run_was_disturbed(self) -> None:
        why = "runs/x was measured on a busy machine (other programs used 37 % of the CPU): this answer holds for one as busy"
        page = self.page(disturbed_because=why)
        self.assertLess(page.index("Runs/x was measured on a busy machine"), page.index("25.0 % less step time"))
        self.assertNotIn("busy", self.page())

    def test_a_file_of_another_version(self) -> None:
        with self.assertRaisesRegex(ReportError, "tune.json"):
            self.page(schema_version=99)

    def test_a_file_that_lacks_a_number(self) -> None:
        with self.assertRaisesRegex(ReportError, "gain"):
            self.page(gain=None)
