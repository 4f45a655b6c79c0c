"""A merged trace as columns: what the timeline of `open` draws, one entry a row of the trace, in the order of its lanes."""

from __future__ import annotations

import base64
import gzip
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .figures.timeline import row_class
from .schema import ReportError, read_json, trace_events
from .style import SLICES
from .text import visible
from .trace import Names

# What a row is drawn as, by its number: the classes of the report's timeline, then what only this one has.
CLASSES: Tuple[str, ...] = (*SLICES, "wait", "jitter", "step", "bound")
_OWN = {"step": "step", "bound": "bound"}
_LONGEST_TEXT = 2000
_LARGEST = 1e300
_LONGEST_NS = 2.0 ** 53  # times are whole nanoseconds, which a double holds exactly until here: 104 days


@dataclass(frozen=True)
class Lane:
    """Rows [first, first + count) of one track that follow each other; what half overlaps is in a further lane."""

    rank: int
    name: str
    kind: str  # "lane", "wait": drawn in the gaps of computation, "step", "bound", "host"
    first: int
    count: int


@dataclass
class Rows:
    """A trace's complete events. Columns are of one length; times are whole nanoseconds since the trace's zero.

    begin, end: float64.   name: int32, an index of texts.   kind: uint8, an index of CLASSES.
    numbers: a column per numeric field of the events' args, float64, NaN where a row does not have it.
    words: the same for texts, int32 indices of texts, -1 where a row does not have it.
    arrows: int32, pairs of rows: a collective, and the op that was the first to need what it gave.
    steps: number, begin, end: from the first rank's begin to the last rank's end.
    """

    lanes: List[Lane]
    begin: np.ndarray
    end: np.ndarray
    name: np.ndarray
    kind: np.ndarray
    numbers: Dict[str, np.ndarray]
    words: Dict[str, np.ndarray]
    arrows: np.ndarray
    texts: List[str]
    steps: List[Tuple[int, float, float]] = field(default_factory=list)

    def shown_step(self) -> int:
        """The place in `steps` of the one that took the median time: what a reader should see first."""
        order = sorted(range(len(self.steps)), key=lambda i: self.steps[i][2] - self.steps[i][1])
        return order[(len(order) - 1) // 2] if order else 0


def load_rows(path: Path) -> Rows:
    """Of a merged trace of this program. Raises ReportError for any other file."""
    root = read_json(path)
    if "traceEvents" not in root:
        raise ReportError(f"{path} has no traceEvents: it is no trace. Give the folder of a result, or its trace.json.")
    if "distributedInfo" in root:
        raise ReportError(f"{path} is the trace of one rank, which does not say why computation waited. Open the folder "
                          "of the result; or explain the traces of a job first: fsdpbench trace explain TRACE… --out DIR, "
                          "then fsdpbench open DIR.")
    if "fsdpbench_schema" not in root and "schemaVersion" not in root:
        raise ReportError(f"{path} has no fsdpbench_schema: another program wrote it. Explain it first: fsdpbench trace "
                          "explain TRACE… --out DIR, then fsdpbench open DIR.")
    return _rows_of(trace_events(root, path), path)


@dataclass
class _Event:
    begin: int
    end: int
    name: str
    category: str
    args: Dict[str, Any]


_Track = Tuple[int, int]


def _rows_of(found: List[Dict[str, Any]], path: Path) -> Rows:
    names = Names()
    tracks: Dict[Tuple[_Track, str], List[_Event]] = {}
    ends: Dict[str, List[Tuple[_Track, int]]] = {}
    for event in found:
        track = (event["pid"], event["tid"])
        kind, category = event.get("ph"), str(event.get("cat", ""))
        if kind == "M":
            names.read(event)
        elif kind == "X":
            # Steps and waits get lanes of their own, whichever track they were on.
            own = category if category in ("step", "bound", "exposed") else ""
            tracks.setdefault((track, own), []).append(_read(path, event, category))
        elif kind in ("s", "f") and category == "needed":
            ends.setdefault(str(event.get("id")), []).append((track, _nanoseconds(path, event, "ts")))
    if not tracks:
        raise ReportError(f"{path} has no complete events (\"ph\": \"X\"); nothing can be drawn from it")
    ranks = {pid: names.rank(pid) for pid in {track[0] for track, _ in tracks}}
    order = sorted(tracks, key=lambda key: (ranks[key[0][0]], key[0][0], {"step": 0, "bound": 1}.get(key[1], 2),
                                            names.places.get(key[0], key[0][1]), key[0][1]))
    lanes: List[Lane] = []
    events: List[_Event] = []
    of_track: Dict[_Track, List[Tuple[int, int]]] = {}
    kinds: List[int] = []
    for track, own in order:
        name = names.track(track)
        for number, lane in enumerate(_disjoint(tracks[(track, own)])):
            drawn = {"exposed": "wait"}.get(own, own) or ("host" if name.split(",")[0] == "host" else "lane")
            lanes.append(Lane(ranks[track[0]], visible(own or name)[:80] + (f", beside {number}" if number else ""), drawn,
                              len(events), len(lane)))
            if not own:
                of_track.setdefault(track, []).append((len(events), len(events) + len(lane)))
            events += lane
            kinds += [CLASSES.index(_class_of(event, name)) for event in lane]
    texts: Dict[str, int] = {}
    numbers, words = _columns(events, texts)
    begin = np.array([event.begin for event in events], dtype=np.float64)
    rows = Rows(lanes, begin, np.array([event.end for event in events], dtype=np.float64),
                np.array([_index(texts, event.name) for event in events], dtype=np.int32),
                np.array(kinds, dtype=np.uint8), numbers, words, _arrows(ends, of_track, begin, events), [])
    rows.texts = list(texts)
    rows.steps = _steps([event for key in order if key[1] == "step" for event in tracks[key]])
    return rows


def _nanoseconds(path: Path, event: Dict[str, Any], key: str) -> int:
    value = event.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LONGEST_NS / 1000:
        raise ReportError(f"{path}: the event {visible(str(event.get('name'))[:60])!r} has no numeric ts and dur")
    return round(value * 1000)


def _read(path: Path, event: Dict[str, Any], category: str) -> _Event:
    begin = _nanoseconds(path, event, "ts")
    args = event.get("args")
    return _Event(begin, begin + max(_nanoseconds(path, event, "dur"), 0), str(event.get("name", "")), category,
                  args if isinstance(args, dict) else {})


def _disjoint(events: List[_Event]) -> List[List[_Event]]:
    """Lists in which each row begins when the one before has ended: what lies in another row goes one further."""
    lists: List[List[_Event]] = []
    # Rows without length first: they are before what begins at the same time, not in it.
    for event in sorted(events, key=lambda e: (e.begin, e.end > e.begin, -e.end)):
        place = next((one for one in lists if one[-1].end <= event.begin), None)
        if place is None:
            lists.append([event])
        else:
            place.append(event)
    return lists


def _class_of(event: _Event, lane: str) -> str:
    if event.category == "exposed":
        return "jitter" if event.name == "jitter" else "wait"
    return _OWN.get(event.category) or row_class(event.category, str(event.args.get("phase", "")), event.name, lane)


def _index(texts: Dict[str, int], text: str) -> int:
    return texts.setdefault(visible(text[:_LONGEST_TEXT]), len(texts))


def _columns(events: Sequence[_Event], texts: Dict[str, int]) -> Tuple[Dict[str, np.ndarray], Dict[str, np.ndarray]]:
    """A field is a number if it is one wherever it is; lists and objects are left out."""
    wordy = {key for event in events for key, value in event.args.items() if isinstance(value, (str, bool))}
    numeric = {key: None for event in events for key, value in event.args.items() if isinstance(value, (int, float))}
    numbers = {key: np.full(len(events), math.nan) for key in numeric if key not in wordy}
    words = {key: np.full(len(events), -1, dtype=np.int32) for key in sorted(wordy)}
    for i, event in enumerate(events):
        for key, value in event.args.items():
            if isinstance(value, (str, bool, int, float)):
                if key in wordy:
                    words[key][i] = _index(texts, value if isinstance(value, str) else str(value).lower())
                elif abs(value) < _LARGEST:
                    numbers[key][i] = value
    return numbers, words


def _arrows(ends: Dict[str, List[Tuple[_Track, int]]], of_track: Dict[_Track, List[Tuple[int, int]]],
            begin: np.ndarray, events: Sequence[_Event]) -> np.ndarray:
    """An arrow begins in a collective's last nanosecond and ends where an op begins that is no copy."""
    pairs = []
    for two in ends.values():
        if len(two) != 2:
            continue
        source, target = (_row_at(of_track.get(track, []), begin, events, ts, begins)
                          for (track, ts), begins in zip(two, (False, True)))
        if source is not None and target is not None:
            pairs.append((source, target))
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def _row_at(lanes: List[Tuple[int, int]], begin: np.ndarray, events: Sequence[_Event], ts: int,
            begins: bool) -> Optional[int]:
    """The row at this time, or of those that begin then the longest, if it is not a copy."""
    found: List[int] = []
    for first, end in lanes:
        after = first + int(np.searchsorted(begin[first:end], ts, side="right"))
        before = first + int(np.searchsorted(begin[first:end], ts, side="left"))
        found += range(before, after) if begins else [after - 1] if after > first and ts < events[after - 1].end else []
    fit = [row for row in found if events[row].category in ("computation", "communication")] or found
    return max(fit, key=lambda row: (events[row].end - events[row].begin, -row)) if fit else None


def _steps(events: Sequence[_Event]) -> List[Tuple[int, float, float]]:
    windows: Dict[int, Tuple[int, int]] = {}
    for event in events:
        match = re.search(r"(\d+)$", event.name)
        number = event.args.get("step", int(match.group(1)) if match else None)
        if isinstance(number, int):
            begin, end = windows.get(number, (event.begin, event.end))
            windows[number] = min(begin, event.begin), max(end, event.end)
    return [(number, float(begin), float(end)) for number, (begin, end) in sorted(windows.items())]


def packed(rows: Rows) -> Dict[str, Any]:
    """For JSON. The columns one after the other, little-endian, gzipped, in base64: those of 8 bytes first, so that each
    begins where a typed array may."""
    columns = [("begin", rows.begin, "f8"), ("end", rows.end, "f8"),
               *((f"n:{key}", column, "f8") for key, column in rows.numbers.items()),
               ("name", rows.name, "i4"), ("arrows", rows.arrows.reshape(-1), "i4"),
               *((f"w:{key}", column, "i4") for key, column in rows.words.items()), ("kind", rows.kind, "u1")]
    data = b"".join(column.astype("<" + kind).tobytes() for _, column, kind in columns)
    return {"columns": [[name, kind, len(column)] for name, column, kind in columns],
            "data": base64.b64encode(gzip.compress(data, 6, mtime=0)).decode("ascii"),
            "texts": rows.texts, "steps": rows.steps, "step": rows.shown_step(),
            "lanes": [[lane.rank, lane.name, lane.kind, lane.first, lane.count] for lane in rows.lanes]}
