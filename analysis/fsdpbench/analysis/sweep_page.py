"""The page of a sweep."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple

from ..fields import Record, ReportError
from .figures.breakdown import MAX_ROWS, Bar, draw_breakdown
from .figures.heatmap import HeatCell, HeatPanel, describe_budget, draw_heatmap
from .figures.lines import Line, Panel, Row, draw_lines, numeric
from .figures.scaling import draw_scaling
from .figures.timeline import TimelinePart, draw_timeline
from .page import Page, Picture, Table
from .numbers import complete, hidden, interval_name, is_range, made_of, parts_note, would_help
from .scaling_view import scaling_columns
from .style import MOST_SERIES
from .sweep_view import (find_axis, group, key_of, label, load_sweep, measured as is_measured, ordered, peak_of, rated,
                         setting_axes, split_axes, step_of, title_of, value, varying, work_axes)
from .text import clean, count_text, digits, dotted, milliseconds, sentence, size, value_text
from .timeline_command import load_part
from .trace import find_trace
from .world import emulation_badges, world_rows

_MAX_COLUMNS = 4
_MAX_CURVES = 3  # axes that have figures of curves
_MAX_PARTS = 2  # figures that share what does not fit into one
_SAME = 0.005  # steps that differ by less are as fast
_HOW = ("A cell's step time is the median over trials of the slowest rank's median step; trials of all cells took "
        "turns. ")


def sweep_page(path: Path, budget: Optional[float] = None) -> Page:
    sweep = load_sweep(path)
    measured = [c for c in sweep.cells if is_measured(c) and rated(c)]
    unrated = [c for c in sweep.cells if is_measured(c) and not rated(c)]
    world = sweep.inner("world").data
    page = Page(title=sweep.title or "FSDP communication sweep", subtitle=_subtitle(sweep), badges=emulation_badges(world))
    missing = len(sweep.cells) - len(measured) - len(unrated)
    if unrated:
        page.caveats.append(f"Not rated, so in the table only: {len(unrated)} of {len(sweep.cells)} cells. "
                            f"{label(unrated[0], varying(sweep))}: {sentence(unrated[0].not_rated_because or '')}")
    tight = [c for c in measured if not _fits(c)]
    if tight:
        page.caveats.append(f"{len(tight)} of {len(sweep.cells)} cells need more memory than their GPU has, so their "
                            f"times are of a GPU with more, and none is called fastest: "
                            f"{_named(tight, varying(sweep))}.")
    if missing:
        page.badges.append(f"{missing} of {len(sweep.cells)} cells have no numbers")
    page.verdict = _verdict(sweep, measured, budget)
    page.pictures = [_heatmap(sweep, budget)] + _curves(sweep, measured)
    page.pictures += _scaling(sweep, measured) + [_breakdown(sweep, measured), _contrast(sweep, measured)]
    page.tables = [_table(sweep)]
    page.world = world_rows(world)
    return page


def _subtitle(sweep: Record) -> str:
    return dotted("fsdpbench sweep", f"{sum(map(is_measured, sweep.cells))} of {len(sweep.cells)} cells measured",
                  " × ".join(f"{len(a.values)} {title_of(a)}" for a in varying(sweep)), sweep.inner("world").date)


def _named(cells: Sequence[Record], axes: Sequence[Record], most: int = 6) -> str:
    names = [value_text(value(c, axes[0].key)) if len(axes) == 1 else label(c, axes) for c in cells[:most]]
    return "; ".join(names) + (f"; and {len(cells) - most} more" if len(cells) > most else "")


def _fits(cell: Record) -> bool:
    """As well where nothing says what the device has."""
    return cell.inner("memory").fits is not False


def _verdict(sweep: Record, measured: Sequence[Record], budget: Optional[float]) -> List[str]:
    if not measured:
        how = "rated" if any(map(is_measured, sweep.cells)) else "measured"
        return [f"No cell was {how}, so there is nothing to compare."]
    words = []
    settings, work = setting_axes(sweep), work_axes(sweep)
    if settings:
        for name, cells in group(measured, work)[:6]:
            words.append(_best_of(name, cells, settings, budget))
        more = len(group(measured, work)) - 6
        if more > 0:
            words.append(f"{more} further combinations of {', '.join(title_of(a) for a in work)} are in the table.")
    known = [c for c in measured if c.metrics.overlap_pct is not None]
    if known and len(measured) > 1:
        least, most = (f(known, key=lambda c: c.metrics.overlap_pct or 0) for f in (min, max))
        axes = varying(sweep)
        words.append(f"Overlap reaches from {least.metrics.overlap_pct:.0f} % ({label(least, axes)}) to "
                     f"{most.metrics.overlap_pct:.0f} % ({label(most, axes)}).")
    if not settings or len(measured) == 1:
        exposed = [c for c in measured if c.metrics.exposed_comm_ms is not None]
        if exposed:
            worst = max(exposed, key=lambda c: (c.metrics.exposed_comm_ms or 0) / max(step_of(c), 1e-12))
            words += [f"The largest exposed share: {label(worst, varying(sweep))}. {made_of(step_of(worst), worst.metrics) or ''}"]
            words += would_help(worst.causes, 1)
    else:
        best = _cheapest_of_fastest([c for c in measured if _fits(c)] or measured)[0]
        words += [w for w in [hidden(best.metrics.overlap_pct, best.metrics.comm_ms)] if w and len(group(measured, work)) == 1]
        words += [f"In the fastest cell ({label(best, varying(sweep))}): {w}" for w in would_help(best.causes, 1)]
    return words


def _best_of(name: str, cells: Sequence[Record], settings: Sequence[Record], budget: Optional[float]) -> str:
    prefix = f"{name[0].upper()}{name[1:]}: " if name else ""
    tried, cells = cells, [c for c in cells if _fits(c)]
    if not cells:
        return f"{prefix}nothing that was tried fits its GPU, which has {size(tried[0].inner('memory').device_bytes or 0)}."
    best, equal = _cheapest_of_fastest(cells)
    worst = max(cells, key=step_of)
    if len(cells) < len(tried):
        prefix += f"of those that fit ({len(cells)} of {len(tried)}), "
    if len(cells) == 1:
        return f"{prefix}only {label(best, settings)} was tried, {milliseconds(step_of(best))} a step."
    text = f"{prefix}fastest with {label(best, settings)}, {milliseconds(step_of(best))} a step"
    if equal:
        text += f" (as fast: {_named(equal, settings)})"
    text += f"; slowest with {label(worst, settings)}, {milliseconds(step_of(worst))}."
    if budget is not None:
        fitting = [c for c in cells if peak_of(c) is not None and peak_of(c) <= budget]
        if not fitting:
            return f"{text} Nothing fits into {size(budget)}."
        inside = _cheapest_of_fastest(fitting)[0]
        if inside is not best and step_of(inside) > step_of(best):
            text += f" Fastest within {size(budget)}: {label(inside, settings)}, {milliseconds(step_of(inside))}."
    return text


def _cheapest_of_fastest(cells: Sequence[Record]) -> Tuple[Record, List[Record]]:
    """What needs the least memory of those as fast as the fastest, and the others: within 0.5 % of it, or its noise."""
    fastest = min(cells, key=step_of)
    bound = max(step_of(fastest) * (1 + _SAME), fastest.metrics.step_ms.ci_high or 0)

    def low(cell: Record) -> float:
        return step_of(cell) if cell.metrics.step_ms.ci_low is None else cell.metrics.step_ms.ci_low
    equal = [c for c in cells if low(c) <= bound]
    best = min(equal, key=lambda c: (math.inf if peak_of(c) is None else peak_of(c), step_of(c)))
    return best, [c for c in equal if c is not best]


def _heatmap(sweep: Record, budget: Optional[float]) -> Picture:
    picture = Picture("heatmap", "Prefetch and limit: step time and memory", "")
    limits = find_axis(sweep, "limit")
    rows = [a for a in find_axis(sweep, "prefetch") if a not in limits]
    if not limits or not rows:
        return picture.without("the sweep does not vary both a prefetch and a limit")
    row, column = rows[0], limits[0]
    facets = [a for a in varying(sweep) if a not in (row, column)]
    row_of = {key_of(v): i for i, v in enumerate(row.values)}
    column_of = {key_of(v): i for i, v in enumerate(column.values)}
    panels = []
    groups = group(sweep.cells, facets)
    for name, cells in groups[:12]:
        inside, rivals = {}, [c for c in cells if is_measured(c) and rated(c) and _fits(c)]
        best = _cheapest_of_fastest(rivals)[0] if rivals else None
        for cell in cells:
            place = (row_of.get(key_of(value(cell, row.key)), -1), column_of.get(key_of(value(cell, column.key)), -1))
            if min(place) >= 0:
                inside[place] = HeatCell(step_of(cell) if is_measured(cell) else None, peak_of(cell), cell.reason or "",
                                         rated(cell), cell is best)
        panels.append(HeatPanel(name, inside))
    picture.caption = (_HOW + "Under it: the peak memory of the rank that needed most. Bold: the fastest of a panel; of several "
                       "that are as fast, what needs the least memory. Each panel has its own colours."
                       + (f" {describe_budget(budget)}" if budget else "")
                       + (f" The first 12 of {len(groups)} panels." if len(groups) > 12 else ""))
    return picture.drawn(draw_heatmap(panels, row.values, column.values, title_of(row), title_of(column), budget))


def _curve_axes(sweep: Record) -> List[Record]:
    """The sweep's own x first, then model size, batch, ranks and whatever else is a number."""
    hinted = [a for a in varying(sweep) if a.key == sweep.x]
    rest = [a for a in varying(sweep) if a.key != sweep.x and (numeric(a.values) or a.key.startswith("model."))]
    chosen = (hinted + rest)[:_MAX_CURVES]
    return chosen or varying(sweep)[:1]


def _chunks(things: Sequence, size: int, most: int) -> "tuple[list, int]":
    """Parts of that size, so many at most, and how many things are in none."""
    parts = [things[i:i + size] for i in range(0, len(things), size)]
    return parts[:most], sum(map(len, parts[most:]))


def _curves(sweep: Record, measured: Sequence[Record]) -> List[Picture]:
    """A figure has at most _MAX_COLUMNS columns and as many lines a panel as there are colours; the rest has its own."""
    axes = _curve_axes(sweep)
    if not axes or not measured:
        return [Picture("curves", "Step time, exposed communication and overlap", "", reason="no axis has two values that were measured")]
    pictures = []
    for i, axis in enumerate(axes):
        series, facets = split_axes(sweep, axis)
        names = [value_text(v) for v in series[0].values] if series else ["all"]
        groups, columns_left = _chunks(group(measured, facets), _MAX_COLUMNS, _MAX_PARTS)
        lines, lines_left = _chunks(names, MOST_SERIES, _MAX_PARTS)
        left = [count_text(n, what) for n, what in ((columns_left, "further column"), (lines_left, "further line")) if n]
        caption = (_HOW + f"Bands, or bars of ranges: {_band(measured)}. Overlap: hidden communication ÷ all communication; a cell that "
                   "communicates nothing has none." + (f" In the table only: {' and '.join(left)}." if left else ""))
        title = f"Step time, exposed communication and overlap over {title_of(axis)}"
        parts = [(columns, shown) for columns in groups for shown in lines]
        for part, (columns, shown) in enumerate(parts):
            rows = [Row(name, _panels(columns, series, axis, shown, point), percent=name == "overlap (%)") for name, point in (
                ("step time (ms)", lambda m: (m.step_ms["median"], m.step_ms.ci_low, m.step_ms.ci_high)),
                ("exposed communication (ms)", lambda m: (m.exposed_comm_ms, None, None)),
                ("overlap (%)", lambda m: (m.overlap_pct if m.comm_ms else None, None, None)))]
            picture = Picture(f"over-{i + 1}" + (f"-{part + 1}" if part else ""),
                              title + (f", {part + 1} of {len(parts)}" if len(parts) > 1 else ""), caption)
            picture.figure = draw_lines(rows, title_of(axis), axis.values, shown, title_of(series[0]) if series else "")
            pictures.append(picture)
    return pictures


_Point = Tuple[Optional[float], Optional[float], Optional[float]]


def _panels(groups: Sequence[Tuple[str, List[Record]]], series: Sequence[Record], axis: Record, names: Sequence[str],
            point: Callable[[Record], _Point]) -> List[Panel]:
    """names: of the lines that are drawn. point: of a cell's metrics; None in it where they do not have it."""
    panels = []
    for name, cells in groups:
        lines = []
        for _, members in group(cells, series):
            shown = value_text(value(members[0], series[0].key)) if series else "all"
            if shown not in names:
                continue
            points = [(value(c, axis.key), *p) for c in ordered(members, axis) for p in [point(c.metrics)] if p[0] is not None]
            lines.append(Line(shown, points, any(is_range(c.metrics.step_ms) for c in members)))
        panels.append(Panel(name, lines))
    return panels


def _scaling(sweep: Record, measured: Sequence[Record]) -> List[Picture]:
    columns = scaling_columns(sweep, measured)
    if not columns:
        return [Picture("scaling", "Scaling over ranks", "").without(
            "the sweep does not measure two numbers of ranks that belong together")]
    lines = max(len(column.lines) for column in columns)
    starts = range(0, min(lines, MOST_SERIES * 2 * _MAX_PARTS), MOST_SERIES)
    caption = ("Weak: every rank keeps its batch. Strong: the batch of all ranks together stays the same. Dotted: "
               "proportional to the ranks, from each line's smallest number of ranks. Efficiency: tokens/s a rank, as a "
               "share of that at the smallest number of ranks."
               + (f" In the table only: lines beyond {len(starts) * MOST_SERIES} of {lines}."
                  if lines > len(starts) * MOST_SERIES else ""))
    pictures = []
    for i, start in enumerate(starts):
        shown = [replace(column, lines=column.lines[start:start + MOST_SERIES]) for column in columns]
        picture = Picture("scaling" + (f"-{i + 1}" if i else ""),
                          "Scaling over ranks" + (f", {i + 1} of {len(starts)}" if len(starts) > 1 else ""), caption)
        pictures.append(picture.drawn(draw_scaling([column for column in shown if column.lines])))
    return pictures


def _breakdown(sweep: Record, measured: Sequence[Record]) -> Picture:
    axes = varying(sweep)
    rows = [Bar(label(c, axes), c.metrics, step_of(c)) for c in measured if complete(c.metrics)]
    picture = Picture("breakdown", "What the steps are made of",
                      _HOW + "Compute: at least one kernel ran. Exposed: the compute lane waited for communication, or "
                      "for copies. Idle: it waited for anything else. " + parts_note([c.metrics for c in measured])
                      + (f" The first {MAX_ROWS} of {len(rows)} cells; all are in the table." if len(rows) > MAX_ROWS
                         else ""))
    if not rows:
        return picture.without("no cell has all parts of a step")
    return picture.drawn(draw_breakdown(rows))


def _cell_folder(sweep: Record, cell: Record) -> Optional[Path]:
    """The cell's own results, where they were kept; an id that leads elsewhere is not followed."""
    cells = (sweep.path.parent / "cells").resolve()
    try:
        folder = (cells / cell.id).resolve()
        return folder if folder.parent == cells and folder.is_dir() else None
    except (OSError, ValueError):
        return None


def _contrast(sweep: Record, measured: Sequence[Record]) -> Picture:
    picture = Picture("timeline", "One step: the slowest cell and the fastest", "")
    kept = [c for c in measured for f in [_cell_folder(sweep, c)] if f is not None and find_trace(f) is not None]
    cells = group(kept, work_axes(sweep))[0][1] if kept else []
    if len(cells) < 2:
        return picture.without("no traces of two comparable cells were kept (cells/<id>/trace.json)")
    pair = (max(cells, key=step_of), min(cells, key=step_of))
    parts = []
    try:
        for cell in pair:
            folder = _cell_folder(sweep, cell)
            assert folder is not None
            part = load_part(folder)
            parts.append(TimelinePart(part.trace, part.step,
                                      f"{label(cell, varying(sweep))}: {milliseconds(step_of(cell))}", part.exposed))
    except ReportError as error:
        return picture.without(str(error))
    picture.caption = "One rank of each, on the same time scale, from their traces."
    return picture.drawn(draw_timeline(parts, max_ranks=1, row_height=0.34, font=9))


def _band(measured: Sequence[Record]) -> str:
    """What the intervals of the cells are, in the data's own words."""
    names = list(dict.fromkeys(interval_name(c.metrics.step_ms, "trials") for c in measured))
    return " or ".join(names[:3]) or "none"


def _table(sweep: Record) -> Table:
    axes = sweep.axes
    measured = [c for c in sweep.cells if is_measured(c)]
    header = [title_of(a) for a in axes] + ["step (ms)", _band(measured), "compute (ms)", "exposed comm. (ms)",
                                            "exposed copies (ms)", "idle (ms)", "comm. (ms)", "overlap (%)",
                                            "tokens/s", "peak memory", ""]
    rows = []
    for cell in sweep.cells:
        m = cell.inner("metrics")
        step = m.inner("step_ms")
        row = [value_text(value(cell, a.key)) for a in axes]
        row += [f"{step['median']:.4g}" if m.step_ms else "–", "–" if None in (step.ci_low, step.ci_high) else
                f"{step.ci_low:.4g} – {step.ci_high:.4g}"]
        row += [digits(v) if v is not None else "–" for v in (m.compute_ms, m.exposed_comm_ms, m.exposed_copy_ms, m.idle_ms,
                                                              m.comm_ms, m.overlap_pct, m.tokens_per_s)]
        row.append("–" if peak_of(cell) is None else size(peak_of(cell)))
        folder = _cell_folder(sweep, cell)
        trace = find_trace(folder) if folder is not None else None
        status = cell.status or "done"
        kept = f"cells/{clean(cell.id, 60)}/{trace.name}" if trace else ""
        row.append(f"{status}{': ' + cell.reason if cell.reason else ''}" if status not in ("ok", "done")
                   else kept if rated(cell) else ", ".join(p for p in ("not rated", kept) if p))
        rows.append(row)
    return Table("Cells", header, rows, names=len(axes), texts=(len(header) - 1,), note=parts_note(
        [c.metrics for c in measured]) + " Traces lie in the sweep's folder, where they were kept.")


