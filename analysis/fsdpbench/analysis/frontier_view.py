"""Of what a person may choose for the same work, what is both slower and larger than something else, and what is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence

from ..fields import Record, ReportError
from .sweep_view import group, key_of, measured, ordered, peak_of, step_of, value, varying
from .text import setting_text, value_text


WORTH = 0.005  # of a step: less is no reason to need more memory


@dataclass(frozen=True)
class Choice:
    """Milliseconds of a step and bytes of a rank at its peak."""

    name: str
    step_ms: float
    peak_bytes: float


@dataclass(frozen=True)
class FrontierPanel:
    title: str
    choices: Sequence[Choice]

    def front(self) -> List[Choice]:
        """Those worth their memory, from the smallest to the fastest: each faster by WORTH than all smaller ones."""
        best: List[Choice] = []
        for choice in sorted(self.choices, key=lambda c: (c.peak_bytes, c.step_ms)):
            if not best or choice.step_ms < best[-1].step_ms * (1 - WORTH):
                best.append(choice)
        return best


def frontier_rows(sweep: Record, named: bool = False) -> List[List[FrontierPanel]]:
    """A panel for all cells that differ in nothing but the sweep's series; a row for each value of the last other axis.
    `named`: panels say which sweep they are of."""
    series = [a for a in varying(sweep) if a.key in sweep.series][:1]
    if not series:
        raise ReportError(f"{sweep.path}: which key is chosen is not said; expected `series` to name one of the axes")
    others = [a for a in varying(sweep) if a is not series[0]]
    usable = [c for c in sweep.cells if measured(c) and peak_of(c) is not None]
    if not usable:
        raise ReportError(f"{sweep.path}: no cell has both a step time and a peak of memory")
    rows: Dict[str, List[FrontierPanel]] = {}
    down = others[-1:] if len(others) > 1 else []
    for axis in reversed(others):
        usable = ordered(usable, axis)
    for _, members in group(usable, others):
        where = "".join(key_of(value(members[0], axis.key)) for axis in down)
        title = ", ".join(_coordinate(axis, value(members[0], axis.key)) for axis in others) or sweep.title
        if named and title != sweep.title:
            title = f"{sweep.title}: {title}"
        rows.setdefault(where, []).append(FrontierPanel(title, [
            Choice(value_text(value(c, series[0].key)), step_of(c), peak_of(c))
            for c in members]))
    order = [key_of(v) for v in down[0].values] if down else [""]
    return [rows[key] for key in order if key in rows]


def _coordinate(axis: Record, at: Any) -> str:
    """Names speak for themselves; numbers need to be told what of."""
    if axis.key == "mesh.ranks":
        return f"{value_text(at)} ranks"
    return value_text(at) if isinstance(at, str) else setting_text(axis.key, at)
