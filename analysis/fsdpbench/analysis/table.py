"""A sweep as a table: a line a cell, with its coordinates, times and memory."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, List, Optional

from ..fields import Record
from .sweep_view import load_sweep, peak_of, value
from .text import value_text, visible

COLUMNS = ["step_ms", "step_low_ms", "step_high_ms", "exposed_comm_ms", "peak_bytes", "trials", "failed_because"]


def write_table(folder: Path, out: Path) -> Path:
    """As CSV; times to the nanosecond of a computed clock. What a cell does not have is empty."""
    sweep = load_sweep(folder / "sweep.json")
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([visible(axis.key) for axis in sweep.axes] + COLUMNS)
    for cell in sweep.cells:
        rows.writerow(_row(sweep, cell))
    out.write_text(text.getvalue(), encoding="utf-8")
    return out


def numbers_of(cell: Record) -> List[Any]:
    """What COLUMNS are of a cell; None is what it does not have."""
    step = cell.inner("metrics").inner("step_ms")
    return [step.median, step.ci_low, step.ci_high, cell.inner("metrics").exposed_comm_ms, peak_of(cell), step.n,
            cell.reason or None]


def _row(sweep: Record, cell: Record) -> List[str]:
    *times, peak, trials, reason = numbers_of(cell)
    return ([value_text(value(cell, axis.key), 200) for axis in sweep.axes] + [_ms(time) for time in times] +
            ["" if peak is None else f"{peak:.0f}", f"{trials}" if trials else "", visible(reason or "")])


def _ms(time: Optional[float]) -> str:
    return "" if time is None else f"{time:.6f}"
