"""Which cells of a sweep belong into which line, panel and column: selection and order only."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from .load import Axis, Cell, Sweep
from .text import axis_name, setting_text

# Axes that change how much work a step is, or the machine: step times are compared within their values only.
_WORK = ("model.", "train.", "mesh.", "emulate.", "data.", "inject.")


def key_of(value: Any) -> str:
    """Equal for equal values; also for lists, which cannot be compared as keys."""
    return json.dumps(value, sort_keys=True)


def value(cell: Cell, axis: str) -> Any:
    return cell.axes.get(axis)


def label(cell: Cell, axes: Iterable[Axis]) -> str:
    """The cell by its values on these axes; its id where there are none."""
    return ", ".join(setting_text(a.key, value(cell, a.key)) for a in axes) or cell.id


def group(cells: Iterable[Cell], axes: Sequence[Axis]) -> List[Tuple[str, List[Cell]]]:
    """Cells that agree on all of these axes, in the order of the cells, with the common label."""
    groups: Dict[Tuple[str, ...], List[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(key_of(value(cell, a.key)) for a in axes), []).append(cell)
    return [(", ".join(setting_text(a.key, value(members[0], a.key)) for a in axes), members)
            for members in groups.values()]


def work_axes(sweep: Sweep) -> List[Axis]:
    return [a for a in sweep.varying() if a.key.startswith(_WORK)]


def setting_axes(sweep: Sweep) -> List[Axis]:
    """The axes that a person may choose freely for the same work."""
    return [a for a in sweep.varying() if not a.key.startswith(_WORK)]


def split_axes(sweep: Sweep, x: Axis) -> Tuple[List[Axis], List[Axis]]:
    """(series, facets): what becomes a line and what becomes a column, given the axis along x."""
    others = [a for a in sweep.varying() if a is not x]
    hinted = [a for a in others if a.key in sweep.series][:1] or others[:1]
    return hinted, [a for a in others if a not in hinted]


def ordered(cells: Iterable[Cell], axis: Axis) -> List[Cell]:
    """Along the axis, in the order in which it lists its values."""
    order = {key_of(v): i for i, v in enumerate(axis.values)}
    return sorted(cells, key=lambda c: order.get(key_of(value(c, axis.key)), len(order)))


def find_axis(sweep: Sweep, *parts: str) -> List[Axis]:
    return [a for a in sweep.varying() if any(part in a.key for part in parts)]


def title_of(axis: Axis) -> str:
    return axis_name(axis.key)
