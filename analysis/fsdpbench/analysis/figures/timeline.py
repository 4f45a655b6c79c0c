"""The lanes of one step: what ran when, coloured by phase and kind, and where the compute lane waited."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ... import fields
from .. import style
from ..text import clean, milliseconds
from ..trace import LaneTrace, RankTrace, Slice, Trace
from .canvas import FittingLabels, new_figure, wrapped

_LANE_NAMES = {"all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "all_reduce": "all-reduce",
               "host_to_device": "host to device", "device_to_host": "device to host", "host_compute": "host compute"}
_CAUSE_INK = "#8A3A00"
_BAR = 0.78  # of a row's height


@dataclass(frozen=True)
class TimelinePart:
    """One step of one run."""

    trace: Trace
    step: int
    title: str = ""
    exposed: Sequence[fields.Record] = field(default_factory=list)
    # Why a rank is worth looking at: "slowest", "late". Such ranks are drawn before others.
    marked: Dict[int, str] = field(default_factory=dict)


def draw_timeline(parts: Sequence[TimelinePart], max_ranks: int = 4, width: float = 12.4,
                  row_height: float = 0.25, font: float = 8) -> Figure:
    """The parts one above the other on one time scale, in milliseconds since the step began."""
    style.apply()
    ranks = [choose_ranks(part, max_ranks) for part in parts]
    rows = [sum(len(_lanes(rank, part.step)) for rank in shown) + 0.4 * max(len(shown) - 1, 0)
            for part, shown in zip(parts, ranks)]
    title_rows = 1.4 * 0.25 / row_height
    figure = new_figure(width, row_height * (sum(rows) + title_rows * len(parts)) + 0.85)
    all_axes = figure.subplots(len(parts), 1, sharex=True, squeeze=False, height_ratios=[max(r, 1) for r in rows])[:, 0]
    labels = FittingLabels()
    used: Dict[str, bool] = {}
    letters = _letters(parts)
    end = 0.0
    for axes, part, shown in zip(all_axes, parts, ranks):
        end = max(end, _draw_part(axes, part, shown, labels, used, letters, font))
    all_axes[-1].set_xlim(0, end * 1.005)
    all_axes[-1].set_xlabel("ms since the step began;  in the boxes: units by number, R the root unit, * prefetched in "
                            "backward", fontsize=font)
    handles = [Patch(facecolor=colour, edgecolor="none", label=name)
               for key, (name, colour) in style.SLICES.items() if key in used]
    if "exposed" in used:
        handles.append(Patch(facecolor="none", edgecolor=style.VERMILION, hatch="////", label="compute waits"))
        handles += [Patch(facecolor="none", edgecolor="none", label=f"{letters[cause]}  {_cause_name(cause)}")
                    for cause in letters]
    legend_rows = math.ceil(len(handles) / max(2, int(width * 72 / (13 * font))))
    figure.legend(handles=handles, loc="outside lower center", ncols=math.ceil(len(handles) / legend_rows), fontsize=font + 1,
                  handlelength=1.2, columnspacing=1.6)
    labels.prune(figure)
    return figure


def choose_ranks(part: TimelinePart, count: int) -> List[RankTrace]:
    """The one whose waiting is explained, then those that are marked, then the first ones; in the order of ranks."""
    explained = {interval.rank for interval in part.exposed if interval.step == part.step}
    def worth(rank: RankTrace) -> Tuple[bool, bool, int]:
        return rank.rank not in explained, rank.rank not in part.marked, rank.rank
    return sorted(sorted(part.trace.ranks, key=worth)[:count], key=lambda r: r.rank)


def slice_class(item: Slice, lane: str) -> str:
    """The key of its colour in style.SLICES."""
    return row_class(item.category, item.phase, item.name, lane)


def row_class(category: str, phase: str, name: str, lane: str) -> str:
    """The same of a row of a trace, by its category, phase and name."""
    if category == "computation":
        return phase if phase in ("forward", "backward", "optimizer") else "other"
    if category == "communication":
        for kind in ("tensor", "all_gather", "all_to_all", "reduce_scatter", "all_reduce"):
            if name.startswith(kind) or lane == kind:
                return kind
        return "other"
    if lane.split(",")[0] == "host":
        return "host"
    return "copy" if category == "copy" else "other"


def _lanes(rank: RankTrace, step: int) -> List[LaneTrace]:
    """Those on which something ran in this step."""
    return [lane for lane in rank.lanes if any(s.step == step for s in lane.slices)]


def _draw_part(axes: Axes, part: TimelinePart, ranks: Sequence[RankTrace], labels: FittingLabels,
               used: Dict[str, bool], letters: Dict[str, str], font: float) -> float:
    """Returns the time of the last end, in milliseconds since the step began."""
    begin, end = part.trace.step_window(part.step)
    ticks: List[float] = []
    names: List[str] = []
    y = 0.0
    for i, rank in enumerate(ranks):
        if i > 0:
            axes.axhline(y - 0.3, color="#BBBBBB", linewidth=0.8)
            y += 0.4
        for lane in _lanes(rank, part.step):
            ticks.append(y)
            name = clean(_LANE_NAMES.get(lane.name, lane.name), 24)
            first = lane is _lanes(rank, part.step)[0]
            names.append(f"{_rank_name(part, rank)}   {name}" if first and (len(ranks) > 1 or part.marked) else name)
            _draw_lane(axes, lane, part.step, begin, y, labels, used, font)
            if lane.name == "compute":
                _draw_exposed(axes, part, rank, begin, y, first, labels, used, letters, font)
            y += 1
        if part.step in rank.steps:
            finish = rank.steps[part.step][1] - begin
            axes.plot([finish, finish], [y - len(_lanes(rank, part.step)) - 0.5, y - 0.5], color=style.INK,
                      linewidth=1.2)
            if len(ranks) == 1:
                _label_end(axes, finish, y - 1, font)
    axes.set_ylim(y - 0.5, -0.6)
    axes.set_yticks(ticks, names, fontsize=font)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=font)
    axes.grid(True, axis="x")
    axes.spines["left"].set_visible(False)
    if part.title:
        axes.set_title(wrapped(part.title, axes.figure.get_size_inches()[0] - 2, font), fontsize=font + 1)
    return end - begin


def _rank_name(part: TimelinePart, rank: RankTrace) -> str:
    mark = part.marked.get(rank.rank)
    return f"rank {rank.rank} ({clean(mark, 24)})" if mark else f"rank {rank.rank}"


def _label_end(axes: Axes, finish_ms: float, y: float, font: float) -> None:
    axes.annotate(milliseconds(finish_ms), (finish_ms, y), (-5, 0), textcoords="offset points", ha="right",
                  va="center", fontsize=font, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _draw_lane(axes: Axes, lane: LaneTrace, step: int, begin: float, y: float, labels: FittingLabels,
               used: Dict[str, bool], font: float) -> None:
    boxes: Dict[str, List[List[Tuple[float, float]]]] = {}
    for item in lane.slices:
        if item.step != step:
            continue
        left, right = item.begin_ms - begin, item.end_ms - begin
        kind = slice_class(item, lane.name)
        half = _BAR / 2 if kind != "host" else _BAR / 6
        low, high = y - half, y + half
        used[kind] = True
        boxes.setdefault(kind, []).append([(left, low), (left, high), (right, high), (right, low)])
        text = _slice_text(item)
        if text:
            labels.add(axes, left, right, y, text, fontsize=font - 0.5, color=style.text_on(style.SLICES[kind][1]))
    for kind, polygons in boxes.items():
        colour = style.SLICES[kind][1]
        # Too narrow to be seen otherwise: an edge of their own colour.
        edge = colour if kind in ("copy", "optimizer", "host") else "white"
        axes.add_collection(PolyCollection(polygons, facecolors=colour, edgecolors=edge, linewidths=0.6))


def _slice_text(item: Slice) -> str:
    """The unit, or the op's own name without what its lane and colour already say."""
    if item.category in ("copy", "issue", "host"):
        return ""
    parts = item.name.split(" ", 1)
    return clean(parts[1] if len(parts) > 1 else item.name, 24).replace("blocks.", "")


def _letters(parts: Sequence[TimelinePart]) -> Dict[str, str]:
    """A letter for each cause that takes a hundredth of the drawn time; digits stand for units already."""
    total: Dict[str, float] = {}
    longest = 0.0
    for part in parts:
        begin, end = part.trace.step_window(part.step)
        longest = max(longest, end - begin)
        for interval in part.exposed:
            if interval.step == part.step:
                total[interval.cause] = total.get(interval.cause, 0) + interval.end_ms - interval.begin_ms
    causes = sorted(cause for cause, ms in total.items() if ms >= 0.01 * longest)
    return {cause: chr(ord("a") + i) if i < 26 else "?" for i, cause in enumerate(causes)}


def _cause_name(cause: str) -> str:
    return clean(cause.replace("_", " "), 30)


def _joined(intervals: Sequence[fields.Record], gap_ms: float = 0.02) -> List[fields.Record]:
    """Neighbours with the same cause as one box with one label."""
    joined: List[fields.Record] = []
    for item in sorted(intervals, key=lambda i: (i.rank, i.step, i.begin_ms)):
        last = joined[-1] if joined else None
        if last and (last.rank, last.step, last.cause) == (item.rank, item.step, item.cause) \
                and item.begin_ms - last.end_ms <= gap_ms:
            joined[-1] = fields.CauseInterval({**last.data, "end_ms": max(item.end_ms, last.end_ms)})
        else:
            joined.append(item)
    return joined


def _draw_exposed(axes: Axes, part: TimelinePart, rank: RankTrace, begin: float, y: float, first: bool,
                  labels: FittingLabels, used: Dict[str, bool], letters: Dict[str, str], font: float) -> None:
    """first: no lane of the rank is above this one, so that letters have no room there."""
    low, high = y - _BAR / 2, y + _BAR / 2
    polygons = []
    for interval in _joined(part.exposed):
        if interval.rank != rank.rank or interval.step != part.step or part.step not in rank.steps:
            continue
        offset = rank.steps[part.step][0] - begin
        left, right = interval.begin_ms + offset, interval.end_ms + offset
        polygons.append([(left, low), (left, high), (right, high), (right, low)])
        letter = letters.get(interval.cause, "")
        labels.add(axes, left, right, y, _cause_name(interval.cause), fontsize=font - 1,
                   color=_CAUSE_INK, short=letter, above=None if first or not letter else low,
                   bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    if polygons:
        used["exposed"] = True
        axes.add_collection(PolyCollection(polygons, facecolors="#FBE6DA", edgecolors=style.VERMILION, hatch="////",
                                           linewidths=0.5,
                                           zorder=0.9))
