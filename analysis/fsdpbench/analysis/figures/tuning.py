"""Every policy of a tuning as step time over memory: what is worth its memory, what is current, what is best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .. import style
from ..text import digits
from .canvas import new_figure

Point = Tuple[float, float]  # bytes, milliseconds


@dataclass(frozen=True)
class TuningPoints:
    """Bytes of a rank and milliseconds of a step."""

    fitting: Sequence[Point]
    too_large: Sequence[Point]
    front: Sequence[Point]
    in_force: Point
    best: Point
    budget: Optional[float]
    memory: str  # which kind


def draw_tuning(points: TuningPoints) -> Figure:
    style.apply()
    figure = new_figure(11.0, 5.2)
    axes = figure.subplots()
    everything = [*points.fitting, *points.too_large, points.in_force, points.best]
    large = max(x for x, _ in everything) >= 2.0**30
    unit, unit_name = (2.0**30, "GiB") if large else (2.0**20, "MiB")

    def scatter(of: Sequence[Point], **look: object) -> None:
        axes.plot([x / unit for x, _ in of], [y for _, y in of], linestyle="none", **look)

    if points.too_large:
        scatter(points.too_large, marker="x", markersize=4, color=style.DIM, label="does not fit", zorder=1)
    scatter(points.fitting, marker="o", markersize=3.5, color=style.SKY, label="fits", zorder=2)
    xs, ys = _stairs(points.front)
    axes.plot([x / unit for x in xs], ys, color=style.INK, linewidth=1.3, label="least memory for its step", zorder=3)
    scatter([points.in_force], marker="s", markersize=9, color=style.VERMILION, label="current", zorder=5)
    scatter([points.best], marker="*", markersize=15, color=style.GREEN, label="best", zorder=6)
    if points.budget is not None:
        axes.axvline(points.budget / unit, color=style.VERMILION, linewidth=1.2, linestyle="--", label="budget")
    _limits(axes, everything, points, unit)
    axes.set_xlabel(f"{points.memory} memory of a rank ({unit_name})")
    axes.set_ylabel("step (ms)")
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 100 else digits(v)))
    axes.grid(True)
    figure.legend(loc="outside right upper")
    return figure


def _stairs(front: Sequence[Point]) -> Tuple[List[float], List[float]]:
    """With so much memory, the shortest step is that of the last point before."""
    xs: List[float] = []
    ys: List[float] = []
    for x, y in front:
        if ys:
            xs.append(x)
            ys.append(ys[-1])
        xs.append(x)
        ys.append(y)
    return xs, ys


def _limits(axes: Axes, everything: Sequence[Point], points: TuningPoints, unit: float) -> None:
    """Some policies take many times as long as any that a person would choose: they lie outside the frame."""
    steps = sorted(y for _, y in everything)
    least, in_force = steps[0], points.in_force[1]
    top = max(in_force, steps[(len(steps) - 1) * 9 // 10], least * 1.02)
    axes.set_ylim(least - 0.06 * (top - least), top + 0.08 * (top - least))
    inside = [x / unit for x, y in everything if y <= top] + ([points.budget / unit] if points.budget else [])
    axes.set_xlim(min(inside) - 0.04 * (max(inside) - min(inside)), max(inside) + 0.04 * (max(inside) - min(inside)))
