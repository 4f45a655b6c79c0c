"""The time of every measured step or trial, of the slowest rank, with the median and its interval; milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from matplotlib.figure import Figure

from ...fields import Record
from .. import style
from ..numbers import interval_name, is_range
from ..text import milliseconds
from .canvas import new_figure


@dataclass(frozen=True)
class StepLine:
    """The values in the order in which they were measured, and their median; name: "" for the only line."""

    name: str
    values_ms: Sequence[float]
    step: Record


def draw_steps(lines: Sequence[StepLine], x_label: str, things: str = "steps", width: float = 12.0) -> Figure:
    """things: what the values are, in the plural."""
    style.apply()
    figure = new_figure(width, 2.5)
    axes = figure.subplots()
    alone = len(lines) == 1
    for i, line in enumerate(lines):
        colour = style.SERIES[i % len(style.SERIES)]
        prefix = f"{line.name}: " if line.name else ""
        if line.step.ci_low is not None and line.step.ci_high is not None:
            look = ({"facecolor": "none", "edgecolor": colour, "hatch": "....", "linestyle": ":"} if is_range(line.step) else
                    {"color": colour, "linewidth": 0})
            axes.axhspan(line.step.ci_low, line.step.ci_high, alpha=0.4 if is_range(line.step) else 0.15,
                         label=prefix + interval_name(line.step, things), **look)
        axes.axhline(line.step.median, color=colour, linewidth=1.2,
                     label=f"{prefix}median {milliseconds(line.step.median)}")
        axes.plot(range(1, len(line.values_ms) + 1), line.values_ms, color=style.INK if alone else colour,
                  marker=style.MARKERS[i % len(style.MARKERS)], markersize=4, linewidth=0.8, label=prefix + things)
    highest = max(max([line.step.median, *line.values_ms]) for line in lines)
    axes.set_ylim(0, highest * 1.12 or 1)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(x_label)
    axes.set_ylabel("step time (ms)")
    axes.grid(True, axis="y")
    figure.legend(loc="outside right upper")
    return figure
