"""A sweep as a table: a line a cell, with its coordinates, times and memory."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import List, Optional

from .load import Cell, Sweep, load_sweep
from .sweep_view import value
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


def _row(sweep: Sweep, cell: Cell) -> List[str]:
    step, peak = cell.metrics.step, cell.memory.peak.get("total")
    times = [step.median, step.ci_low, step.ci_high, cell.metrics.total.exposed_comm_ms] if step else [None] * 4
    return ([value_text(value(cell, axis.key), 200) for axis in sweep.axes] + [_ms(time) for time in times] +
            ["" if peak is None else f"{peak:.0f}", f"{step.count}" if step and step.count else "", visible(cell.reason)])


def _ms(time: Optional[float]) -> str:
    return "" if time is None else f"{time:.6f}"
