"""The page of a tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List, Optional

from ..fields import OBJECTS, Record
from .figures.tuning import Point, TuningPoints, draw_tuning
from .page import Page, Picture, Table
from .schema import check_version, read_json
from .text import clean, dotted, milliseconds, sentence, size

_MOST_ROWS = 40


def tune_page(path: Path) -> Page:
    """Of a tune.json. Raises ReportError."""
    value = read_json(path)
    check_version(value, path, "tuning")
    tuning = OBJECTS["Tuning"](value, path)
    in_force, best = tuning["in_force"], tuning["best"]
    page = Page(title=f"Settings for {clean(tuning.name, 80)}",
                subtitle=dotted("fsdpbench tune", f"{tuning.ranks} ranks", f"by {clean(tuning.basis, 80)}"))
    if tuning.interrupted:
        page.badges.append("Interrupted: the best so far")
    if tuning.disturbed_because:
        page.caveats.append(sentence(tuning.disturbed_because))
    page.verdict = _verdict(tuning, in_force, best)
    page.pictures = [_front(tuning, in_force, best)]
    page.tables = [_turned(tuning), _left(tuning), _front_table(tuning)]
    page.config = [("Complete configuration that is proposed",
                    json.dumps(tuning.config or {}, indent=2, ensure_ascii=False))]
    return page


def _settings(of: Record) -> str:
    return clean(" ".join(text for text in of.settings.values() if text), 400) or "as it is"


def _verdict(tuning: Record, in_force: Record, best: Record) -> List[str]:
    gain = 100 * tuning["gain"]
    step, was = milliseconds(best["step_ms"]), milliseconds(in_force["step_ms"])
    if tuning.keep:
        words = [f"Keep what you have: the best of all takes {step} a step instead of {was}, which is not worth a change."]
    else:
        words = [f"{gain:.1f} % less {_objective(tuning)} with {_settings(best)}: {step} a step instead of {was}."]
    low, high = tuning.gain_low, tuning.gain_high
    if low is not None and high is not None:
        words.append(f"95 of 100 such predictions hold: {100 * low:.1f} to {100 * high:.1f} %.")
    words.append(f"A rank then takes {size(best['predicted_bytes'])} instead of {size(in_force['predicted_bytes'])} of "
                 f"{tuning['budget'].kind} memory.")
    gap, policies = 100 * tuning["optimality_gap"], tuning["policies"]
    words.append(f"{policies['walked']:,.0f} policies were walked; "
                 + (f"of {policies['left']:,.0f} no bound is known." if gap >= 100 else
                    f"nothing in the space can be more than {gap:.2f} % better." if gap > 0 else
                    "nothing in the space is better."))
    return words


def _objective(tuning: Record) -> str:
    return {"memory": "memory", "tokens_per_s": "time a token"}.get(tuning.objective, "step time")


def _front(tuning: Record, in_force: Record, best: Record) -> Picture:
    points = [(float(bytes_), float(ms), bool(fits)) for ms, bytes_, fits in tuning.points]
    figure = draw_tuning(TuningPoints(
        fitting=[(x, y) for x, y, fits in points if fits],
        too_large=[(x, y) for x, y, fits in points if not fits],
        front=[_place(one) for one in tuning.front],
        in_force=_place(in_force), best=_place(best),
        budget=tuning["budget"].bytes, memory=tuning["budget"].kind or ""))
    return Picture("policies", "Step time over memory",
                   "Each mark is a policy that was walked on the computed clock. Along the line nothing has both less "
                   "memory and a shorter step. What does not fit although it lies before the budget is within the "
                   "prediction's error of it. Policies far slower than the current one lie outside the frame.", figure)


def _place(tried: Record) -> Point:
    return tried["predicted_bytes"], tried["step_ms"]


def _percent(value: Optional[float]) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %".replace("-", "−")


def _turned(tuning: Record) -> Table:
    rows = []
    for knob in tuning.turned:
        more = knob.more_bytes
        sign = "" if more is None else "−" if more < 0 else "+"
        rows.append([knob["key"], knob.was or "", knob.is_ or "", _percent(knob.alone), _percent(knob.last_in), "–" if more is None else f"{sign}{size(abs(more))}"])
    return Table("What each change is worth", ["key", "from", "to", "alone", "as the last", "memory"], rows, names=3,
                 note="Gains of the objective: if this alone is changed, and if all others are changed already.")


def _left(tuning: Record) -> Table:
    rows = [[knob["key"], "yes" if knob.matters else "no", _percent(knob.least), _percent(knob.most)] for knob in tuning.left]
    return Table("What is left as it is", ["key", "matters here", "at best", "at worst"], rows,
                 note="By how much its other values would change the objective of the best.")


def _front_table(tuning: Record) -> Table:
    front = tuning.front
    rows = [[_settings(one), f"{one['step_ms']:.3f}", size(one["predicted_bytes"]), "yes" if one.fits else "no"]
            for one in front[:_MOST_ROWS]]
    return Table("Least memory for each step time", ["settings", "step (ms)", "memory", "fits"], rows,
                 note=f"The first {_MOST_ROWS} of {len(front)}." if len(front) > _MOST_ROWS else "")
