"""Result files as plain dataclasses. Fields that a file does not have are None or empty, never zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Optional

from .schema import Node, ReportError, check_version, read_json
from .text import clean


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of the slowest rank: median over measured steps (of a cell: trials), with the median's interval."""

    median: float
    ci_low: Optional[float]
    ci_high: Optional[float]
    count: Optional[int]
    # What low and high are, where the file says so itself.
    said: str = ""

    def interval_name(self, things: str = "steps") -> str:
        """What low and high are: of fewer than five values the program writes their range."""
        if self.said and self.said not in ("95 % bootstrap", "range", "one value"):
            return clean(self.said, 60)
        if self.said == "95 % bootstrap" or self.count is None or self.count >= 5:
            return "95\N{NO-BREAK SPACE}% interval"
        return f"range of {self.count} {things}" if self.count > 1 else f"a single {things.rstrip('s')}"


@dataclass(frozen=True)
class Breakdown:
    """Milliseconds of one step or phase; compute + exposed + idle make up the whole."""

    compute_ms: Optional[float]
    comm_ms: Optional[float]
    overlap_ms: Optional[float]
    exposed_comm_ms: Optional[float]
    exposed_copy_ms: Optional[float]
    idle_ms: Optional[float]

    def complete(self) -> bool:
        """All four parts of the whole are known."""
        return None not in (self.compute_ms, self.exposed_comm_ms, self.exposed_copy_ms, self.idle_ms)

    def total_ms(self) -> float:
        """Of the parts that are known."""
        return sum(v or 0.0 for v in (self.compute_ms, self.exposed_comm_ms, self.exposed_copy_ms, self.idle_ms))


@dataclass(frozen=True)
class RankTime:
    """Milliseconds of one rank: medians over the measured steps."""

    rank: int
    step_ms: float
    parts: Breakdown


@dataclass(frozen=True)
class Metrics:
    step: Optional[StepTime]
    total: Breakdown
    overlap_pct: Optional[float]
    tokens_per_s: Optional[float]
    step_over_bound: Optional[float]
    phases: Dict[str, Breakdown]
    aa_noise_pct: Optional[float] = None
    ranks: List[RankTime] = field(default_factory=list)


@dataclass(frozen=True)
class Collective:
    """One collective of a step: times in milliseconds, bandwidths in 10^9 bytes a second."""

    name: str
    kind: str
    unit: str
    phase: str
    bytes: Optional[float]
    time_ms: Optional[float]
    transfer_ms: Optional[float]
    wait_ms: Optional[float]
    busbw_gb_per_s: Optional[float]
    link_efficiency: Optional[float]


@dataclass(frozen=True)
class Cause:
    """Why communication was exposed: milliseconds and percent of a step."""

    cause: str
    unit: str
    op: str
    ms: float
    share_pct: Optional[float]
    advice: str
    # Who came last most of the time, of stragglers.
    late_rank: Optional[int] = None
    # What the step would take without it; None: the file does not say.
    without_ms: Optional[float] = None


@dataclass(frozen=True)
class ExposedInterval:
    """Milliseconds since the step began on this rank."""

    rank: int
    step: int
    begin_ms: float
    end_ms: float
    cause: str


@dataclass(frozen=True)
class MemoryTimeline:
    """Live bytes by category over one step."""

    time_ms: List[float]
    categories: Dict[str, List[float]]


@dataclass(frozen=True)
class LiveBlock:
    role: str
    unit: str
    bytes: float


@dataclass(frozen=True)
class MemoryPeak:
    op: str
    time_ms: Optional[float]
    live: List[LiveBlock]


@dataclass(frozen=True)
class Memory:
    """Bytes by category; "total" is the peak of the sum on the rank that needed most. `device`: what the simulated GPU
    has."""

    peak: Dict[str, float]
    estimated: Dict[str, float]
    timeline: Optional[MemoryTimeline]
    peak_at: Optional[MemoryPeak]
    reserved: Optional[float] = None
    device: Optional[float] = None
    caching_allocated: Optional[float] = None  # under PyTorch's allocator, as the next two
    caching_reserved: Optional[float] = None
    fits: bool = True  # as well where nothing says what the device has


@dataclass(frozen=True)
class ChangedKey:
    """A key of the configuration that is not as its preset, or the program, has it."""

    key: str
    value: Any
    default: Any


@dataclass(frozen=True)
class Rating:
    """Whether the times are those of what was asked, in the program's words."""

    rated: bool = True
    not_rated_because: str = ""
    # What to read before any number, the gravest first; says "not rated" too.
    caveats: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Gpu:
    """One rank's GPU over the measured steps; None is what the driver did not tell."""

    rank: int
    unknown: str
    sm_mhz: Optional[float]
    most_mhz: Optional[float]
    power_w: Optional[float]
    power_limit_w: Optional[float]
    temperature_c: Optional[float]
    held_down_by: List[str]


@dataclass(frozen=True)
class Result:
    path: Path
    complete: bool
    config: Dict[str, Any]
    model: str  # what to call it; empty in earlier files
    world: Dict[str, Any]
    metrics: Metrics
    memory: Memory
    collectives: List[Collective]
    causes: List[Cause]
    causes_small_ms: Optional[float]
    exposed: List[ExposedInterval]
    critical_path: Node  # without ranks if the run is not rated
    # The slowest rank's time of each measured step, in milliseconds.
    steps_ms: List[float] = field(default_factory=list)
    # Of the time without computation, what was jitter and of no cause.
    jitter_ms: Optional[float] = None
    # What differs from presets and built-in defaults; None: the file does not say.
    changed: Optional[List[ChangedKey]] = None
    rating: Rating = Rating()
    gpus: List[Gpu] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.path.parent

    def setting(self, key: str) -> Any:
        return setting(self.config, key)

    @property
    def emulated(self) -> List[str]:
        """What was modelled rather than measured."""
        names = {"emulated_compute": "compute", "emulated_link": "links", "virtual_clock": "the clock"}
        return [name for key, name in names.items() if self.world.get(key) is True]


@dataclass(frozen=True)
class Axis:
    key: str
    values: List[Any]


@dataclass(frozen=True)
class Cell:
    id: str
    axes: Dict[str, Any]
    status: str
    reason: str
    metrics: Metrics
    memory: Memory
    causes: List[Cause]
    rating: Rating = Rating()

    @property
    def measured(self) -> bool:
        """It has numbers; whether they are those of what was asked says its rating."""
        return self.status != "failed" and self.metrics.step is not None


@dataclass(frozen=True)
class Sweep:
    path: Path
    title: str
    axes: List[Axis]
    x: str
    series: List[str]
    cells: List[Cell]
    world: Dict[str, Any]
    # Bytes a rank may use, where the sweep says so.
    memory_budget_bytes: Optional[float] = None

    @property
    def folder(self) -> Path:
        return self.path.parent

    def varying(self) -> List[Axis]:
        """The axes with more than one value."""
        return [axis for axis in self.axes if len(axis.values) > 1]


def setting(config: Dict[str, Any], key: str) -> Any:
    """A value of a resolved configuration by its dotted key, or None."""
    value: Any = config
    for part in key.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def load_result(path: Path) -> Result:
    root = read_json(path)
    check_version(root, "result.json")
    root.expect("result.json", "metrics", "config", "failure")
    if root.has("failure"):
        raise ReportError(f"{path}: this run did not finish ({root.child('failure').text('message', 'a rank failed')}) "
                          "and its result holds the step times of one rank only: there is nothing to draw")
    return Result(
        path=path,
        complete=root.flag("complete", True),
        config=root.child("config").value,
        model=root.text("model"),
        world=root.child("world").value,
        metrics=read_metrics(root.child("metrics")),
        memory=read_memory(root.child("memory")),
        collectives=[_collective(n) for n in root.children("collectives")],
        causes=_causes(root),
        causes_small_ms=root.number("causes_small_ms"),
        jitter_ms=root.child("jitter").number("stalled_ms"),
        exposed=[ExposedInterval(int(n.required("rank")), int(n.required("step")), n.required("begin_ms"),
                                 n.required("end_ms"), n.text("cause")) for n in root.children("exposed_intervals")],
        critical_path=root.child("critical_path"),
        steps_ms=root.child("steps").numbers("slowest_rank_ms"),
        changed=([ChangedKey(n.text("key"), n.value.get("value"), n.value.get("default"))
                  for n in root.children("config_changed")] if root.has("config_changed") else None),
        rating=_rating(root),
        gpus=[_gpu(node) for node in root.children("gpus")],
    )


def _gpu(node: Node) -> Gpu:
    steps, limits = node.child("steps"), node.child("limits")
    held = sorted({word for words in _told(steps, "held_down_by", str) for word in words.split(", ") if word})
    clocks, power, heat = (_told(steps, key, float) for key in ("sm_mhz", "power_w", "temperature_c"))
    return Gpu(node.integer("rank") or 0, node.text("unknown_because"), median(clocks) if clocks else None,
               limits.number("sm_mhz"), median(power) if power else None, limits.number("power_w"),
               max(heat) if heat else None, held)


def _told(steps: Node, key: str, kind: type) -> List[Any]:
    """A value a step; those that are null are left out."""
    inner = Node(steps.path, steps.place(key), {str(i): v for i, v in enumerate(steps.items(key))})
    names = [name for name in inner.value if inner.has(name)]
    return [inner.text(name) for name in names] if kind is str else [inner.required(name) for name in names]


def load_sweep(path: Path) -> Sweep:
    root = read_json(path)
    check_version(root, "sweep.json")
    root.expect("sweep.json", "cells")
    axes = [Axis(n.text("key"), n.items("values")) for n in root.children("axes")]
    cells = []
    for node in root.children("cells"):
        identity = node.text("id")
        if not identity:
            raise ReportError(f"{path}: {node.place('id')} is missing; every cell has an id")
        _check_place(node.child("axes"), axes)
        cells.append(Cell(identity, node.child("axes").value, node.text("status", "done"), node.text("reason"),
                          read_metrics(node.child("metrics")), read_memory(node.child("memory")), _causes(node),
                          _rating(node)))
    series = root.value.get("series")
    names = [str(s) for s in series] if isinstance(series, list) else [series] if isinstance(series, str) else []
    return Sweep(path, root.text("title"), axes, root.text("x"), names, cells, root.child("world").value,
                 root.number("memory_budget_bytes"))


def _check_place(of_cell: Node, axes: List[Axis]) -> None:
    """Each cell lies on each axis."""
    for axis in axes:
        if of_cell.value.get(axis.key) not in axis.values:
            raise of_cell.wrong(axis.key, "one of the values of this axis")


@dataclass(frozen=True)
class ComparedTrials:
    """One side of a comparison: its configuration, and what its trials measured, in the order in which they ran."""

    name: str
    config: Dict[str, Any]
    step_ms: Optional[float]
    trials: List[Metrics]
    # Of each trial, its measured steps.
    steps_ms: List[List[float]]
    memory: Memory


@dataclass(frozen=True)
class DifferingKey:
    """A key of two configurations with its values; None: that side does not have it."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Comparison:
    path: Path
    sentence: str
    ratio: Optional[float]
    # Of two random halves of one side's own trials, as a fraction.
    aa_noise: Optional[float]
    a: ComparedTrials
    b: ComparedTrials
    world: Dict[str, Any]
    # The program's list; None: the file does not have one.
    differing: Optional[List[DifferingKey]] = None
    # False: of two stored results, one run each.
    interleaved: bool = True


def load_comparison(path: Path) -> Comparison:
    root = read_json(path)
    check_version(root, "compare.json")
    for side in ("a", "b"):
        root.expect("compare.json", side)
    differing = [DifferingKey(n.text("key"), n.value.get("a"), n.value.get("b"))
                 for n in root.children("differing_keys")] if root.has("differing_keys") else None
    return Comparison(path, root.text("sentence"), root.number("ratio"), root.number("aa_noise"),
                      _side(root.child("a")), _side(root.child("b")), root.child("world").value, differing,
                      root.flag("interleaved", True))


def _side(node: Node) -> ComparedTrials:
    trials = node.children("trials")
    return ComparedTrials(node.text("name"), node.child("config").value, node.number("step_ms"),
                          [read_metrics(n.child("metrics")) for n in trials], [n.numbers("steps_ms") for n in trials],
                          read_memory(node.child("memory")))


def _rating(node: Node) -> Rating:
    why, caveats = node.text("not_rated_because"), node.texts("caveats")
    rated = node.flag("rated", True)
    if not rated and not any(c.startswith("not rated") for c in caveats):
        caveats.insert(0, f"not rated: {why}" if why else "not rated")
    return Rating(rated, why, caveats)


def read_metrics(node: Node) -> Metrics:
    step = None
    if node.has("step_ms"):
        inner = node.child("step_ms")
        step = StepTime(inner.required("median"), inner.number("ci_low"), inner.number("ci_high"), inner.integer("n"),
                        inner.text("interval"))
    phases = node.child("phases")
    return Metrics(step, _breakdown(node), node.number("overlap_pct"), node.number("tokens_per_s"),
                   node.number("step_over_bound"), {name: _breakdown(phases.child(name)) for name in phases.value},
                   node.number("aa_noise_pct"), _ranks(node))


def _ranks(node: Node) -> List[RankTime]:
    times = []
    for rank, inner in enumerate(node.children("ranks")):
        number = inner.integer("rank")
        times.append(RankTime(rank if number is None else number, inner.child("step_ms").required("median"),
                              _breakdown(inner)))
    return times


def read_memory(node: Node) -> Memory:
    timeline = peak = None
    if node.has("timeline"):
        inner = node.child("timeline")
        time = inner.numbers("time_ms")
        categories = {key: inner.numbers(key) for key, v in inner.value.items() if isinstance(v, list) and key != "time_ms"}
        for key, values in categories.items():
            if len(values) != len(time):
                raise ReportError(f"{node.path}: {inner.place(key)} has {len(values)} values and time_ms {len(time)}; "
                                  "they belong together")
        timeline = MemoryTimeline(time, categories) if time else None
    if node.has("peak_at"):
        inner = node.child("peak_at")
        live = [LiveBlock(n.text("role"), n.text("unit"), n.required("bytes")) for n in inner.children("live")]
        peak = MemoryPeak(inner.text("op"), inner.number("time_ms"), live)
    caching = node.child("caching_allocator")
    return Memory(node.child("peak_bytes").number_map(), node.child("estimated_peak_bytes").number_map(), timeline,
                  peak, node.number("reserved_bytes"), node.number("device_bytes"),
                  caching.number("peak_allocated_bytes"), caching.number("peak_reserved_bytes"),
                  node.flag("fits", True))


def _causes(node: Node) -> List[Cause]:
    return [Cause(n.text("cause"), n.text("unit"), n.text("op"), n.required("ms"), n.number("share_pct"),
                  n.text("advice"), n.integer("late_rank"), n.child("without").number("step_ms"))
            for n in node.children("causes")]


def _breakdown(node: Node) -> Breakdown:
    return Breakdown(*(node.number(key) for key in ("compute_ms", "comm_ms", "overlap_ms", "exposed_comm_ms",
                                                    "exposed_copy_ms", "idle_ms")))


def _collective(node: Node) -> Collective:
    return Collective(node.text("name"), node.text("kind"), node.text("unit"), node.text("phase"),
                      node.number("bytes"), node.number("time_ms"), node.number("transfer_ms"),
                      node.number("wait_ms"), node.number("busbw_gb_per_s"), node.number("link_efficiency"))
