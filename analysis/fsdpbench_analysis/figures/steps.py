"""The time of every measured step, of the slowest rank, with the median and its confidence interval; milliseconds."""

from __future__ import annotations

from typing import Sequence

from matplotlib.figure import Figure

from .. import style
from ..load import StepTime
from ..text import milliseconds
from .canvas import new_figure


def draw_steps(slowest_rank_ms: Sequence[float], step: StepTime, width: float = 12.0) -> Figure:
    style.apply()
    figure = new_figure(width, 2.5)
    axes = figure.subplots()
    if step.ci_low is not None and step.ci_high is not None:
        axes.axhspan(step.ci_low, step.ci_high, color=style.SKY, alpha=0.25, linewidth=0,
                     label="95 % interval of the median")
    axes.axhline(step.median, color=style.BLUE, linewidth=1.2, label=f"median {milliseconds(step.median)}")
    axes.plot(range(len(slowest_rank_ms)), slowest_rank_ms, color=style.INK, marker="o", markersize=4, linewidth=0.8,
              label="steps")
    axes.set_ylim(0, max(max(slowest_rank_ms), step.median) * 1.12 or 1)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("measured step, after the warm-up")
    axes.set_ylabel("step time (ms)")
    axes.grid(True, axis="y")
    figure.legend(loc="outside right upper")
    return figure
