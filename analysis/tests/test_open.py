"""The timeline of `open`: its rows are the trace's, its server lets nobody else in, and a browser draws it."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
from support import DATA, HOSTILE, BrowserTest, FolderTest, make_hostile

import fsdpbench
from fsdpbench.analysis.open_page import make_server, write_timeline_page
from fsdpbench.analysis.open_page import timeline_page
from fsdpbench.analysis.open_rows import load_rows
from fsdpbench.analysis.open_server import Server
from fsdpbench.fields import ReportError

TRACE = DATA / "run/trace.json"


def trace_text(events: List[Dict[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 1, "fsdpbench_schema": 1, "traceEvents": events})


def row(name: str, category: str, tid: int, ts: float, dur: float, **args: Any) -> Dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


class Rows(FolderTest):
    def load(self, *events: Dict[str, Any]):
        path = self.folder / "trace.json"
        path.write_text(trace_text(list(events)))
        return load_rows(path)

    def test_every_row_of_the_trace_is_there_with_its_numbers(self) -> None:
        rows = load_rows(TRACE)
        events = [e for e in json.loads(TRACE.read_text())["traceEvents"] if e["ph"] == "X"]
        wanted = sorted((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000), e["name"], e["args"].get("bytes", -1))
                        for e in events)
        amounts = np.nan_to_num(rows.numbers["bytes"], nan=-1)
        found = sorted((int(b), int(e), rows.texts[n], int(a)) for b, e, n, a in zip(rows.begin, rows.end, rows.name, amounts))
        self.assertEqual([f[2:] for f in found], [w[2:] for w in wanted])
        self.assertTrue(all(abs(f[0] - w[0]) + abs(f[1] - w[1]) <= 1 for f, w in zip(found, wanted)))

    def test_rows_of_a_lane_are_in_order_and_disjoint(self) -> None:
        rows = load_rows(TRACE)
        self.assertEqual(sum(lane.count for lane in rows.lanes), len(rows.begin))
        for lane in rows.lanes:
            part = slice(lane.first, lane.first + lane.count)
            self.assertTrue(np.all(rows.begin[part][1:] >= rows.end[part][:-1]), lane)

    def test_what_lies_in_another_row_has_a_lane_of_its_own(self) -> None:
        rows = self.load(row("outer", "computation", 2, 0, 10), row("inner", "activity", 2, 2, 3), row("next", "copy", 2, 10, 0))
        self.assertEqual([lane.count for lane in rows.lanes], [2, 1])

    def test_an_arrow_leads_from_the_collective_to_what_needed_it_first(self) -> None:
        rows = self.load(row("gather", "communication", 3, 0, 5), row("copy out", "copy", 2, 5, 0),
                         row("forward", "computation", 2, 5, 4),
                         {"ph": "s", "cat": "needed", "name": "needed", "pid": 1, "tid": 3, "ts": 4.999, "id": 7},
                         {"ph": "f", "cat": "needed", "name": "needed", "pid": 1, "tid": 2, "ts": 5, "id": 7, "bp": "e"})
        self.assertEqual([[rows.texts[rows.name[i]] for i in pair] for pair in rows.arrows], [["gather", "forward"]])

    def test_files_that_are_no_merged_trace_are_refused_with_what_to_do(self) -> None:
        cases = {"torch": ({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": []}, "the trace of one rank"),
                 "foreign": ({"traceEvents": []}, "another program wrote it"), "other": ({"cells": []}, "it is no trace"),
                 "empty": ({"schemaVersion": 1, "fsdpbench_schema": 1, "traceEvents": []}, "no complete events"),
                 "times": ({"schemaVersion": 1, "fsdpbench_schema": 1, "traceEvents": [row("a", "copy", 1, 0, 1) | {"ts": 10 ** 400}]},
                           "no numeric ts and dur")}
        for name, (value, words) in cases.items():
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps(value))
            with self.assertRaisesRegex(ReportError, words):
                load_rows(path)
        with self.assertRaisesRegex(ReportError, "there is no such file"):
            make_server([self.folder / "none.json"])
        with self.assertRaisesRegex(ReportError, "fsdpbench trace explain .* --out explained"):
            make_server([self.folder])
        (self.folder / "empty").mkdir()
        with self.assertRaisesRegex(ReportError, "neither trace.json nor trace.json.gz"):
            make_server([self.folder / "empty"])

    def test_names_of_a_trace_cannot_act(self) -> None:
        folder = self.copy("run")
        value = json.loads(TRACE.read_text())
        for event in value["traceEvents"]:
            event["name"] = event["name"] if event["ph"] == "M" else HOSTILE + "</script><script>"
            event["args"] = make_hostile(event.get("args", {}))
        (folder / "trace.json").write_text(json.dumps(value))
        page = timeline_page([folder / "trace.json"])
        self.assertEqual((page.count("<script"), page.count("</script>"), page.count("<img")), (2, 2, 0))


class Served(FolderTest):
    def serve(self, *paths: Path) -> Server:
        server = make_server(list(paths)).start()
        self.addCleanup(server.close)
        return server

    def ask(self, server: Server, way: str, method: str = "GET", **headers: str) -> Tuple[int, Dict[str, str], bytes]:
        _, _, place, token, _ = server.url.split("/")
        connection = http.client.HTTPConnection(place, timeout=60)
        self.addCleanup(connection.close)
        connection.putrequest(method, way.replace("TOKEN", token), skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def test_timeline_report_and_trace_are_served_to_who_has_the_token(self) -> None:
        server = self.serve(DATA / "run")
        self.assertTrue(server.url.startswith("http://127.0.0.1:"))
        code, headers, page = self.ask(server, "/TOKEN/")
        self.assertEqual((code, headers["Content-Type"], headers["Cache-Control"]), (200, "text/html; charset=utf-8", "no-store"))
        self.assertIn(b'"trace":"trace.json"', page)
        code, headers, trace = self.ask(server, "/TOKEN/trace.json", Origin="https://ui.perfetto.dev")
        self.assertEqual((code, headers["Access-Control-Allow-Origin"], trace),
                         (200, "https://ui.perfetto.dev", TRACE.read_bytes()))
        self.assertEqual(self.ask(server, "/TOKEN/trace.json", "HEAD")[2], b"")
        code, headers, report = self.ask(server, "/TOKEN/report.html")
        self.assertIn(b"A step takes", report)
        self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_nobody_else_gets_anything(self) -> None:
        server = self.serve(DATA / "run")
        port = server.url.split(":")[2].split("/")[0]
        for way in ("/", "/trace.json", "/wrong/trace.json", "/TOKENx/", "/TOKEN"):
            self.assertEqual(self.ask(server, way)[0], 403, way)
        for way in ("/TOKEN/result.json", "/TOKEN/..%2f..%2fetc%2fpasswd", "/TOKEN/trace-1.json"):
            self.assertEqual(self.ask(server, way)[0], 404, way)
        for way in ("/TOKEN/../../../../etc/passwd", "/TOKEN//etc/passwd", "/TOKEN/../TOKEN/trace.json"):
            self.assertEqual(self.ask(server, way)[0], 403, way)
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
            self.assertEqual(self.ask(server, "/TOKEN/", Host=host)[0], 403, host)
        for host in (f"localhost:{port}", "127.0.0.1", "localhost:9999"):
            self.assertEqual(self.ask(server, "/TOKEN/", Host=host)[0], 200, host)
        self.assertEqual(self.ask(server, "/TOKEN/", "POST")[0], 501)

    def test_it_listens_on_this_machine_only(self) -> None:
        with self.serve(DATA / "run")._server.socket.dup() as listening:
            self.assertEqual(listening.getsockname()[0], "127.0.0.1")

    def test_a_packed_trace_is_served_as_it_is(self) -> None:
        folder = self.copy("run")
        packed = gzip.compress((folder / "trace.json").read_bytes(), mtime=0)
        (folder / "trace.json").unlink()
        (folder / "trace.json.gz").write_bytes(packed)
        code, headers, data = self.ask(self.serve(folder), "/TOKEN/trace.json.gz")
        self.assertEqual((code, headers["Content-Type"], headers.get("Content-Encoding"), data),
                         (200, "application/gzip", None, packed))

    def test_a_result_without_a_trace_has_its_report(self) -> None:
        server = self.serve(self.comparison())
        self.assertIn(b"B takes 50.0 % less step time than A.", self.ask(server, "/TOKEN/")[2])

    def test_python_opens_it_too(self) -> None:
        server = fsdpbench.load(DATA / "run").open(browser=False)
        self.addCleanup(server.close)
        self.assertEqual(self.ask(server, "/TOKEN/")[0], 200)
        with self.assertRaises(TypeError):
            fsdpbench.open(browser=False)

    def test_a_port_that_is_taken_is_said(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with self.assertRaisesRegex(ReportError, f"--port {port}: port {port} of 127.0.0.1 is used by another program"):
                make_server([DATA / "run"], port)

    def test_an_interrupt_ends_it_with_0(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
        started = subprocess.Popen([sys.executable, "-B", "-m", "fsdpbench.analysis", "open", str(DATA / "run")], text=True,
                                   cwd=DATA.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        self.assertRegex(started.stdout.readline(), r"^http://127\.0\.0\.1:\d+/[\w-]{20,}/\n$")
        self.assertEqual(started.stderr.readline(), "Open this address in a browser; Ctrl-C ends.\n")
        started.send_signal(signal.SIGINT)
        said = started.communicate(timeout=120)[1]
        self.assertEqual((started.returncode, said), (0, ""))


# Runs in the page, in place of its policy, which forbids all scripts but its own.
PROBE = """<script>
const found = {};
async function probe() {
  while (!document.documentElement.dataset.ready) await new Promise((go) => setTimeout(go, 10));
  const run = runs[0], all = () => ({ rectangles: counts.rectangles, lanes: counts.lanes, texts: counts.texts });
  Object.assign(found, { rows: run.begin.length, width, lanes: run.lanes.length, frames: [] });
  run.folded.clear(); place(); height = layout.total + AXIS;
  for (const part of [1, 0.3, 0.1, 0.03, 0.01, 0.001, 0.0001]) { fit(run.first - run.origin, run.first - run.origin + run.span * part); paint(); found.frames.push(all()); }
  fitStep(); paint();
  const pick = (row) => { select(run, row, true); paint(); return { ...about(run, row), panel: panel.textContent, box: boxOf(selected), hit: null }; };
  const wait = waits(run)[0], lane = run.lanes.find((l) => l.name === "all_gather");
  found.wait = { row: wait, begin: run.begin[wait], end: run.end[wait], ...pick(wait) };
  const box = found.wait.box;
  found.wait.hit = rowAt((box.left + box.right) / 2, box.top + box.height / 2).row;
  if (lane) { found.gather = { begin: run.begin[lane.first], ...pick(lane.first) }; }
  const before = view.end - view.begin;
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "w", bubbles: true }));
  found.zoomed = (view.end - view.begin) / before;
  // Perfetto, as its documentation says that it behaves: deaf at first, then PONG, then the trace.
  const tab = new MessageChannel().port1, heard = [];
  let deaf = 2;
  tab.postMessage = (message, origin) => {
    heard.push([typeof message === "string" ? message : Object.keys(message.perfetto).sort().join(), origin]);
    if (message !== "PING") { found.buffer = message.perfetto.buffer.byteLength; found.file = message.perfetto.fileName; return; }
    if (deaf-- > 0) return;
    window.dispatchEvent(new MessageEvent("message", { data: "PONG", origin: "https://evil.example", source: tab }));
    window.dispatchEvent(new MessageEvent("message", { data: "PONG", origin: PERFETTO, source: tab }));
  };
  window.open = (address) => { found.opened = address; return tab; };
  window.fetch = async () => new Response(new Uint8Array(5));
  await openInPerfetto({ title: "t", trace: "trace.json" });
  found.heard = heard;
}
probe().catch((error) => { found.error = String(error.stack); }).finally(() => { document.body.dataset.found = JSON.stringify(found); });
</script></body>"""


class Drawn(BrowserTest):
    def browse(self, page: Path) -> subprocess.CompletedProcess:
        return self.chromium("--dump-dom", "--virtual-time-budget=30000", page.as_uri())

    def probe(self, trace: Path) -> Dict[str, Any]:
        page = self.folder / "probed.html"
        text = timeline_page([trace])
        start = text.index('<meta http-equiv="Content-Security-Policy"')
        text = text[:start] + text[text.index(">", start) + 1:]
        page.write_text(text.replace("</body>", PROBE), encoding="utf-8")
        done = self.browse(page)
        place = done.stdout.rfind('data-found="')
        self.assertGreater(place, 0, done.stderr[-2000:])
        found = json.loads(done.stdout[place + 12:done.stdout.index('"', place + 12)].replace("&quot;", '"').replace("&gt;", ">")
                           .replace("&lt;", "<").replace("&amp;", "&"))
        self.assertNotIn("error", found)
        return found

    def test_its_own_policy_lets_it_run_and_nothing_else(self) -> None:
        write_timeline_page([DATA / "run", DATA / "run"], self.folder / "page.html")
        done = self.browse(self.folder / "page.html")
        self.assertNotIn("CONSOLE", done.stderr)
        self.assertIn('data-ready="yes"', done.stdout)
        cause = json.loads((DATA / "run/result.json").read_text())["causes"][0]
        self.assertIn(f"{cause['ms']:.3f} ms", done.stdout)

    def test_a_click_says_what_the_trace_and_the_result_say(self) -> None:
        folder = self.copy("run", lambda value: value["causes"][0].update(
            without={"step_ms": 77.123456, "gain_ms": 22.5, "ci_low": 20.25, "ci_high": 23.75, "advised": True}))
        cause = json.loads((folder / "result.json").read_text())["causes"][0]
        text = json.loads(TRACE.read_text())
        gather = next(e for e in text["traceEvents"] if e.get("cat") == "communication" and e["name"].startswith("all_gather"))
        text["traceEvents"] += [  # files of today have these tracks and arrows
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 77, "ts": 0, "args": {"name": "exposed"}},
            row(cause["cause"], "exposed", 77, gather["ts"], gather["dur"] + 1000, step=gather["args"]["step"],
                op=gather["args"]["op"], unit="U", advice="do this.", **{"op name": gather["name"]})]
        (folder / "trace.json").write_text(json.dumps(text))
        found = self.probe(folder / "trace.json")
        said = found["wait"]
        self.assertEqual(said["hit"], said["row"])
        words = " ".join(said["sentences"])
        for part in (f"it waited for {gather['name']}, unit U.", "What would help: do this.", f"{cause['ms']:.3f} ms of a step",
                     "Without it the step would take 77.123 ms: 22.500 ms less (20.250 to 23.750 ms)."):
            self.assertIn(part, words)
            self.assertIn(part, said["panel"])
        self.assertEqual([link["text"] for link in said["links"]], [f"waited for {gather['name']}"])
        fields = {field[0]: field[1] for field in found["gather"]["fields"]}
        first = min((e for e in text["traceEvents"] if e.get("cat") == "communication" and e["pid"] == gather["pid"]
                     and e["tid"] == gather["tid"]), key=lambda e: e["ts"])
        self.assertEqual((fields["bytes"], fields["unit"], fields["op"]), tuple(first["args"][k] for k in ("bytes", "unit", "op")))
        self.assertAlmostEqual(fields["length"], first["dur"] / 1000, 6)
        self.assertAlmostEqual(found["zoomed"], 1 / 1.3, 6)
        self.assertEqual(found["opened"], "https://ui.perfetto.dev")
        self.assertEqual(found["heard"], [["PING", "https://ui.perfetto.dev"]] * 3 + [["buffer,fileName,title,url", "https://ui.perfetto.dev"]])
        self.assertEqual((found["buffer"], found["file"]), (5, "trace.json"))

    def test_a_hundred_thousand_rows_are_few_rectangles(self) -> None:
        """What a frame costs is its rectangles: never more than two per pixel and lane, however many rows there are."""
        events, rows = [row("step 1", "step", 1, 0, 1_000_000, step=1)], 100_000
        for i in range(rows // 4):
            at = i * 40
            events += [row(f"forward {i % 9}", "computation", 2, at, 22, step=1, phase="forward", op=i),
                       row("late_prefetch", "exposed", 7, at + 22, 18, step=1), row("all_gather 1", "communication", 3, at, 33, step=1),
                       row("copy", "copy", 6, at, 1 + i % 7, step=1)]
        path = self.folder / "trace.json"
        path.write_text(trace_text([{"ph": "M", "name": "thread_name", "pid": 1, "tid": t, "ts": 0, "args": {"name": n}} for t, n in
                                    ((2, "compute"), (3, "all_gather"), (6, "copy"))] + events))
        found = self.probe(path)
        self.assertEqual(found["rows"], rows + 1)
        for frame in found["frames"]:
            self.assertLessEqual(frame["rectangles"], 2 * found["width"] * found["lanes"] + frame["texts"])
            self.assertGreater(frame["rectangles"], 0)
        self.assertLess(found["frames"][0]["rectangles"], rows / 8)
        self.assertGreater(found["frames"][-1]["texts"], 0, "names, once there is room")


if __name__ == "__main__":
    unittest.main()
