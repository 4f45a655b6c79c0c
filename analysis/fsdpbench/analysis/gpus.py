"""What a run's GPUs were like while it ran, and what those of a host share: tables of a page, from a result file."""

from __future__ import annotations

from statistics import median
from typing import Any, List, Optional, Sequence

from ..fields import Record
from .page import Table
from .text import clean

_MOST_ROWS = 64


def gpu_table(gpus: Sequence[Record]) -> Optional[Table]:
    """None if there are no GPUs."""
    if not gpus:
        return None

    def clock(gpu: Record) -> Optional[float]:
        clocks = _told(gpu, "sm_mhz", "number")
        return median(clocks) if clocks else None

    def of(value: Optional[float], most: Optional[float]) -> str:
        if value is None:
            return "–"
        return f"{value:.0f}" if most is None else f"{value:.0f} of {most:.0f}"
    rows = []
    shown = sorted(gpus, key=lambda g: (clock(g) is None, clock(g) or 0))[:_MOST_ROWS]
    for gpu in sorted(shown, key=lambda g: g["rank"]):
        limits, power, heat = gpu.inner("limits"), _told(gpu, "power_w", "number"), _told(gpu, "temperature_c", "number")
        held = sorted({word for words in _told(gpu, "held_down_by", "text") for word in words.split(", ") if word})
        rows.append((str(gpu.rank), of(clock(gpu), limits.sm_mhz), of(median(power) if power else None, limits.power_w),
                     of(max(heat) if heat else None, None), clean(gpu.unknown_because, 300)
                     or ", ".join(clean(word, 60) for word in held) or "nothing"))
    note = "Medians over the measured steps, the highest temperature, and what held clocks down in any of them."
    if len(gpus) > len(shown):
        note += f" The {len(shown)} of {len(gpus)} with the slowest clocks."
    return Table("GPUs", ("rank", "SM clock, MHz", "power, W", "temperature, C", "clocks held down by"), rows, texts=(4,), note=note)


def _told(gpu: Record, key: str, kind: str) -> List[Any]:
    """A value a step; those that are null are left out."""
    return [value for value in gpu.inner("steps").typed(key, f"list of {kind}") if value is not None]
