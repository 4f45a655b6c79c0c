"""What the tests share: the recorded files, and copies of them that are changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from itertools import combinations
from pathlib import Path
from typing import Any, Callable, Dict, List
from unittest import mock

import matplotlib.figure
from matplotlib.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
DATA = Path(__file__).resolve().parent / "data"

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") for path in [shutil.which(name)]
                 if path), None)

# In names, titles, reasons: nothing of it may act, anywhere.
HOSTILE = "<script>document.title='owned'</script>\"'&<img src=x onerror=alert(1)> ../../etc/passwd $x^{2}$ \\n \u202e\x07\x1b[31m\x00\x9b\u061c\u200b\ufeff\nline"


class FolderTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def copy(self, kind: str, change: Callable[[Dict[str, Any]], None] = lambda value: None, name: str = "") -> Path:
        """A copy of data/<kind>, its result or sweep changed."""
        target = self.folder / (name or kind)
        target.mkdir()
        for source in (DATA / kind).iterdir():
            value = json.loads(source.read_text(encoding="utf-8"))
            if source.name != "trace.json":
                change(value)
            (target / source.name).write_text(json.dumps(value), encoding="utf-8")
        return target


    def pair(self) -> List[Path]:
        """Two runs: the recorded one, and one in which a key, the step time and the machine differ."""
        def other(value: Dict[str, Any]) -> None:
            value["config"]["fsdp"]["backward_prefetch"] = "pre"
            value["metrics"]["step_ms"]["median"] *= 0.5
            value["world"]["cpu"] = "another CPU"
        return [self.copy("run", name="first"), self.copy("run", other, name="second")]

    def comparison(self, change: Callable[[Dict[str, Any]], None] = lambda value: None) -> Path:
        """A compare.json of three trials a side, B in half of A's time; then changed."""
        run = json.loads((DATA / "run/result.json").read_text(encoding="utf-8"))
        def side(name: str, scale: float, prefetch: str) -> Dict[str, Any]:
            config = json.loads(json.dumps(run["config"]))
            config["fsdp"]["backward_prefetch"] = prefetch
            trials = []
            for i in (1, 0, 2):
                parts = {key: value * (scale + i / 100) for key, value in run["metrics"].items() if key.endswith("_ms")
                         and isinstance(value, float)}
                step = parts["compute_ms"] + parts["exposed_comm_ms"] + parts["exposed_copy_ms"] + parts["idle_ms"]
                trials.append({"steps_ms": [step], "metrics": parts | {"step_ms": {"median": step, "n": 1}}})
            return {"name": name, "step_ms": trials[0]["metrics"]["step_ms"]["median"], "config": config,
                    "trials": trials, "memory": {"peak_bytes": run["memory"]["peak_bytes"]}}
        folder = self.folder / "compared"
        folder.mkdir()
        value = {"schema_version": 1, "sentence": "B takes 50.0 % less step time than A.", "ratio": 0.5, "aa_noise": 0.012,
                 "interleaved": True, "differing_keys": [{"key": "fsdp.backward_prefetch", "a": "none", "b": "pre"}],
                 "a": side("slow.toml", 1.0, "none"), "b": side("quick.toml", 0.5, "pre"), "world": run["world"]}
        change(value)
        (folder / "compare.json").write_text(json.dumps(value))
        return folder


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


class FigureTest(FolderTest):
    def check(self, figure, name: str) -> "list[str]":
        """What is written in it, once it is known that all of it can be read."""
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
        return [text for text, _, _ in texts]


class UndrawnTest(FolderTest):
    """Figures are made and not drawn, which is most of a page's time: for tests that read its words. With DRAWN they are drawn as
    SVG, for tests that read these, but not as PNG."""

    DRAWN = False

    def setUp(self) -> None:
        super().setUp()
        draw = matplotlib.figure.Figure.savefig

        def save(figure: Any, file: Any, **more: Any) -> None:
            draw(figure, file, **more) if self.DRAWN and more["format"] == "svg" else file.write(b"<svg/>")
        patches = [mock.patch("matplotlib.figure.Figure.savefig", save)]
        for measures in ("matplotlib.figure.Figure.draw_without_rendering", "fsdpbench.analysis.figures.canvas.FittingLabels.prune"):
            patches += [] if self.DRAWN else [mock.patch(measures, lambda *_, **__: None)]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)


def run_chromium(home: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={home / 'profile'}",
                           "--window-size=1280,2400", *arguments], capture_output=True, timeout=120, text=True,
                          env={**os.environ, "HOME": str(home)})


@unittest.skipUnless(CHROMIUM, "no Chromium is installed (Debian: chromium)")
class BrowserTest(FolderTest):
    @classmethod
    def setUpClass(cls) -> None:
        """A Chromium that cannot even show an empty page (for want of a library, say) says nothing of ours."""
        with tempfile.TemporaryDirectory() as home:
            try:
                done = run_chromium(Path(home), "--dump-dom", "about:blank")
            except (OSError, subprocess.TimeoutExpired) as error:
                raise unittest.SkipTest(f"{CHROMIUM} does not run here: {error}")
        if done.returncode != 0 or "<html" not in done.stdout:
            raise unittest.SkipTest(f"{CHROMIUM} does not run here: {done.stderr[-300:]}")

    def chromium(self, *arguments: str) -> subprocess.CompletedProcess:
        try:
            return run_chromium(self.folder, *arguments)
        except subprocess.TimeoutExpired:  # it hangs now and then where the machine is busy
            return run_chromium(self.folder, *arguments)


def make_hostile(value: Any, depth: int = 0) -> Any:
    """Every text that is no key of the format becomes hostile."""
    if isinstance(value, dict):
        return {k: make_hostile(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [make_hostile(v, depth + 1) for v in value]
    return HOSTILE + value if isinstance(value, str) else value
