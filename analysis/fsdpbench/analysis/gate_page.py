"""The page of a gate: a result beside its baseline, or two versions of a machine's software beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List, Optional, Tuple

from ..fields import Record
from .figures.changes import LOOKS, ChangeRow, draw_changes
from .page import Page, Picture, Table
from .schema import read_record
from .text import clean, count_text, digits, dotted
from .world import beside

_GRAVITY = {"fail": 0, "inconclusive": 1, "better": 2, "pass": 3, "unrated": 4}


def gate_page(path: Path) -> Page:
    """Of a gate.json. Raises ReportError."""
    gate = read_record(path, "gate")
    before, now = gate.inner("before"), gate.inner("now")
    changes = sorted(gate.changes, key=lambda c: _GRAVITY.get(c.verdict, 5))
    page = Page(title=f"{_names(now)} against {clean(gate.baseline, 60)}",
                subtitle=dotted("fsdpbench gate", clean(now.kind, 20), clean(now.summary, 80), _dates(now)))
    page.verdict = [clean(gate["sentence"], 400)]
    page.verdict += [f"{c['figure']}: {clean(c.why, 600)}." for c in changes if c.verdict == "fail"][:5]
    page.caveats = _caveats(gate, before, now)
    differences = _differences(gate)
    page.first = [differences] if differences.rows else []
    if not differences.rows:
        page.verdict.append("Machine, software and program are the same.")
    if changes:
        page.pictures, page.tables = [_picture(changes, gate.threshold or 0.0)], [_figures(changes)]
    page.tables += [_results(before, now)]
    page.world = _machines(before, now)
    return page


def _names(side: Record) -> str:
    first = clean(side.results[0].name, 50) if side.results else "result"
    return first if len(side.results) < 2 else f"{first} and {len(side.results) - 1} more"


def _dates(side: Record) -> str:
    dates = sorted(r.date[:10] for r in side.results if r.date)
    return "" if not dates else dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _caveats(gate: Record, before: Record, now: Record) -> List[str]:
    texts = []
    count = len(before.results)
    if gate.changes and count < 3:
        texts.append(f"The baseline has {count_text(count, 'result')}. With three or more, how much results of this "
                     "machine scatter from run to run would count; now only what happened within these results does.")
    for name, side in (("The baseline's", before), ("The result", now)):
        for result in side.results:
            if result.not_accepted_because is not None:
                texts.append(f"{name} {clean(result.name, 50)} was not accepted: {clean(result.not_accepted_because, 200)}.")
    return texts


def _differences(gate: Record) -> Table:
    rows = [[clean(d.name, 60), d.part or "", clean(d.before, 200) or "–", clean(d.now, 200) or "–"] for d in gate.differences]
    for key in gate.differing_keys:
        rows.append([clean(key.key, 60), "measured", *(
            clean(value if isinstance(value, str) else "" if value is None else json.dumps(value), 200) for value in (key.a, key.b))])
    return Table("What differs", ("", "of", "before", "now"), rows, texts=(1, 2, 3))


def _better(change: Record) -> Tuple[Optional[float], Optional[float], Optional[float]]:
    """Turned so that above 1 is better."""
    ratio, low, high = change.ratio, change.ratio_low, change.ratio_high
    if ratio is None or change.better == "more":
        return ratio, low, high
    return tuple(1 / v if v else None for v in (ratio, high, low))


def _picture(changes: List[Record], threshold: float) -> Picture:
    picture = Picture("changes", "What changed", "Each figure now against before, the worst first: to the left is worse, "
                      "whichever way it counts. Lines: the interval in which the true change lies. Grey: less than the "
                      f"threshold of {100 * threshold:.3g} %.")
    rows = []
    for change in changes:
        ratio, low, high = _better(change)
        if ratio is not None:
            rows.append(ChangeRow(change["figure"], ratio, low, high, change["verdict"]))
    if not rows:
        return picture.without("nothing was compared")
    return picture.drawn(draw_changes(rows, threshold))


def _side(value: Optional[Record]) -> str:
    if value is None:
        return "–"
    middle = digits(value["median"])
    return middle if not value.n or value.n < 2 else f"{middle} ({digits(value['ci_low'])} – {digits(value['ci_high'])})"


def _figures(changes: List[Record]) -> Table:
    rows = []
    for c in changes:
        why = clean(c.why, 600) + (f"; left out: {clean(', '.join(c['left_out']), 200)}" if c.left_out else "")
        rows.append([clean(c.figure, 80), LOOKS.get(c["verdict"], ("", "", c.verdict))[2], _side(c.before), _side(c.now),
                     "–" if c.ratio is None else f"{c.ratio:.3f}", clean(c.unit, 20), why])
    return Table("All figures", ("", "verdict", "before", "now", "now ÷ before", "unit", "why"), rows, texts=(1, 5, 6),
                 note="Medians with their intervals. Of several results the interval is that of their medians.")


def _results(before: Record, now: Record) -> Table:
    rows = [[name, clean(r.name, 60), r.date or "–", "accepted" if r.not_accepted_because is None else "not accepted"]
            for name, side in (("before", before), ("now", now)) for r in side.results]
    return Table("Results", ("", "result", "date", ""), rows, texts=(1, 2, 3))


def _machines(before: Record, now: Record) -> List[Tuple[str, str]]:
    def facts(side: Record) -> List[Tuple[str, str]]:
        machine = side.typed("machine", "map of list of map of text")
        return [(f.get("name", ""), f.get("value", "")) for part in ("hardware", "software", "program")
                for f in machine.get(part, [])]
    return beside(facts(before), facts(now), ("before", "now"))
