"""Figures of an acceptance: who reaches whom how fast, each rank's rate, bandwidth by size."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import List, Mapping, Optional, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy import array, ma

from .. import style
from ..text import clean, digits, size
from .canvas import new_figure, untangle_ticks

MOST_WRITTEN = 12  # ends up to which every cell has its number
MOST_RANKS = 64


def draw_pairs(gb_per_s: Sequence[Sequence[float]], ends: str) -> Figure:
    """gb_per_s[from][to]; 0: not measured. Both directions: a cell and its mirror image are one pair."""
    style.apply()
    count = len(gb_per_s)
    figure = new_figure(11.0, min(max(0.5 * count + 1.3, 3.4), 6.2))
    axes, beside = figure.subplots(1, 2, width_ratios=(1.25, 1))
    measured = [v for row in gb_per_s for v in row if v > 0]
    low, high = (min(measured), max(measured)) if measured else (0.0, 1.0)
    # Differences smaller than a tenth of the fastest shall not look dramatic.
    norm = Normalize(min(low, 0.9 * high), max(high, 1e-9))
    colours = style.matplotlib.colormaps["viridis"].with_extremes(bad="#F3F3F3")
    values = array(gb_per_s, dtype=float)
    axes.imshow(ma.masked_where(values <= 0, values), cmap=colours, norm=norm, interpolation="nearest")
    if count <= MOST_WRITTEN:
        for row, values in enumerate(gb_per_s):
            for column, value in enumerate(values):
                if value > 0:
                    colour = colours(norm(value))
                    dark = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 0.55
                    axes.text(column, row, digits(value), ha="center", va="center", fontsize=9,
                              color="white" if dark else style.INK)
        axes.set_xticks(range(count))
        axes.set_yticks(range(count))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    one = ends.rstrip("s")
    axes.set_xlabel(f"to {one}")
    axes.set_ylabel(f"from {one}")
    bar = figure.colorbar(style.matplotlib.cm.ScalarMappable(norm, colours), ax=axes, fraction=0.045, pad=0.03)
    bar.set_label("GB/s, one way", fontsize=9)
    bar.outline.set_visible(False)
    _draw_ends(beside, gb_per_s, one)
    return figure


def _draw_ends(axes: Axes, gb_per_s: Sequence[Sequence[float]], one: str) -> None:
    """What each end sends and receives in the median, against the median of all pairs."""
    whole = median([v for row in gb_per_s for v in row if v > 0] or [1.0])
    for name, values, colour, marker in (("sends", gb_per_s, style.BLUE, "o"),
                                         ("receives", list(zip(*gb_per_s)), style.ORANGE, "s")):
        found = [(end, median([v for v in row if v > 0])) for end, row in enumerate(values) if any(v > 0 for v in row)]
        axes.plot([100 * value / whole for _, value in found], [end for end, _ in found], linestyle="none",
                  color=colour, marker=marker, markersize=7 if marker == "o" else 4.5, label=name)
    axes.axvline(100, color=style.INK, linewidth=1, linestyle=(0, (4, 3)))
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 94), max(high, 106))
    axes.set_ylim(len(gb_per_s) - 0.5, -0.5)
    axes.yaxis.set_major_locator(MaxNLocator(min(len(gb_per_s), MOST_WRITTEN), integer=True))
    axes.set_xlabel("median of its pairs, % of all")
    axes.set_ylabel(one)
    axes.grid(True, axis="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


@dataclass(frozen=True)
class RateLine:
    """Rates of each rank in each round: rates[round][rank], in `unit`."""

    name: str
    unit: str
    rates: Sequence[Sequence[float]]


def draw_rates(lines: Sequence[RateLine]) -> Figure:
    """One panel a quantity: every round of every rank as a dot, the median of each as a bar."""
    style.apply()
    figure = new_figure(11.0, 2.6 * len(lines) + 0.4)
    for axes, line in zip(figure.subplots(len(lines), 1, squeeze=False).flat, lines):
        ranks = len(line.rates[0])
        shown = min(ranks, MOST_RANKS)
        by_rank = [[r[rank] for r in line.rates if r[rank] > 0] for rank in range(shown)]
        middles = [median(values) for values in by_rank if values]
        whole = median(middles) if middles else 0
        for rank, values in enumerate(by_rank):
            axes.plot([rank] * len(values), values, linestyle="none", marker="o", markersize=4, color=style.SKY,
                      alpha=0.6)
            if values:
                slow = median(values) < 0.95 * whole
                axes.plot([rank - 0.3, rank + 0.3], [median(values)] * 2, linewidth=3, solid_capstyle="butt",
                          color=style.VERMILION if slow else style.BLUE)
        axes.axhline(whole, color=style.INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_ylim(0, max([v for values in by_rank for v in values] or [1]) * 1.1)
        axes.set_xlim(-0.7, shown - 0.3)
        axes.set_xticks(range(0, shown, -(-shown // 16)))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.grid(True, axis="y")
        axes.set_ylabel(line.unit)
        axes.set_title(line.name + (f" (the first {shown} of {ranks} ranks)" if shown < ranks else ""), fontsize=10)
        axes.set_xlabel("rank")
    figure.legend(handles=[
        Line2D([], [], linestyle="none", marker="o", markersize=4, color=style.SKY, label="one round"),
        Line2D([], [], linewidth=3, color=style.BLUE, label="median of the rank"),
        Line2D([], [], linewidth=3, color=style.VERMILION, label="over 5 % below its peers"),
        Line2D([], [], color=style.INK, linewidth=1, linestyle=(0, (4, 3)), label="median of all")],
        loc="outside upper left", ncols=4)
    return figure


@dataclass(frozen=True)
class Rung:
    """A collective of `bytes` in GB/s of bus bandwidth: median with its interval, and its reference."""

    bytes: float
    gb_per_s: float
    low: Optional[float]
    high: Optional[float]
    floor: Optional[float]


@dataclass(frozen=True)
class Ladder:
    title: str
    lines: Mapping[str, Sequence[Rung]]  # by name
    ceiling: Optional[float] = None


def draw_ladders(ladders: Sequence[Ladder], x_label: str = "size", of_ranks: bool = False) -> Figure:
    """Bus bandwidth over size (or ranks), a panel an operation, with floor and ceiling where they are known."""
    style.apply()
    figure = new_figure(11.0, 3.9)
    grid = figure.subplots(1, len(ladders), sharey=True, squeeze=False)[0]
    top = max([max(r.high or 0, r.gb_per_s, r.floor or 0) for ladder in ladders for rungs in ladder.lines.values()
               for r in rungs] + [1e-9])
    known = [ladder.ceiling for ladder in ladders if ladder.ceiling]
    top = max([top] + known)
    handles: List[Line2D] = []
    for axes, ladder in zip(grid, ladders):
        _draw_ladder(axes, ladder, handles, of_ranks)
        axes.set_xlabel(x_label)
        axes.set_ylim(0, 1.08 * top)
        axes.set_title(clean(ladder.title, 60), fontsize=10)
    grid[0].set_ylabel("bus bandwidth (GB/s)")
    untangle_ticks(figure, list(grid))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


def _draw_ladder(axes: Axes, ladder: Ladder, handles: List[Line2D], of_ranks: bool) -> None:
    def once(handle: Line2D) -> None:
        if handle.get_label() not in [h.get_label() for h in handles]:
            handles.append(handle)

    places: List[float] = []
    for i, (name, rungs) in enumerate(ladder.lines.items()):
        rungs = sorted(rungs, key=lambda r: r.bytes)
        colour, marker = (style.BLUE, style.GREEN, style.PINK, style.INK)[i % 4], style.MARKERS[i % len(style.MARKERS)]
        xs = [r.bytes for r in rungs]
        places += [x for x in xs if x not in places]
        below = [max(r.gb_per_s - (r.low if r.low is not None else r.gb_per_s), 0) for r in rungs]
        above = [max((r.high if r.high is not None else r.gb_per_s) - r.gb_per_s, 0) for r in rungs]
        axes.errorbar(xs, [r.gb_per_s for r in rungs], yerr=[below, above], color=colour, marker=marker,
                      markersize=6.5 - i, linewidth=1.8, capsize=3)
        once(Line2D([], [], color=colour, marker=marker, markersize=6, linewidth=1.8, label=clean(name, 40)))
        floors = [(r.bytes, r.floor) for r in rungs if r.floor is not None]
        if floors and i == 0:
            axes.plot([x for x, _ in floors], [y for _, y in floors], color=style.VERMILION, linewidth=1.3,
                      linestyle=(0, (4, 3)), marker="_", markersize=12)
            once(Line2D([], [], color=style.VERMILION, linewidth=1.3, linestyle=(0, (4, 3)), label="floor"))
    if ladder.ceiling:
        axes.axhline(ladder.ceiling, color=style.INK, linewidth=1.2, linestyle=(0, (1, 2)))
        once(Line2D([], [], color=style.INK, linewidth=1.2, linestyle=(0, (1, 2)), label="ceiling of the links"))
    axes.set_xscale("log", base=2)
    places.sort()
    shown = [p for i, p in enumerate(places) if i == 0 or p / places[i - 1] > 1.1]
    axes.set_xticks(shown, [f"{p:.0f}" if of_ranks else size(p) for p in shown], fontsize=8.5)
    axes.xaxis.set_minor_locator(NullLocator())
    if len(places) == 1:
        axes.set_xlim(places[0] / 2, places[0] * 2)
    axes.grid(True)


@dataclass(frozen=True)
class Bars:
    """Values of ranks or arms, in `unit`; those marked are who is meant."""

    names: Sequence[str]
    values: Sequence[float]
    unit: str
    marked: Sequence[int] = ()


def draw_bars(bars: Bars) -> Figure:
    style.apply()
    figure = new_figure(11.0, 0.34 * len(bars.names) + 0.9)
    axes = figure.subplots()
    for y, value in enumerate(bars.values):
        axes.barh(y, value, height=0.7, color=style.VERMILION if y in bars.marked else style.SKY)
        axes.annotate(f"{digits(value)} {bars.unit}", (max(value, 0), y), (4, 0), textcoords="offset points",
                      va="center", fontsize=9)
    axes.set_yticks(range(len(bars.names)), [clean(n, 60) for n in bars.names], fontsize=9)
    axes.set_ylim(len(bars.names) - 0.4, -0.6)
    axes.set_xlim(0, max([*bars.values, 0]) * 1.12 or 1)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_xlabel(bars.unit)
    return figure
