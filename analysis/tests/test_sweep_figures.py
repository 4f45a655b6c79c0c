"""Figures of sweeps of one to five axes with long names: every name in full, none upon another, none left out unsaid."""

from __future__ import annotations

import itertools
import json
import os
import unittest
from pathlib import Path

from support import DATA, FigureTest

from fsdpbench.analysis.style import look
from fsdpbench.analysis.sweep_page import sweep_page

# The first is drawn along x; the second becomes lines, the others panels. Names differ at their ends only.
LONG = "reshard_after_forward_with_a_name_that_somebody_chose_carefully"
AXES = [("mesh.ranks", [8, 16, 1048576]),
        ("fsdp.backward_prefetch", [f"{LONG}_{i:02}" for i in range(9)]),
        ("fsdp.all_gather_limit", [1, 2]),
        ("model.preset", ["a_decoder_of_about_eight_billion_parameters_dense", "a_decoder_of_about_eight_billion_parameters_moe"]),
        ("simulate.cluster", ["eight_nodes_of_eight_gpus_with_rails", "eight_nodes_of_eight_gpus_without"])]


class SweepFigures(FigureTest):
    def sweep(self, count: int, limits: int = 2) -> Path:
        """Of the first `count` axes; of a single one that of the settings."""
        axes = [(key, list(range(1, limits + 1)) if key == "fsdp.all_gather_limit" else values)
                for key, values in (AXES[:count] if count > 1 else AXES[1:2])]
        value = json.loads((DATA / "sweep/sweep.json").read_text(encoding="utf-8"))
        value["axes"] = [{"key": key, "values": values} for key, values in axes]
        value["x"], value["series"] = axes[0][0], ["fsdp.backward_prefetch"]
        like = value["cells"][0]
        value["cells"] = []
        for n, at in enumerate(itertools.product(*(range(len(values)) for _, values in axes))):
            cell = json.loads(json.dumps(like)) | {"id": f"cell-{n}"}
            cell["axes"] = {key: values[i] for (key, values), i in zip(axes, at)}
            scale = 1 + 0.3 * at[0] + 0.07 * sum(at[1:])
            step = cell["metrics"]["step_ms"]
            for name in ("median", "ci_low", "ci_high"):
                step[name] *= scale
            cell["metrics"]["tokens_per_s"] = 1000.0 * (at[0] + 1) / scale
            cell["memory"]["peak_bytes"]["total"] = int(1e9 * (1 + 0.1 * (n % 13)))
            value["cells"].append(cell)
        folder = self.folder / f"sweep-{count}"
        folder.mkdir()
        (folder / "sweep.json").write_text(json.dumps(value), encoding="utf-8")
        return folder / "sweep.json"

    def keep(self, figure, name: str) -> None:
        """For somebody who looks: FSDPBENCH_PICTURES names a folder."""
        if os.environ.get("FSDPBENCH_PICTURES"):
            figure.savefig(Path(os.environ["FSDPBENCH_PICTURES"]) / f"{name}.png")

    def test_one_to_five_axes(self) -> None:
        for count in range(1, 6):
            page = sweep_page(self.sweep(count))
            drawn = [p for p in page.pictures if p.figure is not None]
            self.assertTrue(any(p.name.startswith("over-") for p in drawn), count)
            self.assertTrue(count == 1 or any(p.name.startswith("scaling") for p in drawn), count)
            said = ""
            for picture in drawn:
                with self.subTest(axes=count, picture=picture.name):
                    if picture.name[-2:] in ("-3", "-4") or picture.name.startswith(("over-2", "over-3")) and count != 3:
                        continue  # as the first ones
                    self.keep(picture.figure, f"{count}-{picture.name}")
                    texts = self.check(picture.figure, picture.name)
                    self.assert_ticks_differ(picture.figure)
                    self.assertFalse([t for t in texts if "…" in t])
                    for legend in picture.figure.legends:
                        colours = [handle.get_color() for handle in legend.legend_handles if hasattr(handle, "get_color")]
                        self.assertEqual(len(set(colours)), len(colours), "a colour a setting")
                        if picture.name.startswith("over-"):
                            self.assertLessEqual(len(colours), 8)
                    if picture.name.startswith("over-"):
                        said += " ".join(texts).replace("\n", "")
            for name in AXES[1][1]:
                self.assertIn(name, said, f"{count} axes")

    def test_bold_is_what_the_text_calls_fastest(self) -> None:
        """Of two as fast the one with less memory, although the other's median is lower."""
        path = self.sweep(2)
        value = json.loads(path.read_text(encoding="utf-8"))
        value["axes"] = [{"key": "fsdp.backward_prefetch", "values": ["none", "pre"]}, {"key": "fsdp.all_gather_limit", "values": [1, 2]}]
        value["cells"] = value["cells"][:4]
        for cell, (prefetch, limit, ms, peak) in zip(value["cells"], (("none", 1, 90, 10), ("none", 2, 80, 20),
                                                                      ("pre", 1, 50.1, 30), ("pre", 2, 50, 40))):
            cell["axes"] = {"fsdp.backward_prefetch": prefetch, "fsdp.all_gather_limit": limit}
            cell["metrics"]["step_ms"].update(median=ms, ci_low=ms, ci_high=ms)
            cell["memory"]["peak_bytes"]["total"] = peak
        path.write_text(json.dumps(value), encoding="utf-8")
        page = sweep_page(path)
        self.assertIn("fastest with backward prefetch pre, all-gather limit 1, 50.1\xa0ms", page.verdict[0])
        heatmap = next(p for p in page.pictures if p.name == "heatmap")
        bold = [text.get_text() for axes in heatmap.figure.axes for text in axes.texts if text.get_fontweight() == "bold"]
        self.assertEqual(bold, ["50.1 ms"])

    def test_what_is_not_drawn_is_said(self) -> None:
        captions = [p.caption for p in sweep_page(self.sweep(5, limits=3)).pictures if p.name.startswith("over-1")]
        self.assertEqual(len(captions), 4)  # two parts of columns, two of lines
        for caption in captions:
            self.assertIn("In the table only: 4 further columns.", caption)

    def test_the_first_24_colours_differ(self) -> None:
        self.assertEqual(len({look(i)[0] for i in range(24)}), 24)

    def assert_ticks_differ(self, figure) -> None:
        for axes in figure.axes:
            for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
                names = [t.get_text() for t in labels if t.get_visible() and t.get_text()]
                self.assertEqual(len(set(names)), len(names), names)


if __name__ == "__main__":
    unittest.main()
