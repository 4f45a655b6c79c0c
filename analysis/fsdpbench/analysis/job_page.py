"""The page of somebody else's job, of what `trace explain` found in its traces."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from .. import fields
from ..fields import Record, ReportError
from .figures.breakdown import Bar, draw_breakdown
from .figures.causes import CausePanel, draw_causes
from .figures.collectives import FOLD_ABOVE, draw_collectives
from .figures.steps import StepLine, draw_steps
from .figures.timeline import TimelinePart, choose_ranks, draw_timeline
from .numbers import hidden, made_of, path_table
from .page import Page, Picture, Table
from .schema import read_record
from .text import clean, count_text, dotted, milliseconds, percent, sentence, size
from .trace import LaneTrace, Slice, Trace, find_trace, load_trace, trace_attachments

DRAWN_RANKS = 4
_MOST_RANKS = 32
_MOST_ROWS = 20
_FINEST = 1 / 1500  # of a step: kernels nearer to each other are one box


def job_page(path: Path) -> Page:
    """Of an explain.json; the timeline beside it is read too. Raises ReportError."""
    job = read_record(path, "explain")
    found, step = job.inner("recognition"), job.inner("step")
    page = Page(title=clean(found.name, 120), subtitle=dotted(
        "fsdpbench trace explain", count_text(len(job.ranks), "rank"),
        count_text(max((len(rank.steps) for rank in job.ranks), default=0), "step")))
    page.caveats = [clean(note, 600) for note in job.notes[:_MOST_ROWS]]  # they may begin with a path
    page.verdict = _verdict(job)
    page.first = [t for t in (_findings(found.findings), _helps(job)) if t.rows]
    page.pictures = [_breakdown(job), _causes(job), timeline(job, path.parent), _collectives(job), _steps(step)]
    kernels = job.inner("kernels")
    page.tables = [t for t in (
        _wasted(job.wasted_gathers), _knobs(job.knobs), path_table(job.inner("critical_path")),
        _kernels(kernels.by_kind, False), _kernels(kernels.top, True),
        _contention(job.contention),
        Table("Not as the schedule has it", ["what is otherwise"],
              [[sentence(text)] for text in found.inner("schedule")["deviations"]]),
        Table("Not known", ["what nothing in the files tells"],
              [[sentence(text)] for text in [*found.unknown, job.wasted_gathers_unknown] if text])) if t.rows]
    page.traces = trace_attachments(path.parent)
    if found.schedule:
        page.config = [("The schedule that it follows, in fsdpbench's keys",
                        json.dumps(found.schedule.fsdp or {}, indent=2, ensure_ascii=False))]
    return page


def _verdict(job: Record) -> List[str]:
    step = job["step"]
    mean = step["mean_ms"]
    if mean <= 0:
        return ["No work of a device is in the trace, so there is nothing to say about its communication."]
    communication = step.comm_ms or 0.0
    overlap = 100 * (communication - (step.exposed_comm_ms or 0.0)) / communication if communication > 0 else None
    words = [text for text in (clean(job.headline, 600), made_of(mean, step), hidden(overlap, step.comm_ms)) if text]
    advised = [knob for knob in job.knobs if knob.advised and not knob.no_word]
    if job.headline:
        pass  # it has said so
    elif advised:
        words.append(f"What would help most: {clean(advised[0].words or advised[0].set, 200)}, {_gain(advised[0])} a step.")
    elif job.inner("recognition").kind == "sharded":
        why = job.not_replayed_because
        words.append("Settings were not tried: " + sentence(why) if why else
                     "No setting that was tried helps for certain.")
    for cause in [c for c in job.causes if c.advice][: 1 if advised else 2]:
        words.append(f"{cause['cause'].replace('_', ' ').capitalize()}: {clean(cause.advice, 600)}")
    return words


def _findings(findings: Sequence[Record]) -> Table:
    rows = [[clean(f.what, 40), clean(f.value, 120), percent(100 * f["confidence"]), clean(f.evidence, 300)] for f in findings]
    return Table("What it is", ["", "is", "sure", "because"], rows, names=2, texts=(3,))


def _helps(job: Record) -> Table:
    rows = [[cause["cause"].replace("_", " "), milliseconds(cause["ms"]),
             "–" if cause.share_pct is None else percent(cause.share_pct),
             milliseconds(cause.without["step_ms"]) if cause.without else "–", clean(cause.advice, 400)]
            for cause in job.causes if cause.advice]
    without = f"typical step ({milliseconds(job.typical_ms)}) without it" if job.typical_ms else "step without it"
    return Table("What to change", ["because of", "takes", "of a step", without, "what helps"], rows, texts=(4,),
                 note="Gains do not add up: one change may take away waits of other causes, too, and a cause may hide "
                      "behind another. Settings that were tried in a replay are further below, with their intervals.")


def _breakdown(job: Record) -> Picture:
    picture = Picture("breakdown", "What a step is made of", "Means over steps. Compute: at least one kernel ran. "
                      "Exposed communication and exposed copies: nothing else ran beside them. Idle: nothing ran. The "
                      "four add up to the step of each rank.")
    told = [rank for rank in job.ranks if rank.mean]
    if not told:
        return picture.without("no step was found in the trace")
    bars = [Bar("all ranks", job.inner("step"), job.inner("step").mean_ms)] if len(told) > 1 else []
    bars += [Bar(f"rank {rank['rank']}" + (" (late)" if rank.rank == job.late_rank else ""), rank.mean, rank.mean.step_ms)
             for rank in told[:_MOST_RANKS]]
    if len(told) > _MOST_RANKS:
        picture.caption += f" The first {_MOST_RANKS} of {len(told)} ranks."
    return picture.drawn(draw_breakdown(bars))


def _causes(job: Record) -> Picture:
    picture = Picture("causes", "Why computation was not running",
                      "Every moment without computation has one cause, from the order of rows on streams and "
                      "communicators, from when the host launched them, and from the other ranks; means over ranks and "
                      "steps. What each word means is in docs/explain.md.")
    step = job.inner("step")
    causes = [fields.Cause({"cause": name, "ms": ms, "share_pct": 100 * ms / step.mean_ms if step.mean_ms else None,
                            "late_rank": job.late_rank if name == "straggler" else None})
              for name, ms in step.causes_ms.items() if ms > 0]
    if not causes:
        return picture.without("there was no moment without computation")
    large = [cause for cause in causes if (cause.share_pct or 100) >= 0.5] or causes
    return picture.drawn(draw_causes([CausePanel("", large, sum(c.ms for c in causes if c not in large) or None)]))


def timeline(job: Record, folder: Path, ranks: int = DRAWN_RANKS, step: Optional[int] = None) -> Picture:
    """The lanes of one step, of at most so many ranks. Without `step` it is the one whose slowest rank is the median one."""
    picture = Picture("timeline", "One step, lane by lane", "")
    path = find_trace(folder)
    if path is None:
        return picture.without("there is no trace.json beside explain.json")
    try:
        trace = load_trace(path)
        step = trace.representative_step() if step is None else step
        begin, end = trace.step_window(step)
    except ReportError as error:
        return picture.without(str(error))
    trace = Trace(trace.path, [replace(rank, lanes=[_coarse(lane, step, (end - begin) * _FINEST)
                                                    for lane in rank.lanes]) for rank in trace.ranks])
    marked: Dict[int, str] = {}
    slowest, late = trace.slowest_rank(step), job.late_rank
    if slowest is not None and len(trace.ranks) > 1:
        marked[slowest] = "slowest"
    if late is not None:
        marked[late] = "slowest, late" if late in marked else "late"
    part = TimelinePart(_short_units(trace), step, "", _exposed(job, step), marked)
    shown = choose_ranks(part, ranks)
    picture.caption = (f"Step {step}, {len(shown)} of {count_text(len(trace.ranks), 'rank')} in the trace. A lane is a "
                       "stream, named by what it does; kernels that follow each other closely are one box. Hatched: "
                       "nothing computed, with the cause where there is room.")
    return picture.drawn(draw_timeline([part], max_ranks=ranks))


def _exposed(job: Record, step: int) -> List[Record]:
    return [fields.CauseInterval({"rank": rank.rank or 0, "step": step, "begin_ms": stall["begin_us"] / 1000,
                                  "end_ms": stall.begin_us / 1000 + stall["us"] / 1000, "cause": stall["cause"]})
            for rank in job.ranks for one in rank.steps if one.step == step for stall in one.stalls]


def _coarse(lane: LaneTrace, step: int, gap_ms: float) -> LaneTrace:
    """The lane in this step, with neighbours of one sort as one nameless box; collectives keep their names."""
    boxes: List[Slice] = []
    for item in lane.slices:
        if item.step != step:
            continue
        last = boxes[-1] if boxes else None
        if item.category == "communication" or last is None or last.category != item.category \
                or last.phase != item.phase or item.begin_ms - last.end_ms > gap_ms:
            boxes.append(item if item.category == "communication" else replace(item, name=""))
        else:
            boxes[-1] = replace(last, end_ms=max(last.end_ms, item.end_ms))
    return LaneTrace(lane.name, boxes)


def _short_units(trace: Trace) -> Trace:
    """Names of units without what all have in common: "layers.12" is 12, and the root R."""
    slices = [item for rank in trace.ranks for lane in rank.lanes for item in lane.slices if item.unit]
    units = {item.unit for item in slices if item.unit not in ("root", "R")}
    common = os.path.commonprefix(sorted(units)) if len(units) > 1 else ""
    cut = common.rfind(".") + 1
    def short(item: Slice) -> Slice:
        if not item.unit or item.category != "communication":
            return item
        name = "R" if item.unit in ("root", "R") else item.unit[cut:]
        return replace(item, name=item.name.replace(f" {item.unit}", f" {name}"))
    return Trace(trace.path, [replace(rank, lanes=[LaneTrace(lane.name, [short(item) for item in lane.slices])
                                                   for lane in rank.lanes]) for rank in trace.ranks])


def _collectives(job: Record) -> Picture:
    picture = Picture("collectives", "Each collective",
                      "Means over ranks and steps, the most exposed first. Waiting: until the last rank had arrived; "
                      "transfer: the rest. Bus bandwidth is bytes ÷ transfer time, scaled as in nccl-tests.")
    rows = []
    for one in job.collectives:
        times = one["a_step"]
        if times <= 0 or one.purpose == "scalars":
            continue
        total, waited = one["time_ms"] / times, one["wait_ms"] / times
        rows.append(fields.Collective({
            **{key: getattr(one, key) for key in ("kind", "unit", "phase", "bytes", "busbw_gb_per_s")},
            "name": f"{one.kind or ''} {one.unit or ''}".strip(), "time_ms": total, "transfer_ms": total - waited,
            "wait_ms": waited}))
    if not rows:
        return picture.without("the trace has no collective of more than a few numbers")
    if len(rows) > FOLD_ABOVE:
        picture.caption += " Those of one kind, phase and size are one row."
    return picture.drawn(draw_collectives(rows, None))


def _steps(step: Record) -> Picture:
    picture = Picture("steps", "Step by step", "The slowest rank's time of every step in the trace; a trend or jumps "
                      "here mean that the means should not be trusted.")
    slowest = step.inner("slowest_rank")
    values = slowest["steps_ms"]
    if len(values) < 2:
        return picture.without("there is one step in the trace" if values else "no step was found in the trace")
    line = StepLine("", values, fields.Summary({**slowest.data, "n": len(values)}))
    return picture.drawn(draw_steps([line], "step in the trace"))


def _wasted(wasted: Sequence[Record]) -> Table:
    rows = [[clean(", ".join(one["units"]), 200), sentence(clean(one.why, 300)), f"{one['gathers']:.0f}",
             "–" if one.bytes is None else size(one.bytes), milliseconds(one["ms"]), sentence(clean(one.remedy, 300)),
             sentence(clean(one.evidence, 300))] for one in wasted]
    return Table("All-gathers that are wasted", ["units", "what wastes them", "a step", "sent by a rank", "take",
                                                 "what spares them", "evidence"], rows, texts=(1, 5, 6),
                 note="Gathered and dropped unused, gathered twice and used once, or freed and brought back at once.")


def _gain(knob: Record) -> str:
    interval = "" if None in (knob.ci_low, knob.ci_high) else f" [{milliseconds(knob.ci_low)} to {milliseconds(knob.ci_high)}]"
    return f"{milliseconds(knob['gain_ms'])} less{interval}"


def _knobs(knobs: Sequence[Record]) -> Table:
    rows = [[clean(knob.set, 120), clean(knob.words, 200) or "–", milliseconds(knob["step_ms"]), _gain(knob)] for knob in knobs]
    return Table("Replayed with the job's own op times", ["fsdpbench's key", "in its words", "step", "gain"], rows,
                 texts=(1,), note="The schedule that the job follows was walked again with one knob turned: an interval is "
                                  "that of the gain.")


def _contention(slower: Sequence[Record]) -> Table:
    rows = [[clean(one.kernel, 160), f"{one['alone_us']:.1f}", f"{one['beside_us']:.1f}",
             percent(100 * (one.beside_us / one.alone_us - 1)), milliseconds(one["lost_ms"])] for one in slower[:_MOST_ROWS]]
    return Table("Slower beside collectives", ["kernel", "alone (µs)", "beside (µs)", "slower by", "a step"], rows,
                 note="Medians of launches in the same place of blocks that launch the same kernels: those that ran wholly "
                      "alone, and mostly beside a collective.")


def _kernels(kernels: Sequence[Record], by_name: bool) -> Table:
    rows = [[*([clean(one.kernel, 160)] if by_name else []), one["kind"], f"{one['a_step']:.3g}", milliseconds(one["ms"]),
             percent(one["share_pct"])] for one in kernels]
    return Table("Kernels that take most" if by_name else "Kernels by kind",
                 [*(["kernel"] if by_name else []), "kind", "launches a step", "a step", "of kernels"], rows,
                 note="" if by_name else "Each from its begin to its end; those that run at once count twice.")
