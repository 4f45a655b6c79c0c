"""The timeline of one or two traces as one page, which needs no other file: open_page.html with the rows in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ..fields import FILES, OBJECTS, Record, ReportError
from .open_rows import CLASSES, load_rows, packed
from .open_server import Served, Server
from .page import render
from .report import page_of, page_of_two, write_file
from .schema import check_version, read_json, read_run
from .style import DIM, GREY, INK, PEACH, SLATE, SLICES, VERMILION, text_on
from .text import clean, visible
from .timeline_command import title_of
from .trace import find_trace

# Colours of a dark page, where those of a white one could not be seen.
_DARK = {INK: "#B9BDC1", SLATE: "#8797A6"}
_HTML = "text/html; charset=utf-8"
_RESULTS = ("result.json", "sweep.json", "compare.json", "tune.json", "gate.json", "explain.json")
_TEMPLATE = Path(__file__).with_name("open_page.html")


def trace_of(path: Path) -> Path:
    """The merged trace that a result folder has, or that the path is. Raises ReportError if it is neither."""
    if path.is_dir():
        trace = find_trace(path)
        if trace is None and any(path.glob("*.json*")):
            raise ReportError(f"{path} has traces of another program; explain them first: fsdpbench trace explain {path} "
                              "--out explained, then fsdpbench open explained")
        if trace is None:
            raise ReportError(f"{path} has neither trace.json nor trace.json.gz, so there is no timeline; a folder of "
                              "fsdpbench run, simulate or trace explain is expected")
        return trace
    if not path.exists():
        raise ReportError(f"{path}: there is no such file or folder; a result folder or a trace.json is expected")
    return path


def timeline_page(traces: Sequence[Path], served: Sequence[str] = (), report: str = "") -> str:
    """HTML with the traces above each other on one time scale.

    served, report: addresses of the traces and of the report beside the page, if a server has them; without them the
    page has no links. Raises ReportError for a file that is no merged trace of this program.
    """
    names = _names(traces)
    runs = [{**packed(load_rows(trace)), **_result_beside(trace), "title": name,
             "trace": served[i] if i < len(served) else ""} for i, (trace, name) in enumerate(zip(traces, names))]
    title = " and ".join(names)
    data = {"title": title, "runs": runs, "report": report, "peers": PEACH, "classes": _classes()}
    template = _TEMPLATE.read_text(encoding="utf-8")
    match = re.search(r"<script>(.*?)</script>", template, re.DOTALL)
    assert match is not None
    digest = base64.b64encode(hashlib.sha256(match.group(1).encode("utf-8")).digest()).decode("ascii")
    values = {"POLICY": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
                        "img-src data:; base-uri 'none'; form-action 'none'",
              "TITLE": escape(f"Timeline: {title}"), "DATA": _inside_script(data)}
    return re.sub(r"@(POLICY|TITLE|DATA)@", lambda found: values[found.group(1)], template)


def _inside_script(data: Dict[str, Any]) -> str:
    """Without < nothing ends the element, whatever a name says."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _names(traces: Sequence[Path]) -> List[str]:
    """The folder's name, as every trace is called trace.json; where two are equal, with the folder around it."""
    places = [trace.resolve().parent for trace in traces]
    short = [clean(place.name or str(place), 60) for place in places]
    if len(set(short)) == len(short):
        return short
    return [clean(f"{place.parent.name}/{place.name}/{trace.name}", 80) for place, trace in zip(places, traces)]


def _classes() -> List[Dict[str, str]]:
    own = {"wait": ("computation waits", VERMILION), "jitter": ("jitter", DIM), "step": ("", GREY), "bound": ("", SLATE)}
    classes = []
    for key in CLASSES:
        label, colour = SLICES.get(key) or own[key]
        dark = _DARK.get(colour, colour)
        classes.append({"key": key, "label": label, "light": colour, "dark": dark, "lightText": text_on(colour),
                        "darkText": INK if dark != colour else text_on(colour)})
    return classes


def _result_beside(trace: Path) -> Dict[str, Any]:
    """What the result file of the trace's folder says of the whole run: its causes with their counterfactuals."""
    found = {"note": "", "causes": [], "noCauses": "There is no result file beside this trace, so its causes are not added up."}
    if trace.name not in ("trace.json", "trace.json.gz"):
        return found
    for name, kind in (("result.json", "run"), ("explain.json", "explain")):
        path = trace.parent / name
        if not path.is_file():
            continue
        value = read_json(path)
        check_version(value, path, kind)
        result = OBJECTS[FILES[kind][1]](value, path)
        found["causes"] = [_cause(cause) for cause in result.causes]
        found["noCauses"] = f"{name} lists no cause."
        found["note"] = clean(_note(result), 200)
        break
    return found


def _note(result: Record) -> str:
    if result.path.name == "explain.json":
        return result.headline or result.inner("recognition").name or ""
    try:
        return title_of(read_run(result.path))
    except ReportError:  # an acceptance, or a run that failed: its trace can still be looked at
        return ""


def _cause(cause: Record) -> Dict[str, Any]:
    without = cause.inner("without")
    gain = {key: getattr(without, key) for key in ("step_ms", "gain_ms", "ci_low", "ci_high")}
    return {"cause": visible(cause["cause"]), "ms": cause["ms"], "share_pct": cause.share_pct,
            "advice": visible(cause.advice or ""), "late_rank": cause.late_rank,
            "without": None if None in (without.step_ms, without.gain_ms) else gain}


def write_timeline_page(paths: Sequence[Path], out: Path) -> Path:
    """The timeline as one file, which needs neither server nor network. Raises ReportError, OSError."""
    write_file(out, timeline_page([trace_of(path) for path in paths]).encode("utf-8"))
    return out


def make_server(paths: Sequence[Path], port: int = 0) -> Server:
    """Of one or two result folders or merged traces; a folder without a trace has its report only. Files are read here, so
    that what is wrong with them is said at once. Raises ReportError, OSError."""
    has_report = all(path.is_dir() and any((path / name).is_file() for name in _RESULTS) for path in paths)
    if has_report and len(paths) == 1 and find_trace(paths[0]) is None:
        report = _report(paths)
        return Server({"": Served(_HTML, report), "report.html": Served(_HTML, report)}, port)
    traces = [trace_of(path) for path in paths]
    names = _served_names(traces)
    page = timeline_page(traces, names, "report.html" if has_report else "").encode("utf-8")
    pages: Dict[str, Served] = {"": Served(_HTML, page)}
    if has_report:
        pages["report.html"] = Served(_HTML, lambda: _report(paths))
    for name, trace in zip(names, traces):
        pages[name] = Served("application/gzip" if trace.suffix == ".gz" else "application/json", trace.resolve(), True)
    return Server(pages, port)


def _served_names(traces: Sequence[Path]) -> List[str]:
    ends = [".json.gz" if trace.name.endswith(".gz") else ".json" for trace in traces]
    return ["trace" + ("" if len(traces) == 1 else f"-{i + 1}") + end for i, end in enumerate(ends)]


def _report(paths: Sequence[Path]) -> bytes:
    page = page_of(paths[0]) if len(paths) == 1 else page_of_two(paths)
    return render(page).encode("utf-8", errors="replace")
