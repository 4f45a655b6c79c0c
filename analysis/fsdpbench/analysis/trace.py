"""A merged Chrome trace as plain data: ranks, their lanes, the slices on them; and as a file inside a page, which is mailed alone."""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .page import Attachment
from .schema import MAX_BYTES, ReportError, open_input, read_json, trace_events
from .text import clean, size

MOST_BYTES = 5_000_000  # packed, of one trace
LANE_ORDER = ("host", "compute", "all_gather", "reduce_scatter", "all_reduce", "copy", "tensor", "host_to_device",
              "device_to_host", "host_compute")


@dataclass(frozen=True)
class Slice:
    """One op on a lane; times in milliseconds since the trace began."""

    begin_ms: float
    end_ms: float
    name: str
    category: str
    step: Optional[int]
    unit: str
    phase: str


@dataclass
class LaneTrace:
    name: str
    slices: List[Slice] = field(default_factory=list)


@dataclass
class RankTrace:
    rank: int
    lanes: List[LaneTrace] = field(default_factory=list)
    # step -> (begin_ms, end_ms)
    steps: Dict[int, Tuple[float, float]] = field(default_factory=dict)


@dataclass
class Trace:
    path: Path
    ranks: List[RankTrace]

    def step_window(self, step: int) -> Tuple[float, float]:
        """From the first rank's begin to the last rank's end, in milliseconds."""
        windows = [r.steps[step] for r in self.ranks if step in r.steps]
        if not windows:
            raise ReportError(f"{self.path} has no step {step}; it has {self._steps_text()}")
        return min(w[0] for w in windows), max(w[1] for w in windows)

    def steps(self) -> List[int]:
        return sorted({s for r in self.ranks for s in r.steps})

    def representative_step(self) -> int:
        """The step whose slowest rank is the median one: what a reader should see first."""
        steps = self.steps()
        if not steps:
            raise ReportError(f"{self.path} has no events of category 'step', so no step can be shown")
        return sorted(steps, key=self._slowest_ms)[(len(steps) - 1) // 2]

    def slowest_rank(self, step: int) -> Optional[int]:
        """Whose step took longest; None if no rank has it."""
        lengths = [(r.steps[step][1] - r.steps[step][0], -r.rank) for r in self.ranks if step in r.steps]
        return -max(lengths)[1] if lengths else None

    def _slowest_ms(self, step: int) -> float:
        return max(r.steps[step][1] - r.steps[step][0] for r in self.ranks if step in r.steps)

    def _steps_text(self) -> str:
        steps = self.steps()
        return f"steps {steps[0]} to {steps[-1]}" if steps else "none"


@dataclass
class Names:
    """Names that a trace has for its processes and tracks, by (pid, tid), and where it draws these."""

    processes: Dict[int, str] = field(default_factory=dict)
    tracks: Dict[Tuple[int, int], str] = field(default_factory=dict)
    places: Dict[Tuple[int, int], float] = field(default_factory=dict)

    def read(self, event: Dict[str, Any]) -> None:
        args, track = event.get("args"), (event["pid"], event["tid"])
        name, place = (args.get("name"), args.get("sort_index")) if isinstance(args, dict) else (None, None)
        if event.get("name") == "process_name" and isinstance(name, str):
            self.processes[event["pid"]] = name
        elif event.get("name") == "thread_name" and isinstance(name, str):
            self.tracks[track] = name
        elif event.get("name") == "thread_sort_index" and isinstance(place, (int, float)):
            self.places[track] = place

    def rank(self, pid: int) -> int:
        match = re.search(r"\brank (\d+)\b", self.processes.get(pid, ""))
        return int(match.group(1)) if match else pid

    def track(self, track: Tuple[int, int]) -> str:
        return self.tracks.get(track, f"track {track[1]}")


def find_trace(folder: Path) -> Optional[Path]:
    for name in ("trace.json", "trace.json.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def load_trace(path: Path) -> Trace:
    names = Names()
    slices: Dict[Tuple[int, int], List[Slice]] = {}
    steps: Dict[int, Dict[int, Tuple[float, float]]] = {}
    for event in trace_events(read_json(path), path):
        kind, pid, tid = event.get("ph"), event["pid"], event["tid"]
        if kind == "M":
            names.read(event)
        elif kind == "X":
            _read_slice(path, event, pid, tid, slices, steps)
    ranks = []
    for pid in sorted(set(pid for pid, _ in slices) | set(steps)):
        rank = RankTrace(names.rank(pid), steps=steps.get(pid, {}))
        for (owner, tid), lane in sorted(slices.items()):
            if owner == pid:
                rank.lanes.append(LaneTrace(names.track((pid, tid)), sorted(lane, key=lambda s: s.begin_ms)))
        rank.lanes.sort(key=lambda lane: _lane_place(lane.name))
        ranks.append(rank)
    if not ranks:
        raise ReportError(f"{path} has no complete events (\"ph\": \"X\"); nothing can be drawn from it")
    return Trace(path, sorted(ranks, key=lambda r: r.rank))


def _lane_place(name: str) -> Tuple[int, str]:
    """Of several streams that do the same each is named "copy, stream 21"."""
    sort = name.split(",")[0]
    return (LANE_ORDER.index(sort) if sort in LANE_ORDER else len(LANE_ORDER), name)


def _read_slice(path: Path, event: Dict[str, Any], pid: int, tid: int, slices: Dict[Tuple[int, int], List[Slice]],
                steps: Dict[int, Dict[int, Tuple[float, float]]]) -> None:
    begin, duration = event.get("ts"), event.get("dur", 0)
    for number in (begin, duration):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise ReportError(f"{path}: the event {str(event.get('name'))[:60]!r} has no numeric ts and dur")
    name, category = str(event.get("name", "")), str(event.get("cat", ""))
    if category in ("activity", "exposed", "bound"):
        return  # a kernel, drawn as the op it lies in; what result.json says of the steps, too
    args = event.get("args") if isinstance(event.get("args"), dict) else {}
    step = args.get("step")
    step = step if isinstance(step, int) and not isinstance(step, bool) else None
    window = (begin / 1000.0, (begin + duration) / 1000.0)
    if category == "step":
        match = re.search(r"(\d+)$", name)
        number = step if step is not None else int(match.group(1)) if match else None
        if number is not None:
            steps.setdefault(pid, {})[number] = window
        return
    slices.setdefault((pid, tid), []).append(
        Slice(window[0], window[1], name, category, step, str(args.get("unit", "")), str(args.get("phase", ""))))


def trace_attachments(folder: Path, name: str = "trace", most_bytes: int = MOST_BYTES) -> List[Attachment]:
    """The merged trace, packed in where it is small; and where the files of the ranks lie. name: of the saved file."""
    files = []
    path = find_trace(folder)
    if path is not None:
        files.append(packed_trace(path, name, most_bytes))
    if (folder / "trace").is_dir():
        files.append(Attachment(f"One file a rank, for tools that read PyTorch profiler traces, is not in this page: "
                                f"trace/ of the result folder {clean(folder.resolve().name, 80)} has it."))
    return files


def packed_trace(path: Path, name: str, most_bytes: int = MOST_BYTES) -> Attachment:
    """One trace, or why it is not in the page; name: of the saved file."""
    where = f"{path.name} of the result folder {clean(path.parent.resolve().name, 80)}"
    try:
        large = path.stat().st_size > MAX_BYTES
        with open_input(path) as file:
            data = b"" if large else file.read()
    except OSError as error:
        return Attachment(f"The trace cannot be read ({error.strerror}): {where}.")
    if not large and path.suffix != ".gz":
        data = gzip.compress(data, mtime=0)
    if large or len(data) > most_bytes:
        return Attachment(f"The trace ({size(path.stat().st_size)}) is too large to be in this page: it is {where}.")
    return Attachment(f"{name}.json.gz, all ranks ({size(len(data))}), saved by a click", f"{name}.json.gz", data)
