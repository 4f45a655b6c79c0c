"""What pages of runs, pairs and jobs say alike: tables of numbers, settings, GPUs and the critical path; the verdict in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..fields import Record
from .page import Table
from .style import BREAKDOWN
from .text import clean, milliseconds, percent, size, value_text

_MOST_RANKS = 20
_MOST_GPUS = 64

# How the parts of a step belong together; the page of a sweep says the same.
PARTS = ("Compute, exposed communication, exposed copies and idle time add up to the step time: they are means over all "
         "ranks in the middle third of the steps, scaled to the median step (docs/run.md). Communication and overlap are "
         "counted beside them.")
PARTS_APART = ("Compute, exposed communication, exposed copies and idle time are medians of their own in this file, so "
               "their sum is not exactly the step time.")


@dataclass(frozen=True)
class Number:
    name: str
    value: float
    show: Callable[[float], str]
    meaning: str


def complete(parts: Record) -> bool:
    """All four parts of the whole are known."""
    return all(getattr(parts, key) is not None for key, _, _ in BREAKDOWN)


def total_ms(parts: Record) -> float:
    """Of the parts that are known."""
    return sum(getattr(parts, key) or 0.0 for key, _, _ in BREAKDOWN)


def median_of(metrics: Record) -> Optional[float]:
    """The step time; None: none was measured."""
    return metrics.step_ms["median"] if metrics.step_ms else None


def parts_note(metrics: Sequence[Record]) -> str:
    """Whether the parts add up to the step, as the files have them."""
    apart = any(m.step_ms and complete(m) and abs(total_ms(m) - m.step_ms["median"]) > 0.002 * m.step_ms["median"]
                for m in metrics)
    return PARTS_APART if apart else PARTS


def numbers_of(metrics: Record, memory: Record, things: str = "steps", interval: str = "") -> List[Number]:
    """Those that the file has, in the order of the table; interval: of the step, instead of that of the values."""
    count = metrics.inner("step_ms").n
    interval = interval or interval_text(metrics, things)
    entries: List[Tuple[str, Optional[float], Callable[[float], str], str]] = [
        ("step time", median_of(metrics), milliseconds, f"median of {count or 'the'} {things}, slowest rank"
         + (f"; {interval}" if interval else "")),
        ("compute", metrics.compute_ms, milliseconds, "at least one kernel ran"),
        ("exposed communication", metrics.exposed_comm_ms, milliseconds, "compute waited for it"),
        ("exposed copies", metrics.exposed_copy_ms, milliseconds, "compute waited for them"),
        ("idle", metrics.idle_ms, milliseconds, "compute waited for anything else"),
        ("communication", metrics.comm_ms, milliseconds, "at least one collective ran"),
        ("overlap", metrics.overlap_pct, lambda v: f"{v:.1f} %", "of communication hidden behind computation"),
        ("throughput", metrics.tokens_per_s, lambda v: f"{v:.0f} tokens/s", "all ranks together"),
        ("step ÷ bound", metrics.step_over_bound, lambda v: f"{v:.3f}",
         "bound: the schedule with the measured op times"),
        ("A/A noise", metrics.aa_noise_pct, percent,
         f"what two halves of this run's own {things} differ by: smaller differences show nothing"),
    ]
    rows = [Number(name, value, show, meaning) for name, value, show, meaning in entries if value is not None]
    caching = memory.inner("caching_allocator")
    if caching.peak_reserved_bytes is not None:
        return rows + [Number("peak memory", caching.peak_reserved_bytes, size, "reserved by PyTorch's allocator"),
                       Number("allocated", caching.peak_allocated_bytes, size, "at most, of that")]
    peaks = memory.inner("peak_bytes")
    for name in sorted(peaks.fields(), key=lambda name: (name != "total", name)):
        if getattr(peaks, name) is not None:
            rows.append(Number("peak memory" if name == "total" else name.replace("_", " "), getattr(peaks, name), size,
                               "the rank that needed most" if name == "total" else "its own peak"))
    return rows


def interval_name(step: Record, things: str = "steps") -> str:
    """What low and high are: of fewer than five values the program writes their range."""
    if step.interval and step.interval not in ("95 % bootstrap", "range", "one value"):
        return clean(step.interval, 60)
    if step.interval == "95 % bootstrap" or step.n is None or step.n >= 5:
        return "95\N{NO-BREAK SPACE}% interval"
    return f"range of {step.n} {things}" if step.n > 1 else f"a single {things.rstrip('s')}"


def is_range(step: Record) -> bool:
    """Low and high are the least and the most of a few values, and no interval."""
    return step.interval == "range" or (step.interval is None and step.n is not None and step.n < 5)


def interval_text(metrics: Record, things: str = "steps") -> str:
    """'95 % interval 81.2 to 83.1 ms'; empty where there is none, or all values are alike, as those of a simulation."""
    step = metrics.inner("step_ms")
    if step.ci_low is None or step.ci_high is None or (step.n != 1 and step.ci_low == step.ci_high):
        return ""
    return f"{interval_name(step, things)} {_bounds(step.ci_low, step.ci_high)}"


def prediction_text(prediction: Record) -> str:
    """How far a real step may be from the simulated one; empty where nobody knows."""
    step = prediction.inner("step_ms")
    return "" if step.low is None else f"95\N{NO-BREAK SPACE}% interval of a real step {_bounds(step.low, step.high)}"


def _bounds(low: float, high: float) -> str:
    """Four digits: intervals of quiet runs are narrow."""
    return " to ".join(f"{v:.4g}" if v < 1000 else f"{v:.0f}" for v in (low, high)) + "\N{NO-BREAK SPACE}ms"


def numbers_table(metrics: Record, memory: Record, interval: str) -> Table:
    rows = [(n.name, n.show(n.value), n.meaning) for n in numbers_of(metrics, memory, interval=interval)]
    return Table("Numbers", ("", "value", "meaning"), rows, texts=(2,), note=parts_note([metrics]))


def paired_table(a: Sequence[Number], b: Sequence[Number], note: str) -> Table:
    """A and B beside each other, with B ÷ A; a number that one does not have is a dash."""
    names = [n.name for n in a] + [n.name for n in b if n.name not in {m.name for m in a}]
    left, right = {n.name: n for n in a}, {n.name: n for n in b}
    rows = []
    for name in names:
        mine, other = left.get(name), right.get(name)
        comparable = mine and other and mine.value > 0 and name != "A/A noise"
        ratio = f"{other.value / mine.value:.3f}" if comparable else "–"
        rows.append((name, mine.show(mine.value) if mine else "–", other.show(other.value) if other else "–", ratio,
                     (mine or other).meaning.partition(";")[0]))
    return Table("Numbers", ("", "A", "B", "B ÷ A", "meaning"), rows, texts=(4,), note=note)


def flat(config: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    """By dotted key."""
    keys: Dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            keys.update(flat(value, f"{prefix}{key}."))
        else:
            keys[prefix + str(key)] = value
    return keys


def differing_keys(a: Dict[str, Any], b: Dict[str, Any]) -> List[Tuple[str, Any, Any]]:
    """Of two complete configurations, in which no key is null; None: that side does not have it."""
    left, right = flat(a), flat(b)
    return [(key, left.get(key), right.get(key)) for key in sorted(left.keys() | right.keys())
            if left.get(key) != right.get(key)]


def differing_table(keys: Sequence[Tuple[str, Any, Any]]) -> Table:
    """The keys on which two configurations differ, with both values."""
    rows = [(clean(key, 60), *("–" if value is None else _plain(value) for value in values)) for key, *values in keys]
    note = "" if rows else "Both sides have the same configuration: what differs below is the machine, or chance."
    return Table("What differs", ("key", "A", "B"), rows, texts=(1, 2), note=note)


def changed_table(changed: Sequence[Dict[str, Any]], presets: str) -> Table:
    """presets: their names in words."""
    rows = [(clean(str(c.get("key", "")), 60), _plain(c.get("value")), _plain(c.get("default"))) for c in changed]
    return Table("Configuration", ("key", "value", "otherwise"), rows, texts=(1, 2),
                 note=f"{'What is not' if rows else 'Everything is'} as the presets have it ({presets}), or where they "
                      "say nothing, the program.")


def _plain(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return clean(json.dumps(value), 60)
    return '""' if value == "" else value_text(value, 60)


def path_table(path: Record) -> Table:
    """Of a "critical_path"; without rows if nothing was rated."""
    kinds = [kind for kind in ("kernels", "collectives", "copies", "host", "waits", "unknown")
             if any(kind in one.kinds_ms for one in path.ranks)]
    rows = [[f"{one['rank']}", milliseconds(one["ms"]), percent(one["share_pct"]),
             *(milliseconds(one.kinds_ms[kind]) if kind in one.kinds_ms else "" for kind in kinds)] for one in path.ranks]
    return Table("Critical path", ["rank", "a step", "of the step", *kinds], rows[:_MOST_RANKS],
                 note="The chain that decided how long a step was, across ranks: it goes to the rank that arrives last at "
                      "a collective. It is exactly the step.")


def gpu_table(gpus: Sequence[Record]) -> Optional[Table]:
    """None if there are no GPUs."""
    if not gpus:
        return None

    def clock(gpu: Record) -> Optional[float]:
        clocks = _told(gpu, "sm_mhz", "number")
        return median(clocks) if clocks else None

    def of(value: Optional[float], most: Optional[float]) -> str:
        if value is None:
            return "–"
        return f"{value:.0f}" if most is None else f"{value:.0f} of {most:.0f}"
    rows = []
    shown = sorted(gpus, key=lambda g: (clock(g) is None, clock(g) or 0))[:_MOST_GPUS]
    for gpu in sorted(shown, key=lambda g: g["rank"]):
        limits, power, heat = gpu.inner("limits"), _told(gpu, "power_w", "number"), _told(gpu, "temperature_c", "number")
        held = sorted({word for words in _told(gpu, "held_down_by", "text") for word in words.split(", ") if word})
        rows.append((str(gpu.rank), of(clock(gpu), limits.sm_mhz), of(median(power) if power else None, limits.power_w),
                     of(max(heat) if heat else None, None), clean(gpu.unknown_because, 300)
                     or ", ".join(clean(word, 60) for word in held) or "nothing"))
    note = "Medians over the measured steps, the highest temperature, and what held clocks down in any of them."
    if len(gpus) > len(shown):
        note += f" The {len(shown)} of {len(gpus)} with the slowest clocks."
    return Table("GPUs", ("rank", "SM clock, MHz", "power, W", "temperature, C", "clocks held down by"), rows, texts=(4,), note=note)


def _told(gpu: Record, key: str, kind: str) -> List[Any]:
    """A value a step; those that are null are left out."""
    return [value for value in gpu.inner("steps").typed(key, f"list of {kind}") if value is not None]


def made_of(step_ms: Optional[float], parts: Record) -> Optional[str]:
    """'Of a step of 89 ms, 61 % is computation, 34 % …'."""
    if step_ms is None or step_ms <= 0 or not complete(parts):
        return None
    def share(ms: float) -> str:
        return percent(100 * ms / step_ms)
    return (f"A step takes {milliseconds(step_ms)}: {share(parts.compute_ms)} of it computation, "
            f"{share(parts.exposed_comm_ms)} exposed communication, {share(parts.exposed_copy_ms)} exposed copies, "
            f"{share(parts.idle_ms)} idle.")


def hidden(overlap_pct: Optional[float], comm_ms: Optional[float]) -> Optional[str]:
    if overlap_pct is None or comm_ms is None:
        return None
    return f"{percent(overlap_pct)} of the {milliseconds(comm_ms)} of communication is hidden behind computation."


def would_help(causes: Sequence[Record], count: int = 2) -> List[str]:
    """The advice of the largest causes, in the words of the file; what has no known cause has no remedy."""
    ranked = [c for c in sorted(causes, key=lambda c: -c["ms"]) if c.advice][:count]
    words = iter(("What would help most: ", *("Then: " for _ in ranked)))
    return [("Not explained: " if cause.cause == "unknown" else next(words)) + cause.advice for cause in ranked]
