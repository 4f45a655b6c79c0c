"""The page of an explained trace: what the job is, what would help, and its timeline in few boxes."""

from __future__ import annotations

import json
from typing import Any, Dict

import test_figures  # not its names: its tests would run here, too
from support import UndrawnTest, make_hostile

from fsdpbench.analysis.job_page import _coarse, _short_units, job_page
from fsdpbench.analysis.report import write_report
from fsdpbench.fields import ReportError
from fsdpbench.analysis.trace import LaneTrace, RankTrace, Slice, Trace

PARTS = {"compute_ms": 6, "comm_ms": 4, "overlap_ms": 1, "exposed_comm_ms": 3, "exposed_copy_ms": 0, "idle_ms": 1}
STEP = {**PARTS, "step": 7, "step_ms": 10, "causes_ms": {"late_prefetch": 3, "host_bound": 1}, "collectives": [],
        "stalls": [{"begin_us": 0, "us": 3000, "cause": "late_prefetch"}, {"begin_us": 9000, "us": 1000, "cause": "host_bound"}]}
JOB: Dict[str, Any] = {
    "kind": "trace_explanation", "schema_version": 3, "notes": ["/data/rank3.json is cut off"],
    "recognition": {"kind": "sharded", "name": "PyTorch <b>FSDP2</b>", "unknown": ["Sizes are not told."], "units": [],
                    "findings": [{"what": "units", "value": "2 and the root", "evidence": "annotations", "confidence": 0.99}],
                    "schedule": {"preset": "fsdp2", "deviations": ["a gather is launched late"], "fsdp": {"wrap": "block"}}},
    "step": {**PARTS, "mean_ms": 10, "causes_ms": {"late_prefetch": 3, "host_bound": 1},
             "slowest_rank": {"median": 10, "ci_low": 9.5, "ci_high": 10.5, "interval": "range", "n": 2,
                              "steps_ms": [9.5, 10.5]}},
    "collectives": [{"kind": "all_gather", "unit": "layers.0", "phase": "forward", "purpose": "parameters", "a_step": 2,
                     "time_ms": 4, "wait_ms": 1, "exposed_ms": 3, "causes_ms": {"late_prefetch": 3}}],
    "contention": [{"kernel": "sgemm", "alone_us": 100, "beside_us": 130, "alone": 20, "beside": 20, "lost_ms": 0.6}],
    "typical_ms": 9.5,
    "causes": [{"cause": "late_prefetch", "ms": 3, "share_pct": 30, "op": "all_gather layers.0",
                "advice": "let them be prefetched (prefetch=2)", "without": {"step_ms": 7, "gain_ms": 2.5}}],
    "knobs": [{"set": "fsdp.forward_prefetch=explicit:2", "words": "nobody can", "no_word": True, "step_ms": 7,
                  "gain_ms": 3, "ci_low": 2.5, "ci_high": 3.5, "advised": True, "more_bytes": 1 << 20},
                 {"set": "fsdp.wrap=blocks:2", "words": "auto_wrap_policy", "no_word": False, "step_ms": 8, "gain_ms": 2,
                  "ci_low": 1.5, "ci_high": 2.5, "advised": True, "more_bytes": None}],
    "ranks": [{"rank": rank, "mean": {**PARTS, "step_ms": 10}, "steps": [STEP]} for rank in (0, 1)],
}


def event(rank: int, tid: int, category: str, name: str, begin: float, length: float, **args: object) -> Dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": rank + 1, "tid": tid, "ts": begin, "dur": length,
            "args": {"step": 7, **args}}


def timeline() -> Dict[str, Any]:
    events = []
    for rank in (0, 1):
        events += [{"ph": "M", "name": "process_name", "pid": rank + 1, "tid": 1, "args": {"name": f"rank {rank}"}}]
        events += [{"ph": "M", "name": "thread_name", "pid": rank + 1, "tid": tid, "args": {"name": name}}
                   for tid, name in ((1, "step"), (3, "compute"), (4, "all_gather"))]
        events += [event(rank, 1, "step", "step 7", 0, 10000), event(rank, 3, "computation", "sgemm", 3000, 6000),
                   event(rank, 4, "communication", "all_gather layers.0", 0, 4000, unit="layers.0", phase="forward")]
    return {"schemaVersion": 1, "traceEvents": events}


class JobPageTest(UndrawnTest):
    check = test_figures.Figures.check

    def page(self, **changes: object) -> str:
        (self.folder / "explain.json").write_text(json.dumps({**JOB, **changes}), encoding="utf-8")
        (self.folder / "trace.json").write_text(json.dumps(timeline()), encoding="utf-8")
        return write_report([self.folder]).read_text(encoding="utf-8")

    def test_says_what_the_job_is_and_what_would_help(self) -> None:
        page = self.page()
        for words in ("PyTorch &lt;b&gt;FSDP2", "2 and the root", "/data/rank3.json is cut off", "let them be prefetched",
                      "prefetch=2", "Sizes are not told.", "A gather is launched late.", "saved by a click",
                      "A step takes 10.0\N{NO-BREAK SPACE}ms: 60\N{NO-BREAK SPACE}% of it computation",
                      "30\N{NO-BREAK SPACE}%"):
            self.assertIn(words, page)
        for name in ("breakdown", "causes", "timeline", "collectives", "steps"):
            self.assertTrue((self.folder / f"report/{name}.svg").is_file(), name)

    def test_has_kernels_where_the_file_has_them(self) -> None:
        titles = ("Kernels by kind", "Kernels that take most")
        page = self.page()
        for title in titles:
            self.assertNotIn(title, page)
        gemm = {"kind": "products", "launches": 8, "total_ms": 20, "a_step": 2, "ms": 5, "share_pct": 100}
        page = self.page(kernels={"total_ms": 20, "by_kind": [gemm], "top": [{**gemm, "kernel": "my_<gemm>"}]})
        for words in (*titles, "my_&lt;gemm&gt;"):
            self.assertIn(words, page)

    def test_has_wasted_gathers_where_the_file_has_them(self) -> None:
        self.assertNotIn("All-gathers that are wasted", self.page())
        wasted = {"waste": "used_once", "units": ["E0", "E1"], "gathers": 2, "bytes": 1 << 20, "ms": 1.5,
                  "evidence": "no copy out follows", "why": "its <b>hook</b> runs twice", "remedy": "one list less"}
        page = self.page(wasted_gathers=[wasted, {**wasted, "bytes": None}],
                         wasted_gathers_unknown="Sizes of E2 are not told.")
        for words in ("All-gathers that are wasted", "E0, E1", "No copy out follows.", "Its &lt;b&gt;hook&lt;/b&gt; runs twice.",
                      "One list less.", "1.00\N{NO-BREAK SPACE}MiB", "Sizes of E2 are not told."):
            self.assertIn(words, page)

    def test_what_the_program_has_no_word_for_is_not_advised_first(self) -> None:
        verdict = self.page().split('class="verdict"')[1].split("</section>")[0]
        self.assertIn("auto_wrap_policy", verdict)
        self.assertNotIn("nobody can", verdict)

    def test_what_is_not_there_is_left_out_with_a_reason(self) -> None:
        page = self.page(collectives=[], step={"mean_ms": 0, "causes_ms": {}}, ranks=[], causes=[], knobs=[],
                         contention=[])
        for words in ("No work of a device", "no step was found", "no moment without computation"):
            self.assertIn(words, page)

    def test_names_from_traces_do_nothing(self) -> None:
        self.DRAWN = True
        page = self.page(**{key: make_hostile(JOB[key]) for key in ("recognition", "causes", "knobs", "contention",
                                                                   "collectives", "notes")})
        self.assertNotIn("<script", page)
        self.assertNotIn("<img src=x", page)

    def test_no_text_lies_upon_another(self) -> None:
        self.page()
        for picture in job_page(self.folder / "explain.json").pictures:
            self.assertIsNotNone(picture.figure, picture.reason)
            if picture.figure is not None:
                self.check(picture.figure, picture.name)

    def test_a_file_of_another_version(self) -> None:
        with self.assertRaisesRegex(ReportError, "explain.json"):
            self.page(schema_version=9)

    def test_kernels_close_together_are_one_box_and_collectives_keep_their_names(self) -> None:
        def kernel(begin: float, end: float, category: str = "computation", phase: str = "forward") -> Slice:
            return Slice(begin, end, "k", category, 7, "", phase)
        lane = LaneTrace("compute", [kernel(0, 1), kernel(1.001, 2), kernel(2.5, 3), kernel(3, 4, phase="backward"),
                                     Slice(4, 5, "other step", "computation", 8, "", "forward"),
                                     kernel(5, 6, "communication"), kernel(6, 7, "communication")])
        boxes = _coarse(lane, 7, 0.01).slices
        self.assertEqual([(box.begin_ms, box.end_ms, box.name) for box in boxes],
                         [(0, 2, ""), (2.5, 3, ""), (3, 4, ""), (5, 6, "k"), (6, 7, "k")])

    def test_units_lose_what_their_names_have_in_common(self) -> None:
        def names(*units: str) -> "list[str]":
            lane = LaneTrace("all_gather", [Slice(0, 1, f"all_gather {u}", "communication", 7, u, "forward") for u in units])
            (rank,) = _short_units(Trace(self.folder, [RankTrace(0, [lane])])).ranks
            return [item.name for item in rank.lanes[0].slices]
        self.assertEqual(names("model.layers.1", "model.layers.10", "root"),
                         ["all_gather 1", "all_gather 10", "all_gather R"])
        self.assertEqual(names("11", "12"), ["all_gather 11", "all_gather 12"])
