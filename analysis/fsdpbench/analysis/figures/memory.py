"""Live memory over one step, stacked by category, with the peak marked; MiB or GiB over milliseconds; of one run or of
several on the same scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...fields import Record, ReportError
from .. import style
from ..text import clean, size
from .canvas import new_figure


@dataclass(frozen=True)
class MemoryPanel:
    title: str
    timeline: Record
    peak_at: Optional[Record]
    peak_bytes: Optional[float]


_Known = Tuple[str, str, str]  # key, label, colour


def draw_memory(panels: Sequence[MemoryPanel], width: float = 12.0) -> Figure:
    style.apply()
    known = [entry for entry in style.MEMORY if any(entry[0] in panel.timeline.data for panel in panels)]
    totals = [_totals(panel.timeline, known) for panel in panels]
    highest = max([panel.peak_bytes or 0.0 for panel in panels] + [v for mine in totals for v in mine])
    unit, name = _unit(highest)
    figure = new_figure(width, (4.2 if len(panels) == 1 else 3.2) * len(panels))
    all_axes = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    all_axes[0].set_ylim(0, highest / unit * 1.2 or 1)
    times = [time for panel in panels for time in panel.timeline.time_ms]
    all_axes[0].set_xlim(min(min(times), 0), max(max(times), min(times) + 1e-6))
    for axes, panel, mine in zip(all_axes, panels, totals):
        _draw_panel(axes, panel, known, mine, unit)
        axes.set_ylabel(f"live memory ({name})")
    all_axes[-1].set_xlabel("ms since the step began")
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside right upper", handlelength=1.2)
    return figure


def _values(timeline: Record, key: str) -> List[float]:
    """Of a category, one for each time; 0 where the file does not have it."""
    times, values = timeline["time_ms"], timeline[key]
    if values and len(values) != len(times):
        raise ReportError(f"{timeline.place_of(key)} has {len(values)} values and time_ms {len(times)}; they belong together")
    return values or [0.0] * len(times)


def _totals(timeline: Record, known: Sequence[_Known]) -> List[float]:
    return [sum(values) for values in zip(*(_values(timeline, key) for key, _, _ in known))]


def _draw_panel(axes: Axes, panel: MemoryPanel, known: Sequence[_Known], totals: Sequence[float], unit: float) -> None:
    timeline, peak_at, peak_bytes = panel.timeline, panel.peak_at, panel.peak_bytes
    below = [0.0] * len(totals)
    for key, label, colour in known:
        above = [b + v / unit for b, v in zip(below, _values(timeline, key))]
        axes.fill_between(timeline.time_ms, below, above, step="post", color=colour, linewidth=0, label=label)
        below = above
    if peak_bytes:
        axes.axhline(peak_bytes / unit, color=style.FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
        where = f", in {clean(peak_at.op, 40)}" if peak_at and peak_at.op else ""
        axes.annotate(f"peak of the run {size(peak_bytes)}{where}", (0.995, peak_bytes / unit), (0, 4), fontsize=9,
                      xycoords=("axes fraction", "data"), textcoords="offset points", color=style.FAINT, ha="right")
    _mark_highest(axes, timeline, totals, unit)
    axes.grid(True, axis="y")
    if panel.title:
        axes.set_title(clean(panel.title, 120), fontsize=10)


def _unit(largest: float) -> "tuple[float, str]":
    for unit, name in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if largest >= 4 * unit:
            return unit, name
    return 1.0, "bytes"


def _mark_highest(axes: Axes, timeline: Record, totals: Sequence[float], unit: float) -> None:
    if not totals:
        return
    place = max(range(len(totals)), key=totals.__getitem__)
    x, y = timeline.time_ms[place], totals[place] / unit
    low, high = axes.get_xlim()
    right = x > low + 0.3 * (high - low)
    axes.plot([x], [y], marker="v", markersize=8, color=style.INK, markeredgecolor="white", clip_on=False)
    axes.annotate(f"highest {size(totals[place])}", (x, y), (-8 if right else 8, 18 if right else 10), textcoords="offset points",  # on the right above the peak of the run
                  fontsize=9.5, fontweight="bold", ha="right" if right else "left")
