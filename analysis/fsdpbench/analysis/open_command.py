"""open PATH [PATH]: the timeline of a result or of two above each other, with its report and Perfetto a click away."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Sequence

from .open_page import timeline_page, trace_of
from .open_server import Served, Server
from .page import render
from .report import page_of, page_of_two, write_file
from .trace import find_trace

_HTML = "text/html; charset=utf-8"
_RESULTS = ("result.json", "sweep.json", "compare.json", "tune.json", "gate.json", "explain.json")


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
