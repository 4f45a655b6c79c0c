"""Figures: no text upon another, none outside the picture, the same picture twice."""

from __future__ import annotations

import unittest
from itertools import combinations
from unittest import mock

from support import DATA, HOSTILE, FolderTest, make_hostile

from matplotlib.text import Text

from fsdpbench_analysis.page import svg_of
from fsdpbench_analysis.run_page import run_page
from fsdpbench_analysis.sweep_page import sweep_page


def texts_of(figure):
    """The texts that are drawn, with their boxes in pixels and their angle; those cut off by their axes are left out."""
    drawn = []
    draw = Text.draw

    def recording(text, renderer):
        drawn.append(text)
        draw(text, renderer)

    with mock.patch.object(Text, "draw", recording):
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found = []
    for text in drawn:
        if text.get_visible() and text.get_text().strip():
            box = Text.get_window_extent(text, renderer)
            cut = text.axes is not None and text.get_clip_on() and not text.axes.bbox.overlaps(box)
            if not cut:
                found.append((text.get_text(), box, text.get_rotation()))
    return found


class Figures(FolderTest):
    def check(self, figure, name: str) -> None:
        texts = texts_of(figure)
        self.assertGreater(len(texts), 3, name)
        width, height = figure.bbox.width, figure.bbox.height
        for text, box, _ in texts:
            self.assertTrue(box.x0 > -2 and box.y0 > -2 and box.x1 < width + 2 and box.y1 < height + 2,
                            f"{name}: {text!r} is outside: {box} of {width} x {height}")
        for (a, box_a, turn_a), (b, box_b, turn_b) in combinations(texts, 2):
            if turn_a not in (0, 90) or turn_b not in (0, 90):
                continue  # the box around a slanting text is larger than the text
            across = min(box_a.x1, box_b.x1) - max(box_a.x0, box_b.x0)
            upward = min(box_a.y1, box_b.y1) - max(box_a.y0, box_b.y0)
            self.assertFalse(across > 1 and upward > 3, f"{name}: {a!r} and {b!r} overlap by {across} x {upward}")

    def check_page(self, page, least: int) -> None:
        drawn = [p for p in page.pictures if p.figure is not None]
        self.assertGreaterEqual(len(drawn), least, [(p.name, p.reason) for p in page.pictures])
        for picture in drawn:
            with self.subTest(picture.name):
                self.check(picture.figure, picture.name)

    def test_run(self) -> None:
        self.check_page(run_page(DATA / "run/result.json", self.folder), 6)

    def test_prefetch_and_limit(self) -> None:
        self.check_page(sweep_page(DATA / "sweep/sweep.json", self.folder, 20 * 2.0**20), 4)

    def test_model_batch_ranks(self) -> None:
        self.check_page(sweep_page(DATA / "scaling/sweep.json", self.folder), 5)

    def test_long_names(self) -> None:
        def long_names(value):
            for i, axis in enumerate(value["axes"]):
                if axis["key"] == "fsdp.all_gather_limit":
                    axis["values"] = [f"a_rather_long_limit_{v}" for v in axis["values"]]
            for cell in value["cells"]:
                cell["axes"]["fsdp.all_gather_limit"] = f"a_rather_long_limit_{cell['axes']['fsdp.all_gather_limit']}"
        self.check_page(sweep_page(self.copy("sweep", long_names) / "sweep.json", self.folder), 4)

    def test_hostile_names_are_drawn_as_they_are(self) -> None:
        def hostile(value):
            value["causes"] = make_hostile(value["causes"])
            value["collectives"] = make_hostile(value["collectives"])
            value["memory"]["peak_at"] = make_hostile(value["memory"]["peak_at"])
        page = run_page(self.copy("run", hostile) / "result.json", self.folder)
        for picture in page.pictures:
            self.assertIsNotNone(picture.figure, picture.reason)
            svg = svg_of(picture.figure)
            self.assertNotIn(b"<script", svg)
            self.assertNotIn(b"<img", svg)
        self.assertIn("$", HOSTILE)

    def test_same_input_same_bytes(self) -> None:
        first, second = (run_page(DATA / "run/result.json", self.folder) for _ in range(2))
        for a, b in zip(first.pictures, second.pictures):
            self.assertEqual(svg_of(a.figure), svg_of(b.figure), a.name)


if __name__ == "__main__":
    unittest.main()
