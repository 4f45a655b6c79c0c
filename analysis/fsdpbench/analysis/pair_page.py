"""One page for two: runs beside each other, or the two sides of a comparison, on the same scales."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .. import fields
from ..fields import Record, ReportError
from .figures.breakdown import Bar, draw_breakdown
from .figures.causes import CausePanel, draw_causes
from .figures.memory import MemoryPanel, draw_memory
from .figures.steps import StepLine, draw_steps
from .figures.timeline import draw_timeline
from .numbers import (complete, differing_keys, differing_table, made_of, median_of, numbers_of, paired_table,
                      parts_note, total_ms)
from .page import Page, Picture
from .run_page import UNSAID, caveats_of, phases_of, run_title
from .schema import read_record, read_run
from .text import clean, dotted, milliseconds, percent, sentence
from .timeline_command import load_part
from .trace import trace_attachments
from .world import beside, emulation_badges, machine, world_rows


@dataclass
class Side:
    """One side of the page, A or B."""

    letter: str
    name: str
    of: Record  # what has the configuration: a run, or a side of a comparison
    metrics: Record
    memory: Record
    # Of each measured step; of a comparison: of each trial.
    times_ms: List[float]
    world: Dict[str, Any]

    def title(self) -> str:
        return f"{self.letter}  {clean(self.name, 80)}"


def pair_page(a: Path, b: Path) -> Page:
    """Of two result.json files. Raises ReportError."""
    sides = [_of_run(letter, path) for letter, path in (("A", a), ("B", b))]
    page = _page(sides, "steps", differing_keys(*(s.of.config or {} for s in sides)))
    page.caveats = [f"{s.letter}: {sentence(words)}" for s in sides for words in caveats_of(s.of)]
    page.verdict = [_compared(sides)] + page.verdict
    noise = [s.metrics.aa_noise_pct for s in sides if s.metrics.aa_noise_pct is not None]
    page.verdict.append("These are two single runs: a difference may be the machine's of that moment"
                        + (f" (A/A noise within a run: up to {percent(max(noise))})" if noise else "")
                        + ". `fsdpbench compare` runs both in turns and says what is certain.")
    if any(s.of.complete is False for s in sides):
        page.badges.append("Incomplete: a run was stopped before its last step")
    page.pictures[1:1] = [_causes(sides), _timeline(sides)]
    page.traces = [file for s in sides for file in trace_attachments(s.of.path.parent, f"trace-{s.letter}")]
    return page


def compare_page(path: Path) -> Page:
    """Of a compare.json. Raises ReportError."""
    comparison = read_record(path, "compare")
    world, interleaved = comparison.inner("world").data, comparison.interleaved is not False
    sides = [(_of_trials if interleaved else _of_stored)(letter.upper(), comparison[letter], world) for letter in ("a", "b")]
    page = _page(sides, "trials" if interleaved else "steps", [(key.key, key.a, key.b) for key in comparison.differing_keys])
    if not interleaved:
        page.caveats.append("These are stored results of one run each. They did not take turns, so whatever the "
                            "machine did in between counts as a difference; `fsdpbench compare --rerun` runs both in "
                            "turns.")
    page.subtitle = dotted("fsdpbench compare", world.get("date"), machine(world))
    page.verdict = [comparison["sentence"], *page.verdict]
    if comparison.aa_noise is not None:
        page.verdict.append(f"A/A noise: two halves of one side's own trials differ by up to {percent(100 * comparison.aa_noise)}.")
    return page


def _page(sides: List[Side], things: str, differing: List[Tuple[str, Any, Any]]) -> Page:
    a, b = sides
    page = Page(title=f"{clean(a.name, 60)} and {clean(b.name, 60)}",
                subtitle=dotted("fsdpbench report", run_title(a.of)),
                badges=list(dict.fromkeys(badge for s in sides for badge in emulation_badges(s.world))))
    for side in sides:
        words = made_of(median_of(side.metrics), side.metrics)
        if words:
            page.verdict.append(f"{side.letter} ({clean(side.name, 60)}): {words}")
    page.first = [differing_table(differing)]
    page.pictures = [_breakdown(sides, things), _memory(sides), _steps(sides, things)]
    note = parts_note([s.metrics for s in sides])
    page.tables = [paired_table(*(numbers_of(s.metrics, s.memory, things) for s in sides), note)]
    page.world = beside(world_rows(a.world), world_rows(b.world), ("A", "B"))
    page.config = [(f"Complete configuration of {s.letter}", json.dumps(s.of.config or {}, indent=2, ensure_ascii=False))
                   for s in sides]
    return page


def _of_run(letter: str, path: Path) -> Side:
    run = read_run(path)
    return Side(letter, path.resolve().parent.name, run, run.inner("metrics"), run.inner("memory"),
                run.inner("steps")["slowest_rank_ms"], run.inner("world").data)


def _of_trials(letter: str, side: Record, world: Dict[str, Any]) -> Side:
    """The parts are those of the trial with the median step time, so that they belong together; the step time is the
    program's, of all trials."""
    measured = [trial.metrics for trial in side.trials if trial.inner("metrics").step_ms]
    if not measured:
        raise ReportError(f"side {letter} of the comparison has no trial with a step time")
    middle = sorted(measured, key=median_of)[(len(measured) - 1) // 2]
    median = side.step_ms if side.step_ms is not None else median_of(middle)
    metrics = fields.Metrics({**middle.data, "step_ms": {"median": median, "n": len(measured)}, "aa_noise_pct": None})
    return Side(letter, side.name or "", side, metrics, side.inner("memory"), [median_of(m) for m in measured], world)


def _of_stored(letter: str, side: Record, world: Dict[str, Any]) -> Side:
    """One run each: its own numbers and its own steps."""
    if not side.trials or not side.trials[0].inner("metrics").step_ms:
        raise ReportError(f"side {letter} of the comparison has no step time")
    return Side(letter, side.name or "", side, side.trials[0].metrics, side.inner("memory"), side.trials[0]["steps_ms"], world)


def _compared(sides: List[Side]) -> str:
    times = [median_of(s.metrics) for s in sides]
    if None in times or times[0] <= 0:
        return "One of the two has no measured step, so they cannot be compared."
    change = 100 * (times[1] / times[0] - 1)
    words = "as long as" if abs(change) < 0.05 else f"{percent(abs(change))} {'more' if change > 0 else 'less'} step time than"
    return f"B takes {words} A: {milliseconds(times[1])} a step instead of {milliseconds(times[0])}."


def _breakdown(sides: List[Side], things: str) -> Picture:
    of_trials = things == "trials"
    picture = Picture("breakdown", "What a step is made of",
                      ("The trial with the median step time of each side" if of_trials else
                       "The step time is the median over the steps after the warm-up, of the slowest rank") + ". "
                      + parts_note([s.metrics for s in sides]))
    rows = []
    wholes = [s for s in sides if complete(s.metrics)]
    for s in wholes:
        rows.append(Bar(f"whole step  {s.letter}", s.metrics,
                        total_ms(s.metrics) if of_trials or s.metrics.step_ms is None else median_of(s.metrics)))
    phases = [dict(phases_of(s.metrics)) for s in sides]
    for name in dict.fromkeys(name for mine in phases for name in mine):
        rows += [Bar(f"{name}  {s.letter}", mine[name], gap=i == 0)
                 for i, (s, mine) in enumerate(zip(sides, phases)) if name in mine]
    if not rows:
        return picture.without(UNSAID)
    return picture.drawn(draw_breakdown(rows))


def _causes(sides: List[Side]) -> Picture:
    picture = Picture("causes", "Why computation waited", "Mean over ranks in the typical step; causes below 2 % of the "
                      "step are summed up.")
    panels = [CausePanel(s.title(), s.of.causes, s.of.causes_small_ms, s.of.inner("jitter").stalled_ms) for s in sides]
    if not any(panel.causes for panel in panels):
        return picture.without("neither result file lists a cause of at least 2 % of the step")
    return picture.drawn(draw_causes(panels))


def _timeline(sides: List[Side]) -> Picture:
    picture = Picture("timeline", "One step of each, on one time scale", "The step of median length, of the rank whose "
                      "waiting the causes explain. Hatched: the compute lane had nothing to run.")
    parts = []
    for side in sides:
        try:
            part = load_part(side.of.path.parent)
        except ReportError as error:
            return picture.without(str(error))
        parts.append(replace(part, title=f"{side.letter}  {part.title}", marked={}))
    return picture.drawn(draw_timeline(parts, max_ranks=1, row_height=0.3, font=9))


def _memory(sides: List[Side]) -> Picture:
    picture = Picture("memory", "Memory over one step", "Bytes alive on one rank while its lanes ran. Dashed: the "
                      "measured peak of the rank that needed most.")
    panels = [MemoryPanel(s.title(), s.memory.timeline, s.memory.peak_at, s.memory.inner("peak_bytes").total)
              for s in sides if s.memory.inner("timeline").time_ms]
    if len(panels) < 2:
        return picture.without(UNSAID if isinstance(sides[0].of, fields.Run) else "a comparison keeps the peaks, not the course")
    return picture.drawn(draw_memory(panels))


def _steps(sides: List[Side], things: str) -> Picture:
    of_trials = things == "trials"
    picture = Picture("steps", "Trial by trial" if of_trials else "Step by step",
                      "The median step of every trial, in the order in which they ran." if of_trials else
                      "The slowest rank's time of every measured step.")
    lines = [StepLine(s.letter, s.times_ms, s.metrics.step_ms) for s in sides
             if len(s.times_ms) > 1 and s.metrics.step_ms is not None]
    if len(lines) < 2:
        return picture.without(UNSAID)
    return picture.drawn(draw_steps(lines, "trial" if of_trials else "step, after the warm-up", things))
