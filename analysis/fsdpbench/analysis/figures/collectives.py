"""Each collective of a step: its time (transfer, waiting for peers) in ms, and its bus bandwidth in GB/s.

Collectives of the same kind, phase and size are one row where there are too many to be read.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Dict, List, Optional, Sequence, Tuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ... import fields
from .. import style
from ..text import clean, digits, size
from .canvas import new_figure

MAX_ROWS = 40
FOLD_ABOVE = 24


def draw_collectives(collectives: Sequence[fields.Record], link_gb_s: Optional[float], width: float = 12.0) -> Figure:
    """In the order given; folded when more than FOLD_ABOVE, and then the MAX_ROWS longest. link_gb_s: each rank's
    modelled link."""
    style.apply()
    rows = list(collectives) if len(collectives) <= FOLD_ABOVE else fold(collectives)
    if len(rows) > MAX_ROWS:
        longest = sorted(rows, key=lambda c: -(c.time_ms or 0))[:MAX_ROWS]
        rows = [c for c in rows if c in longest]
    figure = new_figure(width, 0.27 * len(rows) + 1.25)
    top = max([c.busbw_gb_per_s or 0 for c in rows] + [link_gb_s or 0])
    panels = figure.subplots(1, 2 if top > 0 else 1, sharey=True, squeeze=False)[0]  # sizes may not be known
    times, rates = panels[0], panels[-1]
    for y, item in enumerate(rows):
        colour = _colour(item)
        transfer = item.transfer_ms if item.transfer_ms is not None else item.time_ms
        if transfer is not None:
            times.barh(y, transfer, height=0.7, color=colour)
            if item.transfer_ms is not None and item.wait_ms:
                times.barh(y, item.wait_ms, left=transfer, height=0.7, color=style.PEERS[1])
        if item.busbw_gb_per_s is not None:
            rates.barh(y, item.busbw_gb_per_s, height=0.7, color=colour)
            text = digits(item.busbw_gb_per_s)
            if item.link_efficiency is not None:
                text += f"  ({_percent_of_link(item.link_efficiency)})"
            rates.annotate(text, (top * 1.03, y), va="center", fontsize=8.5)
    times.set_ylim(len(rows) - 0.5, -0.5)
    times.set_yticks(range(len(rows)), [_name(item) for item in rows], fontsize=8.5)
    for axes in panels:
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(True, axis="x")
        axes.margins(x=0.02)
    times.set_xlabel("time (ms)")
    if top > 0:
        rates.set_xlabel("bus bandwidth (GB/s)")
        rates.set_xlim(0, top * 1.25)
    if link_gb_s:
        rates.axvline(link_gb_s, color=style.INK, linewidth=1, linestyle=(0, (4, 3)))
        rates.set_title(f"dashed: the modelled link, {digits(link_gb_s)} GB/s", fontsize=9, fontweight="normal")
    kinds = [k for k in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce") if any(c.kind == k for c in rows)]
    handles = [Patch(facecolor=style.SLICES[k][1], label=style.SLICES[k][0]) for k in kinds]
    if any(c.wait_ms for c in rows):
        handles.append(Patch(facecolor=style.PEERS[1], label=style.PEERS[0]))
    if handles:
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.2)
    return figure


def fold(collectives: Sequence[fields.Record]) -> List[fields.Record]:
    """Those of the same kind, phase and size as one, at the place of the first: times and bandwidths are medians."""
    groups: Dict[Tuple[str, str, Optional[float]], List[fields.Record]] = {}
    for item in collectives:
        groups.setdefault((item.kind, item.phase, item.bytes), []).append(item)
    return [members[0] if len(members) == 1 else _folded(members) for members in groups.values()]


def _folded(members: Sequence[fields.Record]) -> fields.Record:
    def middle(key: str) -> Optional[float]:
        values = [v for m in members for v in [getattr(m, key)] if v is not None]
        return median(values) if values else None
    # E2 before E10: by the numbers in a name. They come in the order of exposure.
    units = sorted((m.unit or "" for m in members), key=lambda unit: [int(n) for n in re.findall(r"\d+", unit)])
    first, last = clean(units[0], 12), clean(units[-1], 12)
    return fields.Collective({
        **members[0].data, "name": f"{len(members)} × {clean(members[0].kind, 16)}, units {first} to {last}",
        **{key: middle(key) for key in ("time_ms", "transfer_ms", "wait_ms", "busbw_gb_per_s", "link_efficiency")}})


def _colour(item: fields.Record) -> str:
    return style.SLICES.get(item.kind, style.SLICES["other"])[1]


def _percent_of_link(efficiency: float) -> str:
    """The file says a fraction."""
    return f"{100 * efficiency:.0f} %"


def _name(item: fields.Record) -> str:
    name = clean(item.name or f"{item.kind} {item.unit}", 48)
    parts = [name]
    if item.phase and item.phase not in name:
        parts.append(clean(item.phase, 12))
    if item.bytes is not None:
        parts.append(size(item.bytes))
    return ", ".join(parts)
