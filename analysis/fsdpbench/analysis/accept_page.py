"""The page of an acceptance: the verdict, who is to blame, and the measurements that say so."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Dict, List, Optional, Tuple

from .attachments import packed_trace
from .figures.acceptance import MOST_RANKS, Bars, Ladder, RateLine, Rung, draw_bars, draw_ladders, draw_pairs, draw_rates
from .figures.steps import StepLine, draw_steps
from .load import StepTime
from .page import Page, Picture, Table
from .schema import Node, check_version, read_json
from .text import clean, count_text, digits, milliseconds, percent, sentence
from .world import emulation_badges, machine, world_rows

_WORDS = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive", "unrated": "unrated"}
_NOT_MEASURED = "not measured"


def accept_page(path: Path) -> Page:
    """Of a result.json whose kind is acceptance. Raises ReportError."""
    result = read_json(path)
    check_version(result, "result.json")
    result.expect("acceptance", "judgements")
    world = result.child("world").value
    judgements = result.children("judgements")
    rated = sum(j.text("verdict") != "unrated" for j in judgements)
    page = Page(title=f"{result.text('verdict').upper()}: {count_text(result.integer('ranks') or 0, 'rank')} on "
                      f"{count_text(result.integer('nodes') or 0, 'node')}{', EMULATED' if emulation_badges(world) else ''}; "
                      f"{rated} of {count_text(len(judgements), 'rule')} rated",
                subtitle="  ·  ".join(str(p) for p in ("fsdpbench accept", f"compared with {clean(result.text('fabric'), 80)}",
                                                       world.get("date"), machine(world)) if p),
                badges=emulation_badges(world))
    page.verdict = _verdict(judgements)
    page.caveats = [sentence(f"{f.text('evidence')}; check {f.text('check')}") for f in result.children("findings")]
    page.first = [_failed(judgements)] if any(j.text("verdict") != "pass" for j in judgements) else []
    page.pictures = [_pairs(result), _devices(result), _collectives(result, judgements), _scale(result), _late(result),
                     _arms(result), _soak(result)]
    worst = path.parent / "worst_step.json"
    if worst.is_file():
        page.traces = [packed_trace(worst, "worst_step")]
    page.tables = [_all(judgements), _findings(result)]
    page.world = world_rows(world) + _measured_by(result) + [("evidence", f"{path.name}, SHA-256 {sha256(path.read_bytes()).hexdigest()}")]
    return page


def _measured_by(result: Node) -> List[Tuple[str, str]]:
    """What the measurements rest on, beside the world."""
    rows = []
    carried = sorted({clean(text, 80) for text in result.texts("transports") if text})
    if carried:
        rows.append(("bytes were carried by", ", ".join(carried)))
    ready = result.child("rendezvous").numbers("ready_s")
    if ready:
        rows.append(("ranks were ready after", f"{digits(min(ready))} to {digits(max(ready))} s"))
    pairs = result.child("pairs")
    if pairs.integer("measurements"):
        rows.append(("pairs were measured in", f"{count_text(pairs.integer('rounds') or 0, 'round')}, "
                                               f"{count_text(pairs.integer('measurements') or 0, 'measurement')}"))
    return rows


def _verdict(judgements: List[Node]) -> List[str]:
    counts = {word: sum(j.text("verdict") == verdict for j in judgements) for verdict, word in _WORDS.items()}
    texts = [f"Of {count_text(len(judgements), 'rule')}, "
             + ", ".join(f"{count} {word}" for word, count in counts.items() if count) + "."]
    worst = [j for j in judgements if j.text("verdict") == "fail"][:4]
    texts += [sentence(f"{j.text('rule')}, {j.text('figure')}: {j.text('why')}") for j in worst if j.text("rule") != "peers"]
    if not worst and counts["inconclusive"]:
        first = next(j for j in judgements if j.text("verdict") == "inconclusive")
        texts.append(sentence(f"{first.text('rule')}, {first.text('figure')}: {first.text('why')}"))
    return texts


def _failed(judgements: List[Node]) -> Table:
    rows = [_row(j) for verdict in ("fail", "inconclusive") for j in judgements if j.text("verdict") == verdict]
    if not rows:
        return Table("What did not pass", _HEADER, [], texts=_TEXTS,
                     note="Nothing failed and nothing is inconclusive; unrated figures have nothing to be compared with.")
    return Table("What did not pass", _HEADER, rows, names=2, texts=_TEXTS)


_HEADER = ("rule", "figure", "verdict", "median", "95 % interval", "compared with", "unit", "where", "why")
_TEXTS = (2, 6, 7, 8)


def _row(j: Node) -> List[str]:
    value, bound = j.child("value"), j.number("bound")
    middle, low, high = value.number("median"), value.number("ci_low"), value.number("ci_high")
    has = middle is not None
    return [clean(j.text("rule"), 40), clean(j.text("figure"), 80), j.text("verdict"), digits(middle) if has else "–",
            f"{digits(low)} – {digits(high)}" if has and low is not None and high is not None else "–",
            digits(bound) if bound is not None else "–", clean(j.text("unit"), 60), _place(j), clean(j.text("why"), 600)]


def _place(j: Node) -> str:
    """The host, device and NIC that a judgement or a finding is about, and in which direction it is slow."""
    return ", ".join(clean(j.text(key), 80) for key in ("host", "device", "uuid", "nic", "direction") if j.text(key))


def _all(judgements: List[Node]) -> Table:
    return Table("Every rule", _HEADER, [_row(j) for j in judgements], names=2, texts=_TEXTS)


def _findings(result: Node) -> Table:
    rows = [[clean(f.text("part"), 60), _place(f), f.text("kind").replace("_", " "), percent(100 * (f.number("shortfall") or 0)),
             clean(f.text("evidence"), 600), clean(f.text("check"), 300)] for f in result.children("findings")]
    return Table("Who is to blame", ("part", "where", "how", "below its peers", "evidence", "what to check next"), rows,
                 texts=(1, 2, 4, 5),
                 note="" if rows else "Nobody: no part is slower than its peers.")


def _pairs(result: Node) -> Picture:
    pairs = result.child("pairs")
    ends = clean(pairs.text("ends", "ranks"), 10)
    picture = Picture("pairs", f"Pairs of {ends}", "Who sends how fast to whom, alone, one way at a time. A slow "
                      "row or column is an end, a single dark pair a link, a block a switch. A cell and its mirror image are "
                      "the two directions of one pair.")
    rows = pairs.rows("gb_per_s")
    if not any(v > 0 for row in rows for v in row) or len(rows) != len(rows[0]):
        picture.reason = _NOT_MEASURED
        return picture
    picture.figure = draw_pairs(rows, ends)
    return picture


def _rate_line(node: Node, key: str, name: str, unit: str, scale: float) -> Optional[RateLine]:
    rounds = [[value * scale for value in row] for row in node.rows(key)]
    return RateLine(name, unit, rounds) if rounds and rounds[0] else None


def _devices(result: Node) -> Picture:
    picture = Picture("devices", "What each rank can do", "All ranks at once, in rounds. A rank whose rounds are all low is slow; "
                      "one whose rounds are both high and low throttles, or has other work.")
    lines = [_rate_line(result, "device_rates_flops_per_s", "matrix products", "TFLOP/s", 1e-12),
             _rate_line(result, "memory_rates_bytes_per_s", "memory", "GB/s", 1e-9)]
    rates = result.child("node_rates")
    beside = [_rate_line(rates, "host_copy_bytes_per_s", "memory of the host", "GB/s", 1e-9),
              _rate_line(rates, "host_to_device_bytes_per_s", "copies from the host", "GB/s", 1e-9),
              _rate_line(rates, "device_to_host_bytes_per_s", "copies to the host", "GB/s", 1e-9)]
    found = [line for line in lines + beside if line is not None]
    if not found:
        picture.reason = _NOT_MEASURED
        return picture
    if lines[1] is None:
        picture.caption += " The bandwidth of memory was not measured."
    picture.figure = draw_rates(found)
    return picture


def _rates(row: Node, half: str) -> Optional[Tuple[float, Optional[float], Optional[float]]]:
    """busbw of the median iteration, and of the 95th and the shortest one."""
    timing = row.child(half)
    busbw, time = timing.number("busbw_gb_per_s"), timing.number("time_us")
    each = timing.child("per_iteration")
    if busbw is None or not time:
        return None
    moved = busbw * time  # GB/s times us: the same for every iteration
    middle, late, soon = (each.number(key) for key in ("p50_us", "p95_us", "min_us"))
    return (moved / middle if middle else busbw, moved / late if late else None, moved / soon if soon else None)


def _collectives(result: Node, judgements: List[Node]) -> Picture:
    picture = Picture("collectives", "Bandwidth by size", "Bus bandwidth of the messages that this training sends: the median "
                      "iteration, down to the 95th percentile and up to the shortest. Floor: what the reference leaves at "
                      "this size, less the tolerance; where there is none, nobody says what it should be.")
    floors = {(j.text("rule"), j.text("figure")): j.number("bound") for j in judgements}
    panels: Dict[str, Dict[str, List[Rung]]] = {}
    ceilings: Dict[str, Optional[float]] = {}
    for row in result.children("collectives"):
        op, names = clean(row.text("kind"), 30).replace("_", "-"), row.texts("figures")
        for i, (half, said) in enumerate((("out_of_place", "out of place"), ("in_place", "in place"))):
            rates = _rates(row, half)
            if rates is None:
                continue
            name = names[i] if i < len(names) else ""
            if floors.get(("ceiling", name)) is not None:
                ceilings[op] = floors[("ceiling", name)]
            rungs = panels.setdefault(op, {}).setdefault(said, [])
            rungs.append(Rung(row.required("size"), rates[0], rates[1], rates[2], floors.get(("floor", name))))
    panels = {op: lines for op, lines in panels.items() if any(r.gb_per_s > 0 for rungs in lines.values() for r in rungs)}
    if not panels:
        picture.reason = _NOT_MEASURED
        return picture
    picture.figure = draw_ladders([Ladder(op, [(name, sorted(rungs, key=lambda r: r.bytes)) for name, rungs in lines.items()],
                                          ceilings.get(op)) for op, lines in panels.items()])
    return picture


def _scale(result: Node) -> Picture:
    picture = Picture("scale", "From few ranks to all", "Bus bandwidth in groups of so many ranks, all groups at once, with as "
                      "many bytes a rank at every scale. A step down is a link, a switch, or the way between nodes.")
    lines: Dict[str, List[Rung]] = {}
    for row in result.children("scales"):
        rung = Rung(row.required("group_size"), row.required("busbw_gb_per_s"), None, None, None)
        lines.setdefault(clean(row.text("kind"), 30).replace("_", "-"), []).append(rung)
    if not lines:
        picture.reason = _NOT_MEASURED
        return picture
    picture.figure = draw_ladders([Ladder("", [(name, sorted(rungs, key=lambda r: r.bytes)) for name, rungs in lines.items()])],
                                  "ranks of a group", of_ranks=True)
    return picture


def _late(result: Node) -> Picture:
    lateness = result.child("lateness")
    picture = Picture("late", "Who is late", "How often each rank was the last to come to a reduction. Chance makes everybody "
                      "last in turn; who is last in more than half of the steps, and by much, is who the others wait for.")
    shares = lateness.numbers("last_share")[:MOST_RANKS]
    if not shares:
        picture.reason = _NOT_MEASURED
        return picture
    waiting, transfer = lateness.child("waiting_us").number("median"), lateness.child("transfer_us").number("median")
    if waiting is not None and transfer is not None:
        picture.caption += (f" In the median step the last one comes {milliseconds(waiting / 1000)} after the median rank, and "
                            f"the transfers then take {milliseconds(transfer / 1000)}.")
    picture.figure = draw_bars(Bars([f"rank {rank}" for rank in range(len(shares))], [100 * s for s in shares], "% of steps",
                                    [rank for rank, share in enumerate(shares) if share > 0.5]))
    return picture


_ARMS = (("compute_ms", "computation alone"), ("comm_ms", "communication alone"), ("step_ms", "the step"))


def _arms(result: Node) -> Picture:
    arms = result.child("arms")
    picture = Picture("arms", "Steps with computation alone, communication alone, and both", "Medians over rounds in which the "
                      "arms took turns. What the step takes longer than its computation alone is exposed communication.")
    rounds = arms.children("rounds")
    if not rounds:
        picture.reason = _NOT_MEASURED
        return picture
    values = [(name, median([r.required(key) for r in rounds])) for key, name in _ARMS]
    predicted = arms.number("predicted_ms")
    if predicted is not None:
        values.append(("as links and computation predict it", predicted))
        picture.caption += " The prediction is the computed clock's, from the measured links and computation."
    picture.figure = draw_bars(Bars([name for name, _ in values], [ms for _, ms in values], "ms", [2]))
    return picture


def _soak(result: Node) -> Picture:
    picture = Picture("soak", "The step, again and again", "Each round of the soak, in order: what rises gets hot, and what "
                      "jumps has other work beside it.")
    times = [r.required("step_ms") for r in result.child("arms").children("soak")]
    if len(times) < 2:
        picture.reason = f"{_NOT_MEASURED}; accept --full does"
        return picture
    picture.figure = draw_steps([StepLine("", times, StepTime(median(times), None, None, len(times)))], "round of the soak",
                                "rounds")
    return picture
