"""The page of a tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Optional

from .figures.tuning import Point, TuningPoints, draw_tuning
from .page import Page, Picture, Table
from .schema import Node, check_version, read_json
from .text import clean, milliseconds, sentence, size

_MOST_ROWS = 40


def tune_page(path: Path) -> Page:
    """Of a tune.json. Raises ReportError."""
    tuning = read_json(path)
    check_version(tuning, "tune.json")
    in_force, best = tuning.child("in_force"), tuning.child("best")
    page = Page(title=f"Settings for {clean(tuning.text('name'), 80)}",
                subtitle="  ·  ".join(["fsdpbench tune", f"{tuning.integer('ranks')} ranks",
                                       f"by {clean(tuning.text('basis'), 80)}"]))
    if tuning.flag("interrupted"):
        page.badges.append("Interrupted: the best so far")
    if disturbed := tuning.text("disturbed_because"):
        page.caveats.append(sentence(disturbed))
    page.verdict = _verdict(tuning, in_force, best)
    page.pictures = [_front(tuning, in_force, best)]
    page.tables = [_turned(tuning), _left(tuning), _front_table(tuning)]
    page.config = [("Complete configuration that is proposed",
                    json.dumps(tuning.child("config").value, indent=2, ensure_ascii=False))]
    return page


def _settings(of: Node) -> str:
    values: List[Any] = list(of.child("settings").value.values())
    return clean(" ".join(map(str, values)), 400) or "as it is"


def _verdict(tuning: Node, in_force: Node, best: Node) -> List[str]:
    gain = 100 * tuning.required("gain")
    step, was = milliseconds(best.required("step_ms")), milliseconds(in_force.required("step_ms"))
    if tuning.flag("keep"):
        words = [f"Keep what you have: the best of all takes {step} a step instead of {was}, which is not worth a change."]
    else:
        words = [f"{gain:.1f} % less {_objective(tuning)} with {_settings(best)}: {step} a step instead of {was}."]
    low, high = tuning.number("gain_low"), tuning.number("gain_high")
    if low is not None and high is not None:
        words.append(f"95 of 100 such predictions hold: {100 * low:.1f} to {100 * high:.1f} %.")
    words.append(f"A rank then takes {size(best.required('predicted_bytes'))} instead of "
                 f"{size(in_force.required('predicted_bytes'))} of {tuning.child('budget').text('kind')} memory.")
    gap = 100 * tuning.required("optimality_gap")
    policies = tuning.child("policies")
    words.append(f"{policies.required('walked'):,.0f} policies were walked; "
                 + (f"of {policies.required('left'):,.0f} no bound is known." if gap >= 100 else
                    f"nothing in the space can be more than {gap:.2f} % better." if gap > 0 else
                    "nothing in the space is better."))
    return words


def _objective(tuning: Node) -> str:
    return {"memory": "memory", "tokens_per_s": "time a token"}.get(tuning.text("objective"), "step time")


def _front(tuning: Node, in_force: Node, best: Node) -> Picture:
    points = [(float(bytes_), float(ms), bool(fits)) for ms, bytes_, fits in tuning.items("points")]
    budget = tuning.child("budget")
    figure = draw_tuning(TuningPoints(
        fitting=[(x, y) for x, y, fits in points if fits],
        too_large=[(x, y) for x, y, fits in points if not fits],
        front=[_place(node) for node in tuning.children("front")],
        in_force=_place(in_force), best=_place(best),
        budget=budget.number("bytes"), memory=budget.text("kind")))
    return Picture("policies", "Step time over memory",
                   "Each mark is a policy that was walked on the computed clock. Along the line nothing has both less "
                   "memory and a shorter step. What does not fit although it lies before the budget is within the "
                   "prediction's error of it. Policies far slower than the current one lie outside the frame.", figure)


def _place(node: Node) -> Point:
    return (node.required("predicted_bytes"), node.required("step_ms"))


def _percent(value: Optional[float]) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _turned(tuning: Node) -> Table:
    rows = []
    for knob in tuning.children("turned"):
        more = knob.number("more_bytes")
        sign = "" if more is None else "−" if more < 0 else "+"
        rows.append([knob.text("key"), knob.text("was"), knob.text("is"), _percent(knob.number("alone")),
                     _percent(knob.number("last_in")), "–" if more is None else f"{sign}{size(abs(more))}"])
    return Table("What each change is worth", ["key", "from", "to", "alone", "as the last", "memory"], rows, names=3,
                 note="Gains of the objective: if this alone is changed, and if all others are changed already.")


def _left(tuning: Node) -> Table:
    rows = [[knob.text("key"), "yes" if knob.flag("matters") else "no", _percent(knob.number("least")),
             _percent(knob.number("most"))] for knob in tuning.children("left")]
    return Table("What is left as it is", ["key", "matters here", "at best", "at worst"], rows,
                 note="By how much its other values would change the objective of the best.")


def _front_table(tuning: Node) -> Table:
    front = tuning.children("front")
    rows = [[_settings(node), f"{node.required('step_ms'):.3f}", size(node.required("predicted_bytes")),
             "yes" if node.flag("fits") else "no"] for node in front[:_MOST_ROWS]]
    return Table("Least memory for each step time", ["settings", "step (ms)", "memory", "fits"], rows,
                 note=f"The first {_MOST_ROWS} of {len(front)}." if len(front) > _MOST_ROWS else "")
