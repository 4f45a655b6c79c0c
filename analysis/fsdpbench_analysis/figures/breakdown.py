"""What steps are made of: stacked bars of compute, exposed communication, exposed copies and idle, in milliseconds."""

from __future__ import annotations

from typing import Sequence, Tuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .. import style
from ..load import Breakdown
from ..text import clean, digits, milliseconds
from .canvas import FittingLabels, new_figure

MAX_ROWS = 60


def draw_breakdown(rows: Sequence[Tuple[str, Breakdown]], width: float = 12.0) -> Figure:
    """One bar a row (a cell, a phase); rows are complete breakdowns, at most MAX_ROWS of them."""
    style.apply()
    rows = rows[:MAX_ROWS]
    figure = new_figure(width, 0.34 * len(rows) + 1.15)
    axes = figure.subplots()
    labels = FittingLabels()
    longest = 0.0
    for y, (_, parts) in enumerate(rows):
        left = 0.0
        for key, _, colour in style.BREAKDOWN:
            value = getattr(parts, key)
            axes.barh(y, value, left=left, height=0.7, color=colour, edgecolor="white", linewidth=0.5)
            labels.add(axes, left, left + value, y, digits(value), fontsize=8.5, color=style.text_on(colour))
            left += value
        axes.annotate(milliseconds(left), (left, y), (4, 0), textcoords="offset points", va="center", fontsize=9)
        longest = max(longest, left)
    axes.set_xlim(0, longest * 1.08 if longest > 0 else 1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [clean(name, 80) for name, _ in rows], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_xlabel("ms a step")
    figure.legend(handles=[Patch(facecolor=colour, label=name) for _, name, colour in style.BREAKDOWN],
                  loc="outside upper center", ncols=len(style.BREAKDOWN), handlelength=1.2)
    labels.prune(figure)
    return figure
