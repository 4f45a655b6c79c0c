"""The page of an acceptance: who is to blame, what is drawn, and what was not measured."""

from __future__ import annotations

import base64
import gzip
import json
import re

import test_figures  # not its names: its tests would run here, too
from support import FolderTest, UndrawnTest, make_hostile

from fsdpbench.analysis.accept_page import accept_page
from fsdpbench.analysis.figures.acceptance import draw_pairs
from fsdpbench.analysis.report import write_report
from fsdpbench.fields import ReportError


def judgement(rule: str, figure: str, verdict: str, **more: object) -> dict:
    return {"rule": rule, "figure": figure, "verdict": verdict, "why": f"why of {figure}", **more}


def timing(us: float, busbw: float) -> dict:
    return {"time_us": us, "busbw_gb_per_s": busbw, "per_iteration": {"p50_us": us, "p95_us": 1.2 * us, "min_us": 0.9 * us}}


INTERVAL = {"median": 25.0, "ci_low": 24.0, "ci_high": 26.0, "n": 20}
RANKS = 6
ACCEPTANCE = {
    "schema_version": 3, "kind": "acceptance", "verdict": "fail", "fabric": "a <b>fabric</b>", "ranks": RANKS, "nodes": 1,
    "world": {"date": "2026-01-02T03:04:05+0000", "cpu": "a processor", "kernel": "a kernel"},
    "judgements": [
        judgement("peers", "rank 3", "fail", value={"median": 0.5, "ci_low": 0.49, "ci_high": 0.51, "n": 15}),
        judgement("floor", "all_gather of 1.0 MiB on 6 ranks", "fail", value=INTERVAL, bound=27.0, unit="GB/s"),
        judgement("ceiling", "all_gather of 1.0 MiB on 6 ranks", "pass", value=INTERVAL, bound=50.0, unit="GB/s"),
        judgement("floor", "pairs, one way", "unrated", value=INTERVAL, unit="GB/s")],
    "findings": [{"part": "rank 3 (device 3 of node 0)", "kind": "slow", "shortfall": 0.5, "evidence": "rank 3 reaches half",
                  "check": "its clocks"}],
    "device_rates_flops_per_s": [[1e12, 1e12, 1e12, 5e11, 1e12, 1e12]] * 3,
    "pairs": {"ends": "ranks", "gb_per_s": [[0 if a == b else 40.0 - a for b in range(RANKS)] for a in range(RANKS)]},
    "collectives": [{"kind": op, "size": size, "group_size": RANKS, "out_of_place": timing(100, 24), "in_place": timing(90, 26),
                     "figures": [f"{op} of 1.0 MiB on 6 ranks", f"{op} of 1.0 MiB on 6 ranks, in place"]}
                    for op in ("all_gather", "reduce_scatter") for size in (2**16, 2**20)],
    "scales": [{"kind": op, "group_size": ranks, "bytes": 4096 * ranks, "busbw_gb_per_s": 40.0 - ranks, "p50_us": 9.0}
               for op in ("all_gather", "reduce_scatter") for ranks in (2, 3, 6)],
    "transports": ["shared memory"] * RANKS, "rendezvous": {"ready_s": [0.5] * RANKS},
    "lateness": {"last_share": [0.1, 0.1, 0.1, 0.6, 0.05, 0.05], "waiting_us": {"median": 1500.0}, "transfer_us": {"median": 900.0}},
    "arms": {"rounds": [{"compute_ms": 80.0, "comm_ms": 40.0, "step_ms": 95.0}],
             "soak": [{"compute_ms": 80.0, "comm_ms": 40.0, "step_ms": 95.0 + i} for i in range(4)]},
}


class AcceptPageTest(UndrawnTest):
    def page(self, **changes: object) -> str:
        (self.folder / "result.json").write_text(json.dumps({**ACCEPTANCE, **changes}), encoding="utf-8")
        return write_report([self.folder]).read_text(encoding="utf-8")

    def test_says_who_is_to_blame_before_any_figure(self) -> None:
        page = self.page()
        self.assertIn("<h1>FAIL: 6 ranks on 1 node; 3 of 4 rules rated</h1>", page)
        self.assertLess(page.index("Rank 3 reaches half; check its clocks."), page.index("<figure>"))
        self.assertLess(page.index("Of 4 rules, 1 passed, 2 failed, 1 unrated."), page.index("<figure>"))
        self.assertIn("a &lt;b&gt;fabric", page)
        self.assertIn("What did not pass", page)

    def test_draws_what_was_measured(self) -> None:
        page = self.page()
        for name in ("pairs", "devices", "collectives", "scale", "late", "arms", "soak"):
            self.assertTrue((self.folder / "report" / f"{name}.svg").is_file(), name)
        self.assertIn("<dt>bytes were carried by</dt><dd>shared memory</dd>", page)
        self.assertIn("the last one comes 1.50\u00a0ms after the median rank", page)

    def test_what_is_absent_is_said_to_be_not_measured(self) -> None:
        page = self.page(pairs={}, device_rates_flops_per_s=[], collectives=[], scales=[], lateness={}, arms={"rounds": []})
        for title in ("Pairs of ranks", "What each rank can do", "Bandwidth by size", "From few ranks to all", "Who is late", "Steps with computation"):
            self.assertRegex(page, f'<li class="missing">{title}[^<]*: not measured</li>')
        self.assertIn('<li class="missing">The step, again and again: not measured; accept --full does</li>', page)

    def test_units_and_reasons_are_whole(self) -> None:
        why, unit = "a reason of " + 50 * "ten chars " + "and its end", "us of waiting for the last rank"
        page = self.page(judgements=[judgement("lateness", "ranks", "fail", value=INTERVAL, unit=unit) | {"why": why}])
        self.assertIn(f"<td class=\"name\">{unit}</td>", page)
        self.assertIn("and its end</td>", page)

    def test_the_worst_step_is_in_the_page(self) -> None:
        self.assertNotIn("worst_step", self.page())
        (self.folder / "worst_step.json").write_text('{"traceEvents": []}')
        packed = re.search(r'<a download="worst_step.json.gz" href="data:application/octet-stream;base64,([^"]*)"', self.page())
        self.assertEqual(gzip.decompress(base64.b64decode(packed.group(1))), b'{"traceEvents": []}')

    def test_floor_and_ceiling_are_drawn_where_they_are_known(self) -> None:
        (self.folder / "result.json").write_text(json.dumps(ACCEPTANCE), encoding="utf-8")
        picture = next(p for p in accept_page(self.folder / "result.json").pictures if p.name == "collectives")
        gathers, scatters = picture.figure.axes
        self.assertEqual([list(line.get_ydata()) for line in gathers.lines if list(line.get_ydata()) == [50.0, 50.0]],
                         [[50.0, 50.0]])
        self.assertTrue(any(27.0 in line.get_ydata() for line in gathers.lines))
        self.assertFalse(any(27.0 in line.get_ydata() for line in scatters.lines))

    def test_hostile_names_do_nothing(self) -> None:
        self.DRAWN = True
        hostile = make_hostile({k: v for k, v in ACCEPTANCE.items() if k not in ("kind", "schema_version")})
        page = self.page(**hostile)
        self.assertNotIn("<script>", page)
        self.assertNotIn("<img src=x", page)
        self.assertIn("&lt;script&gt;", page)

    def test_damage_is_said_in_a_sentence(self) -> None:
        with self.assertRaisesRegex(ReportError, "result.json: judgements is"):
            self.page(judgements=3)
        with self.assertRaisesRegex(ReportError, "no acceptance of fsdpbench"):
            self.page(judgements=None)
        with self.assertRaisesRegex(ReportError, "gb_per_s"):
            self.page(pairs={"gb_per_s": [["a", 1], [1, 2]]})


class AcceptFigures(FolderTest):
    check = test_figures.Figures.check

    def test_no_text_upon_another(self) -> None:
        (self.folder / "result.json").write_text(json.dumps(ACCEPTANCE), encoding="utf-8")
        for picture in accept_page(self.folder / "result.json").pictures:
            if picture.figure is not None:
                with self.subTest(picture.name):
                    self.check(picture.figure, picture.name)

    def test_a_cluster_of_64_nodes(self) -> None:
        rows = [[0 if a == b else 45.0 - (a == 17) for b in range(64)] for a in range(64)]
        self.check(draw_pairs(rows, "nodes"), "pairs of 64 nodes")

    def test_the_matrix_has_both_directions(self) -> None:
        axes = draw_pairs([[0, 30.0], [20.0, 0]], "ranks").axes[0]
        values = axes.images[0].get_array()
        self.assertEqual((float(values[0, 1]), float(values[1, 0])), (30.0, 20.0))
        self.assertTrue(values.mask[0, 0] and values.mask[1, 1])


