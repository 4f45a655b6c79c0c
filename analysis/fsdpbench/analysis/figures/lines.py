"""Curves over one axis of a sweep: quantities as rows, the values of a further axis as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from .. import style
from ..text import clean, value_text
from .canvas import new_figure, untangle_ticks


@dataclass(frozen=True)
class Line:
    """y over x, with a band where low and high are known; x are values of the axis."""

    label: str
    points: Sequence[Tuple[object, float, Optional[float], Optional[float]]]  # x, y, low, high


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Row:
    """One quantity: a panel for each column."""

    ylabel: str
    panels: Sequence[Panel]
    percent: bool = False


def draw_lines(rows: Sequence[Row], x_label: str, x_values: Sequence[object], legend_title: str,
               width: float = 12.0) -> Figure:
    style.apply()
    columns = max(len(row.panels) for row in rows)
    figure = new_figure(width, 2.75 * len(rows) + 0.9)
    grid = figure.subplots(len(rows), columns, sharex=True, sharey="row", squeeze=False)
    place = _positions(x_values)
    shown: List[str] = []
    for r, row in enumerate(rows):
        for c in range(columns):
            axes = grid[r][c]
            if c >= len(row.panels):
                axes.set_visible(False)
                continue
            _draw_panel(axes, row.panels[c], place, shown)
            if r == 0 and row.panels[c].title:
                axes.set_title(clean(row.panels[c].title, 60), fontsize=10)
            if c == 0:
                axes.set_ylabel(row.ylabel)
            if r == len(rows) - 1:
                axes.set_xlabel(x_label)
            _x_axis(axes, x_values, place)
        # After all panels: they share the scale.
        grid[r][0].set_ylim(0, 105 if row.percent else max(grid[r][0].get_ylim()[1], 1e-9))
    handles, labels = _handles(grid)
    if len(labels) > 1 or legend_title:
        figure.legend(handles, labels, title=legend_title or None, loc="outside right upper", alignment="left")
    untangle_ticks(figure, [axes for axes in grid[-1] if axes.get_visible()])  # the legend has made them narrower
    return figure


def _draw_panel(axes: Axes, panel: Panel, place, shown: List[str]) -> None:
    for line in panel.lines:
        if line.label not in shown:
            shown.append(line.label)
        i = shown.index(line.label)
        colour, marker = style.SERIES[i % len(style.SERIES)], style.MARKERS[i % len(style.MARKERS)]
        # Earlier lines are broader, so that lines upon each other can all be seen.
        xs = [place(p[0]) for p in line.points]
        axes.plot(xs, [p[1] for p in line.points], color=colour, marker=marker, markersize=max(8.5 - i, 4), linewidth=max(2.6 - 0.35 * i, 1.2),
                  label=clean(line.label, 40), linestyle="-" if i < len(style.SERIES) else "--")
        banded = [p for p in line.points if p[2] is not None and p[3] is not None]
        if banded:
            axes.fill_between([place(p[0]) for p in banded], [p[2] for p in banded], [p[3] for p in banded],
                              color=colour, alpha=0.18, linewidth=0)
            if len(banded) == 1:
                axes.errorbar([place(banded[0][0])], [banded[0][1]],
                              yerr=[[max(banded[0][1] - banded[0][2], 0)], [max(banded[0][3] - banded[0][1], 0)]],
                              color=colour, capsize=3)
    axes.grid(True, axis="y")


def numeric(values: Sequence[object]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _positions(values: Sequence[object]):
    """From a value of the axis to its place: the number itself, its logarithm where values multiply, or its rank."""
    if numeric(values) and len(set(values)) == len(values) and min(values) > 0 and max(values) / min(values) >= 4:
        return lambda v: math.log2(float(v))
    if numeric(values):
        return lambda v: float(v)
    order = [value_text(v) for v in values]
    return lambda v: float(order.index(value_text(v)))


def _x_axis(axes: Axes, values: Sequence[object], place) -> None:
    axes.xaxis.set_major_locator(FixedLocator([place(v) for v in values]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([value_text(v, 16) for v in values])
    places = [place(v) for v in values]
    margin = 0.06 * (max(places) - min(places) or 1)
    axes.set_xlim(min(places) - margin, max(places) + margin)


def _handles(grid):
    seen = {}
    for axes in grid.flat:
        if axes.get_visible():
            for handle, label in zip(*axes.get_legend_handles_labels()):
                seen.setdefault(label, handle)
    return list(seen.values()), list(seen.keys())
