"""Tokens per second and efficiency over the number of ranks: weak and strong scaling beside each other."""

from __future__ import annotations

import math
from typing import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from .. import style
from ..scaling_view import ScalingColumn
from ..text import digits
from .canvas import new_figure, wrapped


def draw_scaling(columns: Sequence[ScalingColumn], width: float = 12.0) -> Figure:
    style.apply()
    names = [[wrapped(line.label, width / len(columns) - 1, 9) for line in column.lines] for column in columns]
    legend = 0.3 + 0.2 * max(sum(name.count("\n") + 1 for name in mine) for mine in names)
    figure = new_figure(width, 6.1 + legend)
    above, below = figure.subfigures(2, 1, height_ratios=[6, legend])
    grid = above.subplots(2, len(columns), sharex="col", sharey="row", squeeze=False)
    legends = below.subplots(1, len(columns), squeeze=False)[0]
    for c, column in enumerate(columns):
        rates, efficiency = grid[0][c], grid[1][c]
        for i, line in enumerate(column.lines):
            colour, marker = style.look(i)
            ranks = [p.ranks for p in line.points]
            rates.plot(ranks, [p.tokens_per_s for p in line.points], color=colour, marker=marker, markersize=max(9 - i, 4),
                       linewidth=1.6, label=names[c][i])
            first = line.points[0]
            rates.plot(ranks, [first.tokens_per_s * r / first.ranks for r in ranks], color=colour, linewidth=1,
                       linestyle=":")
            efficiency.plot(ranks, [p.efficiency_pct for p in line.points], color=colour, marker=marker,
                            markersize=max(9 - i, 4), linewidth=1.6)
        values = sorted({p.ranks for line in column.lines for p in line.points})
        for axes in (rates, efficiency):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(values))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticklabels([f"{v:.12g}" for v in values])
            axes.set_xlim(min(values) / 1.1, max(values) * 1.1)
            axes.grid(True, axis="y")
        rates.set_yscale("log", base=10)
        reached = [p.tokens_per_s for line in column.lines for p in line.points]
        several_decades = max(reached) > 100 * min(reached)
        rates.yaxis.set_major_locator(LogLocator(base=10, subs=(1,) if several_decades else (1, 2, 5)))
        rates.yaxis.set_major_formatter(FuncFormatter(lambda v, _: digits(v)))
        rates.yaxis.set_minor_formatter(NullFormatter())
        rates.set_title(column.title, fontsize=10)
        efficiency.axhline(100, color=style.FAINT, linewidth=0.9, linestyle=":")
        efficiency.set_xlabel("ranks")
        legends[c].axis("off")
        legends[c].legend(*rates.get_legend_handles_labels(), loc="upper left", fontsize=9)
    top = max(p.efficiency_pct for column in columns for line in column.lines for p in line.points)
    for axes in grid[1]:
        axes.set_ylim(0, max(112, math.ceil(top / 10) * 10 + 5))
    lowest = min(p.tokens_per_s for column in columns for line in column.lines for p in line.points)
    highest = max(p.tokens_per_s for column in columns for line in column.lines for p in line.points)
    for axes in grid[0]:
        axes.set_ylim(lowest / 1.3, highest * 1.5)
    grid[0][0].set_ylabel("tokens/s, all ranks")
    grid[1][0].set_ylabel("efficiency (%)")
    return figure
