"""Which cells of a sweep make up weak and strong scaling curves, and their efficiency as a share of the first point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence

from ..fields import Record
from .sweep_view import group, key_of, value, varying
from .text import setting_text

_RANKS, _BATCH = "mesh.ranks", "train.batch_per_rank"


@dataclass(frozen=True)
class ScalingPoint:
    """tokens/s of all ranks; efficiency in percent of the first point's tokens/s a rank."""

    ranks: float
    tokens_per_s: float
    efficiency_pct: float


@dataclass(frozen=True)
class ScalingLine:
    label: str
    points: Sequence[ScalingPoint]


@dataclass(frozen=True)
class ScalingColumn:
    title: str
    lines: Sequence[ScalingLine]


def scaling_columns(sweep: Record, measured: Sequence[Record]) -> List[ScalingColumn]:
    """Weak, strong, both or none, as the cells allow."""
    usable = [c for c in measured if _number(value(c, _RANKS)) and c.metrics.tokens_per_s]
    others = [a for a in varying(sweep) if a.key not in (_RANKS, _BATCH)]
    weak = _lines(usable, others + [a for a in varying(sweep) if a.key == _BATCH], None)
    columns = [ScalingColumn("weak: same batch per rank", weak)] if weak else []
    if any(a.key == _BATCH for a in varying(sweep)):
        strong = _lines([c for c in usable if _number(value(c, _BATCH))], others,
                        lambda c: value(c, _RANKS) * value(c, _BATCH))
        if strong:
            columns.append(ScalingColumn("strong: same batch of all ranks", strong))
    return columns


def _lines(cells: Sequence[Record], axes: Sequence[Record],
           total: Optional[Callable[[Record], float]]) -> List[ScalingLine]:
    lines = []
    for name, members in group(cells, axes):
        totals = sorted({total(c) for c in members}) if total else [None]
        for batch in totals:
            chosen = sorted((c for c in members if total is None or total(c) == batch),
                            key=lambda c: float(value(c, _RANKS)))
            if len({key_of(value(c, _RANKS)) for c in chosen}) < 2 or len(chosen) < (3 if total else 2):
                continue
            first = chosen[0].metrics.tokens_per_s / value(chosen[0], _RANKS)
            points = [ScalingPoint(value(c, _RANKS), c.metrics.tokens_per_s,
                                   100 * c.metrics.tokens_per_s / value(c, _RANKS) / first) for c in chosen]
            parts = [name] if name else []
            if total is not None:
                parts.append(f"batch {batch:g} in all")
            lines.append(ScalingLine(", ".join(parts) or setting_text(_RANKS, "any"), points))
    return lines


def _number(v: object) -> bool:
    return isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0
