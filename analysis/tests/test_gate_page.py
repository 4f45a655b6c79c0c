"""The page of a gate: what is worse first, what differs between the sides, and nothing that is not in the file."""

from __future__ import annotations

import json

import test_figures  # not its names: its tests would run here, too
from support import FolderTest, UndrawnTest, make_hostile

from fsdpbench.analysis.gate_page import gate_page
from fsdpbench.analysis.report import write_report
from fsdpbench.fields import ReportError


def change(figure: str, verdict: str, ratio: float, better: str = "more", **more: object) -> dict:
    return {"figure": figure, "unit": "GB/s" if better == "more" else "ms", "better": better, "verdict": verdict,
            "why": f"because of {figure}", "by": "several results", "before": {"median": 10.0, "ci_low": 9.9, "ci_high": 10.1, "n": 5},
            "now": {"median": 10 * ratio, "ci_low": 10 * ratio, "ci_high": 10 * ratio, "n": 1}, "ratio": ratio,
            "ratio_low": 0.95 * ratio, "ratio_high": 1.05 * ratio, **more}


def side(driver: str, *names: str) -> dict:
    return {"kind": "acceptance", "summary": "8 x H100, 8 ranks",
            "machine": {"hardware": [{"name": "GPUs", "value": "8 x H100"}], "software": [{"name": "CUDA", "value": driver}]},
            "results": [{"name": name, "date": "2026-01-02T03:04:05+0000"} for name in names]}


GATE = {
    "schema_version": 2, "kind": "gate", "verdict": "fail", "sentence": "WORSE: 1 of 4 figures", "threshold": 0.05,
    "baseline": "acceptance-1f2e3d4c", "before": side("driver 12.8", "mon", "tue", "wed"), "now": side("driver 13.0", "thu"),
    "differences": [{"name": "CUDA", "part": "software", "before": "driver 12.8", "now": "driver 13.0"}], "differing_keys": [],
    "changes": [change("pairs", "pass", 1.0), change("all_gather", "better", 1.2), change("step", "fail", 1.3, "less"),
                change("peak memory", "unrated", 1.0, "less", left_out=["tue (70 GB/s)"])],
}


class GatePageTest(UndrawnTest):
    def write(self, **changes: object) -> None:
        (self.folder / "gate.json").write_text(json.dumps({**GATE, **changes}), encoding="utf-8")

    def page(self, **changes: object) -> str:
        self.write(**changes)
        return write_report([self.folder]).read_text(encoding="utf-8")

    def test_what_is_worse_comes_first(self) -> None:
        page = self.page()
        table = page[page.index("All figures"):]
        places = [table.index(f'<td class="name">{name}</td>') for name in ("step", "all_gather", "pairs", "peak memory")]
        self.assertEqual(places, sorted(places))
        self.assertIn("step: because of step.", page)
        self.assertIn("left out: tue (70 GB/s)", page)

    def test_both_sides_are_beside_each_other(self) -> None:
        page = self.page()
        self.assertIn('<td class="name">CUDA</td><td class="name">software</td><td class="name">driver 12.8</td>'
                      '<td class="name">driver 13.0</td>', page)
        for words in ("CUDA, before", "CUDA, now", "<dt>GPUs</dt>", "mon", "thu against acceptance-1f2e3d4c"):
            self.assertIn(words, page)

    def test_worse_is_to_the_left_whichever_way_it_counts(self) -> None:
        self.write()
        axes = gate_page(self.folder / "gate.json").pictures[0].figure.axes[0]
        names = [label.get_text() for label in axes.get_yticklabels()]
        points = {names[int(line.get_ydata()[0])]: line.get_xdata()[0] for line in axes.lines
                  if len(line.get_xdata()) == 1}
        self.assertLess(points["step"], -20)
        self.assertGreater(points["all_gather"], 15)

    def test_few_results_are_said_first(self) -> None:
        page = self.page(before=side("driver 12.8", "mon"))
        self.assertIn("The baseline has 1 result.", page)
        self.assertNotIn("The baseline has", self.page())

    def test_nothing_compared(self) -> None:
        page = self.page(verdict="not comparable", sentence="NOT COMPARED: they are not of the same machine", changes=[])
        self.assertIn("NOT COMPARED: they are not of the same machine", page)
        self.assertNotIn("All figures", page)

    def test_hostile_names_do_nothing(self) -> None:
        self.DRAWN = True
        page = self.page(**make_hostile({k: v for k, v in GATE.items() if k not in ("schema_version", "kind")}))
        self.assertNotIn("<script>", page)
        self.assertNotIn("<img src=x", page)

    def test_damage_is_said_in_a_sentence(self) -> None:
        with self.assertRaisesRegex(ReportError, "gate.json has schema_version 99"):
            self.page(schema_version=99)
        with self.assertRaisesRegex(ReportError, r"changes\[0\].ratio"):
            self.page(changes=[{**GATE["changes"][0], "ratio": "x"}])


class GateFigures(FolderTest):
    check = test_figures.Figures.check

    def test_no_text_upon_another(self) -> None:
        many = [change(f"reduce_scatter of {i}.26 KiB on 64 ranks, in place", "pass", 1 + i / 100) for i in range(40)]
        for changes in (GATE["changes"], many):
            (self.folder / "gate.json").write_text(json.dumps({**GATE, "changes": changes}), encoding="utf-8")
            self.check(gate_page(self.folder / "gate.json").pictures[0].figure, "changes")
