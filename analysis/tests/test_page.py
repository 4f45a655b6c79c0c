"""Pages: everything is said, nothing from a file acts, and a browser shows them whole."""

from __future__ import annotations

import base64
import contextlib
import csv
import gzip
import html.parser
import io
import json
import re
import tempfile
import unicodedata
import unittest
from pathlib import Path

from support import DATA, HOSTILE, BrowserTest, FolderTest, UndrawnTest, make_hostile

from PIL import Image

from fsdpbench.analysis.__main__ import main
from fsdpbench.analysis.trace import trace_attachments
from fsdpbench.analysis.figures.timeline import choose_ranks
from fsdpbench.analysis.report import write_report
from fsdpbench.analysis.timeline_command import load_part, write_contrast
from fsdpbench.analysis.numbers import would_help
from fsdpbench import fields
from fsdpbench.fields import ReportError



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


class Whole(FolderTest):
    def test_run(self) -> None:
        page = write_report([DATA / "run"], self.folder / "out").read_text(encoding="utf-8")
        for name, value in Tags(page).attributes:  # it is self-contained
            if name in ("src", "href"):
                self.assertTrue(value.startswith("data:"), value[:60])
        text = "".join(Tags(page).text)
        self.assertIn("A step takes 100\u00a0ms: 43\u00a0% of it computation", text)
        self.assertIn('What would help most: fsdp.backward_prefetch is "none"', text)
        self.assertIn("Emulated links", text)
        self.assertEqual(page.count("<figure>"), 7)
        self.assertNotIn("Left out", page)
        self.assertTrue((self.folder / "out/timeline.svg").is_file())
        self.assertTrue((self.folder / "out/timeline.png").is_file())


class Pages(UndrawnTest):
    DRAWN = True

    def page(self, folder: Path, **arguments) -> str:
        return write_report([folder], self.folder / "out", **arguments).read_text(encoding="utf-8")

    def test_cells_that_are_not_rated_and_parts_that_do_not_add_up(self) -> None:
        best = min((c for c in json.loads((DATA / "sweep/sweep.json").read_text(encoding="utf-8"))["cells"]
                    if c.get("metrics")), key=lambda c: c["metrics"]["step_ms"]["median"])["id"]
        def change(value):
            for cell in value["cells"]:
                if cell.get("metrics"):
                    cell["metrics"]["step_ms"]["median"] = 77.7
                if cell["id"] == best:
                    cell |= {"rated": False, "not_rated_because": "computation took too long"}
        page = self.page(self.copy("sweep", change))
        text = "".join(Tags(page).text)
        self.assertIn("Not rated, so in the table only: 1 of 40 cells.", text)
        self.assertIn("Computation took too long.", text)
        self.assertIn("39 of 40 cells measured", text)
        svg = (self.folder / "out/heatmap.svg").read_text(encoding="utf-8")
        self.assertEqual(svg.count("<!-- not rated -->"), 1)
        self.assertIn("medians of their own in this file", page)
        svg = (self.folder / "out/breakdown.svg").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"<!-- (\d+\.\d\xa0ms) -->", svg)), {"77.7\u00a0ms"})

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
            acting = {c for c in page if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - {"\n"}
            self.assertEqual(acting, set(), "shown as \\x1b, never in a page")
            self.assertIn("\\xe2\\x80\\xae\\x07\\x1b[31m\\x00", page)


class Words(UndrawnTest):
    def page(self, folder: Path, **arguments) -> str:
        return write_report([folder], self.folder / "out", **arguments).read_text(encoding="utf-8")

    def test_two_runs(self) -> None:
        page = write_report(self.pair(), self.folder / "out").read_text(encoding="utf-8")
        text = "".join(Tags(page).text)
        self.assertIn("B takes 50\u00a0% less step time than A: 50.2\u00a0ms a step instead of 100\u00a0ms.", text)
        self.assertIn('<td class="name">fsdp.backward_prefetch</td><td class="name">none</td><td class="name">pre</td>',
                      page)
        self.assertNotIn("fsdp.forward_prefetch</td>", page)
        self.assertIn("CPU, B", page)
        self.assertEqual((page.count("<figure>"), page.count("<a download")), (5, 2))

    def test_comparison(self) -> None:
        text = "".join(Tags(self.page(self.comparison())).text)
        for words in ("B takes 50.0 % less step time than A.", "A (slow.toml): A step takes", "halves of one side's own trials",
                      "fsdp.backward_prefetchnonepre", "median of 3 trials"):
            self.assertIn(words, text)

    def test_exit_codes(self) -> None:
        self.assertEqual(main(["report", str(DATA / "run"), "--out", str(self.folder / "out")]), 0)
        self.assertEqual(main(["report", *map(str, self.pair()), "--out", str(self.folder / "two")]), 0)
        self.assertEqual(main(["report", str(DATA / "run"), str(DATA / "sweep")]), 2)
        self.assertEqual(main(["report", str(self.folder / "nothing")]), 2)
        self.assertEqual(main(["report", str(self.folder)]), 2)
        (self.folder / "file").write_text("")
        self.assertEqual(main(["report", str(DATA / "run"), "--out", str(self.folder / "file/out")]), 4)

    def test_the_trace_is_in_the_page_unless_it_is_large(self) -> None:
        page = self.page(DATA / "run")
        packed = re.search(r'<a download="trace.json.gz" href="data:application/octet-stream;base64,([^"]*)"', page)
        self.assertEqual(gzip.decompress(base64.b64decode(packed.group(1))), (DATA / "run/trace.json").read_bytes())
        attachment = trace_attachments(DATA / "run", most_bytes=100)[0]
        self.assertIsNone(attachment.data)
        self.assertIn("too large to be in this page: it is trace.json of the result folder run", attachment.text)

    def test_the_ranks_to_look_at_are_drawn_first(self) -> None:
        def late(value):
            value["causes"][0]["late_rank"] = 3
            value["exposed_intervals"] = []
        part = load_part(self.copy("run", late))
        self.assertEqual([r.rank for r in choose_ranks(part, 1)], [3])
        self.assertIn("late", part.marked[3])

    def test_what_differs_from_the_presets_is_a_table(self) -> None:
        def changed(value):
            value["config_changed"] = [{"key": "fsdp.backward_prefetch", "value": "none", "default": "pre"}]
        page = self.page(self.copy("run", changed))
        self.assertIn('<td class="name">fsdp.backward_prefetch</td><td class="name">none</td><td class="name">pre</td>',
                      page)

    def test_gpus_and_what_they_share_are_tables(self) -> None:
        def gpus(value):
            value["gpus"] = [
                {"rank": 0, "limits": {"sm_mhz": 1980, "power_w": 700},
                 "steps": {"sm_mhz": [1755, None, 1725], "power_w": [640.0, None, 650.0], "temperature_c": [60, 61, 59],
                           "held_down_by": ["power cap", None, "power cap, hardware thermal slowdown"]}},
                {"rank": 1, "unknown_because": "There is no library."}]
        text = " ".join(part.strip() for part in Tags(self.page(self.copy("run", gpus))).text if part.strip())
        self.assertIn("0 1740 of 1980 645 of 700 61 hardware thermal slowdown, power cap", text)
        self.assertIn("1 – – – There is no library.", text)

    def test_a_sweep_without_rated_cells(self) -> None:
        def all_unrated(value):
            for cell in value["cells"]:
                cell["rated"] = False
        page = self.page(self.copy("sweep", all_unrated))
        self.assertIn("No cell was rated", page)
        self.assertIn('<td class="name">not rated</td>', page)

    def test_caveats_come_before_any_number(self) -> None:
        def caveats(value):
            value["caveats"] = ["noisy: two halves differ by 33 %", "4 ranks compute on 2 cores"]
        text = "".join(Tags(self.page(self.copy("run", caveats))).text)
        self.assertLess(text.index("Noisy: two halves differ by 33 %."), text.index("4 ranks compute on 2 cores."))
        self.assertLess(text.index("4 ranks compute"), text.index("A step takes"))

    def test_memory_is_what_the_program_prints(self) -> None:
        def allocated(value):
            value["memory"]["caching_allocator"] = {"peak_allocated_bytes": 3 << 20, "peak_reserved_bytes": 7 << 20}
        rows = [re.sub("<[^>]*>", " ", row) for row in self.page(self.copy("run", allocated)).split("<tr")]
        numbers = [" ".join(row.split()) for row in rows if "reserved by PyTorch" in row or "at most, of that" in row]
        self.assertRegex(numbers[0], r"peak memory 7\.00 MiB reserved by PyTorch")
        self.assertRegex(numbers[1], r"allocated 3\.00 MiB at most, of that")
        self.assertFalse([row for row in rows if "its own peak" in row], "those of another allocator")

    def test_a_run_that_is_not_rated(self) -> None:
        def unrated(value):
            value |= {"rated": False, "not_rated_because": "this machine did not keep up", "causes": []}
        folder = self.copy("run", unrated)
        text = "".join(Tags(self.page(folder)).text)
        self.assertEqual(text.count("Not rated: this machine did not keep up."), 1)
        self.assertIn("Why computation waited: the run is not rated", text)
        self.assertNotIn("What would help", text)
        both = write_report([DATA / "run", folder], self.folder / "two").read_text(encoding="utf-8")
        self.assertIn("B: Not rated: this machine did not keep up.", both)

    def test_what_has_no_known_cause_has_no_remedy(self) -> None:
        causes = [fields.Cause({"cause": cause, "ms": ms, "advice": advice}) for cause, ms, advice in
                  (("straggler", 2.0, "look at it"), ("unknown", 9.0, "who knows"),
                   ("link_bound", 1.0, "a faster link"))]
        self.assertEqual(would_help(causes, 3), ["Not explained: who knows", "What would help most: look at it",
                                                 "Then: a faster link"])

    def test_the_interval_is_called_what_it_is(self) -> None:
        def three(value):
            for cell in value["cells"]:
                if cell.get("metrics"):
                    cell["metrics"]["step_ms"]["n"] = 3
        page = self.page(self.copy("sweep", three))
        self.assertIn("range of 3 trials", page)
        self.assertNotIn("95", "".join(re.findall(r"<th[^>]*>([^<]*)", page)))

    def test_a_simulation_has_the_interval_of_its_prediction_and_nothing_measured(self) -> None:
        def simulated(value):
            value["world"]["simulated"] = True
            value["metrics"]["step_ms"] |= {"median": 100.0, "ci_low": 100.0, "ci_high": 100.0}
            value["prediction"] = {"from": "published rates", "step_ms": {"low": 80.0, "high": 1396.4}}
        def unsure(value):
            simulated(value)
            value["prediction"] = {"from": "published rates", "no_interval_because": "nobody knows"}
        text = "".join(Tags(self.page(self.copy("run", simulated))).text)
        self.assertEqual(text.count("95\u00a0% interval of a real step 80 to 1396\u00a0ms"), 2)
        self.assertNotIn("100 to 100", text)
        self.assertNotIn("easured were", text)
        self.assertIn("; simulated were ", text)
        (self.folder / "run").rename(self.folder / "sure")
        self.assertNotIn("100 to 100", "".join(Tags(self.page(self.copy("run", unsure))).text))
        self.assertIn("; measured were ", "".join(Tags(self.page(DATA / "run")).text))

    def test_comparison_lists_the_keys_of_the_file(self) -> None:
        def keys(value):
            value["differing_keys"] = [{"key": "only.here", "a": None, "b": 7}]
        text = "".join(Tags(self.page(self.comparison(keys))).text)
        self.assertIn("only.here–7", text)
        self.assertNotIn("fsdp.backward_prefetchnonepre", text)

    def test_comparison_of_stored_results(self) -> None:
        def stored(value):
            value["interleaved"] = False
            value.pop("aa_noise")
            for side in (value["a"], value["b"]):
                side["trials"] = side["trials"][:1]
                side["trials"][0]["steps_ms"] = [90.0, 91.0, 92.0]
        text = "".join(Tags(self.page(self.comparison(stored))).text)
        self.assertIn("They did not take turns", text)
        self.assertIn("Step by step", text)
        self.assertNotIn("trial", text)

    def test_a_result_says_what_is_left_out(self) -> None:
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
        self.assertEqual(page.count("<figure>"), 6)
        self.assertIn("truncated or damaged", page)

    def test_sweep(self) -> None:
        text = "".join(Tags(self.page(DATA / "sweep", memory_budget=20 * 2.0**20)).text)
        self.assertIn("39 of 40 cells measured", text)
        self.assertIn("fastest with backward prefetch", text)
        self.assertIn("failed: rank 1 failed", text)
        self.assertIn("The red line parts", text)

    def test_of_what_is_as_fast_the_cheapest_is_named(self) -> None:
        def alike(value):
            return [c for c in value["cells"] if c.get("metrics") and c["axes"]["emulate.link_gb_per_s"] == 0.05]
        def change(value):
            for i, cell in enumerate(alike(value)):
                step = cell["metrics"]["step_ms"]
                step["median"] = step["ci_low"] = step["ci_high"] = 100 + i * 1e-4 if i < 3 else 200
                cell["memory"]["peak_bytes"]["total"] = (3 << 20, 1 << 20, 2 << 20)[i] if i < 3 else 1 << 19
        folder = self.copy("sweep", change)
        cells = alike(json.loads((folder / "sweep.json").read_text()))
        text = "".join(Tags(self.page(folder)).text)
        said = re.search(r"fastest with ([^()]*) a step \(as fast: ([^;]+); ([^)]+)\); slowest", text)
        self.assertIsNotNone(said, re.findall("[^.]*fastest with[^.]*", text))
        limits = [str(cell["axes"]["fsdp.all_gather_limit"]) for cell in (cells[1], cells[0], cells[2])]
        for limit, words in zip(limits, said.groups()):
            self.assertIn(limit, words)

    def test_a_sweep_whose_fastest_cell_does_not_fit_its_gpu(self) -> None:
        def median(cell):
            return cell["metrics"]["step_ms"]["median"]
        def change(value):
            measured = [c for c in value["cells"] if c.get("metrics")]
            fastest = min(measured, key=median)
            for cell in measured:
                cell["memory"] |= {"reserved_bytes": 3, "device_bytes": 2 if cell is fastest else 4,
                                   "fits": cell is not fastest}
        before = "".join(Tags(self.page(DATA / "sweep")).text)
        text = "".join(Tags(self.page(self.copy("sweep", change))).text)
        self.assertIn("1 of 40 cells need more memory than their GPU has", text)
        self.assertIn("of those that fit (", text)
        said = re.findall(r"fastest with [^,]+, [^;]+;", before)
        self.assertEqual(len(said), len(re.findall(r"fastest with [^,]+, [^;]+;", text)))
        self.assertNotEqual(said, re.findall(r"fastest with [^,]+, [^;]+;", text))

    def test_nothing_measured(self) -> None:
        def fail(value):
            value["cells"] = [{"id": c["id"], "axes": c["axes"], "status": "failed", "reason": "no"}
                              for c in value["cells"]]
        self.assertIn("No cell was measured", self.page(self.copy("sweep", fail)))

    def test_cell_ids_lead_nowhere_else(self) -> None:
        outside = self.copy("run")
        def escape(value):
            value["cells"][0]["id"] = "../../run"
            value["cells"][1]["id"] = str(outside)
            value["cells"][2]["id"] = "\0"
        page = self.page(self.copy("sweep", escape))
        self.assertNotIn("<a href", page)


class CommandLine(FolderTest):
    def test_damaged_folders_are_one_sentence(self) -> None:
        other = {"result.json": "sweep/sweep.json", "sweep.json": "run/result.json", "compare.json": "run/result.json"}
        for name, of_another_kind in other.items():
            for text in (b"", b"\0\xff", b"[1]", b"{}", b'{"schema_version": 1, "wor',
                         (DATA / of_another_kind).read_bytes()):
                with self.subTest(name=name, text=text[:30]):
                    folder = Path(tempfile.mkdtemp(dir=self.folder))
                    (folder / name).write_bytes(text)
                    with contextlib.redirect_stderr(io.StringIO()) as said:
                        self.assertEqual(main(["report", str(folder)]), 2)
                    self.assertRegex(said.getvalue(), rf"^error: [^\n]*{re.escape(str(folder / name))}[^\n]*\n$")

    def test_timeline(self) -> None:
        out = self.folder / "picture.png"
        self.assertEqual(main(["timeline", str(DATA / "run"), str(DATA / "run"), "--out", str(out)]), 0)
        with Image.open(out) as picture:
            self.assertEqual(picture.width, 1600)
        self.assertEqual(main(["timeline", str(DATA / "run"), "--step", "99", "--out", str(out)]), 2)
        self.assertEqual(main(["timeline", str(DATA / "run"), "--out", str(self.folder / "a.exe")]), 2)

    def test_contrast(self) -> None:
        out = self.folder / "contrast.svg"
        self.assertEqual(main(["contrast", *map(str, self.pair()), "--out", str(out)]), 0)
        text = out.read_text(encoding="utf-8")
        self.assertIn("With prefetching: 100\u00a0ms a step", text)
        self.assertIn("communicating", text)

    def test_table(self) -> None:
        def failed(value):
            value["cells"][1] |= {"status": "failed", "reason": 'too little memory, "64 GiB"'}
            del value["cells"][1]["metrics"], value["cells"][1]["memory"]
        out = self.folder / "table.csv"
        self.assertEqual(main(["table", str(self.copy("sweep", failed)), "--out", str(out)]), 0)
        with out.open(encoding="utf-8", newline="") as file:
            first, second, *others = csv.DictReader(file)
        self.assertEqual(len(others), 38)
        self.assertEqual((first["fsdp.all_gather_limit"], first["emulate.link_gb_per_s"]), ("strict:1", "0.05"))
        self.assertEqual((first["step_ms"], first["peak_bytes"], first["failed_because"]),
                         ("184.953262", "18430976", ""))
        self.assertEqual((second["step_ms"], second["peak_bytes"], second["failed_because"]),
                         ("", "", 'too little memory, "64 GiB"'))

    def test_contrast_of_a_rank_without_the_step(self) -> None:
        folder = self.copy("run")
        value = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
        rank = choose_ranks(load_part(folder), 1)[0].rank  # its pid is one more
        value["traceEvents"] = [e for e in value["traceEvents"] if e.get("cat") != "step" or e["pid"] != rank + 1]
        self.assertIn("step", [e.get("cat") for e in value["traceEvents"]])
        (folder / "trace.json").write_text(json.dumps(value), encoding="utf-8")
        with self.assertRaisesRegex(ReportError, f"trace.json does not say how long step 5 of rank {rank} took"):
            write_contrast([folder], self.folder / "contrast.svg")

    def test_error_names_the_folder(self) -> None:
        with self.assertRaisesRegex(ReportError, "neither result.json nor sweep.json"):
            write_report([self.folder])


# Says in the title what a person would see: pictures that did not load, texts wider than their boxes.
PROBE = """<script>
window.addEventListener('load', () => {
  const found = {images: 0, broken: 0, wide: []};
  for (const image of document.images) { found.images++; if (!image.naturalWidth) found.broken++; }
  for (const e of document.querySelectorAll('h1,h2,h3,p,li,dd,dt,td,th,figcaption,pre,.verdict,.badge'))
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') found.wide.push(e.textContent.slice(0, 60));
  if (document.documentElement.scrollWidth > window.innerWidth) found.wide.push('the page');
  parent.postMessage(JSON.stringify(found), '*');
});
</script></body>"""


class Browser(BrowserTest):
    def check(self, folder: Path, images: int, width: int = 1280) -> None:
        page = write_report([folder], self.folder / "out")
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
        # A window has a least width, a frame has not.
        frame = self.folder / "out/frame.html"
        frame.write_text("<body style='margin:0'><script>onmessage = e => document.body.setAttribute('data-found', e.data)"
                         f"</script><iframe src='probed.html' width={width} height=2400></iframe></body>", encoding="utf-8")
        done = self.chromium("--dump-dom", "--virtual-time-budget=20000", frame.as_uri())
        match = re.search(r'data-found="([^"]*)"', done.stdout)
        self.assertIsNotNone(match, done.stderr[-2000:])
        found = json.loads(match.group(1).replace("&quot;", '"').replace("&amp;", "&"))
        self.assertEqual((found["images"], found["broken"], found["wide"]), (images, 0, []))

    def test_run(self) -> None:
        self.check(DATA / "run", 7)

    def test_sweep(self) -> None:
        self.check(DATA / "scaling", 6)

    def test_phone(self) -> None:
        self.check(DATA / "run", 7, width=390)

    def test_hostile(self) -> None:
        def hostile(value):
            value["config"], value["world"] = make_hostile(value["config"]), make_hostile(value["world"])
            value["causes"] = make_hostile(value["causes"])
        self.check(self.copy("run", hostile), 7)


if __name__ == "__main__":
    unittest.main()
