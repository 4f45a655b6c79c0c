"""One step of one or more runs as one picture: lane by lane, or only when a rank computed, communicated and waited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional

from matplotlib.figure import Figure

from ..fields import Record, ReportError
from .figures.contrast import draw_contrast
from .figures.timeline import TimelinePart, draw_timeline
from .numbers import median_of
from .schema import read_run, setting
from .text import dotted, milliseconds, percent
from .trace import Trace, find_trace, load_trace


def write_timeline(folders: List[Path], out: Path, step: Optional[int], ranks: Optional[int]) -> Path:
    check_name(out)
    if ranks is not None and ranks < 1:
        raise ReportError(f"--ranks is {ranks}; it must be at least 1")
    parts = [replace(load_part(folder, step), marked={}) for folder in folders]
    several = len(parts) > 1
    shown = ranks if ranks is not None else 1 if several else 4
    tall = 0.85 if shown == 1 else 0.3
    figure = draw_timeline(parts, max_ranks=shown, width=16, row_height=tall, font=14 if shown == 1 else 10)
    return save(figure, out, 100)


def write_contrast(folders: List[Path], out: Path) -> Path:
    """When one rank of each run computed, communicated and waited, for a reader in a hurry."""
    check_name(out)
    parts = [load_part(folder) for folder in folders]
    named = [replace(part, title=_prefetching(read_run(folder / "result.json")) or folder.resolve().name)
             for part, folder in zip(parts, folders)]
    return save(draw_contrast(named), out, 130)


def check_name(out: Path) -> None:
    if out.suffix not in (".png", ".svg"):
        raise ReportError(f"--out {out} must end in .png or .svg")


def save(figure: Figure, out: Path, dpi: int) -> Path:
    figure.savefig(out, dpi=dpi, metadata={"Date": None} if out.suffix == ".svg" else {"Software": None})
    return out


def load_part(folder: Path, step: Optional[int] = None) -> TimelinePart:
    path = find_trace(folder)
    if path is None:
        raise ReportError(f"{folder} has neither trace.json nor trace.json.gz: a result folder of fsdpbench is expected")
    trace = load_trace(path)
    result = read_run(folder / "result.json")
    if step is None:
        example = result.exposed_intervals[0].step if result.exposed_intervals else None
        step = example if example in trace.steps() else trace.representative_step()
    trace.step_window(step)  # raises ReportError where there is none
    return TimelinePart(trace, step, title_of(result), result.exposed_intervals, _marked(trace, result, step))


def _marked(trace: Trace, result: Record, step: int) -> Dict[int, str]:
    """Who is worth looking at: the slowest of this step, and who came late to most collectives."""
    names: Dict[int, List[str]] = {}
    slowest = trace.slowest_rank(step)
    if slowest is not None and len(trace.ranks) > 1:
        names.setdefault(slowest, []).append("slowest")
    for cause in result.causes:
        if cause.late_rank is not None and "late" not in names.setdefault(cause.late_rank, []):
            names[cause.late_rank].append("late")
    return {rank: ", ".join(words) for rank, words in names.items()}


def _prefetching(result: Record) -> str:
    forward, backward = (setting(result.config, f"fsdp.{key}_prefetch") for key in ("forward", "backward"))
    if forward is None or backward is None:
        return ""
    if forward != "none" and backward != "none":
        return "With prefetching"
    return "Without " + ("" if forward == backward else "forward " if forward == "none" else "backward ") + "prefetching"


def title_of(result: Record) -> str:
    parts = [_prefetching(result)]
    step, exposed = median_of(result.inner("metrics")), result.inner("metrics").exposed_comm_ms
    if step is not None:
        parts.append(f"median step {milliseconds(step)}")
        if exposed is not None and step > 0:
            parts.append(f"exposed communication {milliseconds(exposed)} ({percent(100 * exposed / step)})")
    return dotted(*parts)
