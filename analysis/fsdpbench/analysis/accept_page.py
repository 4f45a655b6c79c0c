"""The page of an acceptance: the verdict, who is to blame, and the measurements that say so."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Dict, List, Optional, Sequence, Tuple

from .. import fields
from ..fields import Record, ReportError
from .figures.acceptance import MOST_RANKS, Bars, Ladder, RateLine, Rung, draw_bars, draw_ladders, draw_pairs, draw_rates
from .figures.steps import StepLine, draw_steps
from .page import Page, Picture, Table
from .schema import read_record
from .text import clean, count_text, digits, dotted, milliseconds, percent, sentence
from .trace import packed_trace
from .world import emulation_badges, machine, world_rows

_WORDS = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive", "unrated": "unrated"}
_NOT_MEASURED = "not measured"


def accept_page(path: Path) -> Page:
    """Of a result.json whose kind is acceptance. Raises ReportError."""
    result = read_record(path, "acceptance")
    world, judgements = result.inner("world").data, result.judgements
    rated = sum(j.verdict != "unrated" for j in judgements)
    page = Page(title=f"{result['verdict'].upper()}: {count_text(result.ranks or 0, 'rank')} on "
                      f"{count_text(result.nodes or 0, 'node')}{', EMULATED' if emulation_badges(world) else ''}; "
                      f"{rated} of {count_text(len(judgements), 'rule')} rated",
                subtitle=dotted("fsdpbench accept", f"compared with {clean(result.fabric, 80)}", world.get("date"), machine(world)),
                badges=emulation_badges(world))
    page.verdict = _verdict(judgements)
    page.caveats = [sentence(f"{f['evidence']}; check {f['check']}") for f in result.findings]
    if any(j.verdict != "pass" for j in judgements):
        worst = [j for verdict in ("fail", "inconclusive") for j in judgements if j.verdict == verdict]
        page.first = [_rules("What did not pass", worst, "" if worst else "Nothing failed and nothing is inconclusive; "
                             "unrated figures have nothing to be compared with.")]
    page.pictures = [_pairs(result), _devices(result), _collectives(result, judgements), _scale(result), _late(result),
                     _arms(result), _soak(result)]
    worst = path.parent / "worst_step.json"
    if worst.is_file():
        page.traces = [packed_trace(worst, "worst_step")]
    page.tables = [_rules("Every rule", judgements), _findings(result)]
    page.world = world_rows(world) + _measured_by(result) + [("evidence", f"{path.name}, SHA-256 {sha256(path.read_bytes()).hexdigest()}")]
    return page


def _measured_by(result: Record) -> List[Tuple[str, str]]:
    """What the measurements rest on, beside the world."""
    rows = []
    carried = sorted({clean(text, 80) for text in result.transports if text})
    if carried:
        rows.append(("bytes were carried by", ", ".join(carried)))
    ready = result.inner("rendezvous")["ready_s"]
    if ready:
        rows.append(("ranks were ready after", f"{digits(min(ready))} to {digits(max(ready))} s"))
    pairs = result.inner("pairs")
    if pairs.measurements:
        rows.append(("pairs were measured in", f"{count_text(pairs.rounds or 0, 'round')}, "
                                               f"{count_text(pairs.measurements, 'measurement')}"))
    return rows


def _verdict(judgements: Sequence[Record]) -> List[str]:
    counts = {word: sum(j.verdict == verdict for j in judgements) for verdict, word in _WORDS.items()}
    texts = [f"Of {count_text(len(judgements), 'rule')}, "
             + ", ".join(f"{count} {word}" for word, count in counts.items() if count) + "."]
    worst = [j for j in judgements if j.verdict == "fail"][:4]
    if not worst:
        worst = [j for j in judgements if j.verdict == "inconclusive"][:1]
    return texts + [sentence(f"{j['rule']}, {name_of(j)}: {j['why']}") for j in worst
                    if j.rule != "peers" or j.verdict == "inconclusive"]


def name_of(judgement: Record) -> str:
    """The figure, and the part that it was judged for."""
    return ": ".join(text for text in (judgement["figure"], judgement.part) if text)


_HEADER = ("rule", "figure", "verdict", "median", "95 % interval", "compared with", "unit", "where", "why")
_TEXTS = (2, 6, 7, 8)


def _row(j: Record) -> List[str]:
    value = j.inner("value")
    return [clean(j.rule, 40), clean(name_of(j), 160), j["verdict"], "–" if value.median is None else digits(value.median),
            "–" if None in (value.median, value.ci_low, value.ci_high) else f"{digits(value.ci_low)} – {digits(value.ci_high)}",
            "–" if j.bound is None else digits(j.bound), clean(j.unit, 60), _place(j), clean(j.why, 600)]


def _place(j: Record) -> str:
    """The host, device and NIC that a judgement or a finding is about, and in which direction it is slow."""
    return ", ".join(clean(text, 80) for text in (j.host, j.device, j.uuid, j.nic, j.direction) if text)


def _rules(title: str, judgements: Sequence[Record], note: str = "") -> Table:
    return Table(title, _HEADER, [_row(j) for j in judgements], names=2 if judgements else 1, texts=_TEXTS, note=note)


def _findings(result: Record) -> Table:
    rows = [[clean(f.part, 60), _place(f), f["kind"].replace("_", " "), percent(100 * (f.shortfall or 0)),
             clean(f.evidence, 600), clean(f.check, 300)] for f in result.findings]
    return Table("Who is to blame", ("part", "where", "how", "below its peers", "evidence", "what to check next"), rows,
                 texts=(1, 2, 4, 5),
                 note="" if rows else "Nobody: no part is slower than its peers.")


def _matrix(record: Record, key: str, scale: float = 1.0) -> List[List[float]]:
    """Equally long lists of finite numbers; empty where there are none."""
    rows = record[key]
    if any(len(row) != len(rows[0]) or None in row for row in rows):
        raise ReportError(f"{record.place_of(key)} has rows of several lengths, or without numbers; a matrix is expected")
    return [[value * scale for value in row] for row in rows]


def _pairs(result: Record) -> Picture:
    pairs = result.inner("pairs")
    ends = clean(pairs.ends or "ranks", 10)
    picture = Picture("pairs", f"Pairs of {ends}", "Who sends how fast to whom, alone, one way at a time. A slow "
                      "row or column is an end, a single dark pair a link, a block a switch. A cell and its mirror image are "
                      "the two directions of one pair.")
    rows = _matrix(pairs, "gb_per_s")
    if not any(v > 0 for row in rows for v in row) or len(rows) != len(rows[0]):
        return picture.without(_NOT_MEASURED)
    return picture.drawn(draw_pairs(rows, ends))


def _devices(result: Record) -> Picture:
    picture = Picture("devices", "What each rank can do", "All ranks at once, in rounds. A rank whose rounds are all low is slow; "
                      "one whose rounds are both high and low throttles, or has other work.")
    lines = [RateLine(name, unit, rows) for key, name, unit, scale in (
        ("device_rates_flops_per_s", "matrix products", "TFLOP/s", 1e-12),
        ("memory_rates_bytes_per_s", "memory", "GB/s", 1e-9))
        for rows in [_matrix(result, key, scale)] if rows and rows[0]]
    if not lines:
        return picture.without(_NOT_MEASURED)
    if all(line.name != "memory" for line in lines):
        picture.caption += " The bandwidth of memory was not measured."
    return picture.drawn(draw_rates(lines))


def _rates(timing: Record) -> Optional[Tuple[float, Optional[float], Optional[float]]]:
    """busbw of the median iteration, and of the 95th and the shortest one."""
    busbw, time, each = timing.busbw_gb_per_s, timing.time_us, timing.inner("per_iteration")
    if busbw is None or not time:
        return None
    moved = busbw * time  # GB/s times us: the same for every iteration
    return (moved / each.p50_us if each.p50_us else busbw, moved / each.p95_us if each.p95_us else None,
            moved / each.min_us if each.min_us else None)


def _collectives(result: Record, judgements: Sequence[Record]) -> Picture:
    picture = Picture("collectives", "Bandwidth by size", "Bus bandwidth of the messages that this training sends: the median "
                      "iteration, down to the 95th percentile and up to the shortest. Floor: what the reference leaves at "
                      "this size, less the tolerance; where there is none, nobody says what it should be.")
    floors = {(j.rule, j.figure): j.bound for j in judgements}
    panels: Dict[str, Dict[str, List[Rung]]] = {}
    ceilings: Dict[str, Optional[float]] = {}
    for row in result.collectives:
        op = clean(row.kind, 30).replace("_", "-")
        halves = zip(("out of place", "in place"), (row.inner("out_of_place"), row.inner("in_place")), [*row.figures, "", ""])
        for said, half, name in halves:
            rates = _rates(half)
            if rates is None:
                continue
            if floors.get(("ceiling", name)) is not None:
                ceilings[op] = floors[("ceiling", name)]
            rungs = panels.setdefault(op, {}).setdefault(said, [])
            rungs.append(Rung(row["size"], rates[0], rates[1], rates[2], floors.get(("floor", name))))
    panels = {op: lines for op, lines in panels.items() if any(r.gb_per_s > 0 for rungs in lines.values() for r in rungs)}
    if not panels:
        return picture.without(_NOT_MEASURED)
    return picture.drawn(draw_ladders([Ladder(op, lines, ceilings.get(op)) for op, lines in panels.items()]))


def _scale(result: Record) -> Picture:
    picture = Picture("scale", "From few ranks to all", "Bus bandwidth in groups of so many ranks, all groups at once, with as "
                      "many bytes a rank at every scale. A step down is a link, a switch, or the way between nodes.")
    lines: Dict[str, List[Rung]] = {}
    for row in result.scales:
        rung = Rung(row["group_size"], row["busbw_gb_per_s"], None, None, None)
        lines.setdefault(clean(row.kind, 30).replace("_", "-"), []).append(rung)
    if not lines:
        return picture.without(_NOT_MEASURED)
    return picture.drawn(draw_ladders([Ladder("", lines)], "ranks of a group", of_ranks=True))


def _late(result: Record) -> Picture:
    lateness = result.inner("lateness")
    picture = Picture("late", "Who is late", "How often each rank was the last to come to a reduction. Chance makes everybody "
                      "last in turn; who is last in more than half of the steps, and by much, is who the others wait for.")
    shares = lateness["last_share"][:MOST_RANKS]
    if not shares:
        return picture.without(_NOT_MEASURED)
    waiting, transfer = lateness.inner("waiting_us").median, lateness.inner("transfer_us").median
    if waiting is not None and transfer is not None:
        picture.caption += (f" In the median step the last one comes {milliseconds(waiting / 1000)} after the median rank, and "
                            f"the transfers then take {milliseconds(transfer / 1000)}.")
    return picture.drawn(draw_bars(Bars([f"rank {rank}" for rank in range(len(shares))], [100 * s for s in shares],
                                        "% of steps", [rank for rank, share in enumerate(shares) if share > 0.5])))


_ARMS = (("compute_ms", "computation alone"), ("comm_ms", "communication alone"), ("step_ms", "the step"))


def _arms(result: Record) -> Picture:
    arms = result.inner("arms")
    picture = Picture("arms", "Steps with computation alone, communication alone, and both", "Medians over rounds in which the "
                      "arms took turns. What the step takes longer than its computation alone is exposed communication.")
    if not arms.rounds:
        return picture.without(_NOT_MEASURED)
    values = [(name, median([r[key] for r in arms.rounds])) for key, name in _ARMS]
    return picture.drawn(draw_bars(Bars([name for name, _ in values], [ms for _, ms in values], "ms", [2])))


def _soak(result: Record) -> Picture:
    picture = Picture("soak", "The step, again and again", "Each round of the soak, in order: what rises gets hot, and what "
                      "jumps has other work beside it.")
    times = [r["step_ms"] for r in result.inner("arms").soak]
    if len(times) < 2:
        return picture.without(f"{_NOT_MEASURED}; accept --full does")
    line = StepLine("", times, fields.Summary({"median": median(times), "n": len(times)}))
    return picture.drawn(draw_steps([line], "round of the soak", "rounds"))
