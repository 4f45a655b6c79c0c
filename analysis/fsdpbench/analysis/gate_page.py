"""The page of a gate: a result beside its baseline, or two versions of a machine's software beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Tuple

from .figures.changes import LOOKS, ChangeRow, draw_changes
from .page import Page, Picture, Table
from .schema import Node, check_version, read_json
from .text import clean, count_text, digits

_GRAVITY = {"fail": 0, "inconclusive": 1, "better": 2, "pass": 3, "unrated": 4}


def gate_page(path: Path) -> Page:
    """Of a gate.json. Raises ReportError."""
    gate = read_json(path)
    check_version(gate, "gate.json")
    gate.expect("gate", "sentence")
    before, now = gate.child("before"), gate.child("now")
    changes = sorted(gate.children("changes"), key=lambda c: _GRAVITY.get(c.text("verdict"), 5))
    page = Page(title=f"{_names(now)} against {clean(gate.text('baseline'), 60)}",
                subtitle="  ·  ".join(p for p in ("fsdpbench gate", clean(now.text("kind"), 20),
                                                  clean(now.text("summary"), 80), _dates(now)) if p))
    page.verdict = [clean(gate.text("sentence"), 400)]
    page.verdict += [f"{c.text('figure')}: {clean(c.text('why'), 600)}." for c in changes if c.text("verdict") == "fail"][:5]
    page.caveats = _caveats(gate, before, now)
    differences = _differences(gate)
    page.first = [differences] if differences.rows else []
    if not differences.rows:
        page.verdict.append("Machine, software and program are the same.")
    page.pictures = [_picture(changes, gate.number("threshold") or 0.0)]
    page.tables = [_figures(changes), _results(before, now)]
    page.world = _machines(before, now)
    return page


def _names(side: Node) -> str:
    results = side.children("results")
    first = clean(results[0].text("name"), 50) if results else "result"
    return first if len(results) < 2 else f"{first} and {len(results) - 1} more"


def _dates(side: Node) -> str:
    dates = sorted(r.text("date")[:10] for r in side.children("results") if r.text("date"))
    return "" if not dates else dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _caveats(gate: Node, before: Node, now: Node) -> List[str]:
    texts = []
    count = len(before.children("results"))
    if gate.children("changes") and count < 3:
        texts.append(f"The baseline has {count_text(count, 'result')}. With three or more, how much results of this "
                     "machine scatter from run to run would count; now only what happened within these results does.")
    for name, side in (("The baseline's", before), ("The result", now)):
        for result in side.children("results"):
            if result.has("not_accepted_because"):
                texts.append(f"{name} {clean(result.text('name'), 50)} was not accepted: "
                             f"{clean(result.text('not_accepted_because'), 200)}.")
    return texts


def _differences(gate: Node) -> Table:
    rows = [[clean(d.text("name"), 60), d.text("part"), clean(d.text("before"), 200) or "–", clean(d.text("now"), 200) or "–"]
            for d in gate.children("differences")]
    for key in gate.children("differing_keys"):
        rows.append([clean(key.text("key"), 60), "measured", clean(key.text("a"), 200), clean(key.text("b"), 200)])
    return Table("What differs", ("", "of", "before", "now"), rows, texts=(1, 2, 3))


def _better(change: Node) -> Tuple[Optional[float], Optional[float], Optional[float]]:
    """Turned so that above 1 is better."""
    ratio, low, high = change.number("ratio"), change.number("ratio_low"), change.number("ratio_high")
    if ratio is None or change.text("better") == "more":
        return ratio, low, high
    return tuple(1 / v if v else None for v in (ratio, high, low))


def _picture(changes: List[Node], threshold: float) -> Picture:
    picture = Picture("changes", "What changed", "Each figure now against before, the worst first: to the left is worse, "
                      "whichever way it counts. Lines: the interval in which the true change lies. Grey: less than the "
                      f"threshold of {100 * threshold:.3g} %.")
    rows = []
    for change in changes:
        ratio, low, high = _better(change)
        if ratio is not None:
            rows.append(ChangeRow(change.text("figure"), ratio, low, high, change.text("verdict")))
    if not rows:
        picture.reason = "nothing was compared"
        return picture
    picture.figure = draw_changes(rows, threshold)
    return picture


def _side(value: Node) -> str:
    middle, low, high, count = value.number("median"), value.number("ci_low"), value.number("ci_high"), value.integer("n")
    if middle is None:
        return "–"
    return digits(middle) if not count or count < 2 else f"{digits(middle)} ({digits(low)} – {digits(high)})"


def _figures(changes: List[Node]) -> Table:
    rows = []
    for c in changes:
        ratio = c.number("ratio")
        left_out = c.texts("left_out")
        why = clean(c.text("why"), 600) + (f"; left out: {clean(', '.join(left_out), 200)}" if left_out else "")
        rows.append([clean(c.text("figure"), 80), LOOKS.get(c.text("verdict"), ("", "", c.text("verdict")))[2],
                     _side(c.child("before")), _side(c.child("now")), "–" if ratio is None else f"{ratio:.3f}",
                     clean(c.text("unit"), 20), why])
    return Table("All figures", ("", "verdict", "before", "now", "now ÷ before", "unit", "why"), rows, texts=(1, 5, 6),
                 note="Medians with their intervals. Of several results the interval is that of their medians.")


def _results(before: Node, now: Node) -> Table:
    rows = [[name, clean(r.text("name"), 60), r.text("date") or "–", "not accepted" if r.has("not_accepted_because") else "accepted"]
            for name, side in (("before", before), ("now", now)) for r in side.children("results")]
    return Table("Results", ("", "result", "date", ""), rows, texts=(1, 2, 3))


def _machines(before: Node, now: Node) -> List[Tuple[str, str]]:
    """What is the same once; what differs with both values."""
    def facts(side: Node) -> dict:
        machine = side.child("machine")
        return {f.text("name"): f.text("value") for part in ("hardware", "software", "program")
                for f in machine.children(part)}
    a, b = facts(before), facts(now)
    rows: List[Tuple[str, str]] = []
    for name in {**a, **b}:
        mine, other = a.get(name, "–"), b.get(name, "–")
        rows += [(name, mine)] if mine == other else [(f"{name}, before", mine), (f"{name}, now", other)]
    return rows
