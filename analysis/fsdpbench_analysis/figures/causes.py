"""Why communication was exposed: the causes, the largest first, in milliseconds a step."""

from __future__ import annotations

from typing import Optional, Sequence

from matplotlib.figure import Figure

from .. import style
from ..load import Cause
from ..text import clean, milliseconds, percent
from .canvas import new_figure

MAX_CAUSES = 15


def draw_causes(causes: Sequence[Cause], small_ms: Optional[float], width: float = 12.0) -> Figure:
    """At least one cause; small_ms sums up those too small to be listed."""
    style.apply()
    ranked = sorted(causes, key=lambda c: -c.ms)
    rows = [(_name(c), c.ms, c.share_pct) for c in ranked[:MAX_CAUSES]]
    rest = sum(c.ms for c in ranked[MAX_CAUSES:])
    if rest > 0:
        rows.append((f"{len(ranked) - MAX_CAUSES} more", rest, None))
    if small_ms:
        rows.append(("small ones together", small_ms, None))
    figure = new_figure(width, 0.36 * len(rows) + 0.75)
    axes = figure.subplots()
    for y, (_, ms, share) in enumerate(rows):
        named = y < min(len(ranked), MAX_CAUSES)
        axes.barh(y, ms, height=0.68, color=style.VERMILION if named else style.GREY)
        text = milliseconds(ms) + (f", {percent(share)} of the step" if share is not None else "")
        axes.annotate(text, (ms, y), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xlim(0, max(max(row[1] for row in rows), 1e-9) * 1.28)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_xlabel("ms a step in which the compute lane waited")
    return figure


def _name(cause: Cause) -> str:
    name = clean(cause.cause.replace("_", " "), 40)
    where = clean(cause.op, 30) or (f"unit {clean(cause.unit, 24)}" if cause.unit else "")
    return f"{name}:  {where}" if where else name
