"""One page for two: runs beside each other, or the two sides of a comparison, on the same scales."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .attachments import trace_attachments
from .figures.breakdown import Bar, draw_breakdown
from .figures.causes import CausePanel, draw_causes
from .figures.memory import MemoryPanel, draw_memory
from .figures.steps import StepLine, draw_steps
from .figures.timeline import draw_timeline
from .load import (ComparedTrials, Comparison, DifferingKey, Memory, Metrics, Result, StepTime, load_comparison,
                   load_result)
from .numbers import differing_keys, differing_table, numbers_of, paired_table, parts_note
from .page import Attachment, Page, Picture
from .run_page import UNSAID, phases_of, run_title
from .schema import ReportError
from .text import clean, milliseconds, percent, sentence
from .timeline_command import load_part
from .verdict import made_of
from .world import emulation_badges, machine, world_rows


@dataclass
class Side:
    """What the page shows of A or of B."""

    letter: str
    name: str
    config: Dict[str, Any]
    metrics: Metrics
    memory: Memory
    # Of each measured step; of a comparison: of each trial.
    times_ms: List[float]
    result: Optional[Result] = None
    world: Dict[str, Any] = field(default_factory=dict)

    def title(self) -> str:
        return f"{self.letter}  {clean(self.name, 80)}"


def pair_page(a: Path, b: Path) -> Page:
    """Of two result.json files. Raises ReportError."""
    sides = [_of_run(letter, path) for letter, path in (("A", a), ("B", b))]
    page = _page(sides, "steps", differing_keys(sides[0].config, sides[1].config))
    page.caveats = [f"{s.letter}: {sentence(words)}" for s in sides if s.result for words in s.result.rating.caveats]
    page.verdict = [_compared(sides)] + page.verdict
    noise = [s.metrics.aa_noise_pct for s in sides if s.metrics.aa_noise_pct is not None]
    page.verdict.append("These are two single runs: a difference may be the machine's of that moment"
                        + (f" (A/A noise within a run: up to {percent(max(noise))})" if noise else "")
                        + ". `fsdpbench compare` runs both in turns and says what is certain.")
    if any(not s.result.complete for s in sides if s.result):
        page.badges.append("Incomplete: a run was stopped before its last step")
    page.pictures[1:1] = [_causes(sides), _timeline(sides)]
    page.traces = [file for s in sides if s.result for file in _attachments(s, s.result)]
    return page


def compare_page(path: Path) -> Page:
    """Of a compare.json. Raises ReportError."""
    comparison = load_comparison(path)
    take = _of_trials if comparison.interleaved else _of_stored
    sides = [take("A", comparison.a), take("B", comparison.b)]
    for side in sides:
        side.world = comparison.world
    differing = comparison.differing
    if differing is None:
        differing = differing_keys(comparison.a.config, comparison.b.config)
    page = _page(sides, "trials" if comparison.interleaved else "steps", differing)
    if not comparison.interleaved:
        page.caveats.append("These are stored results of one run each. They did not take turns, so whatever the "
                            "machine did in between counts as a difference; `fsdpbench compare --rerun` runs both in "
                            "turns.")
    page.subtitle = "  ·  ".join(str(p) for p in ("fsdpbench compare", comparison.world.get("date"),
                                                  machine(comparison.world)) if p)
    first = [comparison.sentence] if comparison.sentence else []
    page.verdict = first + page.verdict + _noise(comparison)
    return page


def _page(sides: List[Side], things: str, differing: List[DifferingKey]) -> Page:
    a, b = sides
    page = Page(title=f"{clean(a.name, 60)} and {clean(b.name, 60)}",
                subtitle="  ·  ".join(p for p in ("fsdpbench report", run_title(a.config, a.result.model if a.result else "")) if p),
                badges=list(dict.fromkeys(badge for s in sides for badge in emulation_badges(s.world))))
    for side in sides:
        words = made_of(side.metrics)
        if words:
            page.verdict.append(f"{side.letter} ({clean(side.name, 60)}): {words}")
    page.first = [differing_table(differing)]
    page.pictures = [_breakdown(sides, things), _memory(sides), _steps(sides, things)]
    note = parts_note([s.metrics for s in sides])
    page.tables = [paired_table(*(numbers_of(s.metrics, s.memory, things) for s in sides), note)]
    page.world = _worlds(a, b)
    page.config = [(f"Complete configuration of {s.letter}", json.dumps(s.config, indent=2, ensure_ascii=False))
                   for s in sides]
    return page


def _of_run(letter: str, path: Path) -> Side:
    result = load_result(path)
    return Side(letter, path.resolve().parent.name, result.config, result.metrics, result.memory, result.steps_ms,
                result, result.world)


def _of_trials(letter: str, trials: ComparedTrials) -> Side:
    """The parts are those of the trial with the median step time, so that they belong together; the step time is the
    program's, of all trials."""
    measured = sorted((t for t in trials.trials if t.step is not None), key=lambda t: t.step.median)
    if not measured:
        raise ReportError(f"side {letter} of the comparison has no trial with a step time")
    middle = measured[(len(measured) - 1) // 2]
    times = [t.step.median for t in trials.trials if t.step is not None]
    median = trials.step_ms if trials.step_ms is not None else middle.step.median
    metrics = Metrics(StepTime(median, None, None, len(times)), middle.total, middle.overlap_pct, middle.tokens_per_s,
                      middle.step_over_bound, middle.phases)
    return Side(letter, trials.name, trials.config, metrics, trials.memory, times)


def _of_stored(letter: str, trials: ComparedTrials) -> Side:
    """One run each: its own numbers and its own steps."""
    if not trials.trials or trials.trials[0].step is None:
        raise ReportError(f"side {letter} of the comparison has no step time")
    return Side(letter, trials.name, trials.config, trials.trials[0], trials.memory, trials.steps_ms[0])


def _compared(sides: List[Side]) -> str:
    times = [s.metrics.step.median if s.metrics.step else None for s in sides]
    if None in times or times[0] <= 0:
        return "One of the two has no measured step, so they cannot be compared."
    change = 100 * (times[1] / times[0] - 1)
    words = "as fast as" if abs(change) < 0.05 else f"{percent(abs(change))} {'slower' if change > 0 else 'faster'} than"
    return f"B is {words} A: {milliseconds(times[1])} a step instead of {milliseconds(times[0])}."


def _noise(comparison: Comparison) -> List[str]:
    if comparison.aa_noise is None:
        return []
    return [f"A/A noise: two halves of one side's own trials differ by up to {percent(100 * comparison.aa_noise)}."]


def _breakdown(sides: List[Side], things: str) -> Picture:
    of_trials = things == "trials"
    picture = Picture("breakdown", "What a step is made of",
                      ("The trial with the median step time of each side" if of_trials else
                       "The step time is the median over the measured steps, of the slowest rank") + ". "
                      + parts_note([s.metrics for s in sides]))
    rows = []
    wholes = [s for s in sides if s.metrics.total.complete()]
    for s in wholes:
        rows.append(Bar(f"whole step  {s.letter}", s.metrics.total,
                        s.metrics.total.total_ms() if of_trials or s.metrics.step is None else s.metrics.step.median))
    phases = [dict(phases_of(s.metrics)) for s in sides]
    for name in dict.fromkeys(name for mine in phases for name in mine):
        rows += [Bar(f"{name}  {s.letter}", mine[name], gap=i == 0)
                 for i, (s, mine) in enumerate(zip(sides, phases)) if name in mine]
    if not rows:
        picture.reason = UNSAID
        return picture
    picture.figure = draw_breakdown(rows)
    return picture


def _causes(sides: List[Side]) -> Picture:
    picture = Picture("causes", "Why computation waited", "Mean over ranks in the typical step; causes below 2 % of the "
                      "step are summed up.")
    panels = [CausePanel(s.title(), s.result.causes, s.result.causes_small_ms, s.result.jitter_ms)
              for s in sides if s.result]
    if not any(panel.causes for panel in panels):
        picture.reason = "neither result file lists a cause of at least 2 % of the step"
        return picture
    picture.figure = draw_causes(panels)
    return picture


def _timeline(sides: List[Side]) -> Picture:
    picture = Picture("timeline", "One step of each, on one time scale", "The step of median length, of the rank whose "
                      "waiting the causes explain. Hatched: the compute lane had nothing to run.")
    parts = []
    for side in sides:
        try:
            part = load_part(side.result.folder)
        except ReportError as error:
            picture.reason = str(error)
            return picture
        parts.append(replace(part, title=f"{side.letter}  {part.title}", marked={}))
    picture.figure = draw_timeline(parts, max_ranks=1, row_height=0.3, font=9)
    return picture


def _memory(sides: List[Side]) -> Picture:
    picture = Picture("memory", "Memory over one step", "Bytes alive on one rank while its lanes ran. Dashed: the "
                      "measured peak of the rank that needed most.")
    panels = [MemoryPanel(s.title(), s.memory.timeline, s.memory.peak_at, s.memory.peak.get("total"))
              for s in sides if s.memory.timeline is not None]
    if len(panels) < 2:
        picture.reason = UNSAID if any(s.result for s in sides) else "a comparison keeps the peaks, not the course"
        return picture
    picture.figure = draw_memory(panels)
    return picture


def _steps(sides: List[Side], things: str) -> Picture:
    of_trials = things == "trials"
    picture = Picture("steps", "Trial by trial" if of_trials else "Step by step",
                      "The median step of every trial, in the order in which they ran." if of_trials else
                      "The slowest rank's time of every measured step.")
    lines = [StepLine(s.letter, s.times_ms, s.metrics.step) for s in sides
             if len(s.times_ms) > 1 and s.metrics.step is not None]
    if len(lines) < 2:
        picture.reason = UNSAID
        return picture
    picture.figure = draw_steps(lines, "trial" if of_trials else "measured step, after the warm-up", things)
    return picture


def _attachments(side: Side, result: Result) -> List[Attachment]:
    return trace_attachments(result.folder, f"trace-{side.letter}")


def _worlds(a: Side, b: Side) -> List[Tuple[str, str]]:
    """What is the same once; what differs with both values."""
    if a.result is None or b.result is None:
        return world_rows(a.world)
    left, right = dict(world_rows(a.world)), dict(world_rows(b.world))
    rows = []
    for name in {**left, **right}:
        mine, other = left.get(name, "–"), right.get(name, "–")
        rows += [(name, mine)] if mine == other else [(f"{name}, A", mine), (f"{name}, B", other)]
    return rows
