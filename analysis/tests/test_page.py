"""Pages: everything is said, nothing from a file acts, and a browser shows them whole."""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from support import DATA, HOSTILE, FolderTest, make_hostile

from PIL import Image

from fsdpbench_analysis.__main__ import main
from fsdpbench_analysis.report import write_report
from fsdpbench_analysis.schema import ReportError

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") for path in [shutil.which(name)]
                 if path), None)


class Tags(html.parser.HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data) -> None:
        self.text.append(data)


class Content(FolderTest):
    def page(self, folder: Path, **arguments) -> str:
        return write_report(folder, self.folder / "out", **arguments).read_text(encoding="utf-8")

    def test_run(self) -> None:
        page = self.page(DATA / "run")
        text = "".join(Tags(page).text)
        self.assertIn("A step takes 100\u00a0ms: 43\u00a0% of it computation", text)
        self.assertIn('What would help most: fsdp.backward_prefetch is "none"', text)
        self.assertIn("Emulated links", text)
        self.assertEqual(page.count("<figure>"), 6)
        self.assertNotIn("Left out", page)
        self.assertTrue((self.folder / "out/timeline.svg").is_file())
        self.assertTrue((self.folder / "out/timeline.png").is_file())

    def test_self_contained(self) -> None:
        for name, value in Tags(self.page(DATA / "run")).attributes:
            if name == "src":
                self.assertTrue(value.startswith("data:image/"), value[:60])

    def test_older_result_says_what_is_left_out(self) -> None:
        def strip(value):
            for key in ("causes", "collectives", "exposed_intervals", "steps"):
                value.pop(key)
            value["memory"].pop("timeline")
        folder = self.copy("run", strip)
        (folder / "trace.json").unlink()
        text = "".join(Tags(self.page(folder)).text)
        for words in ("Why computation waited: the result file lists no cause", "Memory over one step: ",
                      "has neither trace.json nor trace.json.gz"):
            self.assertIn(words, text)

    def test_damaged_trace_costs_only_its_figure(self) -> None:
        folder = self.copy("run")
        (folder / "trace.json").write_text('{"schemaVersion":1,"traceEv')
        page = self.page(folder)
        self.assertEqual(page.count("<figure>"), 5)
        self.assertIn("truncated or damaged", page)

    def test_sweep(self) -> None:
        text = "".join(Tags(self.page(DATA / "sweep", memory_budget=20 * 2.0**20)).text)
        self.assertIn("39 of 40 cells measured", text)
        self.assertIn("fastest with backward prefetch", text)
        self.assertIn("failed: rank 1 failed", text)
        self.assertIn("The red line parts", text)

    def test_nothing_measured(self) -> None:
        def fail(value):
            value["cells"] = [{"id": c["id"], "axes": c["axes"], "status": "failed", "reason": "no"}
                              for c in value["cells"]]
        self.assertIn("No cell was measured", self.page(self.copy("sweep", fail)))

    def test_hostile_texts_are_shown_not_run(self) -> None:
        def hostile_run(value):
            for key in ("config", "world", "causes", "collectives"):
                value[key] = make_hostile(value[key])
        def hostile_sweep(value):
            value["title"] = HOSTILE
            value["world"] = make_hostile(value["world"])
            for axis in value["axes"]:
                axis["values"] = make_hostile(axis["values"])
            for cell in value["cells"]:
                for key in ("id", "axes", "reason"):
                    if key in cell:
                        cell[key] = make_hostile(cell[key])
        for folder in (self.copy("run", hostile_run), self.copy("sweep", hostile_sweep)):
            page = self.page(folder)
            tags = Tags(page)
            self.assertNotIn("script", tags.tags)
            self.assertFalse([a for a, _ in tags.attributes if a.startswith("on")])
            self.assertIn("document.title='owned'", "".join(tags.text))

    def test_cell_ids_lead_nowhere_else(self) -> None:
        outside = self.copy("run")
        def escape(value):
            value["cells"][0]["id"] = "../../run"
            value["cells"][1]["id"] = str(outside)
            value["cells"][2]["id"] = "\0"
        page = self.page(self.copy("sweep", escape))
        self.assertNotIn("<a href", page)


class CommandLine(FolderTest):
    def test_exit_codes(self) -> None:
        self.assertEqual(main(["report", str(DATA / "run"), "--out", str(self.folder / "out")]), 0)
        self.assertEqual(main(["report", str(self.folder / "nothing")]), 2)
        self.assertEqual(main(["report", str(self.folder)]), 2)
        (self.folder / "file").write_text("")
        self.assertEqual(main(["report", str(DATA / "run"), "--out", str(self.folder / "file/out")]), 4)

    def test_timeline(self) -> None:
        out = self.folder / "picture.png"
        self.assertEqual(main(["timeline", str(DATA / "run"), str(DATA / "run"), "--out", str(out)]), 0)
        with Image.open(out) as picture:
            self.assertEqual(picture.width, 1600)
        self.assertEqual(main(["timeline", str(DATA / "run"), "--step", "99", "--out", str(out)]), 2)
        self.assertEqual(main(["timeline", str(DATA / "run"), "--out", str(self.folder / "a.exe")]), 2)

    def test_error_names_the_folder(self) -> None:
        with self.assertRaisesRegex(ReportError, "neither result.json nor sweep.json"):
            write_report(self.folder)


# Says in the title what a person would see: pictures that did not load, texts wider than their boxes.
PROBE = """<script>
window.addEventListener('load', () => {
  const found = {images: 0, broken: 0, wide: []};
  for (const image of document.images) { found.images++; if (!image.naturalWidth) found.broken++; }
  for (const e of document.querySelectorAll('h1,h2,h3,p,li,dd,dt,td,th,figcaption,pre,.verdict,.badge'))
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') found.wide.push(e.textContent.slice(0, 60));
  if (document.documentElement.scrollWidth > window.innerWidth) found.wide.push('the page');
  document.body.setAttribute('data-found', JSON.stringify(found));
});
</script></body>"""


@unittest.skipUnless(CHROMIUM, "no Chromium is installed (Debian: chromium)")
class Browser(FolderTest):
    def chromium(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                               "--enable-logging=stderr", f"--user-data-dir={self.folder / 'profile'}",
                               "--window-size=1280,2400", *arguments], capture_output=True, timeout=120, text=True,
                              env={**os.environ, "HOME": str(self.folder)})

    def check(self, folder: Path, images: int) -> None:
        page = write_report(folder, self.folder / "out")
        shot = self.folder / "shot.png"
        done = self.chromium(f"--screenshot={shot}", page.as_uri())
        self.assertEqual(re.findall(r"CONSOLE.*", done.stderr), [])
        with Image.open(shot) as opened:
            picture = opened.convert("L")
        dark = sum(picture.histogram()[:200]) / (picture.width * picture.height)
        self.assertTrue(0.01 < dark < 0.7, f"{dark:.3f} of the page is not white")
        # A copy that may run the probe; the page itself forbids all scripts.
        probed = self.folder / "out/probed.html"
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
        probed.write_text(text.replace("</body>", PROBE), encoding="utf-8")
        done = self.chromium("--dump-dom", probed.as_uri())
        match = re.search(r'data-found="([^"]*)"', done.stdout)
        self.assertIsNotNone(match, done.stderr[-2000:])
        found = json.loads(match.group(1).replace("&quot;", '"').replace("&amp;", "&"))
        self.assertEqual((found["images"], found["broken"], found["wide"]), (images, 0, []))

    def test_run(self) -> None:
        self.check(DATA / "run", 6)

    def test_sweep(self) -> None:
        self.check(DATA / "scaling", 5)

    def test_hostile(self) -> None:
        def hostile(value):
            value["config"], value["world"] = make_hostile(value["config"]), make_hostile(value["world"])
            value["causes"] = make_hostile(value["causes"])
        self.check(self.copy("run", hostile), 6)


if __name__ == "__main__":
    unittest.main()
