"""The objects of fsdpbench's result files, as classes: what each field is, its unit and what it means.

Generated from the program's own tables; docs/result-format.md is the same for reading, and a test compares both.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Type

from .record import Record, Records, field

# By kind of file the version that the program writes, and the object that it holds.
FILES: Dict[str, Tuple[int, str]] = {
    "run": (3, "Run"),
    "trial": (4, "TrialLine"),
    "acceptance": (3, "Acceptance"),
    "sweep": (3, "Sweep"),
    "collectives": (3, "Collectives"),
    "trace_diff": (1, "TraceDiff"),
    "explain_plan": (1, "Explanation"),
    "doctor": (1, "Machine"),
    "compare": (1, "Comparison"),
    "explain": (3, "TraceExplanation"),
    "gate": (2, "Gate"),
}


class Run(Record):
    """result.json of `run` and `simulate`: every number, and the world it was measured in."""

    config: Any = field("any", "", "", "every key with its resolved value")
    model: str = field("text", "", "", "what to call the model: the name of its preset, or what it is where the profile has sizes of its own")
    config_changed: Any = field("any", "", "", "keys whose value differs from the preset's, or from the program's default where no preset sets them: `key`, `value`, `default`")
    world: World = field("object", "World", "", "what it was measured with")
    train: Train = field("object", "Train", "", "the training")
    others_share: Optional[float] = field("number", "", "", "share of the busiest host's processors that other programs took meanwhile, as a fraction; not of simulations")
    metrics: Optional[Metrics] = field("object", "Metrics", "", "What a step takes, and what it is made of: compute + exposed communication + exposed copies + idle = `step_ms.median`. The parts are means over all ranks ([run.md](run.md#what-a-step-is-made-of)).")
    memory: Memory = field("object", "Memory", "", "Device memory of the rank that needed most.")
    host_memory: Optional[HostMemory] = field("object", "HostMemory", "", "Pinned host memory of the rank that needed most ([offload.md](offload.md)).")
    comm: Optional[Comm] = field("object", "Comm", "", "What a rank sent in a step.")
    caveats: List[str] = field("list of text", "", "", "sentences to read before any number, the most serious first; the printed table begins with them")
    stalled_ms: Optional[float] = field("number", "", "ms", "exposed communication + exposed copies + idle")
    rated: Optional[bool] = field("true or false", "", "", "whether the numbers describe what was asked for: false if the machine could not keep up with what it emulates")
    not_rated_because: Optional[str] = field("text", "", "", "why the run is not rated; there are no causes then")
    causes: Records[Cause] = field("list of object", "Cause", "", "why computation was not running, the largest cause first. Together with `jitter.stalled_ms` they add up to the time without computation. Causes under 2 % of the step are only in `causes_small_ms`, unless removing them would gain that much")
    causes_small_ms: Optional[float] = field("number", "", "ms", "all causes that are not listed, together")
    typical_ms: Optional[float] = field("number", "", "ms", "the typical step ([explain.md](explain.md)), of its slowest rank; where there is none, the median step")
    no_typical_step_because: Optional[str] = field("text", "", "", "why there is no typical step: what the recorded ranks lack, a sentence")
    jitter: Optional[Jitter] = field("object", "Jitter", "", "what the median step took beyond the typical one; absent without a typical step")
    late_ranks: Records[LateRank] = field("list of object", "LateRank", "", "ranks that are certain to take longer than the others ([explain.md](explain.md))")
    knobs: Records[Knob] = field("list of object", "Knob", "", "keys whose change would gain more than the noise, the largest gain first")
    complete: bool = field("true or false", "", "", "whether all steps were done")
    diverged_because: Optional[str] = field("text", "", "", "why training diverged: a loss or a final parameter is NaN or infinite; the exit code is 8")
    checkpoints: Records[Checkpoint] = field("list of object", "Checkpoint", "", "checkpoints that were saved")
    collectives: Records[Collective] = field("list of object", "Collective", "", "each collective of the schedule")
    exposed_intervals: Records[CauseInterval] = field("list of object", "CauseInterval", "", "when each cause held computation up, in one step of median length")
    critical_path: Optional[CriticalPath] = field("object", "CriticalPath", "", "the chain of work that decided how long steps were; absent where `causes` is")
    simulation: Optional[JitterSpread] = field("object", "JitterSpread", "", "how steps scatter; only in simulations with jitter")
    prediction: Optional[Prediction] = field("object", "Prediction", "", "how sure the step time is; only in simulations")
    steps: Optional[Steps] = field("object", "Steps", "", "Every measured step.")
    gpus: Records[Gpu] = field("list of object", "Gpu", "", "how each GPU fared; only of ranks on GPUs")


class World(Record):
    """What a result was measured with."""

    version: str = field("text", "", "", "version of this program")
    git_revision: str = field("text", "", "", "revision that the program was built from")
    git_dirty: bool = field("true or false", "", "", "whether files differed from that revision")
    build_type: str = field("text", "", "", "CMake's build type")
    compiler: str = field("text", "", "", "compiler that built the program")
    sanitize: Optional[str] = field("text", "", "", "sanitizers that the program was built with")
    command_line: List[str] = field("list of text", "", "", "the command line as it was given")
    date: str = field("text", "", "", "ISO 8601, local time with offset; empty for simulations")
    backend: str = field("text", "", "", "`device.backend`: `cpu`, `cuda`, or `virtual` for simulations")
    launch: Launch = field("object", "Launch", "", "Who started the ranks.")
    cpu: str = field("text", "", "", "name of the processor")
    threads: int = field("whole number", "", "", "hardware threads that the program may use")
    memory_bytes: int = field("whole number", "", "B", "memory of the machine")
    kernel: str = field("text", "", "", "version of the operating system's kernel")
    realtime: str = field("text", "", "", "scheduling class of the threads that wait for a point in time")
    libraries: Dict[str, str] = field("map of text", "", "", "versions of libraries, by name")
    emulated_link: bool = field("true or false", "", "", "whether links were emulated")
    emulated_compute: bool = field("true or false", "", "", "whether computation was emulated")
    simulated: bool = field("true or false", "", "", "whether times are those of a computed clock")
    devices: List[Dict[str, Any]] = field("list of map of any", "", "", "for each rank `rank`, `host`, and what its device reports about itself; absent for simulations")
    clock: Any = field("any", "", "", "for each rank, how well its host's clock is known; absent if ranks are threads ([launch.md](launch.md))")
    topology: Any = field("any", "", "", "what GPUs and network cards of rank 0's host share; only on GPUs ([doctor.md](doctor.md))")


class Launch(Record):
    """Who started the ranks."""

    ranks: int = field("whole number", "", "", "number of ranks")
    source: str = field("text", "", "", "who started them")
    transport: Optional[str] = field("text", "", "", "how the ranks' processes communicate; absent if ranks are threads")


class Train(Record):
    """The training."""

    warmup: int = field("whole number", "", "", "steps before the measured ones")
    parameters: int = field("whole number", "", "", "number of parameters of the model")
    steps_done: int = field("whole number", "", "", "steps done, warm-up included")
    began_after_step: Optional[int] = field("whole number", "", "", "optimizer steps done before this run; only if a training was resumed ([checkpoint.md](checkpoint.md))")
    loss: List[float] = field("list of number", "", "", "loss of each step, warm-up included; null where it is not finite; absent if computation is emulated")
    expert_rows: List[List[int]] = field("list of list of whole number", "", "", "rows that came to each expert in the measured steps, by block and expert: of all ranks' tokens, each as often as it visits one; absent without experts and where nothing is computed")
    expert_imbalance: Optional[float] = field("number", "", "", "of these rows, those of the busiest of the `mesh.expert` ranks (if that is 1: of the busiest expert) over the mean, the mean over blocks: a value for `mesh.expert_imbalance` of a simulation")
    params_digest: Optional[str] = field("text", "", "", "a hash of all final parameters, which does not depend on the sharding; `no_digest_because` says why it is absent")
    no_digest_because: Optional[str] = field("text", "", "", "why there is no digest although something was computed: `train.params_digest = false` leaves the parameters where they are, some of them are not finite, or a GPU may add in any order")


class Metrics(Record):
    """What a step takes, and what it is made of: compute + exposed communication + exposed copies + idle = `step_ms.median`. The parts are means over all ranks ([run.md](run.md#what-a-step-is-made-of))."""

    step_ms: Optional[Summary] = field("object", "Summary", "ms", "step time; each step counts with its slowest rank", "step time", "less")
    compute_ms: Optional[float] = field("number", "", "ms", "time in which computation ran", "compute", "less")
    comm_ms: Optional[float] = field("number", "", "ms", "time in which a collective ran, exposed or hidden", "communication", "less")
    exposed_comm_ms: Optional[float] = field("number", "", "ms", "time in which a collective ran and nothing was computed", "exposed communication", "less")
    exposed_copy_ms: Optional[float] = field("number", "", "ms", "time in which only a copy ran", "exposed copies", "less")
    idle_ms: Optional[float] = field("number", "", "ms", "time in which nothing ran", "idle", "less")
    overlap_pct: Optional[float] = field("number", "", "%", "share of communication that is hidden: 1 - exposed_comm_ms / comm_ms; absent without communication", "overlap", "more")
    tokens_per_s: Optional[float] = field("number", "", "1/s", "tokens of all ranks per second, at the median step", "tokens/s", "more")
    step_over_bound: Optional[float] = field("number", "", "", "step time divided by the shortest time in which the schedule could run with the measured op times", "step / bound", "less")
    aa_noise_pct: Optional[float] = field("number", "", "%", "the medians of two random halves of the measured steps differ by less than this, 95 times out of 100; absent for fewer than four steps", "A/A noise", "less")
    ranks: Records[RankMetrics] = field("list of object", "RankMetrics", "", "each rank's own steps")
    unsettled_steps: Optional[int] = field("whole number", "", "", "number of first measured steps that differ from the rest; absent for fewer than eight steps", "unsettled steps", "less")
    never_settled: Optional[bool] = field("true or false", "", "", "true if no steady state was found; absent for fewer than eight steps")
    model_tflops_per_rank: Optional[float] = field("number", "", "TFLOP/s", "rate of the model's FLOPs at the median step", "model TFLOP/s", "more")
    model_flops_per_rank_and_step: Optional[float] = field("number", "", "FLOP", "FLOPs of the model's forward and backward, without recomputation", "model FLOPs", "less")
    peak_tflops: Optional[float] = field("number", "", "TFLOP/s", "stated peak of a rank: of the cluster file for the dtype of parameters (dense), or `emulate.compute_tflops`", "peak TFLOP/s", "more")
    mfu_pct: Optional[float] = field("number", "", "%", "model FLOPs utilisation: that rate divided by `peak_tflops`", "utilisation", "more")
    emulation_fidelity: Optional[EmulationFidelity] = field("object", "EmulationFidelity", "", "how well the machine kept up with what it emulates; only if something is emulated")
    phases: Dict[str, PhaseTimes] = field("map of object", "PhaseTimes", "", "parts of the step by phase")
    units: Records[UnitTimes] = field("list of object", "UnitTimes", "", "parts of the step by unit")


class Summary(Record):
    """A median and how far it can be trusted."""

    median: float = field("number", "", "", "median of the values")
    ci_low: float = field("number", "", "", "lower end of the interval of the median")
    ci_high: float = field("number", "", "", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are: `95 % bootstrap` from five values on, else the `range`, or `one value`")
    min: float = field("number", "", "", "smallest value")
    max: float = field("number", "", "", "largest value")
    n: int = field("whole number", "", "", "number of values")


class RankMetrics(Record):
    """One rank's own steps. The four parts add up to the median of `step_ms`."""

    rank: int = field("whole number", "", "", "number of the rank")
    step_ms: Summary = field("object", "Summary", "ms", "step times of the rank")
    compute_ms: float = field("number", "", "ms", "time in which computation ran")
    exposed_comm_ms: float = field("number", "", "ms", "time in which a collective ran and nothing was computed")
    exposed_copy_ms: float = field("number", "", "ms", "time in which only a copy ran")
    idle_ms: float = field("number", "", "ms", "time in which nothing ran")
    overlap_pct: Optional[float] = field("number", "", "%", "share of its communication that is hidden; absent without communication")
    transfer_ms: Dict[str, float] = field("map of number", "", "ms", "transfers of a step, by link (that is, by group it communicates in). Each transfer counts from the arrival of its last peer until this link was done with it (modelled links) or the transfer ended; the median over the steps")


class EmulationFidelity(Record):
    """How well a machine kept up with what it emulated."""

    compute: Optional[ModelledTime] = field("object", "ModelledTime", "", "computation; absent if it is real")
    transfer: Optional[ModelledTime] = field("object", "ModelledTime", "", "transfers that did not share their links with others")
    excess_pct: float = field("number", "", "%", "by how much observed time exceeds modelled time, computation and transfers together")
    late_pct: Optional[float] = field("number", "", "%", "by how much the step exceeds what its op times allow, because lanes began late; only where computation is emulated and no lateness was injected")
    limit_pct: float = field("number", "", "%", "largest excess of both together with which a run is rated")


class ModelledTime(Record):
    """Time of a rank's median step, as it is emulated."""

    modelled_ms: float = field("number", "", "ms", "time by the model")
    observed_ms: float = field("number", "", "ms", "time as it was measured")


class PhaseTimes(Record):
    """One phase of a step. The phases add up to the step part by part."""

    step_ms: float = field("number", "", "ms", "time of the phase")
    compute_ms: float = field("number", "", "ms", "time in which computation ran")
    comm_ms: float = field("number", "", "ms", "time in which a collective ran, exposed or hidden")
    overlap_ms: float = field("number", "", "ms", "time in which both ran")
    exposed_comm_ms: float = field("number", "", "ms", "time in which a collective ran and nothing was computed")
    exposed_copy_ms: float = field("number", "", "ms", "time in which only a copy ran")
    idle_ms: float = field("number", "", "ms", "time in which nothing ran")
    host_wait_ms: float = field("number", "", "ms", "time in which the host was blocked by limits or syncs; it is beside the others and no part of their sum")


class UnitTimes(Record):
    """One unit in a step."""

    unit: str = field("text", "", "", "label of the unit")
    compute_ms: float = field("number", "", "ms", "computation of the unit")
    comm_ms: float = field("number", "", "ms", "collectives of the unit")
    exposed_comm_ms: float = field("number", "", "ms", "collectives of the unit while nothing was computed")


class Memory(Record):
    """Device memory of the rank that needed most."""

    peak_bytes: BytesByCategory = field("object", "BytesByCategory", "B", "peak as counted in the run", "peak memory", "less")
    reserved_bytes: int = field("whole number", "", "B", "memory that its pool reserved")
    estimated_peak_bytes: BytesByCategory = field("object", "BytesByCategory", "B", "peak that the schedule predicts")
    device_bytes: Optional[int] = field("whole number", "", "B", "memory of the simulated GPU")
    fits: Optional[bool] = field("true or false", "", "", "whether the training fits into it: under PyTorch's allocator if that is known, else what its pool reserved")
    caching_allocator: Optional[CachingAllocator] = field("object", "CachingAllocator", "", "the same training's memory under PyTorch's allocator; only of simulations on a cluster")
    timeline: MemoryTimeline = field("object", "MemoryTimeline", "", "live bytes over one step")
    peak_at: MemoryAtPeak = field("object", "MemoryAtPeak", "", "what is alive at the peak")
    process_peak_rss_bytes: Optional[int] = field("whole number", "", "B", "largest resident set of the process, by the operating system; absent in simulations")


class BytesByCategory(Record):
    """Peak bytes of a rank, together and by what they are for."""

    total: int = field("whole number", "", "B", "peak of all categories together")
    parameter_shards: int = field("whole number", "", "B", "peak of this category alone")
    unsharded_parameters: int = field("whole number", "", "B", "peak of this category alone")
    gradients: int = field("whole number", "", "B", "peak of this category alone")
    optimizer: int = field("whole number", "", "B", "peak of this category alone")
    activations: int = field("whole number", "", "B", "peak of this category alone")
    communication_buffers: int = field("whole number", "", "B", "peak of this category alone")


class CachingAllocator(Record):
    """What PyTorch's CUDA caching allocator would show of rank 0, on a GPU of the cluster, at the op times before anything is drawn ([simulate.md](simulate.md#memory))."""

    peak_allocated_bytes: int = field("whole number", "", "B", "as `torch.cuda.max_memory_allocated()`")
    peak_reserved_bytes: int = field("whole number", "", "B", "as `torch.cuda.max_memory_reserved()`")
    retries: int = field("whole number", "", "", "allocations in the first steps for which it would return cached memory to the driver, while the host waits")
    failures: int = field("whole number", "", "", "allocations that would find no memory even then: the training does not fit if there are any")


class MemoryTimeline(Record):
    """Live bytes over one step as its lanes ran."""

    rank: int = field("whole number", "", "", "rank whose memory it is")
    step: int = field("whole number", "", "", "number of the step")
    time_ms: List[float] = field("list of number", "", "ms", "times since the step began; each value below holds from one of these times on")
    parameter_shards: List[int] = field("list of whole number", "", "B", "live bytes of this category")
    unsharded_parameters: List[int] = field("list of whole number", "", "B", "live bytes of this category")
    gradients: List[int] = field("list of whole number", "", "B", "live bytes of this category")
    optimizer: List[int] = field("list of whole number", "", "B", "live bytes of this category")
    activations: List[int] = field("list of whole number", "", "B", "live bytes of this category")
    communication_buffers: List[int] = field("list of whole number", "", "B", "live bytes of this category")


class MemoryAtPeak(Record):
    """What is alive at the peak that the schedule predicts."""

    op: str = field("text", "", "", "op before which the peak is reached; empty: before the first")
    live_bytes: int = field("whole number", "", "B", "all live bytes together")
    live: Records[LiveBlock] = field("list of object", "LiveBlock", "", "live buffers, the largest first")


class LiveBlock(Record):
    """A buffer that is alive."""

    role: str = field("text", "", "", "what the buffer holds")
    category: str = field("text", "", "", "category that it is counted in")
    bytes: int = field("whole number", "", "B", "its size in bytes")
    unit: Optional[str] = field("text", "", "", "unit that it belongs to")


class HostMemory(Record):
    """Pinned host memory of the rank that needed most ([offload.md](offload.md))."""

    peak_bytes: BytesByCategory = field("object", "BytesByCategory", "B", "peak as counted in the run")
    reserved_bytes: int = field("whole number", "", "B", "memory that its pool reserved")


class Comm(Record):
    """What a rank sent in a step."""

    wire_bytes_per_rank: WireBytes = field("object", "WireBytes", "B", "bytes as counted", "bytes on the wire", "less")
    expected_wire_bytes_per_rank: WireBytes = field("object", "WireBytes", "B", "bytes by formula")


class WireBytes(Record):
    """Bytes that a rank sends in a step."""

    all_gather: int = field("whole number", "", "B", "by all-gathers")
    reduce_scatter: int = field("whole number", "", "B", "by reduce-scatters")
    all_reduce: int = field("whole number", "", "B", "by all-reduces")
    all_to_all: int = field("whole number", "", "B", "by exchanges of quantised gradients, or of rows of experts")
    send_recv: Optional[int] = field("whole number", "", "B", "from rank to rank, where keys and values go round")


class Cause(Record):
    """Why computation was not running: a mean over all ranks in the typical step."""

    cause: str = field("text", "", "", "name of the cause ([explain.md](explain.md))")
    ms: float = field("number", "", "ms", "time of a step that it takes")
    share_pct: float = field("number", "", "%", "share of the step")
    unit: Optional[str] = field("text", "", "", "the unit that lost most to it")
    op: Optional[str] = field("text", "", "", "the op that was waited for there, as traces name it")
    late_rank: Optional[int] = field("whole number", "", "", "rank that came last most of the time, or whose link is slow")
    advice: str = field("text", "", "", "a sentence that says what would help; empty if nothing is known for certain")
    without: Optional[Counterfactual] = field("object", "Counterfactual", "", "typical step without the cause")


class Counterfactual(Record):
    """The typical step replayed without one thing, or with another value of one key."""

    step_ms: float = field("number", "", "ms", "what the step would take")
    gain_ms: float = field("number", "", "ms", "how much less that is than the typical step; negative: more")
    ci_low: float = field("number", "", "ms", "lower end of the interval of the gain")
    ci_high: float = field("number", "", "ms", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are, as in a summary")
    advised: bool = field("true or false", "", "", "the interval is above 0 and the gain above the noise")
    more_bytes: Optional[int] = field("whole number", "", "B", "more peak memory that it takes")


class Jitter(Record):
    """What the median step took beyond the typical one."""

    ms: float = field("number", "", "ms", "the difference; negative where the median step was shorter")
    share_pct: float = field("number", "", "%", "of the median step")
    compute_ms: float = field("number", "", "ms", "of it, in computation")
    stalled_ms: float = field("number", "", "ms", "of it, while nothing computed: no cause has any of it")
    ranks: Records[RankJitter] = field("list of object", "RankJitter", "", "jitter of each rank")


class RankJitter(Record):
    """The jitter of one rank."""

    rank: int = field("whole number", "", "", "number of the rank")
    ms: float = field("number", "", "ms", "its median step, less its typical one")
    lanes: Dict[str, LaneJitter] = field("map of object", "LaneJitter", "", "by lane")


class LaneJitter(Record):
    """One lane's part in a rank's jitter, means over the steps."""

    longer_ms: float = field("number", "", "ms", "by how much its ops took longer in all")
    later_ms: float = field("number", "", "ms", "by how much they began later than they could")


class LateRank(Record):
    """A rank that takes longer than the others for certain."""

    rank: int = field("whole number", "", "", "number of the rank")
    work: Optional[Lateness] = field("object", "Lateness", "", "its own ops take longer")
    issue: Optional[Lateness] = field("object", "Lateness", "", "its host takes longer")
    link: Optional[Lateness] = field("object", "Lateness", "", "its link takes longer")


class Lateness(Record):
    """How a late rank compares with the others."""

    trials: int = field("whole number", "", "", "how often ranks were compared")
    late: int = field("whole number", "", "", "how often at least half of all ranks were faster")
    by_chance: float = field("number", "", "", "how likely that is if no rank differs")
    excess_ms: Summary = field("object", "Summary", "ms", "of a step, what it took beyond the median of the others")


class Knob(Record):
    """A key that could be turned and gains more than the noise."""

    set: str = field("text", "", "", "the change, as `key=value`")
    cause: str = field("text", "", "", "the cause that it is meant for")
    step_ms: float = field("number", "", "ms", "what the step would take")
    gain_ms: float = field("number", "", "ms", "how much less that is than the typical step; negative: more")
    ci_low: float = field("number", "", "ms", "lower end of the interval of the gain")
    ci_high: float = field("number", "", "ms", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are, as in a summary")
    advised: bool = field("true or false", "", "", "the interval is above 0 and the gain above the noise")
    more_bytes: Optional[int] = field("whole number", "", "B", "more peak memory that it takes")
    advice: Optional[str] = field("text", "", "", "a sentence that says what the change gains; absent unless the change is advised")


class Checkpoint(Record):
    """A checkpoint ([checkpoint.md](checkpoint.md))."""

    folder: str = field("text", "", "", "where it is")
    steps: int = field("whole number", "", "", "that were done")
    bytes: int = field("whole number", "", "B", "of all files")


class Collective(Record):
    """A collective of the schedule: medians over ranks and steps."""

    name: str = field("text", "", "", "as traces name it")
    kind: str = field("text", "", "", "`all_gather`, `reduce_scatter`, …")
    unit: str = field("text", "", "", "unit that it is for")
    phase: str = field("text", "", "", "phase of the step")
    bytes: int = field("whole number", "", "B", "message size, as nccl-tests defines it")
    group_size: int = field("whole number", "", "", "number of ranks that take part")
    count: int = field("whole number", "", "", "how often it was measured")
    time_ms: float = field("number", "", "ms", "from its turn on the communicator to its end")
    wait_ms: float = field("number", "", "ms", "part of `time_ms` until the last peer had arrived")
    transfer_ms: float = field("number", "", "ms", "rest of `time_ms`")
    algbw_gb_per_s: float = field("number", "", "GB/s", "algorithm bandwidth of the transfer, as nccl-tests defines it")
    busbw_gb_per_s: float = field("number", "", "GB/s", "bus bandwidth, as nccl-tests defines it")
    link_efficiency: Optional[float] = field("number", "", "", "bus bandwidth divided by that of the modelled link; absent for real links")
    done_by: Optional[str] = field("text", "", "", "algorithm that carried it out; only in simulations, and where NCCL's profiler reports it ([gpu.md](gpu.md#nccls-profiler))")


class CauseInterval(Record):
    """Time without computation in one step of median length."""

    rank: int = field("whole number", "", "", "rank that it belongs to")
    step: int = field("whole number", "", "", "number of the step")
    begin_ms: float = field("number", "", "ms", "begin, since the step began")
    end_ms: float = field("number", "", "ms", "end, since the step began")
    cause: str = field("text", "", "", "name of the cause, or `jitter`")


class CriticalPath(Record):
    """The chain of kernels, collectives, copies and host work that decided how long steps were."""

    ranks: Records[PathRank] = field("list of object", "PathRank", "", "ranks on the path, the most first; their `ms` add up to the mean step of the slowest rank")
    step: int = field("whole number", "", "", "number of the step of median length, which `segments` is of")
    segments: Records[PathSegment] = field("list of object", "PathSegment", "", "the path of that step in order of time; together exactly the step")


class PathRank(Record):
    """What one rank has of the critical path."""

    rank: int = field("whole number", "", "", "number of the rank")
    ms: float = field("number", "", "ms", "its part of the path, mean over steps")
    share_pct: float = field("number", "", "%", "share of the path")
    kinds_ms: Dict[str, float] = field("map of number", "", "ms", "`ms` by kind: `kernels`, `collectives`, `copies`, `host`, `waits` (for a rank whose records are missing, or for a processor core), `unknown`")


class PathSegment(Record):
    """Neighbours on the critical path that are of one rank and kind."""

    rank: int = field("whole number", "", "", "number of the rank")
    kind: str = field("text", "", "", "as in `kinds_ms`")
    begin_us: float = field("number", "", "us", "since the step began")
    us: float = field("number", "", "us", "how long it is")
    parts: int = field("whole number", "", "", "how many ops, rows of a trace and gaps it is made of")
    row: Optional[str] = field("text", "", "", "the op or row that has most of it, or that began after it")


class JitterSpread(Record):
    """How the steps of a simulation with jitter scatter."""

    p50_ms: float = field("number", "", "ms", "median step")
    p95_ms: float = field("number", "", "ms", "95 of 100 steps are shorter")
    p99_ms: float = field("number", "", "ms", "99 of 100 steps are shorter")
    without_jitter_ms: float = field("number", "", "ms", "step time without jitter")
    lost_to_jitter_pct: float = field("number", "", "%", "share of the median step that jitter costs")


class Prediction(Record):
    """How sure a simulation's step is ([simulate.md](simulate.md))."""

    from_: str = field("text", "", "", "source of the op times", name="from")
    no_interval_because: Optional[str] = field("text", "", "", "why there is no interval; then the rest is absent")
    reach: Optional[str] = field("text", "", "", "how sure the least sure op is")
    ops: Dict[str, int] = field("map of whole number", "", "", "number of ops of a step, by how sure they are")
    interval_pct: Optional[int] = field("whole number", "", "%", "probability with which the interval should hold")
    step_ms: Optional[Bounds] = field("object", "Bounds", "ms", "the step time")
    exposed_comm_ms: Optional[Bounds] = field("object", "Bounds", "ms", "exposed communication")
    leaves_ranks_out: Optional[bool] = field("true or false", "", "", "true if the interval leaves out what so many ranks change")


class Bounds(Record):
    """Between which 95 of 100 such predictions should be."""

    low: float = field("number", "", "", "lower end")
    high: float = field("number", "", "", "upper end")


class Steps(Record):
    """Every measured step."""

    slowest_rank_ms: List[float] = field("list of number", "", "ms", "each measured step, of its slowest rank")
    by_rank: List[List[float]] = field("list of list of number", "", "ms", "for each rank, each of its measured steps")
    ranks: List[int] = field("list of whole number", "", "", "numbers of these ranks; only where not all were recorded")


class Gpu(Record):
    """How a rank's GPU fared ([gpu.md](gpu.md#clocks-power-and-errors-of-the-gpus))."""

    rank: int = field("whole number", "", "", "rank that it belongs to")
    unknown_because: Optional[str] = field("text", "", "", "why nothing is known")
    limits: Optional[GpuLimits] = field("object", "GpuLimits", "", "largest values that the GPU allows")
    errors: Optional[GpuErrors] = field("object", "GpuErrors", "", "errors that were counted during the run")
    xids: Records[Xid] = field("list of object", "Xid", "", "errors that the driver reported")
    xids_left_out: Optional[int] = field("whole number", "", "", "number of further errors")
    steps: Optional[GpuSteps] = field("object", "GpuSteps", "", "state of the GPU in each measured step")
    throttled: Records[Throttling] = field("list of object", "Throttling", "", "steps in which the GPU did not run as fast as it could")


class GpuLimits(Record):
    """What a GPU can do at most."""

    sm_mhz: Optional[int] = field("whole number", "", "MHz", "highest SM clock")
    power_w: Optional[float] = field("number", "", "W", "power limit")
    pcie_width: Optional[int] = field("whole number", "", "", "number of PCIe lanes")
    pcie_generation: Optional[int] = field("whole number", "", "", "generation of PCIe")
    ecc: Optional[bool] = field("true or false", "", "", "whether ECC is on")


class GpuErrors(Record):
    """By how much the driver's counters grew."""

    ecc_corrected: Optional[int] = field("whole number", "", "", "memory errors that were corrected")
    ecc_uncorrected: Optional[int] = field("whole number", "", "", "memory errors that were not corrected")
    nvlink_replays: Optional[int] = field("whole number", "", "", "replays of all NVLink links together")
    nvlink_recoveries: Optional[int] = field("whole number", "", "", "recoveries of all NVLink links together")
    nvlink_crc: Optional[int] = field("whole number", "", "", "CRC errors of all NVLink links together")


class Xid(Record):
    """An error that the driver reported."""

    code: int = field("whole number", "", "", "NVIDIA's number of the error")
    step: Optional[int] = field("whole number", "", "", "step in which it arrived")


class GpuSteps(Record):
    """What a GPU was like, by measured step; null where the driver did not tell."""

    samples: Any = field("any", "", "", "number of samples")
    sm_mhz: Any = field("any", "", "MHz", "median SM clock")
    power_w: Any = field("any", "", "W", "median power")
    temperature_c: Any = field("any", "", "C", "highest temperature")
    pcie_width: Any = field("any", "", "", "smallest number of PCIe lanes")
    pcie_generation: Any = field("any", "", "", "lowest generation of PCIe")
    held_down_by: Any = field("any", "", "", "what held its clocks down")


class Throttling(Record):
    """Measured steps in which a GPU did not run as fast as it could."""

    why: str = field("text", "", "", "what held its clocks down")
    steps: List[int] = field("list of whole number", "", "", "which steps")
    of_steps: int = field("whole number", "", "", "number of steps that have a sample")
    sm_mhz: Optional[int] = field("whole number", "", "MHz", "median clock in those steps")
    other_sm_mhz: Optional[int] = field("whole number", "", "MHz", "median clock in the other steps")
    longer_pct: Optional[float] = field("number", "", "%", "by how much those steps were longer")


class TrialLine(Record):
    """A line of the log of a sweep or a comparison; its first line says whose log it is."""

    cell: str = field("text", "", "", "cell of the sweep, or side of the comparison")
    trial: int = field("whole number", "", "", "number of the trial")
    status: str = field("text", "", "", "`ok` or `failed`")
    reason: Optional[str] = field("text", "", "", "why it failed")
    exit_code: Optional[int] = field("whole number", "", "", "exit code of a run that fails for this reason")
    world: Optional[World] = field("object", "World", "", "what it was measured with")
    others_share: Optional[float] = field("number", "", "", "share of the busiest host's processors that other programs took meanwhile, as a fraction; not of simulations")
    metrics: Optional[Metrics] = field("object", "Metrics", "", "What a step takes, and what it is made of: compute + exposed communication + exposed copies + idle = `step_ms.median`. The parts are means over all ranks ([run.md](run.md#what-a-step-is-made-of)).")
    memory: Optional[Memory] = field("object", "Memory", "", "Device memory of the rank that needed most.")
    host_memory: Optional[HostMemory] = field("object", "HostMemory", "", "Pinned host memory of the rank that needed most ([offload.md](offload.md)).")
    comm: Optional[Comm] = field("object", "Comm", "", "What a rank sent in a step.")
    caveats: List[str] = field("list of text", "", "", "sentences to read before any number, the most serious first; the printed table begins with them")
    stalled_ms: Optional[float] = field("number", "", "ms", "exposed communication + exposed copies + idle")
    rated: Optional[bool] = field("true or false", "", "", "whether the numbers describe what was asked for: false if the machine could not keep up with what it emulates")
    not_rated_because: Optional[str] = field("text", "", "", "why the run is not rated; there are no causes then")
    causes: Records[Cause] = field("list of object", "Cause", "", "why computation was not running, the largest cause first. Together with `jitter.stalled_ms` they add up to the time without computation. Causes under 2 % of the step are only in `causes_small_ms`, unless removing them would gain that much")
    causes_small_ms: Optional[float] = field("number", "", "ms", "all causes that are not listed, together")
    typical_ms: Optional[float] = field("number", "", "ms", "the typical step ([explain.md](explain.md)), of its slowest rank; where there is none, the median step")
    no_typical_step_because: Optional[str] = field("text", "", "", "why there is no typical step: what the recorded ranks lack, a sentence")
    jitter: Optional[Jitter] = field("object", "Jitter", "", "what the median step took beyond the typical one; absent without a typical step")
    late_ranks: Records[LateRank] = field("list of object", "LateRank", "", "ranks that are certain to take longer than the others ([explain.md](explain.md))")
    knobs: Records[Knob] = field("list of object", "Knob", "", "keys whose change would gain more than the noise, the largest gain first")
    seconds: Optional[float] = field("number", "", "s", "time from the first preparation to the last number")
    steps_ms: List[float] = field("list of number", "", "ms", "each measured step, of its slowest rank")


class Acceptance(Record):
    """result.json of `accept` ([accept.md](accept.md))."""

    kind: str = field("text", "", "", "`acceptance`")
    verdict: str = field("text", "", "", "`pass`, `unrated`, `inconclusive` or `fail`")
    fabric: str = field("text", "", "", "fabric that the machine was compared with")
    emulated: bool = field("true or false", "", "", "whether computation or links were emulated, in part or in all: times are then modelled")
    rated: int = field("whole number", "", "", "number of rules that were rated")
    ranks: int = field("whole number", "", "", "number of ranks")
    nodes: int = field("whole number", "", "", "number of nodes")
    world: World = field("object", "World", "", "what it was measured with")
    settings: Any = field("any", "", "", "what was set: sizes of the profile, and `config` with every key of its run; gates compare it")
    judgements: Records[Judgement] = field("list of object", "Judgement", "", "judgements in the order of the stages")
    findings: Records[Finding] = field("list of object", "Finding", "", "parts that are to blame, then those that were slow for a while")
    meanwhile: List[str] = field("list of text", "", "", "when a rank was lost: what NCCL's RAS said of the job")
    device_rates_flops_per_s: List[List[float]] = field("list of list of number", "", "FLOP/s", "rates of computation in each round, by rank")
    memory_rates_bytes_per_s: List[List[float]] = field("list of list of number", "", "B/s", "rates of memory in each round, by rank; bytes read and written")
    node_rates: NodeRates = field("object", "NodeRates", "", "memory of hosts, copies to and from GPUs, launches of kernels")
    pairs: Pairs = field("object", "Pairs", "", "What pairs of ranks or nodes carry.")
    stages: Records[Stage] = field("list of object", "Stage", "", "what was measured, and how long it took")
    rendezvous: Rendezvous = field("object", "Rendezvous", "", "How the ranks came together.")
    others_share: float = field("number", "", "", "share of the busiest host's processors that other programs took meanwhile, as a fraction")
    transports: List[str] = field("list of text", "", "", "what carried the bytes of each rank; empty: it does not know")
    scales: Records[Scale] = field("list of object", "Scale", "", "collectives of the most frequent unit, in groups of ranks")
    lateness: Optional[LatenessReport] = field("object", "LatenessReport", "", "waiting and moving bytes; absent if no rank was compared")
    arms: Arms = field("object", "Arms", "", "Parts of a step, alone and together.")
    collectives: Records[AcceptedCollective] = field("list of object", "AcceptedCollective", "", "collectives of the run's own units")


class Judgement(Record):
    """One rule applied to one figure."""

    rule: str = field("text", "", "", "name of the rule ([accept.md](accept.md))")
    figure: str = field("text", "", "", "figure that was judged")
    verdict: str = field("text", "", "", "`pass`, `unrated`, `inconclusive` or `fail`")
    why: str = field("text", "", "", "a sentence with the numbers")
    value: Optional[Interval] = field("object", "Interval", "", "the figure, in `unit`; absent if it was not measured")
    unit: Optional[str] = field("text", "", "", "unit of the figure")
    bound: Optional[float] = field("number", "", "", "value that it is compared with, in `unit`")
    host: Optional[str] = field("text", "", "", "name of its host, or of several")
    device: Optional[str] = field("text", "", "", "its GPU's place on the PCI bus, or of several")
    uuid: Optional[str] = field("text", "", "", "its GPU's UUID, or of several")
    nic: Optional[str] = field("text", "", "", "name of its NIC, or of several")
    direction: Optional[str] = field("text", "", "", "`sends` or `receives` if it is slow in this direction only")


class Interval(Record):
    """A median and how far it can be trusted."""

    median: float = field("number", "", "", "median of the values")
    ci_low: float = field("number", "", "", "lower end of the 95 % interval of the median")
    ci_high: float = field("number", "", "", "upper end of that interval")
    n: int = field("whole number", "", "", "number of values")


class Finding(Record):
    """A part that is to blame, or was slow for a while."""

    part: str = field("text", "", "", "name of the part")
    kind: str = field("text", "", "", "`slow`, `half_duplex`, `lost`, or `transient` or `collision` (then no part is blamed)")
    shortfall: float = field("number", "", "", "how far it is below the median of its peers, as a fraction")
    relative: Interval = field("object", "Interval", "", "its figure divided by the median of its peers")
    evidence: str = field("text", "", "", "a sentence that says what was compared with what")
    check: str = field("text", "", "", "what to look at next")
    host: Optional[str] = field("text", "", "", "name of its host, or of several")
    device: Optional[str] = field("text", "", "", "its GPU's place on the PCI bus, or of several")
    uuid: Optional[str] = field("text", "", "", "its GPU's UUID, or of several")
    nic: Optional[str] = field("text", "", "", "name of its NIC, or of several")
    direction: Optional[str] = field("text", "", "", "`sends` or `receives` if it is slow in this direction only")


class NodeRates(Record):
    """What nodes carry beside the fabric, all ranks at once; a list that is not there was not measured."""

    unknown_because: Optional[str] = field("text", "", "", "why none of it was measured")
    host_copy_bytes_per_s: List[List[float]] = field("list of list of number", "", "B/s", "copies in memory by processors in each round, by rank; bytes read and written")
    host_to_device_bytes_per_s: List[List[float]] = field("list of list of number", "", "B/s", "copies from page-locked memory to GPUs in each round, by rank")
    device_to_host_bytes_per_s: List[List[float]] = field("list of list of number", "", "B/s", "copies from GPUs likewise")
    launch_us: List[List[float]] = field("list of list of number", "", "us", "from the launch of a kernel until the host knows its end, in each round, by rank")


class Pairs(Record):
    """What pairs of ranks or nodes carry."""

    one_way_gb_per_s: List[float] = field("list of number", "", "GB/s", "rates of all pairs")
    rounds: int = field("whole number", "", "", "number of rounds, those of the confirmation included")
    measurements: int = field("whole number", "", "", "number of measurements of pairs")
    compared: bool = field("true or false", "", "", "whether pairs were compared; false if there are too few ends")
    ends: Optional[str] = field("text", "", "", "`ranks` or `nodes`")
    gb_per_s: List[List[float]] = field("list of list of number", "", "GB/s", "from each end (row) to each; 0: not measured")


class Stage(Record):
    """A stage, as it went."""

    name: str = field("text", "", "", "name of the stage")
    took_s: float = field("number", "", "s", "how long it took")
    skipped: bool = field("true or false", "", "", "whether it was not measured; `note` says why")
    estimate_s: Optional[float] = field("number", "", "s", "time that was estimated before it began")
    note: Optional[str] = field("text", "", "", "what was left out of it, and why")


class Rendezvous(Record):
    """How the ranks came together."""

    ready_s: List[float] = field("list of number", "", "s", "time until the device of each rank was ready")
    clocks: Records[ClockOffset] = field("list of object", "ClockOffset", "", "clock of each rank; empty if all ranks are threads of one process")


class ClockOffset(Record):
    """A rank's clock as seen from rank 0's."""

    offset_ns: int = field("whole number", "", "ns", "offset of its clock")
    residual_ns: int = field("whole number", "", "ns", "error that the offset may have")
    same_clock: bool = field("true or false", "", "", "whether both read the same clock")


class Scale(Record):
    """A collective in groups of some ranks, all groups at once."""

    kind: str = field("text", "", "", "`all_gather`, …")
    group_size: int = field("whole number", "", "", "number of ranks in a group")
    bytes: int = field("whole number", "", "B", "message size")
    busbw_gb_per_s: float = field("number", "", "GB/s", "bus bandwidth, as nccl-tests defines it")
    p50_us: float = field("number", "", "us", "half of the iterations are shorter")


class LatenessReport(Record):
    """What time in collectives is: waiting for somebody, or moving bytes."""

    last_share: List[float] = field("list of number", "", "", "by rank, how often it came last, as a fraction")
    waiting_us: Interval = field("object", "Interval", "us", "from the median arrival to the last one")
    transfer_us: Interval = field("object", "Interval", "us", "from the last arrival to the end")


class Arms(Record):
    """Parts of a step, alone and together."""

    rounds: Records[ArmRound] = field("list of object", "ArmRound", "", "rounds, each of them there and back again (ABBA)")
    soak: Records[ArmRound] = field("list of object", "ArmRound", "", "further rounds; only in a full acceptance")
    predicted_ms: Optional[float] = field("number", "", "ms", "step time predicted from its parts")


class ArmRound(Record):
    """One round of the arms of a step, means of an arm's two steps."""

    compute_ms: float = field("number", "", "ms", "a step without its collectives, on the slowest rank")
    comm_ms: float = field("number", "", "ms", "the collectives alone, on the slowest rank")
    step_ms: float = field("number", "", "ms", "the whole step, on the slowest rank")
    kernels_alone_ms: float = field("number", "", "ms", "ops that compute, in the step without collectives")
    kernels_beside_ms: float = field("number", "", "ms", "the same ops in the whole step")
    transfers_alone_ms: float = field("number", "", "ms", "collectives from the arrival of their last rank, without computation")
    transfers_beside_ms: float = field("number", "", "ms", "the same in the whole step")


class AcceptedCollective(Record):
    """A collective of the run's own units."""

    size: int = field("whole number", "", "B", "message size as nccl-tests counts it")
    count: int = field("whole number", "", "", "number of elements")
    type: str = field("text", "", "", "type of an element, as nccl-tests names it")
    redop: Optional[str] = field("text", "", "", "`sum` or `avg`; null where nothing is reduced")
    root: Optional[int] = field("whole number", "", "", "the rank that broadcasts; null where there is none")
    out_of_place: Optional[Timing] = field("object", "Timing", "", "separate buffers; null: this communicator has no such call")
    in_place: Optional[Timing] = field("object", "Timing", "", "one buffer; null: this communicator has no such call")
    date: str = field("text", "", "", "when it was measured")
    kind: str = field("text", "", "", "`all_gather`, …")
    group_size: int = field("whole number", "", "", "number of ranks that take part")
    figures: List[str] = field("list of text", "", "", "names of its figures in judgements, out of place and in place")


class Timing(Record):
    """A message in one arrangement of its buffers."""

    time_us: float = field("number", "", "us", "an iteration within a burst of them; with --check-all the mean of iterations that were timed alone")
    algbw_gb_per_s: float = field("number", "", "GB/s", "algorithm bandwidth, as nccl-tests defines it")
    busbw_gb_per_s: float = field("number", "", "GB/s", "bus bandwidth, as nccl-tests defines it")
    rank_us: List[float] = field("list of number", "", "us", "`time_us` of each rank")
    per_iteration: Iterations = field("object", "Iterations", "", "single iterations")
    wrong: Optional[int] = field("whole number", "", "", "number of wrong elements on all ranks; null: nothing was checked")


class Iterations(Record):
    """Single iterations, over ranks as -a says."""

    min_us: float = field("number", "", "us", "shortest iteration")
    max_us: float = field("number", "", "us", "longest iteration")
    mean_us: float = field("number", "", "us", "mean of the iterations")
    p50_us: float = field("number", "", "us", "half of the iterations are shorter")
    p95_us: float = field("number", "", "us", "95 of 100 iterations are shorter")
    p99_us: float = field("number", "", "us", "99 of 100 iterations are shorter")
    stdev_us: float = field("number", "", "us", "standard deviation of the population")
    cv_pct: float = field("number", "", "%", "standard deviation divided by mean")
    times_us: List[float] = field("list of number", "", "us", "each iteration, the first ones included")
    wrong: List[int] = field("list of whole number", "", "", "wrong elements that each of them left on all ranks; only with --check-all")


class Sweep(Record):
    """sweep.json: a grid of cells ([sweep.md](sweep.md))."""

    title: str = field("text", "", "", "title of the sweep")
    sweep_hash: str = field("text", "", "", "hash of everything that decides what is measured")
    base: str = field("text", "", "", "profile that all cells share")
    set: List[str] = field("list of text", "", "", "keys that override the profile, as `key=value`")
    trials: int = field("whole number", "", "", "number of trials of each cell")
    order: str = field("text", "", "", "order in which trials ran")
    skipped_cells: int = field("whole number", "", "", "number of cells that `[[skip]]` left out")
    x: Optional[str] = field("text", "", "", "key on the x axis of figures")
    series: List[str] = field("list of text", "", "", "keys that figures draw as lines")
    axes: Records[Axis] = field("list of object", "Axis", "", "axes of the sweep; the last one changes fastest")
    cells: Records[Cell] = field("list of object", "Cell", "", "cells of the sweep: the product of the axes")
    complete: bool = field("true or false", "", "", "whether every cell is `ok` or `failed`")
    world: Optional[World] = field("object", "World", "", "what the first trial was measured with")
    mixed_worlds: Optional[bool] = field("true or false", "", "", "whether trials come from different programs (revision, build, libraries) or machines (host, processor, kernel, GPU)")


class Axis(Record):
    """A key with its values."""

    key: str = field("text", "", "", "dotted name of the key")
    values: List[Any] = field("list of any", "", "", "values of the axis, in their order")


class Cell(Record):
    """A cell of the sweep: one configuration."""

    id: str = field("text", "", "", "name of the cell in `trials.jsonl`")
    axes: Dict[str, Any] = field("map of any", "", "", "value of the cell on each axis")
    trials: int = field("whole number", "", "", "number of trials that were done")
    status: str = field("text", "", "", "`ok`, `failed` or `incomplete`")
    reason: Optional[str] = field("text", "", "", "why it failed")
    metrics: Optional[CellMetrics] = field("object", "CellMetrics", "", "Means over the trials of median step time, one or two.")
    memory: Optional[Memory] = field("object", "Memory", "", "memory in the trial with the median step time (the faster of two)")
    comm: Optional[Comm] = field("object", "Comm", "", "bytes sent in the same trial")
    causes: Records[Cause] = field("list of object", "Cause", "", "causes in the same trial; absent unless the cell is rated")
    rated: Optional[bool] = field("true or false", "", "", "whether the numbers describe what was asked for")
    not_rated_because: Optional[str] = field("text", "", "", "why the cell is not rated")


class CellMetrics(Record):
    """Means over the trials of median step time, one or two."""

    step_ms: CellStep = field("object", "CellStep", "ms", "step time over trials")
    compute_ms: Optional[float] = field("number", "", "ms", "time in which computation ran", "compute", "less")
    comm_ms: Optional[float] = field("number", "", "ms", "time in which a collective ran, exposed or hidden", "communication", "less")
    exposed_comm_ms: Optional[float] = field("number", "", "ms", "time in which a collective ran and nothing was computed", "exposed communication", "less")
    exposed_copy_ms: Optional[float] = field("number", "", "ms", "time in which only a copy ran", "exposed copies", "less")
    idle_ms: Optional[float] = field("number", "", "ms", "time in which nothing ran", "idle", "less")
    overlap_pct: Optional[float] = field("number", "", "%", "share of communication that is hidden: 1 - exposed_comm_ms / comm_ms; absent without communication", "overlap", "more")
    tokens_per_s: Optional[float] = field("number", "", "1/s", "tokens of all ranks per second, at the median step", "tokens/s", "more")
    step_over_bound: Optional[float] = field("number", "", "", "step time divided by the shortest time in which the schedule could run with the measured op times", "step / bound", "less")
    aa_noise_pct: Optional[float] = field("number", "", "%", "the medians of two random halves of the measured steps differ by less than this, 95 times out of 100; absent for fewer than four steps", "A/A noise", "less")
    unsettled_steps: Optional[float] = field("number", "", "", "number of first measured steps that differ from the rest; absent for fewer than eight steps", "unsettled steps", "less")
    model_tflops_per_rank: Optional[float] = field("number", "", "TFLOP/s", "rate of the model's FLOPs at the median step", "model TFLOP/s", "more")
    model_flops_per_rank_and_step: Optional[float] = field("number", "", "FLOP", "FLOPs of the model's forward and backward, without recomputation", "model FLOPs", "less")
    peak_tflops: Optional[float] = field("number", "", "TFLOP/s", "stated peak of a rank: of the cluster file for the dtype of parameters (dense), or `emulate.compute_tflops`", "peak TFLOP/s", "more")
    mfu_pct: Optional[float] = field("number", "", "%", "model FLOPs utilisation: that rate divided by `peak_tflops`", "utilisation", "more")


class CellStep(Record):
    """The step time of a cell. A trial counts as one value, its median."""

    median: float = field("number", "", "", "median of the values")
    ci_low: float = field("number", "", "", "lower end of the interval of the median")
    ci_high: float = field("number", "", "", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are: `95 % bootstrap` from five values on, else the `range`, or `one value`")
    min: float = field("number", "", "", "smallest value")
    max: float = field("number", "", "", "largest value")
    n: int = field("whole number", "", "", "number of values")
    steps: int = field("whole number", "", "", "number of steps")


class Collectives(Record):
    """The file of `collectives -J` ([collectives.md](collectives.md))."""

    kind: str = field("text", "", "", "`collectives`")
    world: World = field("object", "World", "", "what it was measured with")
    options: Dict[str, str] = field("map of text", "", "", "options as they were given, by their long names")
    time_over_ranks: str = field("text", "", "", "which rank's times count (-a)")
    operations: Records[Operation] = field("list of object", "Operation", "", "each collective")
    beside: Records[Beside] = field("list of object", "Beside", "", "only with --beside")


class Operation(Record):
    """One collective."""

    name: str = field("text", "", "", "`all_gather`, …")
    results: Records[CollectiveRow] = field("list of object", "CollectiveRow", "", "one row per message")
    out_of_bounds: Optional[OutOfBounds] = field("object", "OutOfBounds", "", "number of wrong elements; null: nothing was checked (-c 0 without --check-all)")
    average_bus_bandwidth: AverageBandwidth = field("object", "AverageBandwidth", "GB/s", "average over all rows")


class CollectiveRow(Record):
    """One message."""

    size: int = field("whole number", "", "B", "message size as nccl-tests counts it")
    count: int = field("whole number", "", "", "number of elements")
    type: str = field("text", "", "", "type of an element, as nccl-tests names it")
    redop: Optional[str] = field("text", "", "", "`sum` or `avg`; null where nothing is reduced")
    root: Optional[int] = field("whole number", "", "", "the rank that broadcasts; null where there is none")
    out_of_place: Optional[Timing] = field("object", "Timing", "", "separate buffers; null: this communicator has no such call")
    in_place: Optional[Timing] = field("object", "Timing", "", "one buffer; null: this communicator has no such call")
    date: str = field("text", "", "", "when it was measured")


class OutOfBounds(Record):
    """How many elements are wrong."""

    count: int = field("whole number", "", "", "number of wrong elements, of all rows and ranks")
    okay: bool = field("true or false", "", "", "whether there is none")


class AverageBandwidth(Record):
    """The last line of nccl-tests."""

    gb_per_s: float = field("number", "", "GB/s", "mean bus bandwidth of all rows")
    okay: bool = field("true or false", "", "", "whether it is at least `NCCL_TESTS_MIN_BW`")


class Beside(Record):
    """What two collectives and a matrix product cost each other, medians of an op on the slowest rank."""

    size: int = field("whole number", "", "B", "size of the messages")
    matrix: int = field("whole number", "", "", "rows of the first matrix")
    shape: List[int] = field("list of whole number", "", "", "m, n and k of the product")
    type: str = field("text", "", "", "type of the product's numbers")
    max_ctas: Optional[int] = field("whole number", "", "", "largest number of CTAs of NCCL's kernels; absent: NCCL chooses")
    alone_us: Dict[str, float] = field("map of number", "", "us", "time of each alone")
    beside_us: Dict[str, Dict[str, float]] = field("map of map of number", "", "us", "time of each beside each other one; absent where no op ran beside it from begin to end")
    together_us: Dict[str, float] = field("map of number", "", "us", "time of each while all three run")


class TraceDiff(Record):
    """diff.json of `trace diff` ([trace-diff.md](trace-diff.md))."""

    kind: str = field("text", "", "", "`trace_diff`")
    schema_version: int = field("whole number", "", "", "version of this file's format")
    headline: str = field("text", "", "", "what differs, and most of why")
    steps_a: int = field("whole number", "", "", "steps of A that all ranks have")
    steps_b: int = field("whole number", "", "", "steps of B that all ranks have")
    aligned_by: str = field("text", "", "", "how collectives of both were found to be the same: by `units` of the schedule, or `names`")
    step: PartChange = field("object", "PartChange", "", "the whole step")
    causes: Records[PartChange] = field("list of object", "PartChange", "", "computation and why nothing was computed, the largest change first")
    ops: Records[PartChange] = field("list of object", "PartChange", "", "the same by op")
    notes: List[str] = field("list of text", "", "", "sentences to read before any number")


class PartChange(Record):
    """How one part of a step differs between two jobs, means over ranks and steps."""

    part: str = field("text", "", "", "`computation`, or why nothing was computed; `step` for the whole")
    op: Optional[str] = field("text", "", "", "the kernel, collective or copy; absent: all")
    a_ms: float = field("number", "", "ms", "time in A's step")
    b_ms: float = field("number", "", "ms", "time in B's step")
    change_ns: int = field("whole number", "", "ns", "B minus A; those of all parts add up to the step's")
    ci_low_ms: Optional[float] = field("number", "", "ms", "lower end of the 95 % interval of the change; absent for single steps")
    ci_high_ms: Optional[float] = field("number", "", "ms", "upper end of that interval")
    found: bool = field("true or false", "", "", "whether the change matters, and is not by chance")


class Explanation(Record):
    """What `explain --format json` prints ([explain.md](explain.md))."""

    schema_version: int = field("whole number", "", "", "version of this format")
    config: Any = field("any", "", "", "every key with its resolved value")
    plan: Plan = field("object", "Plan", "", "Who owns which bytes.")
    memory: PlannedMemory = field("object", "PlannedMemory", "", "Memory of a device.")
    communication: PlannedCommunication = field("object", "PlannedCommunication", "", "Bytes that a rank sends in a step, by formula.")
    prediction: StepPrediction = field("object", "StepPrediction", "", "the step, predicted")
    wasted_gathers: Records[WastedGather] = field("list of object", "WastedGather", "", "all-gathers that are wasted")
    parameters: Any = field("any", "", "", "who holds which part of every parameter; only with --parameters")
    schedule: Schedule = field("object", "Schedule", "", "The steady step.")


class Plan(Record):
    """Who owns which bytes."""

    ranks: int = field("whole number", "", "", "number of ranks")
    shard: int = field("whole number", "", "", "ranks that split a unit")
    replicate: int = field("whole number", "", "", "groups that hold equal shards")
    tensor: int = field("whole number", "", "", "ranks that split layers")
    parameters: int = field("whole number", "", "", "number of parameters of the model")
    units: Records[PlannedUnit] = field("list of object", "PlannedUnit", "", "units in the order of forward, the root first")


class PlannedUnit(Record):
    """A unit: gathered, freed and reduced together."""

    label: str = field("text", "", "", "its label")
    parameters: Records[PlannedParameter] = field("list of object", "PlannedParameter", "", "its parameters")
    parameter_numel: int = field("whole number", "", "", "elements of the sharded parameters")
    shard_numel: int = field("whole number", "", "", "elements per rank, padding included")
    padding_numel: int = field("whole number", "", "", "elements of padding")
    gathered_numel: int = field("whole number", "", "", "elements as gathered")
    replicated_numel: int = field("whole number", "", "", "elements that all ranks have")


class PlannedParameter(Record):
    """A parameter of a unit."""

    name: str = field("text", "", "", "its name")
    shape: List[int] = field("list of whole number", "", "", "its dimensions")
    replicated: bool = field("true or false", "", "", "whether all ranks have all of it")


class PlannedMemory(Record):
    """Memory of a device."""

    peak_bytes: PlannedPeak = field("object", "PlannedPeak", "", "Peak of the pool, exact, activations included.")
    with_fsdp: MemoryEstimate = field("object", "MemoryEstimate", "", "closed form, with FSDP")
    without_fsdp: MemoryEstimate = field("object", "MemoryEstimate", "", "closed form, without FSDP")
    host_peak_bytes: Optional[int] = field("whole number", "", "B", "peak of pinned host memory")


class PlannedPeak(Record):
    """Peak of the pool, exact, activations included."""

    total: int = field("whole number", "", "B", "peak of all categories together")
    parameter_shards: int = field("whole number", "", "B", "peak of this category alone")
    unsharded_parameters: int = field("whole number", "", "B", "peak of this category alone")
    gradients: int = field("whole number", "", "B", "peak of this category alone")
    optimizer: int = field("whole number", "", "B", "peak of this category alone")
    activations: int = field("whole number", "", "B", "peak of this category alone")
    communication_buffers: int = field("whole number", "", "B", "peak of this category alone")
    reserved: int = field("whole number", "", "B", "memory that the pool reserves")


class MemoryEstimate(Record):
    """Memory of a device in closed form, without activations."""

    parameters: float = field("number", "", "B", "fp32 masters")
    optimizer: float = field("number", "", "B", "moments")
    gradients: float = field("number", "", "B", "fp32 gradients of what the device owns")
    gathered_units: float = field("number", "", "B", "unsharded parameters in flight")
    gradient_units: float = field("number", "", "B", "unsharded gradients in flight")
    total: float = field("number", "", "B", "all of it")


class PlannedCommunication(Record):
    """Bytes that a rank sends in a step, by formula."""

    all_gather: float = field("number", "", "B", "by all-gathers")
    reduce_scatter: float = field("number", "", "B", "by reduce-scatters")
    all_reduce: float = field("number", "", "B", "by all-reduces")
    all_to_all: float = field("number", "", "B", "by exchanges")
    send_recv: Optional[float] = field("number", "", "B", "from rank to rank")
    total: float = field("number", "", "B", "all of it")
    data_parallel: float = field("number", "", "B", "what data parallelism would send")


class StepPrediction(Record):
    """The step of a configuration that nobody has run."""

    reason: Optional[str] = field("text", "", "", "why there is no step")
    step_ms: Optional[float] = field("number", "", "ms", "the step")
    compute_ms: Optional[float] = field("number", "", "ms", "sum over the compute lane")
    comm_ms: Optional[float] = field("number", "", "ms", "sum over all collectives of a rank, each as if alone")
    exposed_comm_ms: Optional[float] = field("number", "", "ms", "time in which nothing is computed")
    tflops: Optional[float] = field("number", "", "TFLOP/s", "rate of matrix products")
    link_gb_per_s: Optional[float] = field("number", "", "GB/s", "bandwidth of a link")
    link_latency_us: Optional[float] = field("number", "", "us", "latency of a link")
    pcie_gb_per_s: Optional[float] = field("number", "", "GB/s", "bandwidth of PCIe in each direction")
    pcie_latency_us: Optional[float] = field("number", "", "us", "latency of PCIe")


class WastedGather(Record):
    """An all-gather that nobody uses, or that brings what was there."""

    waste: str = field("text", "", "", "`never_used`, `used_once` or `freed_early`")
    unit: str = field("text", "", "", "label of its unit")
    op: int = field("whole number", "", "", "its place among the ops")
    other_op: Optional[int] = field("whole number", "", "", "place of the other gather of the same")
    bytes: int = field("whole number", "", "B", "that a rank sends for it")
    why: str = field("text", "", "", "the rule that wastes it")
    remedy: str = field("text", "", "", "what spares it")


class Schedule(Record):
    """The steady step."""

    collectives: str = field("text", "", "", "order of collectives")
    issue: str = field("text", "", "", "order of issue")
    ops: Records[ScheduledOp] = field("list of object", "ScheduledOp", "", "ops in the order of issue")


class ScheduledOp(Record):
    """An op of the steady step."""

    kind: str = field("text", "", "", "what it does")
    phase: str = field("text", "", "", "phase of the step")
    micro: int = field("whole number", "", "", "microbatch")
    name: str = field("text", "", "", "as traces name it")
    waits: List[int] = field("list of whole number", "", "", "events that it waits for")
    lane: str = field("text", "", "", "where it runs")
    unit: Optional[str] = field("text", "", "", "label of its unit")
    records: Optional[int] = field("whole number", "", "", "event that it records")
    prefetch: Optional[bool] = field("true or false", "", "", "part of a gather that is issued before it is needed")
    group: Optional[str] = field("text", "", "", "group that communicates")
    count: Optional[int] = field("whole number", "", "", "elements of a collective")
    dtype: Optional[str] = field("text", "", "", "type of an element")
    allocates: Records[ScheduledBuffer] = field("list of object", "ScheduledBuffer", "", "buffers that it allocates")
    frees: Records[ScheduledBuffer] = field("list of object", "ScheduledBuffer", "", "buffers that it frees")


class ScheduledBuffer(Record):
    """A buffer that an op allocates or frees."""

    buffer: int = field("whole number", "", "", "its number")
    role: str = field("text", "", "", "what it holds")
    bytes: int = field("whole number", "", "B", "its size")
    category: str = field("text", "", "", "category that it is counted in")


class Machine(Record):
    """What `doctor --json` prints ([doctor.md](doctor.md))."""

    schema_version: int = field("whole number", "", "", "version of this format")
    program: str = field("text", "", "", "version of this program")
    cpu: str = field("text", "", "", "name of the processor")
    launch: str = field("text", "", "", "who started this process, and as which rank")
    cores: int = field("whole number", "", "", "physical cores")
    threads: int = field("whole number", "", "", "hardware threads that the program may use")
    sockets: int = field("whole number", "", "", "processors")
    numa_nodes: int = field("whole number", "", "", "NUMA nodes")
    l3_bytes: Optional[int] = field("whole number", "", "B", "one L3 cache")
    memory_bytes: int = field("whole number", "", "B", "memory of the machine")
    available_bytes: int = field("whole number", "", "B", "memory that the program may use")
    disk_free_bytes: int = field("whole number", "", "B", "free where the command was started")
    kernel: str = field("text", "", "", "version of the operating system's kernel")
    gpus: List[str] = field("list of text", "", "", "each GPU, as its driver describes it")
    cuda_driver: str = field("text", "", "", "version of CUDA's driver")
    cuda_toolkit: str = field("text", "", "", "version of CUDA's toolkit")
    mpi: str = field("text", "", "", "version of MPI")
    nvtx: str = field("text", "", "", "whether ranges are marked for NVIDIA's profilers")
    realtime: str = field("text", "", "", "scheduling class of the threads that wait for a point in time")
    libraries: Dict[str, str] = field("map of text", "", "", "versions of libraries, by name")
    rates: Records[MachineRate] = field("list of object", "MachineRate", "", "rates that were measured")
    backend: Dict[str, str] = field("map of text", "", "", "what the CPU backend reports about itself")
    topology: Any = field("any", "", "", "what GPUs and network cards share")


class MachineRate(Record):
    """A rate that was measured."""

    name: str = field("text", "", "", "`gemm_` and a dtype, `memcpy` or `timer_late`")
    threads: int = field("whole number", "", "", "threads that worked")
    value: float = field("number", "", "", "the rate, in `unit`")
    unit: str = field("text", "", "", "`FLOP/s`, `B/s` or `s`")


class Comparison(Record):
    """compare.json: whether B is slower than A ([compare.md](compare.md))."""

    schema_version: int = field("whole number", "", "", "version of this file's format")
    verdict: str = field("text", "", "", "whether B is `faster`, `slower`, there is `no difference`, or it is `inconclusive`")
    sentence: str = field("text", "", "", "the verdict in a sentence")
    ratio: float = field("number", "", "", "step time of B divided by that of A")
    ci_low: float = field("number", "", "", "lower end of the interval of the ratio")
    ci_high: float = field("number", "", "", "upper end of that interval")
    confidence: float = field("number", "", "", "confidence level of the interval")
    threshold: float = field("number", "", "", "smallest difference that matters, as a fraction")
    interleaved: bool = field("true or false", "", "", "whether the trials of both sides took turns")
    order: str = field("text", "", "", "order in which trials ran")
    differing_keys: Records[DifferingKey] = field("list of object", "DifferingKey", "", "every key of the configurations whose two values differ")
    a: ComparedSide = field("object", "ComparedSide", "", "side A")
    b: ComparedSide = field("object", "ComparedSide", "", "side B")
    aa_noise: Optional[float] = field("number", "", "", "by how much two halves of one side's own trials differ, as a fraction; absent for stored results, simulations and fewer than 4 trials")
    world: Optional[World] = field("object", "World", "", "what A's first trial was measured with")


class DifferingKey(Record):
    """A key whose values differ; null on a side that does not have it."""

    key: str = field("text", "", "", "dotted name of the key")
    a: Any = field("any", "", "", "value on side A")
    b: Any = field("any", "", "", "value on side B")


class ComparedSide(Record):
    """One side of a comparison."""

    name: str = field("text", "", "", "profile and overrides, or name of the result")
    step_ms: float = field("number", "", "ms", "median step time")
    config: Any = field("any", "", "", "every key with its resolved value")
    trials: Records[ComparedTrial] = field("list of object", "ComparedTrial", "", "trials in the order in which they ran")
    memory: Optional[Memory] = field("object", "Memory", "", "memory in the last trial")


class ComparedTrial(Record):
    """A trial of one side."""

    metrics: Metrics = field("object", "Metrics", "", "What a step takes, and what it is made of: compute + exposed communication + exposed copies + idle = `step_ms.median`. The parts are means over all ranks ([run.md](run.md#what-a-step-is-made-of)).")
    steps_ms: List[float] = field("list of number", "", "ms", "each measured step, of its slowest rank")


class TraceExplanation(Record):
    """explain.json of `trace explain` ([trace-explain.md](trace-explain.md))."""

    kind: str = field("text", "", "", "`trace_explanation`")
    schema_version: int = field("whole number", "", "", "version of this file's format")
    recognition: Recognition = field("object", "Recognition", "", "what kind of job it is")
    step: JobStepMean = field("object", "JobStepMean", "", "parts of the step, means over ranks and steps")
    collectives: Records[JobCollective] = field("list of object", "JobCollective", "", "collectives by kind, unit and phase, the most exposed first")
    kernels: JobKernelTimes = field("object", "JobKernelTimes", "", "kernels by kind, and those that take most time")
    critical_path: Optional[CriticalPath] = field("object", "CriticalPath", "", "the chain of work that decided how long steps were")
    wasted_gathers: Records[JobWastedGathers] = field("list of object", "JobWastedGathers", "", "all-gathers that nobody used, or that bring what was there")
    wasted_gathers_unknown: Optional[str] = field("text", "", "", "why it is not known whether any is wasted")
    exchanges: Optional[JobExchanges] = field("object", "JobExchanges", "", "tokens on their way to experts and back; absent without any")
    contention: Records[Contention] = field("list of object", "Contention", "", "kernels that run slower beside collectives, those that lose most time first")
    late_launches_pct: Optional[float] = field("number", "", "%", "share of computation that began right after its launch")
    host_ahead_ms: Optional[float] = field("number", "", "ms", "how long before a kernel began the host had launched it, the median of kernels")
    host_most_ahead_ms: Optional[float] = field("number", "", "ms", "the same, the longest")
    clock_residual_ns: int = field("whole number", "", "ns", "error that the clocks of ranks may have")
    late_rank: Optional[int] = field("whole number", "", "", "rank that came last in most of the waiting")
    late: Optional[JobLateRank] = field("object", "JobLateRank", "", "The rank that the others wait for in each step.")
    causes: Records[Cause] = field("list of object", "Cause", "", "why computation was not running, the largest cause first, with what would help")
    headline: str = field("text", "", "", "what to change, or that nothing would help, a sentence or two")
    typical_ms: Optional[float] = field("number", "", "ms", "the replay of the traced step")
    least_ms: Optional[float] = field("number", "", "ms", "what one rank needs for its own kernels and its host: no setting makes the step shorter")
    knobs: Records[ReplayedKnob] = field("list of object", "ReplayedKnob", "", "keys whose change would gain more than the noise, the largest gain first")
    not_replayed_because: Optional[str] = field("text", "", "", "why nothing was replayed, a sentence")
    notes: List[str] = field("list of text", "", "", "sentences to read before any number")
    ranks: Records[JobRank] = field("list of object", "JobRank", "", "parts of the step on each rank")


class Recognition(Record):
    """What the job is, and how that was found out."""

    kind: str = field("text", "", "", "kind of job")
    name: str = field("text", "", "", "name of its engine")
    findings: Records[JobFinding] = field("list of object", "JobFinding", "", "what was found out, with evidence")
    unknown: List[str] = field("list of text", "", "", "what the trace does not tell, one sentence each")
    units: Records[JobUnit] = field("list of object", "JobUnit", "", "units in the order of forward")
    mesh: Optional[JobMesh] = field("object", "JobMesh", "", "how ranks are arranged; only for sharded jobs")
    accumulate: Optional[int] = field("whole number", "", "", "microbatches per step; only for sharded jobs")
    schedule: Optional[ScheduleMatch] = field("object", "ScheduleMatch", "", "schedule that the job follows; only for sharded jobs")


class JobFinding(Record):
    """Something that was found out about the job."""

    what: str = field("text", "", "", "what the finding is about")
    value: str = field("text", "", "", "what was found")
    evidence: str = field("text", "", "", "a sentence that says why")
    confidence: float = field("number", "", "", "how sure it is, from 0 to 1")


class JobUnit(Record):
    """A unit of the job."""

    label: str = field("text", "", "", "label in the annotation, or its place")
    root: bool = field("true or false", "", "", "whether it holds what no other unit holds")
    elements: Optional[int] = field("whole number", "", "", "number of elements, padding included")
    bytes: Optional[int] = field("whole number", "", "B", "bytes as gathered")


class JobMesh(Record):
    """How ranks are arranged."""

    shard: int = field("whole number", "", "", "number of ranks that split a unit")
    replicate: int = field("whole number", "", "", "number of ranks that hold equal shards")


class ScheduleMatch(Record):
    """The schedule whose order of launches the job has."""

    preset: str = field("text", "", "", "`fsdp.preset`")
    exact: bool = field("true or false", "", "", "every launch is where the schedule has it")
    collectives_off: int = field("whole number", "", "", "how many collectives are elsewhere")
    distance: float = field("number", "", "", "of both orders")
    same_order: List[str] = field("list of text", "", "", "collectives come in the schedule's order")
    deviations: List[str] = field("list of text", "", "", "a sentence each")
    fsdp: Any = field("any", "", "", "all keys of `fsdp`")


class JobStepMean(Record):
    """A step: means over ranks and steps."""

    mean_ms: float = field("number", "", "ms", "the step")
    compute_ms: float = field("number", "", "ms", "time in which computation ran")
    comm_ms: float = field("number", "", "ms", "time in which a collective ran, exposed or hidden")
    exposed_comm_ms: float = field("number", "", "ms", "time in which a collective ran and nothing was computed")
    exposed_copy_ms: float = field("number", "", "ms", "time in which only a copy ran")
    idle_ms: float = field("number", "", "ms", "time in which nothing ran")
    causes_ms: Dict[str, float] = field("map of number", "", "ms", "of the time without computation, by cause")
    slowest_rank: Optional[JobStepTime] = field("object", "JobStepTime", "", "Step times of the slowest rank.")


class JobStepTime(Record):
    """Step times of the slowest rank."""

    median: float = field("number", "", "", "median of the values")
    ci_low: float = field("number", "", "", "lower end of the interval of the median")
    ci_high: float = field("number", "", "", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are: `95 % bootstrap` from five values on, else the `range`, or `one value`")
    min: float = field("number", "", "", "smallest value")
    max: float = field("number", "", "", "largest value")
    n: int = field("whole number", "", "", "number of values")
    steps_ms: List[float] = field("list of number", "", "ms", "each step that all ranks have")


class JobCollective(Record):
    """Collectives of one kind, unit and phase: means over ranks and steps, a step."""

    kind: str = field("text", "", "", "`all_gather`, …")
    unit: str = field("text", "", "", "whose they are; empty: not known")
    phase: str = field("text", "", "", "phase of the step")
    purpose: str = field("text", "", "", "what they are for")
    a_step: float = field("number", "", "", "how many a step")
    time_ms: float = field("number", "", "ms", "all of them")
    wait_ms: float = field("number", "", "ms", "part of `time_ms` until the last peer had arrived")
    exposed_ms: float = field("number", "", "ms", "of it, while nothing computed")
    causes_ms: Dict[str, float] = field("map of number", "", "ms", "of the exposed time, by cause")
    bytes: Optional[int] = field("whole number", "", "B", "of a message")
    group_size: Optional[int] = field("whole number", "", "", "number of ranks that take part")
    busbw_gb_per_s: Optional[float] = field("number", "", "GB/s", "of the transfer, as nccl-tests defines it")
    link_gb_per_s: Optional[float] = field("number", "", "GB/s", "bus bandwidth that the cluster's link has at most; absent without a cluster")
    link_share_pct: Optional[float] = field("number", "", "%", "share of it; absent if it would be above 100")
    arrival: Optional[JobArrival] = field("object", "JobArrival", "", "how far apart ranks arrive; absent where no collective has the rows of all its ranks")


class JobArrival(Record):
    """How far apart ranks arrive: from the first one's begin to the last one's."""

    times: int = field("whole number", "", "", "collectives that were compared, in all steps")
    median_ms: float = field("number", "", "ms", "median")
    worst_ms: float = field("number", "", "ms", "the largest")
    last_rank: Optional[int] = field("whole number", "", "", "rank that was last most often; absent if all arrived at once")
    last_pct: float = field("number", "", "%", "how often that rank was last")


class JobKernelTimes(Record):
    """Where the time of kernels went, by kind and by name."""

    total_ms: float = field("number", "", "ms", "time of all kernels in all steps of all ranks, from begin to end of each; those that run at once count twice")
    by_kind: Records[JobKernels] = field("list of object", "JobKernels", "", "by kind, the most time first; they add up to `total_ms`")
    top: Records[JobKernels] = field("list of object", "JobKernels", "", "by name, the most time first; at most ten")
    products: Records[JobProducts] = field("list of object", "JobProducts", "", "matrix products by dtype, the most time first")


class JobKernels(Record):
    """Kernels of one kind, or of one kind and name, on all ranks."""

    kernel: Optional[str] = field("text", "", "", "name; absent: all of the kind")
    kind: str = field("text", "", "", "`products`, `attention`, `elementwise` (with normalisation), `optimizer`, `copies`, `communication` or `other`")
    launches: int = field("whole number", "", "", "in all steps of all ranks")
    total_ms: float = field("number", "", "ms", "time in all steps of all ranks, from begin to end of each")
    a_step: float = field("number", "", "", "launches, mean over ranks and steps")
    ms: float = field("number", "", "ms", "time, mean over ranks and steps")
    share_pct: float = field("number", "", "%", "share of the time of all kernels")


class JobProducts(Record):
    """Matrix products of one dtype, where the trace has the shapes (`record_shapes`)."""

    dtype: str = field("text", "", "", "of the first matrix, as PyTorch calls it")
    a_step: float = field("number", "", "", "products, mean over ranks and steps")
    ms: float = field("number", "", "ms", "time of the kernels that were launched for them, mean over ranks and steps")
    tflop_per_s: float = field("number", "", "TFLOP/s", "2 m n k of each ÷ that time")
    peak_tflops: Optional[float] = field("number", "", "TFLOP/s", "dense peak of the cluster's GPU; for `float` that of TF32 where there is one; absent without a cluster")
    share_pct: Optional[float] = field("number", "", "%", "share of it; absent if it would be above 100")


class JobWastedGathers(Record):
    """All-gathers of a step that are wasted in the same way."""

    waste: str = field("text", "", "", "`never_used`, `used_once` (gathered twice, used once) or `freed_early` (gathered again with nothing between)")
    units: List[str] = field("list of text", "", "", "labels of the units")
    gathers: int = field("whole number", "", "", "how many a step")
    bytes: Optional[int] = field("whole number", "", "B", "that a rank sends for them in a step")
    ms: float = field("number", "", "ms", "that they take in a step")
    evidence: str = field("text", "", "", "what tells it")
    why: str = field("text", "", "", "the rule that wastes them")
    remedy: str = field("text", "", "", "what spares them, in the words of the job's engine")


class JobExchanges(Record):
    """Exchanges of tokens between ranks that split experts: means over ranks and steps, a step."""

    a_step: float = field("number", "", "", "how many")
    ms: float = field("number", "", "ms", "while any of them runs")
    exposed_ms: float = field("number", "", "ms", "of it, while nothing computes")
    attention_ms: float = field("number", "", "ms", "of attention")
    beside_attention_ms: float = field("number", "", "ms", "of attention, beside an exchange")
    two_halves: str = field("text", "", "", "`yes`: two halves of a batch take turns; `no`, `unknown`")
    imbalance: Optional[float] = field("number", "", "", "rows of the busiest rank ÷ the mean, in the median exchange; absent if not told")
    busiest_rank: Optional[int] = field("whole number", "", "", "rank that has most rows most often")
    host_syncs: int = field("whole number", "", "", "waits of the host for the device in forward and backward, of the first rank")
    host_sync_ms: float = field("number", "", "ms", "that these take")
    said: List[str] = field("list of text", "", "", "a sentence each")


class Contention(Record):
    """A matrix product that takes longer while a collective runs."""

    kernel: str = field("text", "", "", "its name")
    alone_us: float = field("number", "", "us", "median, alone")
    beside_us: float = field("number", "", "us", "median, beside a collective")
    alone: int = field("whole number", "", "", "launches alone")
    beside: int = field("whole number", "", "", "launches beside a collective")
    lost_ms: float = field("number", "", "ms", "a step")


class JobLateRank(Record):
    """The rank that the others wait for in each step."""

    rank: int = field("whole number", "", "", "its number")
    where: str = field("text", "", "", "what makes it late: `its kernels`, `its host`, `its input` or `its communication`")
    where_ms: float = field("number", "", "ms", "what that takes beyond the median of the others, a step")
    median: float = field("number", "", "", "median of the values")
    ci_low: float = field("number", "", "", "lower end of the interval of the median")
    ci_high: float = field("number", "", "", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are: `95 % bootstrap` from five values on, else the `range`, or `one value`")
    min: float = field("number", "", "", "smallest value")
    max: float = field("number", "", "", "largest value")
    n: int = field("whole number", "", "", "number of values")


class ReplayedKnob(Record):
    """A key turned in a replay of the job's own op times."""

    set: str = field("text", "", "", "the change, as `key=value`")
    cause: str = field("text", "", "", "the cause that it is meant for")
    step_ms: float = field("number", "", "ms", "what the step would take")
    gain_ms: float = field("number", "", "ms", "how much less that is than the typical step; negative: more")
    ci_low: float = field("number", "", "ms", "lower end of the interval of the gain")
    ci_high: float = field("number", "", "ms", "upper end of that interval")
    interval: str = field("text", "", "", "what the two ends are, as in a summary")
    advised: bool = field("true or false", "", "", "the interval is above 0 and the gain above the noise")
    more_bytes: Optional[int] = field("whole number", "", "B", "more peak memory that it takes")
    advice: Optional[str] = field("text", "", "", "a sentence that says what the change gains; absent unless the change is advised")
    words: str = field("text", "", "", "the setting in the traced program's words; empty: it is this program, or unknown")
    no_word: bool = field("true or false", "", "", "it cannot be set there; `words` says so")


class JobRank(Record):
    """One rank."""

    rank: int = field("whole number", "", "", "number of the rank")
    file: str = field("text", "", "", "its trace")
    clock_offset_ns: int = field("whole number", "", "ns", "to the first rank's clock")
    overlap_pct: Optional[float] = field("number", "", "%", "of communication, what is hidden, over the whole file; absent without communication")
    overlap_hta_pct: Optional[float] = field("number", "", "%", "the same as HolisticTraceAnalysis counts it: by its own kinds of kernels, without what was launched after the last profiled step began; absent without communication or kernels of a device")
    most_allocated_bytes: Optional[int] = field("whole number", "", "B", "by the allocator; absent if the trace does not say")
    most_reserved_bytes: Optional[int] = field("whole number", "", "B", "likewise")
    streams: Records[Stream] = field("list of object", "Stream", "", "of its device")
    steps: Records[JobStep] = field("list of object", "JobStep", "", "each")
    mean: Optional[StepParts] = field("object", "StepParts", "", "of its steps")


class Stream(Record):
    """A stream of a rank's device."""

    stream: int = field("whole number", "", "", "its number")
    device: int = field("whole number", "", "", "its device")
    role: str = field("text", "", "", "what it does")
    rows: int = field("whole number", "", "", "how many there are")
    busy_ms: float = field("number", "", "ms", "that something ran on it")


class JobStep(Record):
    """One rank's step."""

    step_ms: float = field("number", "", "ms", "the step time")
    compute_ms: float = field("number", "", "ms", "time in which computation ran")
    comm_ms: float = field("number", "", "ms", "time in which a collective ran, exposed or hidden")
    overlap_ms: float = field("number", "", "ms", "time in which both ran")
    exposed_comm_ms: float = field("number", "", "ms", "time in which a collective ran and nothing was computed")
    exposed_copy_ms: float = field("number", "", "ms", "time in which only a copy ran")
    idle_ms: float = field("number", "", "ms", "time in which nothing ran")
    step: int = field("whole number", "", "", "number of the step")
    causes_ms: Dict[str, float] = field("map of number", "", "ms", "of the time without computation, by cause")
    collectives: Records[CollectiveUse] = field("list of object", "CollectiveUse", "", "each")
    stalls: Records[JobStall] = field("list of object", "JobStall", "", "each")


class CollectiveUse(Record):
    """A collective in a step."""

    kind: str = field("text", "", "", "`all_gather`, …")
    purpose: str = field("text", "", "", "what it was for")
    phase: str = field("text", "", "", "phase of the step")
    begin_us: float = field("number", "", "us", "since the step began")
    us: float = field("number", "", "us", "how long it took")
    unit: Optional[str] = field("text", "", "", "whose it was")


class JobStall(Record):
    """Time of a step in which nothing was computed; shorter ones than 1 us are only in the sums."""

    begin_us: float = field("number", "", "us", "since the step began")
    us: float = field("number", "", "us", "how long it was")
    cause: str = field("text", "", "", "name of the cause ([explain.md](explain.md))")
    row: Optional[str] = field("text", "", "", "of the trace, that was waited for")
    late_rank: Optional[int] = field("whole number", "", "", "who came last")


class StepParts(Record):
    """What a step is made of; the four parts add up to it."""

    step_ms: float = field("number", "", "ms", "the step time")
    compute_ms: float = field("number", "", "ms", "time in which computation ran")
    comm_ms: float = field("number", "", "ms", "time in which a collective ran, exposed or hidden")
    overlap_ms: float = field("number", "", "ms", "time in which both ran")
    exposed_comm_ms: float = field("number", "", "ms", "time in which a collective ran and nothing was computed")
    exposed_copy_ms: float = field("number", "", "ms", "time in which only a copy ran")
    idle_ms: float = field("number", "", "ms", "time in which nothing ran")


class Gate(Record):
    """gate.json: later results against accepted ones ([gate.md](gate.md))."""

    schema_version: int = field("whole number", "", "", "version of this file's format")
    kind: str = field("text", "", "", "`gate`")
    verdict: str = field("text", "", "", "`pass`, `inconclusive`, `fail` or `not comparable`")
    sentence: str = field("text", "", "", "the verdict in a sentence")
    threshold: float = field("number", "", "", "smaller changes do not matter, as a fraction")
    baseline: str = field("text", "", "", "its name")
    before: GateSide = field("object", "GateSide", "", "the baseline's results")
    now: GateSide = field("object", "GateSide", "", "the later results")
    differences: Records[MachineDifference] = field("list of object", "MachineDifference", "", "facts of the machine that differ")
    differing_keys: Records[DifferingKey] = field("list of object", "DifferingKey", "", "what was measured differently")
    left_out: List[str] = field("list of text", "", "", "results of the folder that were not accepted, with the reason")
    changes: Records[Change] = field("list of object", "Change", "", "each figure")


class GateSide(Record):
    """The results of one side."""

    kind: str = field("text", "", "", "`acceptance`, `run`, `sweep` or `collectives`")
    machine: Any = field("any", "", "", "`name` and `value` of each fact, by `hardware`, `software`, `program`")
    summary: str = field("text", "", "", "the machine in short")
    results: Records[GateResult] = field("list of object", "GateResult", "", "each by its name")


class GateResult(Record):
    """A result of one side."""

    name: str = field("text", "", "", "of its folder")
    date: str = field("text", "", "", "when it was measured; empty for simulations")
    not_accepted_because: Optional[str] = field("text", "", "", "why its own verdict is no pass")


class MachineDifference(Record):
    """A fact of the machine that the sides do not share; empty where one lacks it."""

    name: str = field("text", "", "", "of the fact")
    part: str = field("text", "", "", "`hardware`, `software` or `program`")
    before: str = field("text", "", "", "its value before")
    now: str = field("text", "", "", "its value now")


class Change(Record):
    """A figure now and before."""

    figure: str = field("text", "", "", "its name")
    unit: str = field("text", "", "", "of `before` and `now`")
    better: str = field("text", "", "", "`more` or `less` of it")
    before: Optional[Interval] = field("object", "Interval", "", "in the baseline; null if it is not there")
    now: Optional[Interval] = field("object", "Interval", "", "in the result; null likewise")
    verdict: str = field("text", "", "", "`better`, `pass`, `unrated`, `inconclusive` or `fail`")
    why: str = field("text", "", "", "a sentence with the numbers")
    by: str = field("text", "", "", "what the verdict rests on")
    ratio: Optional[float] = field("number", "", "", "now / before; absent if one is missing")
    ratio_low: Optional[float] = field("number", "", "", "lower end of its interval")
    ratio_high: Optional[float] = field("number", "", "", "upper end")
    at_most: Optional[float] = field("number", "", "", "how many times as bad it is at most, with 96 % certainty")
    left_out: List[str] = field("list of text", "", "", "results of the baseline that are outliers")


OBJECTS: Dict[str, Type[Record]] = {one.__name__: one for one in Record.__subclasses__()}
