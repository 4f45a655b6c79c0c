"""Figures: no text upon another, none outside the picture, the same picture twice."""

from __future__ import annotations

import unittest
from pathlib import Path

from support import DATA, HOSTILE, FigureTest, make_hostile, texts_of

from fsdpbench.analysis.page import svg_of
from fsdpbench.analysis.figures.canvas import ticks_of
from fsdpbench.analysis.figures.collectives import fold
from fsdpbench.analysis.figures.contrast import waits
from fsdpbench.analysis.figures.timeline import TimelinePart, draw_timeline
from fsdpbench.analysis.schema import read_run
from fsdpbench.fields import CauseInterval
from fsdpbench.analysis.pair_page import compare_page, pair_page
from fsdpbench.analysis.run_page import run_page
from fsdpbench.analysis.sweep_page import sweep_page
from fsdpbench.analysis.trace import LaneTrace, RankTrace, Slice, Trace


class Figures(FigureTest):
    def check_page(self, page, least: int) -> None:
        drawn = [p for p in page.pictures if p.figure is not None]
        self.assertGreaterEqual(len(drawn), least, [(p.name, p.reason) for p in page.pictures])
        for picture in drawn:
            with self.subTest(picture.name):
                self.check(picture.figure, picture.name)

    def test_run(self) -> None:
        self.check_page(run_page(DATA / "run/result.json"), 6)

    def test_a_peak_late_in_the_step_is_marked_beside_that_of_the_run(self) -> None:
        def late(value):
            course = value["memory"]["timeline"]
            course["activations"] = sorted(course["activations"])
            whole = [course[key] for key in course if isinstance(course[key], list) and key != "time_ms"]
            value["memory"]["peak_bytes"]["total"] = max(map(sum, zip(*whole)))
        self.check_page(run_page(self.copy("run", late) / "result.json"), 6)

    def test_a_page_calls_the_model_as_the_result_does(self) -> None:
        def imported(value):
            value["model"] = "decoder of 32 layers, width 4096"
        self.assertIn("decoder of 32 layers, width 4096, full_shard", run_page(self.copy("run", imported) / "result.json").title)
        self.assertIn("quickstart, full_shard", run_page(DATA / "run/result.json").title)  # an earlier file

    def test_a_page_says_whether_it_was_run_or_simulated(self) -> None:
        def simulated(value):
            value["world"]["simulated"] = True
        self.assertTrue(run_page(DATA / "run/result.json").subtitle.startswith("fsdpbench run"))
        self.assertTrue(run_page(self.copy("run", simulated) / "result.json").subtitle.startswith("fsdpbench simulate"))

    def test_two_runs(self) -> None:
        a, b = self.pair()
        self.check_page(pair_page(a / "result.json", b / "result.json"), 5)

    def test_comparison(self) -> None:
        self.check_page(compare_page(self.comparison() / "compare.json"), 2)

    def test_waits_are_what_nothing_covers(self) -> None:
        self.assertEqual(waits([(4, 6), (1, 2), (1.5, 3)], 10), [(0.0, 1), (3, 4), (6, 10)])
        self.assertEqual(waits([], 2), [(0.0, 2)])
        self.assertEqual(waits([(0, 9)], 2), [])

    def test_a_wait_too_narrow_for_its_cause_has_the_letter_above_it(self) -> None:
        lane = "compute", [Slice(i, i + 0.7, f"forward {i}", "computation", 0, "", "forward") for i in range(200)]
        host = "host", [Slice(0, 0.1, "issue", "issue", 0, "", "")]
        waits_too = [CauseInterval({"rank": 0, "step": 0, "begin_ms": i + (0.8 if i % 10 else 0.7), "end_ms": i + 1,
                                    "cause": "copy" if i % 10 else "late_prefetch"}) for i in range(199)]
        for lanes, wide in (([host, lane], 20), ([lane], 0)):
            trace = Trace(Path("trace.json"), [RankTrace(0, [LaneTrace(*one) for one in lanes], {0: (0.0, 200.0)})])
            figure = draw_timeline([TimelinePart(trace, 0, "", waits_too)])
            self.check(figure, "narrow waits")
            letters = [text for text, _, _ in texts_of(figure) if text in ("a", "b")]
            self.assertEqual(letters.count("b"), wide)  # all that are wider; of the others what has room
            self.assertEqual("a" in letters, wide > 0)
            legend = [text.get_text() for text in figure.legends[0].get_texts()]
            self.assertLessEqual({"a  copy", "b  late prefetch"}, set(legend))

    def test_33_units(self) -> None:
        def many_units(value):
            first = next(c for c in value["collectives"] if c["unit"] == "1")
            value["collectives"] = [first | {"unit": str(unit), "name": f"all_gather {unit}", "time_ms": 2.0 + unit}
                                    for unit in range(33)]
        self.check_page(run_page(self.copy("run", many_units) / "result.json"), 7)

    def test_64_ranks(self) -> None:
        def many_ranks(value):
            value["metrics"]["ranks"] = [value["metrics"]["ranks"][0] | {"rank": rank} for rank in range(64)]
        self.check_page(run_page(self.copy("run", many_ranks) / "result.json"), 7)

    def test_prefetch_and_limit(self) -> None:
        self.check_page(sweep_page(DATA / "sweep/sweep.json", 20 * 2.0**20), 4)

    def test_model_batch_ranks(self) -> None:
        self.check_page(sweep_page(DATA / "scaling/sweep.json"), 5)

    def test_no_word_is_parted_below_an_axis(self) -> None:
        names = ["strict:1", "fsdp1_queue:2", "fsdp2_event", "unlimited"]
        self.assertIn("unlimited", ticks_of(names, 2.0)[0])
        self.assertIn("fsdp1_\nqueue:2", ticks_of(names, 5.0)[0])

    def test_long_names(self) -> None:
        def long_names(value):
            for i, axis in enumerate(value["axes"]):
                if axis["key"] == "fsdp.all_gather_limit":
                    axis["values"] = [f"a_rather_long_limit_{v}" for v in axis["values"]]
            for cell in value["cells"]:
                cell["axes"]["fsdp.all_gather_limit"] = f"a_rather_long_limit_{cell['axes']['fsdp.all_gather_limit']}"
        self.check_page(sweep_page(self.copy("sweep", long_names) / "sweep.json"), 4)

    def test_hostile_names_are_drawn_as_they_are(self) -> None:
        def hostile(value):
            value["causes"] = make_hostile(value["causes"])
            value["collectives"] = make_hostile(value["collectives"])
            value["memory"]["peak_at"] = make_hostile(value["memory"]["peak_at"])
        page = run_page(self.copy("run", hostile) / "result.json")
        for picture in page.pictures:
            self.assertIsNotNone(picture.figure, picture.reason)
            svg = svg_of(picture.figure)
            self.assertNotIn(b"<script", svg)
            self.assertNotIn(b"<img", svg)
        self.assertIn("$", HOSTILE)

    def test_equal_collectives_fold_into_one_row_with_their_medians(self) -> None:
        def units(value):
            first = next(c for c in value["collectives"] if c["unit"] == "1")
            value["collectives"] = [first | {"unit": str(u), "time_ms": ms} for u, ms in ((2, 1.0), (10, 9.0), (0, 2.0))]
            value["collectives"].append(first | {"unit": "R", "bytes": 1, "time_ms": 5.0})
        rows = fold(read_run(self.copy("run", units) / "result.json").collectives)
        self.assertEqual([(r.name, r.time_ms) for r in rows], [("3 × all_gather, units 0 to 10", 2.0),
                                                              ("all_gather 1", 5.0)])

    def test_same_input_same_bytes(self) -> None:
        first, second = (run_page(DATA / "run/result.json") for _ in range(2))
        for a, b in zip(first.pictures, second.pictures):
            self.assertEqual(svg_of(a.figure), svg_of(b.figure), a.name)


if __name__ == "__main__":
    unittest.main()
