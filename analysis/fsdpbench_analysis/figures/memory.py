"""Live memory over one step, stacked by category, with the peak marked; MiB or GiB over milliseconds."""

from __future__ import annotations

from typing import Optional, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import style
from ..load import MemoryPeak, MemoryTimeline
from ..text import clean, size
from .canvas import new_figure


def draw_memory(timeline: MemoryTimeline, peak_at: Optional[MemoryPeak], peak_bytes: Optional[float],
                width: float = 12.0) -> Figure:
    style.apply()
    known = [(key, name, colour) for key, name, colour in style.MEMORY if key in timeline.categories]
    known += [(key, clean(key.replace("_", " "), 30), style.GREY) for key in timeline.categories
              if key not in {k for k, _, _ in style.MEMORY} and key != "total"]
    totals = [sum(timeline.categories[key][i] for key, _, _ in known) for i in range(len(timeline.time_ms))]
    unit, name = _unit(max(max(totals, default=0.0), peak_bytes or 0.0))
    figure = new_figure(width, 4.2)
    axes = figure.subplots()
    below = [0.0] * len(totals)
    for key, label, colour in known:
        above = [b + v / unit for b, v in zip(below, timeline.categories[key])]
        axes.fill_between(timeline.time_ms, below, above, step="post", color=colour, linewidth=0, label=label)
        below = above
    highest = max(totals, default=0.0)
    axes.set_xlim(min(min(timeline.time_ms), 0), max(max(timeline.time_ms), min(timeline.time_ms) + 1e-6))
    axes.set_ylim(0, max(highest, peak_bytes or 0.0) / unit * 1.2 or 1)
    if peak_bytes:
        axes.axhline(peak_bytes / unit, color=style.FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
        where = f", in {clean(peak_at.op, 40)}" if peak_at and peak_at.op else ""
        axes.annotate(f"peak of the run {size(peak_bytes)}{where}", (0.005, peak_bytes / unit), (0, 4), fontsize=9,
                      xycoords=("axes fraction", "data"), textcoords="offset points", color=style.FAINT)
    _mark_highest(axes, timeline, totals, unit)
    axes.set_xlabel("ms since the step began")
    axes.set_ylabel(f"live memory ({name})")
    axes.grid(True, axis="y")
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside right upper", handlelength=1.2)
    return figure


def _unit(largest: float) -> "tuple[float, str]":
    for unit, name in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if largest >= 4 * unit:
            return unit, name
    return 1.0, "bytes"


def _mark_highest(axes: Axes, timeline: MemoryTimeline, totals: Sequence[float], unit: float) -> None:
    if not totals:
        return
    place = max(range(len(totals)), key=totals.__getitem__)
    x, y = timeline.time_ms[place], totals[place] / unit
    text = f"highest {size(totals[place])}"
    low, high = axes.get_xlim()
    right = x > (low + high) / 2
    axes.plot([x], [y], marker="v", markersize=8, color=style.VERMILION, markeredgecolor="white", clip_on=False)
    axes.annotate(text, (x, y), (-8 if right else 8, 10), textcoords="offset points", fontsize=9.5,
                  fontweight="bold", ha="right" if right else "left")
