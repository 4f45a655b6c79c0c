"""What changed since a baseline: one row a figure, now / before with its interval, better to the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from .. import style
from ..text import clean
from .canvas import new_figure

MAX_ROWS = 50

# verdict: colour, marker, what it means
LOOKS = {
    "fail": (style.VERMILION, "s", "worse"),
    "inconclusive": (style.ORANGE, "D", "inconclusive"),
    "pass": (style.BLUE, "o", "not worse"),
    "better": (style.GREEN, "^", "better"),
    "unrated": (style.DIM, "x", "unrated"),
}


@dataclass(frozen=True)
class ChangeRow:
    """now / before, turned so that above 1 is better."""

    name: str
    ratio: float
    low: Optional[float]
    high: Optional[float]
    verdict: str


def draw_changes(rows: Sequence[ChangeRow], threshold: float) -> Figure:
    """In the order given, at most MAX_ROWS; the band is what does not matter."""
    style.apply()
    rows = rows[:MAX_ROWS]
    figure = new_figure(12.0, 0.3 * len(rows) + 1.3)
    axes = figure.subplots()
    axes.axvspan(100 * (1 / (1 + threshold) - 1), 100 * threshold, color="#EFEFEF", zorder=0)
    axes.axvline(0, color=style.INK, linewidth=1)
    ends = [0.0]
    for y, row in enumerate(rows):
        colour, marker, _ = LOOKS.get(row.verdict, LOOKS["unrated"])
        if row.low is not None and row.high is not None and row.low < row.high:
            axes.plot([100 * (row.low - 1), 100 * (row.high - 1)], [y, y], color=colour, linewidth=1.6)
            ends += [100 * (row.low - 1), 100 * (row.high - 1)]
        axes.plot([100 * (row.ratio - 1)], [y], color=colour, marker=marker, markersize=6)
        ends.append(100 * (row.ratio - 1))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [clean(row.name, 90) for row in rows], fontsize=9)
    reach = max(min(max(-min(ends), max(ends)), 150.0), 200 * threshold, 2.0)
    low, high = max(min(ends), -reach), min(max(ends), reach)
    pad = 0.06 * (high - low) + 100 * threshold * 1.3
    axes.set_xlim(low - pad, high + pad)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:+.0f} %" if v else "0"))
    axes.set_xlabel("worse  ←  now against before  →  better")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    shown = [look for verdict, look in LOOKS.items() if any(r.verdict == verdict for r in rows)]
    figure.legend(handles=[Line2D([], [], linestyle="none", color=c, marker=m, markersize=6, label=name)
                           for c, m, name in shown], loc="outside upper left", ncols=len(shown))
    return figure
