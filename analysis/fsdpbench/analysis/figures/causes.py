"""Why communication was exposed: the causes, the largest first, in milliseconds a step; of one run or of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...fields import Record
from .. import style
from ..text import clean, milliseconds, percent
from .canvas import new_figure, wrapped

MAX_CAUSES = 15
# Name, ms, percent of the step, whether of one cause, and what the step would take without it.
_Row = Tuple[str, float, Optional[float], bool, Optional[float]]


@dataclass(frozen=True)
class CausePanel:
    """small_ms sums up the causes too small to be listed; jitter_ms is of no cause."""

    title: str
    causes: Sequence[Record]
    small_ms: Optional[float]
    jitter_ms: Optional[float] = None


def draw_causes(panels: Sequence[CausePanel], width: float = 12.0) -> Figure:
    """One above the other on one scale; at least one cause in all."""
    style.apply()
    rows = [_rows(panel) for panel in panels]
    titles = 0.35 * sum(bool(p.title) for p in panels)
    figure = new_figure(width, sum(0.36 * max(len(r), 1) for r in rows) + 0.75 + titles)
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=[max(len(r), 1) for r in rows])[:, 0]
    for axes, panel, mine in zip(all_axes, panels, rows):
        _draw_panel(axes, mine)
        if panel.title:
            axes.set_title(wrapped(panel.title, width - 3), fontsize=10)
    all_axes[-1].set_xlim(0, max([ms for mine in rows for _, ms, *_ in mine] + [1e-9]) * 1.45)
    all_axes[-1].set_xlabel("ms a step in which the compute lane waited")
    return figure


def _rows(panel: CausePanel) -> List[_Row]:
    ranked = sorted(panel.causes, key=lambda c: -c["ms"])
    rows: List[_Row] = [(_name(c), c.ms, c.share_pct, True, c.inner("without").step_ms) for c in ranked[:MAX_CAUSES]]
    rest = sum(c.ms for c in ranked[MAX_CAUSES:])
    if rest > 0:
        rows.append((f"{len(ranked) - MAX_CAUSES} more", rest, None, False, None))
    if panel.small_ms:
        rows.append(("small ones together", panel.small_ms, None, False, None))
    if panel.jitter_ms and panel.jitter_ms > 0:
        rows.append(("jitter, of no cause", panel.jitter_ms, None, False, None))
    return rows


def _draw_panel(axes: Axes, rows: Sequence[_Row]) -> None:
    for y, (_, ms, share, named, without) in enumerate(rows):
        axes.barh(y, ms, height=0.68, color=style.VERMILION if named else style.PEACH)
        text = milliseconds(ms) + (f", {percent(share)} of the step" if share is not None else "")
        text += f"; without it {milliseconds(without)}" if without is not None else ""
        axes.annotate(text, (ms, y), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")


def _name(cause: Record) -> str:
    name = clean(cause["cause"].replace("_", " "), 40)
    where = clean(cause.op, 30) or (f"unit {clean(cause.unit, 24)}" if cause.unit else "")
    what = "slow" if cause.cause == "slow_link" else "late"
    late = f", rank {cause.late_rank} {what}" if cause.late_rank is not None else ""
    return (f"{name}:  {where}" if where else name) + late
