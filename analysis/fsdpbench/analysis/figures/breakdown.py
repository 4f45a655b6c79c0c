"""What steps are made of: stacked bars of compute, exposed communication, exposed copies and idle, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...fields import Record
from .. import style
from ..text import digits, milliseconds
from .canvas import FittingLabels, lines_of, new_figure, wrapped

MAX_ROWS = 60


@dataclass(frozen=True)
class Bar:
    """A cell, a phase, a rank, of which parts has compute_ms and the others; whole_ms: what the parts are parts of, if that is not their sum."""

    name: str
    parts: Record
    whole_ms: Optional[float] = None
    gap: bool = False  # room above it: another group begins


def draw_breakdown(bars: Sequence[Bar], width: float = 12.0) -> Figure:
    """One row a bar, at most MAX_ROWS; at the end of each stands the whole."""
    style.apply()
    bars = bars[:MAX_ROWS]
    places = _places(bars)
    names = [wrapped(bar.name, 0.42 * width, 9) for bar in bars]
    figure = new_figure(width, max(0.34, 0.17 * lines_of(names)) * (places[-1] + 1) + 1.15)
    axes = figure.subplots()
    labels = FittingLabels()
    longest = 0.0
    for y, bar in zip(places, bars):
        left = 0.0
        for key, _, colour in style.BREAKDOWN:
            value = getattr(bar.parts, key) or 0.0
            axes.barh(y, value, left=left, height=0.7, color=colour, edgecolor="white", linewidth=0.5)
            labels.add(axes, left, left + value, y, digits(value), fontsize=8.5, color=style.text_on(colour))
            left += value
        whole = left if bar.whole_ms is None else bar.whole_ms
        axes.annotate(milliseconds(whole), (max(left, whole), y), (4, 0), textcoords="offset points", va="center",
                      fontsize=9)
        longest = max(longest, left, whole)
    axes.set_xlim(0, longest * 1.08 if longest > 0 else 1)
    axes.set_ylim(places[-1] + 0.5, -0.5)
    axes.set_yticks(places, names, fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_xlabel("ms per step")
    figure.legend(handles=[Patch(facecolor=colour, label=name) for _, name, colour in style.BREAKDOWN],
                  loc="outside upper left", ncols=len(style.BREAKDOWN), handlelength=1.2)
    labels.prune(figure)
    return figure


def _places(bars: Sequence[Bar]) -> "list[float]":
    places, y = [], -1.0
    for bar in bars:
        y += 1.5 if bar.gap and places else 1.0
        places.append(y)
    return places
