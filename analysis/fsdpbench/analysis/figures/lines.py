"""Curves over one axis of a sweep: quantities as rows, the values of a further axis as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from .. import style
from ..text import value_text
from .canvas import legend_below, lines_of, new_figure, ticks_of, untangle_ticks, wrapped


@dataclass(frozen=True)
class Line:
    """y over x, with a band where low and high are known, of ranges with bars instead; x are values of the axis."""

    label: str
    points: Sequence[Tuple[object, float, Optional[float], Optional[float]]]  # x, y, low, high
    ranges: bool = False  # low and high are the least and the most of a few values


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


def draw_lines(rows: Sequence[Row], x_label: str, x_values: Sequence[object], names: Sequence[str], legend_title: str,
               width: float = 12.0) -> Figure:
    """names: of all lines, in the order in which colours are given."""
    style.apply()
    columns = max(len(row.panels) for row in rows)
    titles = [wrapped(panel.title, width / columns - 0.55) for panel in rows[0].panels]
    ticks, below = ticks_of(x_values, width / columns - 0.4)
    figure = new_figure(width, 2.4 * len(rows) + 0.9 + 0.17 * lines_of(titles) + below)
    grid = figure.subplots(len(rows), columns, sharex=True, sharey="row", squeeze=False)
    place = _positions(x_values)
    for r, row in enumerate(rows):
        for c in range(columns):
            axes = grid[r][c]
            if c >= len(row.panels):
                axes.set_visible(False)
                continue
            _draw_panel(axes, row.panels[c], place, names)
            if r == 0 and titles[c]:
                axes.set_title(titles[c], fontsize=10)
            if c == 0:
                axes.set_ylabel(row.ylabel.replace(" (", "\n("))
            if r == len(rows) - 1:
                axes.set_xlabel(x_label)
            _x_axis(axes, x_values, ticks, place)
        # After all panels: they share the scale. Above the highest there is room for its marker.
        grid[r][0].set_ylim(0, 105 if row.percent else max(1.04 * grid[r][0].get_ylim()[1], 1e-9))
        grid[r][0].ticklabel_format(axis="y", useOffset=False, style="plain")
    if len(names) > 1 or legend_title:
        handles = [Line2D([], [], color=style.look(i)[0], marker=style.look(i)[1]) for i in range(len(names))]
        legend_below(figure, handles, names, legend_title)
    untangle_ticks(figure, [axes for axes in grid[-1] if axes.get_visible()])
    return figure


def _draw_panel(axes: Axes, panel: Panel, place, names: Sequence[str]) -> None:
    for line in panel.lines:
        i = names.index(line.label)
        colour, marker = style.look(i)
        # Earlier lines are broader, so that lines upon each other can all be seen.
        xs = [place(p[0]) for p in line.points]
        axes.plot(xs, [p[1] for p in line.points], color=colour, marker=marker, markersize=max(8.5 - i, 4),
                  linewidth=max(2.6 - 0.35 * i, 1.2))
        banded = [p for p in line.points if p[2] is not None and p[3] is not None]
        if banded and not line.ranges:
            axes.fill_between([place(p[0]) for p in banded], [p[2] for p in banded], [p[3] for p in banded],
                              color=colour, alpha=0.18, linewidth=0)
        if banded and (line.ranges or len(banded) == 1):
            axes.errorbar([place(p[0]) for p in banded], [p[1] for p in banded], linestyle="none", color=colour, capsize=3,
                          yerr=[[max(p[1] - p[2], 0) for p in banded], [max(p[3] - p[1], 0) for p in banded]])
    axes.grid(True, axis="y")


def numeric(values: Sequence[object]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _positions(values: Sequence[object]):
    """From a value of the axis to its place: the number itself, its logarithm where values multiply, or its rank, also
    where numbers would be so near each other that their names touch."""
    if numeric(values) and len(set(values)) == len(values):
        scale = math.log2 if min(values) > 0 and max(values) / min(values) >= 4 else float
        places = sorted(scale(float(v)) for v in values)
        if all(4 * len(places) * (b - a) > places[-1] - places[0] for a, b in zip(places, places[1:])):
            return lambda v: scale(float(v))
    order = [value_text(v) for v in values]
    return lambda v: float(order.index(value_text(v)))


def _x_axis(axes: Axes, values: Sequence[object], ticks: Sequence[str], place) -> None:
    axes.xaxis.set_major_locator(FixedLocator([place(v) for v in values]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(ticks)
    places = [place(v) for v in values]
    margin = 0.06 * (max(places) - min(places) or 1)
    axes.set_xlim(min(places) - margin, max(places) + margin)
