"""What checkpoints cost a run, as a table: a line each."""

from __future__ import annotations

from typing import List, Optional

from .load import Checkpoint, Result
from .page import Table
from .text import milliseconds, percent, sentence, size

_MOST = 20


def checkpoints_table(result: Result) -> Optional[Table]:
    """None: nothing was saved."""
    if not result.checkpoints:
        return None
    cost = result.checkpoint_cost
    note = ("Stall: the training of the rank that waited longest stood still, for the file before, for the copy of what an "
            "update changes, or while the file was written. Copy: to host memory, beside a step.")
    if cost.stall_ms is not None:
        share = f", {percent(cost.stall_pct)} of a step without any" if cost.stall_pct is not None else ""
        note += f" In the median a save stalled {milliseconds(cost.stall_ms)}{share}."
    if cost.beside_pct is not None:
        note += f" Steps beside which something was copied or written took {cost.beside_pct:+.1f} % longer."
    if cost.because:
        note += f" {sentence(cost.because)}"
    if len(result.checkpoints) > _MOST:
        note += f" The last {_MOST} of {len(result.checkpoints)}."
    return Table("Checkpoints", ("after step", "bytes", "stall", "copy", "written in", "MB/s"),
                 [_row(one) for one in result.checkpoints[-_MOST:]], note=note)


def _row(one: Checkpoint) -> List[str]:
    def shown(value: Optional[float]) -> str:
        return "–" if value is None else milliseconds(value)

    return [f"{one.steps}{' (the last)' if one.at_end else ''}", size(one.bytes), shown(one.stall_ms), shown(one.copy_ms or None),
            shown(one.write_ms), "–" if one.mb_per_s is None else f"{one.mb_per_s:.0f}"]
