"""The page of somebody else's job, of what `trace explain` found in its traces."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional

from .attachments import trace_attachments
from .critical_path import path_table
from .figures.breakdown import Bar, draw_breakdown
from .figures.causes import CausePanel, draw_causes
from .figures.collectives import FOLD_ABOVE, draw_collectives
from .figures.steps import StepLine, draw_steps
from .figures.timeline import TimelinePart, choose_ranks, draw_timeline
from .load import Breakdown, Cause, Collective, ExposedInterval, Metrics, StepTime
from .page import Page, Picture, Table
from .schema import Node, ReportError, check_version, read_json
from .text import clean, count_text, milliseconds, percent, sentence, size
from .trace import LaneTrace, Slice, Trace, find_trace, load_trace
from .verdict import hidden, made_of

DRAWN_RANKS = 4
_MOST_RANKS = 32
_MOST_ROWS = 20
_FINEST = 1 / 1500  # of a step: kernels nearer to each other are one box


def job_page(path: Path) -> Page:
    """Of an explain.json; the timeline beside it is read too. Raises ReportError."""
    job = read_json(path)
    check_version(job, "explain.json")
    found, step = job.child("recognition"), job.child("step")
    ranks = job.children("ranks")
    page = Page(title=clean(found.text("name"), 120), subtitle="  ·  ".join(
        ["fsdpbench trace explain", count_text(len(ranks), "rank"),
         count_text(max((len(rank.children("steps")) for rank in ranks), default=0), "step")]))
    page.caveats = [clean(note, 600) for note in job.texts("notes")[:_MOST_ROWS]]  # they may begin with a path
    page.verdict = _verdict(job)
    page.first = [t for t in (_findings(found), _helps(job)) if t.rows]
    page.pictures = [_breakdown(job), _causes(job), timeline(job, path.parent), _collectives(job), _steps(step)]
    page.tables = [t for t in (_wasted(job), _exchanges(job), _knobs(job), path_table(job.child("critical_path")),
                               _kernels(job, "by_kind"), _kernels(job, "top"), _products(job), _arrivals(job),
                               _contention(job), _deviations(found), _unknown(job)) if t.rows]
    page.traces = trace_attachments(path.parent)
    if found.has("schedule"):
        page.config = [("The schedule that it follows, in fsdpbench's keys",
                        json.dumps(found.child("schedule").child("fsdp").value, indent=2, ensure_ascii=False))]
    return page


def _parts(node: Node) -> Breakdown:
    return Breakdown(*(node.number(key) for key in ("compute_ms", "comm_ms", "overlap_ms",
                                                    "exposed_comm_ms", "exposed_copy_ms", "idle_ms")))


def _verdict(job: Node) -> List[str]:
    step = job.child("step")
    mean = step.required("mean_ms")
    if mean <= 0:
        return ["No work of a device is in the trace, so there is nothing to say about its communication."]
    parts = _parts(step)
    communication, exposed = parts.comm_ms or 0.0, parts.exposed_comm_ms or 0.0
    overlap = 100 * (communication - exposed) / communication if communication > 0 else None
    metrics = Metrics(StepTime(mean, None, None, None), parts, overlap, None, None, {})
    words = [text for text in (clean(job.text("headline"), 600), made_of(metrics), hidden(metrics)) if text]
    advised = [knob for knob in job.children("knobs") if knob.flag("advised") and not knob.flag("no_word")]
    if job.text("headline"):
        pass  # it has said so
    elif advised:
        words.append(f"What would help most: {_knob_words(advised[0])}, {_gain(advised[0])} a step.")
    elif job.child("recognition").text("kind") == "sharded":
        why = job.text("not_replayed_because")
        words.append("Settings were not tried: " + sentence(why) if why else
                     "No setting that was tried helps for certain.")
    for cause in [c for c in job.children("causes") if c.text("advice")][: 1 if advised else 2]:
        words.append(f"{cause.text('cause').replace('_', ' ').capitalize()}: {clean(cause.text('advice'), 600)}")
    return words


def _findings(found: Node) -> Table:
    rows = [[clean(f.text("what"), 40), clean(f.text("value"), 120), percent(100 * f.required("confidence")),
             clean(f.text("evidence"), 300)] for f in found.children("findings")]
    return Table("What it is", ["", "is", "sure", "because"], rows, names=2, texts=(3,))


def _helps(job: Node) -> Table:
    rows = []
    for cause in job.children("causes"):
        if not cause.text("advice"):
            continue
        share, without = cause.number("share_pct"), cause.child("without")
        rows.append([cause.text("cause").replace("_", " "), milliseconds(cause.required("ms")),
                     percent(share) if share is not None else "–",
                     milliseconds(without.required("step_ms")) if cause.has("without") else "–",
                     clean(cause.text("advice"), 400)])
    typical = job.number("typical_ms")
    without = f"typical step ({milliseconds(typical)}) without it" if typical else "step without it"
    return Table("What to change", ["because of", "takes", "of a step", without, "what helps"], rows, texts=(4,),
                 note="No change gains more than what its cause has, and two causes may hide behind one another. "
                      "Settings that were tried in a replay are further below, with their intervals.")


def _breakdown(job: Node) -> Picture:
    step, ranks = job.child("step"), job.children("ranks")
    picture = Picture("breakdown", "What a step is made of", "Means over steps. Compute: at least one kernel ran. "
                      "Exposed communication and exposed copies: nothing else ran beside them. Idle: nothing ran. The "
                      "four add up to the step of each rank.")
    told = [rank for rank in ranks if rank.has("mean")]
    if not told:
        picture.reason = "no step was found in the trace"
        return picture
    bars = [Bar("all ranks", _parts(step), step.number("mean_ms"))] if len(told) > 1 else []
    late = job.number("late_rank")
    for rank in told[:_MOST_RANKS]:
        number = rank.integer("rank")
        name = f"rank {number}" + (" (late)" if late is not None and late == number else "")
        bars.append(Bar(name, _parts(rank.child("mean")), rank.child("mean").number("step_ms")))
    if len(told) > _MOST_RANKS:
        picture.caption += f" The first {_MOST_RANKS} of {len(told)} ranks."
    picture.figure = draw_breakdown(bars)
    return picture


def _causes(job: Node) -> Picture:
    picture = Picture("causes", "Why computation was not running",
                      "Every moment without computation has one cause, from the order of rows on streams and "
                      "communicators, from when the host launched them, and from the other ranks; means over ranks and "
                      "steps. What each word means is in docs/explain.md.")
    step = job.child("step")
    mean, late = step.number("mean_ms") or 0.0, job.integer("late_rank")
    causes = [Cause(name, "", "", ms, 100 * ms / mean if mean > 0 else None, "",
                    late if name == "straggler" else None)
              for name, ms in step.child("causes_ms").number_map().items() if ms > 0]
    if not causes:
        picture.reason = "there was no moment without computation"
        return picture
    large = [cause for cause in causes if (cause.share_pct or 100) >= 0.5] or causes
    picture.figure = draw_causes([CausePanel("", large, sum(c.ms for c in causes if c not in large) or None)])
    return picture


def timeline(job: Node, folder: Path, ranks: int = DRAWN_RANKS, step: Optional[int] = None) -> Picture:
    """The lanes of one step, of at most so many ranks. Without `step` it is the one whose slowest rank is the median one."""
    picture = Picture("timeline", "One step, lane by lane", "")
    path = find_trace(folder)
    if path is None:
        picture.reason = "there is no trace.json beside explain.json"
        return picture
    try:
        trace = load_trace(path)
        step = trace.representative_step() if step is None else step
        begin, end = trace.step_window(step)
    except ReportError as error:
        picture.reason = str(error)
        return picture
    trace = Trace(trace.path, [replace(rank, lanes=[_coarse(lane, step, (end - begin) * _FINEST)
                                                    for lane in rank.lanes]) for rank in trace.ranks])
    marked: Dict[int, str] = {}
    slowest, late = trace.slowest_rank(step), job.integer("late_rank")
    if slowest is not None and len(trace.ranks) > 1:
        marked[slowest] = "slowest"
    if late is not None:
        marked[late] = "slowest, late" if late in marked else "late"
    part = TimelinePart(_short_units(trace), step, "", _exposed(job, step), marked)
    shown = choose_ranks(part, ranks)
    picture.caption = (f"Step {step}, {len(shown)} of {count_text(len(trace.ranks), 'rank')} in the trace. A lane is a "
                       "stream, named by what it does; kernels that follow each other closely are one box. Hatched: "
                       "nothing computed, with the cause where there is room.")
    picture.figure = draw_timeline([part], max_ranks=ranks)
    return picture


def _exposed(job: Node, step: int) -> List[ExposedInterval]:
    intervals = []
    for rank in job.children("ranks"):
        number = rank.integer("rank") or 0
        for one in rank.children("steps"):
            if one.integer("step") != step:
                continue
            for stall in one.children("stalls"):
                begin = stall.required("begin_us") / 1000
                intervals.append(ExposedInterval(number, step, begin, begin + stall.required("us") / 1000,
                                                 stall.text("cause")))
    return intervals


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


def _collectives(job: Node) -> Picture:
    picture = Picture("collectives", "Each collective",
                      "Means over ranks and steps, the most exposed first. Waiting: until the last rank had arrived; "
                      "transfer: the rest. Bus bandwidth is bytes ÷ transfer time, scaled as in nccl-tests.")
    rows = []
    for one in job.children("collectives"):
        times = one.required("a_step")
        if times <= 0 or one.text("purpose") == "scalars":
            continue
        total, waited = one.required("time_ms") / times, one.required("wait_ms") / times
        rows.append(Collective(f"{one.text('kind')} {one.text('unit')}".strip(), one.text("kind"), one.text("unit"),
                               one.text("phase"), one.number("bytes"), total, total - waited, waited,
                               one.number("busbw_gb_per_s"), None))
    if not rows:
        picture.reason = "the trace has no collective of more than a few numbers"
        return picture
    if len(rows) > FOLD_ABOVE:
        picture.caption += " Those of one kind, phase and size are one row."
    picture.figure = draw_collectives(rows, None)
    return picture


def _steps(step: Node) -> Picture:
    picture = Picture("steps", "Step by step", "The slowest rank's time of every step in the trace; a trend or jumps "
                      "here mean that the means should not be trusted.")
    slowest = step.child("slowest_rank")
    values = slowest.numbers("steps_ms")
    if len(values) < 2:
        picture.reason = "there is one step in the trace" if values else "no step was found in the trace"
        return picture
    time = StepTime(slowest.required("median"), slowest.number("ci_low"), slowest.number("ci_high"), len(values),
                    slowest.text("interval"))
    picture.figure = draw_steps([StepLine("", values, time)], "step in the trace")
    return picture


def _wasted(job: Node) -> Table:
    rows = []
    for one in job.children("wasted_gathers"):  # earlier files have none
        sent = one.number("bytes")
        rows.append([clean(", ".join(one.texts("units")), 200), sentence(clean(one.text("why"), 300)),
                     f"{one.required('gathers'):.0f}", size(sent) if sent is not None else "–",
                     milliseconds(one.required("ms")), sentence(clean(one.text("remedy"), 300)),
                     sentence(clean(one.text("evidence"), 300))])
    return Table("All-gathers that are wasted", ["units", "what wastes them", "a step", "sent by a rank", "take",
                                                 "what spares them", "evidence"], rows, texts=(1, 5, 6),
                 note="Gathered and dropped unused, gathered twice and used once, or freed and brought back at once.")


def _exchanges(job: Node) -> Table:
    said = job.child("exchanges").texts("said") if job.has("exchanges") else []
    return Table("Experts", ["what their exchanges of rows tell"], [[clean(text, 600)] for text in said])


def _knob_words(knob: Node) -> str:
    """In the program's own words, else in ours."""
    return clean(knob.text("words") or knob.text("set"), 200)


def _gain(knob: Node) -> str:
    low, high = knob.number("ci_low"), knob.number("ci_high")
    interval = f" [{milliseconds(low)} to {milliseconds(high)}]" if low is not None and high is not None else ""
    return f"{milliseconds(knob.required('gain_ms'))} less{interval}"


def _knobs(job: Node) -> Table:
    rows = []
    for knob in job.children("knobs"):
        more = knob.number("more_bytes")
        rows.append([clean(knob.text("set"), 120), clean(knob.text("words"), 200) or "–",
                     milliseconds(knob.required("step_ms")), _gain(knob), size(more) if more is not None else "–"])
    return Table("Replayed with the job's own op times", ["fsdpbench's key", "in its words", "step", "gain", "memory"],
                 rows, texts=(1,), note="The schedule that the job follows was walked again with one knob turned: an "
                                        "interval is that of the gain, memory is what it needs more.")


def _contention(job: Node) -> Table:
    rows = [[clean(one.text("kernel"), 160), f"{one.required('alone_us'):.1f}", f"{one.required('beside_us'):.1f}",
             percent(100 * (one.required("beside_us") / one.required("alone_us") - 1)),
             milliseconds(one.required("lost_ms"))] for one in job.children("contention")[:_MOST_ROWS]]
    return Table("Slower beside collectives", ["kernel", "alone (µs)", "beside (µs)", "slower by", "a step"], rows,
                 note="Medians of launches in the same place of blocks that launch the same kernels: those that ran wholly "
                      "alone, and mostly beside a collective.")


def _kernels(job: Node, which: str) -> Table:
    by_name = which == "top"
    rows = []
    for one in job.child("kernels").children(which) if job.has("kernels") else []:  # earlier files have none
        name = [clean(one.text("kernel"), 160)] if by_name else []
        rows.append([*name, one.text("kind"), f"{one.required('a_step'):.3g}",
                     milliseconds(one.required("ms")), percent(one.required("share_pct"))])
    return Table("Kernels that take most" if by_name else "Kernels by kind",
                 [*(["kernel"] if by_name else []), "kind", "launches a step", "a step", "of kernels"], rows,
                 note="" if by_name else "Each from its begin to its end; those that run at once count twice.")


def _products(job: Node) -> Table:
    rows = []
    for one in job.child("kernels").children("products") if job.has("kernels") else []:
        peak, share = one.number("peak_tflops"), one.number("share_pct")
        rows.append([clean(one.text("dtype"), 40) or "–", f"{one.required('a_step'):.3g}", milliseconds(one.required("ms")),
                     f"{one.required('tflop_per_s'):.3g}", f"{peak:.4g}" if peak is not None else "–",
                     percent(share) if share is not None else "–"])
    return Table("Matrix products by dtype", ["dtype", "a step", "time a step", "TFLOP/s", "peak", "of peak"], rows,
                 note="The peak is that of the cluster that --cluster names.")


def _arrivals(job: Node) -> Table:
    rows = []
    for one in job.children("collectives"):
        arrival = one.child("arrival") if one.has("arrival") else None
        if arrival is None or arrival.required("worst_ms") <= 0:
            continue
        rows.append((arrival.required("median_ms"),
                     [clean(" ".join(filter(None, (one.text("kind"), one.text("unit")))), 120), one.text("phase"),
                      milliseconds(arrival.required("median_ms")), milliseconds(arrival.required("worst_ms")),
                      f"rank {arrival.required('last_rank'):.0f} ({percent(arrival.required('last_pct'))})"]))
    rows.sort(key=lambda row: -row[0])
    return Table("How far apart ranks arrive", ["collective", "phase", "median", "worst", "last most often"],
                 [cells for _, cells in rows[:_MOST_ROWS]],
                 note="From the first rank's begin to the last one's, of collectives that all ranks of the group have.")


def _deviations(found: Node) -> Table:
    rows = [[sentence(text)] for text in found.child("schedule").texts("deviations")]
    return Table("Not as the schedule has it", ["what is otherwise"], rows)


def _unknown(job: Node) -> Table:
    gathers = job.text("wasted_gathers_unknown")
    return Table("Not known", ["what nothing in the files tells"],
                 [[sentence(text)] for text in [*job.child("recognition").texts("unknown"), *([gathers] if gathers else [])]])
