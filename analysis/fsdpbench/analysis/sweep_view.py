"""Which cells of a sweep belong into which line, panel and column: selection and order; and all cells as CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..fields import Record
from .schema import read_record
from .text import axis_name, setting_text, value_text, visible

COLUMNS = ["step_ms", "step_low_ms", "step_high_ms", "exposed_comm_ms", "peak_bytes", "trials", "failed_because"]
# Axes that change how much work a step is, or the machine: step times are compared within their values only.
_WORK = ("model.", "train.", "mesh.", "emulate.", "data.", "inject.")


def key_of(value: Any) -> str:
    """Equal for equal values; also for lists, which cannot be compared as keys."""
    return json.dumps(value, sort_keys=True)


def load_sweep(path: Path) -> Record:
    """Each cell has an id, and lies on each axis. Raises ReportError."""
    sweep = read_record(path, "sweep")
    for cell in sweep.cells:
        cell["id"]
        for axis in sweep.axes:
            if cell.axes.get(axis.key) not in axis.values:
                raise cell.error_at(("axes", axis.key), cell.axes.get(axis.key), "one of the values of this axis")
    return sweep


def varying(sweep: Record) -> List[Record]:
    """The axes with more than one value."""
    return [axis for axis in sweep.axes if len(axis.values) > 1]


def measured(cell: Record) -> bool:
    """It has numbers; whether they are those of what was asked says `rated`."""
    return cell.status != "failed" and cell.inner("metrics").step_ms is not None


def rated(cell: Record) -> bool:
    return cell.rated is not False


def step_of(cell: Record) -> float:
    """Of a measured cell."""
    return cell.metrics.step_ms["median"]


def peak_of(cell: Record) -> Optional[float]:
    """Bytes of the rank that needed most."""
    return cell.inner("memory").inner("peak_bytes").total


def value(cell: Record, axis: str) -> Any:
    return cell.axes.get(axis)


def label(cell: Record, axes: Iterable[Record]) -> str:
    """The cell by its values on these axes; its id where there are none."""
    return ", ".join(setting_text(a.key, value(cell, a.key)) for a in axes) or cell.id


def group(cells: Iterable[Record], axes: Sequence[Record]) -> List[Tuple[str, List[Record]]]:
    """Records that agree on all of these axes, in the order of the cells, with the common label."""
    groups: Dict[Tuple[str, ...], List[Record]] = {}
    for cell in cells:
        groups.setdefault(tuple(key_of(value(cell, a.key)) for a in axes), []).append(cell)
    return [(", ".join(setting_text(a.key, value(members[0], a.key)) for a in axes), members)
            for members in groups.values()]


def work_axes(sweep: Record) -> List[Record]:
    return [a for a in varying(sweep) if a.key.startswith(_WORK)]


def setting_axes(sweep: Record) -> List[Record]:
    """The axes that a person may choose freely for the same work."""
    return [a for a in varying(sweep) if not a.key.startswith(_WORK)]


def split_axes(sweep: Record, x: Record) -> Tuple[List[Record], List[Record]]:
    """(series, facets): what becomes a line and what becomes a column, given the axis along x."""
    others = [a for a in varying(sweep) if a is not x]
    hinted = [a for a in others if a.key in sweep.series][:1] or others[:1]
    return hinted, [a for a in others if a not in hinted]


def ordered(cells: Iterable[Record], axis: Record) -> List[Record]:
    """Along the axis, in the order in which it lists its values."""
    order = {key_of(v): i for i, v in enumerate(axis.values)}
    return sorted(cells, key=lambda c: order.get(key_of(value(c, axis.key)), len(order)))


def find_axis(sweep: Record, *parts: str) -> List[Record]:
    return [a for a in varying(sweep) if any(part in a.key for part in parts)]


def title_of(axis: Record) -> str:
    return axis_name(axis.key)


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
