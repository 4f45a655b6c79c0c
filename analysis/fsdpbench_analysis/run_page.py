"""The page of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

from .figures.breakdown import draw_breakdown
from .figures.causes import draw_causes
from .figures.collectives import draw_collectives
from .figures.memory import draw_memory
from .figures.steps import draw_steps
from .figures.timeline import draw_timeline
from .load import Result, load_result
from .page import Page, Picture, Table
from .schema import ReportError
from .text import milliseconds, size
from .timeline_command import load_part
from .verdict import hidden, interval, made_of, would_help
from .world import emulation_badges, machine, relative_url, world_rows

_OLDER = "the result file does not say; it was written by an older version, or no step was measured"


def run_page(path: Path, out: Path) -> Page:
    result = load_result(path)
    page = Page(title=_title(result), subtitle=_subtitle(result), badges=emulation_badges(result.world))
    if not result.complete:
        page.badges.append("Incomplete: the run was stopped before its last step")
    page.verdict = _verdict(result)
    page.pictures = [_breakdown(result), _causes(result), _timeline(result), _memory(result), _collectives(result),
                     _steps(result)]
    page.table_title, page.table = "Numbers", _numbers(result)
    trace = result.folder / "trace.json"
    for name in ("trace.json", "trace.json.gz", "trace"):
        trace = result.folder / name
        if trace.exists():
            text = f"{name}/, one file a rank, for tools that read PyTorch profiler traces" if trace.is_dir() else name
            page.traces.append((text, relative_url(trace, out)))
    page.world = world_rows(result.world)
    page.config = json.dumps(result.config, indent=2, ensure_ascii=False)
    return page


def _title(result: Result) -> str:
    model, strategy = result.setting("model.preset"), result.setting("fsdp.strategy")
    ranks = result.setting("mesh.ranks")
    named = [str(p) for p in (model or None, strategy) if p]
    if ranks:
        named.append(f"{ranks} ranks")
    return "FSDP communication: " + ", ".join(named) if named else "FSDP communication"


def _subtitle(result: Result) -> str:
    parts = ["fsdpbench run"]
    if result.world.get("date"):
        parts.append(str(result.world["date"]))
    if machine(result.world):
        parts.append(machine(result.world))
    return "  ·  ".join(parts)


def _verdict(result: Result) -> List[str]:
    words = [w for w in (made_of(result.metrics), hidden(result.metrics)) if w]
    if not words:
        words = ["No step was measured, so there is nothing to say about communication."]
    return words + would_help(result.causes)


def _breakdown(result: Result) -> Picture:
    total = result.metrics.total
    step = result.metrics.step
    picture = Picture("breakdown", "What a step is made of",
                      "Mean over ranks, median over steps; the step is that of the slowest rank"
                      + (f" ({interval(step)})" if step and interval(step) else "") +
                      ". Compute: at least one kernel ran on the rank. Exposed communication and exposed copies: the "
                      "compute lane waited for them. Idle: it waited for anything else. The parts add up to the step.")
    if not total.complete():
        picture.reason = _OLDER
        return picture
    rows = [("whole step", total)]
    rows += [(name, parts) for name in ("forward", "backward", "optimizer")
             for parts in [result.metrics.phases.get(name)] if parts is not None and parts.complete()]
    picture.figure = draw_breakdown(rows)
    return picture


def _causes(result: Result) -> Picture:
    picture = Picture("causes", "Why computation waited",
                      "Every interval without computation has one cause, found from the schedule's edges and the "
                      "measured times; mean over ranks and measured steps. Causes below 2 % of the step are summed up.")
    if result.causes:
        picture.figure = draw_causes(result.causes, result.causes_small_ms)
    else:
        picture.reason = "the result file lists no cause of at least 2 % of the step"
    return picture


def _timeline(result: Result) -> Picture:
    picture = Picture("timeline", "One step, lane by lane", "")
    try:
        part = load_part(result.folder)
    except ReportError as error:
        picture.reason = str(error)
        return picture
    picture.caption = (f"Step {part.step}, up to 4 ranks of {len(part.trace.ranks)}, from the trace. Each lane runs its "
                       "ops in order; lanes run beside each other. Hatched: the compute lane had nothing to run, with "
                       "the cause where there is room; given for the rank that the causes were exemplified with.")
    picture.figure = draw_timeline([part])
    return picture


def _memory(result: Result) -> Picture:
    picture = Picture("memory", "Memory over one step",
                      "Bytes alive on one rank while its lanes ran: an op's buffers count from its begin or until its "
                      "end. Dashed: the measured peak of the rank that needed most, which counts a block until the "
                      "lane that allocates next may reuse it, whatever the speed of the run.")
    peak = result.memory.peak.get("total")
    estimate = result.memory.estimated.get("total")
    if peak is not None and estimate is not None:
        picture.caption += f" The schedule predicted {size(estimate)}; measured were {size(peak)}."
    if result.memory.timeline is None:
        picture.reason = _OLDER
        return picture
    picture.figure = draw_memory(result.memory.timeline, result.memory.peak_at, peak)
    at = result.memory.peak_at
    if at is not None and at.live:
        largest = sorted(at.live, key=lambda b: -b.bytes)[:4]
        blocks = ", ".join(f"{b.role}{' of unit ' + b.unit if b.unit else ''} {size(b.bytes)}" for b in largest)
        picture.caption += f" Alive at the peak were {len(at.live)} blocks, the largest: {blocks}."
    return picture


def _collectives(result: Result) -> Picture:
    picture = Picture("collectives", "Each collective",
                      "Median over steps. Waiting: until the last rank had arrived; transfer: the rest. Bus bandwidth "
                      "is bytes ÷ transfer time, scaled as in nccl-tests so that it can be compared with a link. In "
                      "brackets: the modelled link's time for these bytes ÷ the transfer time.")
    if not result.collectives:
        picture.reason = _OLDER
        return picture
    link = result.setting("emulate.link_gb_per_s")
    picture.figure = draw_collectives(result.collectives, link if isinstance(link, (int, float)) else None)
    return picture


def _steps(result: Result) -> Picture:
    picture = Picture("steps", "Step by step", "The slowest rank's time of every measured step; a trend or jumps "
                      "here mean that the median should not be trusted.")
    if len(result.steps_ms) < 2 or result.metrics.step is None:
        picture.reason = _OLDER
        return picture
    picture.figure = draw_steps(result.steps_ms, result.metrics.step)
    return picture


def _numbers(result: Result) -> Table:
    metrics, rows = result.metrics, []
    if metrics.step is not None:
        steps = f"{metrics.step.count} steps, " if metrics.step.count is not None else ""
        rows.append(("step time", milliseconds(metrics.step.median), f"median of {steps}slowest rank; "
                     f"{interval(metrics.step)}"))
    for name, ms, meaning in (("compute", metrics.total.compute_ms, "at least one kernel ran"),
                              ("communication", metrics.total.comm_ms, "at least one collective ran"),
                              ("exposed communication", metrics.total.exposed_comm_ms, "compute waited for it"),
                              ("exposed copies", metrics.total.exposed_copy_ms, "compute waited for them"),
                              ("idle", metrics.total.idle_ms, "compute waited for anything else")):
        if ms is not None:
            rows.append((name, milliseconds(ms), meaning))
    if metrics.overlap_pct is not None:
        rows.append(("overlap", f"{metrics.overlap_pct:.1f} %", "of communication hidden behind computation"))
    if metrics.tokens_per_s is not None:
        rows.append(("throughput", f"{metrics.tokens_per_s:.0f} tokens/s", "all ranks together"))
    if metrics.step_over_bound is not None:
        rows.append(("step ÷ bound", f"{metrics.step_over_bound:.3f}", "bound: the schedule with the measured op times"))
    for name, count in sorted(result.memory.peak.items(), key=lambda item: item[0] != "total"):
        rows.append(("peak memory" if name == "total" else name.replace("_", " "), size(count),
                     "the rank that needed most" if name == "total" else "its own peak"))
    return Table(("", "value", "meaning"), rows, names=1, texts=(0, 2))
