"""The page of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

from ..fields import Record, ReportError
from .figures.breakdown import Bar, draw_breakdown
from .figures.causes import CausePanel, draw_causes
from .figures.collectives import draw_collectives
from .figures.memory import MemoryPanel, draw_memory
from .figures.steps import StepLine, draw_steps
from .figures.timeline import choose_ranks, draw_timeline
from .numbers import (changed_table, complete, gpu_table, hidden, interval_text, made_of, median_of, numbers_table,
                      parts_note, path_table, prediction_text, would_help)
from .page import Page, Picture
from .schema import read_run, setting
from .text import clean, count_text, dotted, sentence, size
from .timeline_command import load_part
from .trace import trace_attachments
from .world import emulation_badges, machine, world_rows

UNSAID = "the result file does not say, as no step was measured"
PHASES = ("forward", "backward", "optimizer")
_MOST_RANKS = 32
DRAWN_RANKS = 4


def run_page(path: Path) -> Page:
    """Of a result.json; the trace beside it is read too. Raises ReportError."""
    result = read_run(path)
    metrics, world, changed = result.inner("metrics"), result.inner("world"), result.data.get("config_changed")
    page = Page(title=run_title(result), badges=emulation_badges(world.data), subtitle=dotted(
        f"fsdpbench {'simulate' if world.simulated else 'run'}", world.date, machine(world.data)))
    if result.complete is False:
        page.badges.append("Incomplete: the run was stopped before its last step")
    page.caveats = [sentence(words) for words in caveats_of(result)]
    page.verdict = _verdict(result, metrics)
    interval = prediction_text(result.inner("prediction")) or interval_text(metrics)
    page.pictures = [_breakdown(metrics, interval), _ranks(result, metrics.ranks), _causes(result), timeline(path.parent),
                     _memory(result.inner("memory"), bool(world.simulated)), _collectives(result), _steps(result, metrics)]
    page.tables = [numbers_table(metrics, result.inner("memory"), interval)]
    path_rows = path_table(result.inner("critical_path"))
    if path_rows.rows:
        page.tables.append(path_rows)
    if gpus := gpu_table(result.gpus):
        page.tables.append(gpus)
    if changed is not None:
        page.tables.append(changed_table(result.typed("config_changed", "list of map of any"), _presets(result.config)))
    page.traces = trace_attachments(path.parent)
    page.world = world_rows(world.data)
    page.config = [("Complete configuration", json.dumps(result.config, indent=2, ensure_ascii=False))]
    return page


def _presets(config: Any) -> str:
    named = [f"{table} {clean(str(name), 60)}" for table in ("model", "fsdp")
             for name in [setting(config, f"{table}.preset")] if name]
    return ", ".join(named) or "none"


def caveats_of(result: Record) -> List[str]:
    """What to read before any number, the gravest first; says "not rated" too."""
    why, caveats = result.not_rated_because, list(result["caveats"])
    if result.rated is False and not any(c.startswith("not rated") for c in caveats):
        caveats.insert(0, f"not rated: {why}" if why else "not rated")
    return caveats


def run_title(run: Record) -> str:
    """Of a run, or of a side of a comparison."""
    preset, strategy, ranks = (setting(run.config, key) for key in ("model.preset", "fsdp.strategy", "mesh.ranks"))
    named = [str(p) for p in (getattr(run, "model", None) or preset, strategy) if p]
    if ranks:
        named.append(f"{ranks} ranks")
    return "FSDP communication: " + ", ".join(named) if named else "FSDP communication"


def _verdict(result: Record, metrics: Record) -> List[str]:
    words = [w for w in (made_of(median_of(metrics), metrics), hidden(metrics.overlap_pct, metrics.comm_ms)) if w]
    if not words:
        words = ["No step was measured, so there is nothing to say about communication."]
    return words + would_help(result.causes)


def _breakdown(metrics: Record, interval: str) -> Picture:
    picture = Picture("breakdown", "What a step is made of",
                      "The step time is the median over the steps after the warm-up, of the slowest rank"
                      + (f" ({interval})" if interval else "")
                      + ". Compute: at least one kernel ran on the rank. Exposed communication and exposed copies: the "
                      "compute lane waited for them. Idle: it waited for anything else. "
                      + parts_note([metrics]))
    if not complete(metrics):
        return picture.without(UNSAID)
    return picture.drawn(draw_breakdown([Bar("whole step", metrics, median_of(metrics)),
                                         *(Bar(name, parts) for name, parts in phases_of(metrics))]))


def phases_of(metrics: Record) -> List[Tuple[str, Record]]:
    """Those of which all parts are known, in the order of a step."""
    return [(name, metrics.phases[name]) for name in PHASES if name in metrics.phases and complete(metrics.phases[name])]


def _ranks(result: Record, ranks: Sequence[Record]) -> Picture:
    picture = Picture("ranks", "Rank by rank", "Medians over the steps after the warm-up, of each rank. A rank that "
                      "computes longer than the others makes them wait: their exposed communication is its lateness.")
    if len(ranks) < 2:
        return picture.without("there is one rank" if ranks else UNSAID)
    shown = ranks
    if len(ranks) > _MOST_RANKS:
        longest = sorted(ranks, key=lambda r: -(r.compute_ms or 0))
        shown = sorted(longest[: _MOST_RANKS // 2] + longest[-_MOST_RANKS // 2:], key=lambda r: r.rank)
        picture.caption += f" The {_MOST_RANKS // 2} of {len(ranks)} ranks that compute longest, and as many shortest."
    late = {cause.late_rank for cause in result.causes}
    slowest = max(ranks, key=median_of)["rank"]
    def name(rank: int) -> str:
        marks = [word for word, told in (("slowest", rank == slowest), ("late", rank in late)) if told]
        return f"rank {rank}" + (f" ({', '.join(marks)})" if marks else "")
    return picture.drawn(draw_breakdown([Bar(name(r["rank"]), r, median_of(r)) for r in shown]))


def _causes(result: Record) -> Picture:
    picture = Picture("causes", "Why computation waited",
                      "Every interval without computation has one cause, found from the schedule's edges and the "
                      "times that ops typically take; mean over ranks in the typical step. Causes below 2 % of the "
                      "step are summed up. What a step took beyond the typical one is jitter, and of no cause.")
    if result.causes:
        return picture.drawn(draw_causes([CausePanel("", result.causes, result.causes_small_ms, result.inner("jitter").stalled_ms)]))
    return picture.without("the run is not rated, so nothing is said about causes" if result.rated is False else
                           "the result file lists no cause of at least 2 % of the step")


def timeline(folder: Path, ranks: int = DRAWN_RANKS, step: Optional[int] = None) -> Picture:
    """The lanes of one step, of at most so many ranks. Without `step` it is the one whose waits the result explains."""
    picture = Picture("timeline", "One step, lane by lane", "")
    try:
        part = load_part(folder, step)
    except ReportError as error:
        return picture.without(str(error))
    shown = choose_ranks(part, ranks)
    explained = sorted({interval.rank for interval in part.exposed if interval.step == part.step})
    picture.caption = (f"Step {part.step}, {len(shown)} of {count_text(len(part.trace.ranks), 'rank')} in the trace: "
                       "the slowest, those that came late, then the first. Each lane runs its ops in order; lanes run "
                       "beside each other."
                       + (f" Hatched: the compute lane of rank {explained[0]} had nothing to run, with the cause where "
                          "there is room." if explained else ""))
    gone = sorted(set(part.marked) - {rank.rank for rank in part.trace.ranks})
    if gone:
        picture.caption += f" Not in the trace: rank {', '.join(map(str, gone))} ({part.marked[gone[0]]})."
    return picture.drawn(draw_timeline([part], max_ranks=ranks))


def _memory(memory: Record, simulated: bool) -> Picture:
    picture = Picture("memory", "Memory over one step",
                      "Bytes alive on one rank while its lanes ran: an op's buffers count from its begin or until its "
                      "end. Dashed: the peak of the rank that needed most, which counts a block until the "
                      "lane that allocates next may reuse it, whatever the speed of the run.")
    peak, estimate = memory.inner("peak_bytes").total, memory.inner("estimated_peak_bytes").total
    caching = memory.inner("caching_allocator")
    if peak is not None and estimate is not None:
        picture.caption += (f" The schedule predicted {size(estimate)}; "
                            f"{'simulated' if simulated else 'measured'} were {size(peak)}.")
    if caching.peak_allocated_bytes is not None and caching.peak_reserved_bytes is not None:
        picture.caption += (f" PyTorch's allocator would show {size(caching.peak_allocated_bytes)} allocated and "
                            f"{size(caching.peak_reserved_bytes)} reserved.")
    if not memory.inner("timeline").time_ms:
        return picture.without(UNSAID)
    at = memory.inner("peak_at")
    if at.live:
        largest = sorted(at.live, key=lambda b: -b["bytes"])[:4]
        blocks = ", ".join(f"{b.role}{' of unit ' + b.unit if b.unit else ''} {size(b.bytes)}" for b in largest)
        picture.caption += f" Alive at the peak were {len(at.live)} blocks, the largest: {blocks}."
    return picture.drawn(draw_memory([MemoryPanel("", memory.timeline, memory.peak_at, peak)]))


def _collectives(result: Record) -> Picture:
    picture = Picture("collectives", "Each collective",
                      "Median over steps. Waiting: until the last rank had arrived; transfer: the rest. Bus bandwidth "
                      "is bytes ÷ transfer time, scaled as in nccl-tests so that it can be compared with a link. In "
                      "brackets: the modelled link's time for these bytes ÷ the transfer time.")
    if not result.collectives:
        return picture.without(UNSAID)
    link = setting(result.config, "emulate.link_gb_per_s")
    return picture.drawn(draw_collectives(result.collectives, link if isinstance(link, (int, float)) else None))


def _steps(result: Record, metrics: Record) -> Picture:
    picture = Picture("steps", "Step by step", "The slowest rank's time of every step after the warm-up; a trend or "
                      "jumps here mean that the median should not be trusted.")
    times = result.inner("steps")["slowest_rank_ms"]
    if len(times) < 2 or metrics.step_ms is None:
        return picture.without(UNSAID)
    return picture.drawn(draw_steps([StepLine("", times, metrics.step_ms)], "step, after the warm-up"))
