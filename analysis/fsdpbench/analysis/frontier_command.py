"""What each choice of a sweep costs in time and in memory, as one picture of one or more sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import List

from .figures.frontier import draw_frontier
from .frontier_view import frontier_rows
from .sweep_view import load_sweep
from .timeline_command import check_name, save


def write_frontier(folders: List[Path], out: Path) -> Path:
    check_name(out)
    rows = [row for folder in folders for row in frontier_rows(load_sweep(folder / "sweep.json"), len(folders) > 1)]
    return save(draw_frontier(rows), out, 110)
