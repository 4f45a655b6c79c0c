"""Traces that nobody has recorded: those of recorded jobs, changed as other profilers, programs and accidents would
have them. What a job is stays true of each, unless `changes` says otherwise."""

import random
import re

Events = list[dict]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def rows_of(file: dict) -> Events:
    return file["traceEvents"]


def keep(file: dict, wanted) -> dict:
    return dict(file, traceEvents=[one for one in rows_of(file) if wanted(one)])


def change(file: dict, changed) -> dict:
    return dict(file, traceEvents=[changed(one) for one in rows_of(file)])


def annotation(one: dict) -> bool:
    return one.get("cat") == "user_annotation"


def without(pattern: str):
    return lambda files: [keep(file, lambda one: not re.search(pattern, one.get("name", ""))) for file in files]


def without_calls(files):
    return [keep(file, lambda one: one.get("cat") not in ("cuda_runtime", "cuda_driver")) for file in files]


def without_annotations(files):
    return [keep(file, lambda one: not annotation(one) or one["name"].startswith(("ProfilerStep", "nccl:"))) for file in files]


def without_arguments(*names):
    def changed(one):
        for name in names:
            one.get("args", {}).pop(name, None)
        return one

    return lambda files: [change(file, changed) for file in files]


def stretched(factor: float):
    """A slower machine: all times and lengths."""
    def changed(one):
        for key in ("ts", "dur"):
            if key in one:
                one[key] *= factor
        return one

    return lambda files: [change(file, changed) for file in files]


def moved_processes(files):
    """Other process numbers, and threads and streams of other names."""
    def changed(one):
        if isinstance(one.get("pid"), int) and one.get("cat") not in DEVICE:
            one["pid"] += 70000
        if one.get("cat") in DEVICE:
            one["args"]["stream"] += 100
            one["tid"] = one["args"]["stream"]
        return one

    return [change(file, changed) for file in files]


def shuffled(files):
    for number, file in enumerate(files):
        random.Random(number).shuffle(rows_of(file))
    return files


def first_rank_alone(files):
    return files[:1]


def without_distributed_info(files):
    return [{key: value for key, value in file.items() if key not in ("distributedInfo", "baseTimeNanoseconds")} for file in files]


def own_clocks(files):
    """Files that do not tell how their clocks relate, an hour apart."""
    def moved(file, by):
        return change({key: value for key, value in file.items() if key != "baseTimeNanoseconds"},
                      lambda one: dict(one, ts=one["ts"] + by) if "ts" in one else one)

    return [moved(file, 3.6e9 * number) for number, file in enumerate(files)]


def device_rows_end_early(files):
    """The recording ends while the device works on the last step."""
    def cut(file):
        work = [one for one in rows_of(file) if one.get("cat") in DEVICE]
        marks = sorted(one["ts"] for one in rows_of(file) if one.get("name", "").startswith("ProfilerStep") and annotation(one))
        calls = {one["args"]["correlation"] for one in rows_of(file)
                 if one.get("cat") in ("cuda_runtime", "cuda_driver") and one["ts"] >= marks[-1] and "correlation" in one.get("args", {})}
        last = sorted(one["ts"] for one in work if one["args"].get("correlation") in calls)
        end = last[len(last) // 2]
        return keep(file, lambda one: one.get("cat") not in DEVICE or one["ts"] < end)

    return [cut(file) for file in files]


def renamed_kernels(files):
    """Kernels of a library that nobody knows; those of NCCL stay."""
    names: dict[str, str] = {}

    def changed(one):
        if one.get("cat") == "kernel" and not one["name"].startswith("nccl"):
            one["name"] = names.setdefault(one["name"], f"vendor_kernel_{len(names)}")
        return one

    return [change(file, changed) for file in files]


def amd(files):
    """Of ROCm: other calls, RCCL's kernel for everything, another device."""
    def changed(one):
        if one.get("cat") == "cuda_runtime":
            one["name"] = one["name"].replace("cuda", "hip")
            one["cat"] = "hip_runtime"
        if one.get("cat") == "kernel" and one["name"].startswith("nccl"):
            one["name"] = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
        return one

    done = [change(file, changed) for file in files]
    for file in done:
        for device in file.get("deviceProperties", []):
            device["name"] = "AMD Instinct MI300X"
    return done


def nccl2(files):
    def changed(one):
        if one.get("name", "").startswith("nccl:"):
            one["name"] = "nccl2:" + one["name"][5:]
        return one

    return [change(file, changed) for file in files]


def other_engine(name: str):
    """A row of another engine, as programs have that call it for a moment."""
    def added(files):
        for file in files:
            first = next(one for one in rows_of(file) if one.get("cat") == "cpu_op")
            rows_of(file).append(dict(first, name=name, cat="user_annotation", dur=1))
        return files

    return added


def one_rank_slower(factor: float):
    """The last rank's kernels take longer, and what it does comes later by as much; collectives end with the others."""
    def slower(files):
        def shift(file):
            late = 0.0
            for one in sorted((one for one in rows_of(file) if one.get("cat") == "kernel"), key=lambda one: one["ts"]):
                one["ts"] += late
                if not one["name"].startswith("nccl"):
                    late += one["dur"] * (factor - 1)
                    one["dur"] *= factor
            return file

        return files[:-1] + [shift(files[-1])]

    return slower


def named(prefix: str):
    """Modules of another model: model.layers.3 instead of blocks.3."""
    def changed(one):
        if "name" in one:
            one["name"] = one["name"].replace("(blocks.", f"({prefix}.")
        return one

    return lambda files: [change(file, changed) for file in files]


def garbage(files):
    """Python collects garbage for 30 ms at the begin of each step, on the last rank."""
    for one in [one for one in rows_of(files[-1]) if one.get("name", "").startswith("ProfilerStep") and annotation(one)]:
        rows_of(files[-1]).append(dict(one, name="Python GC", cat="python_function", ts=one["ts"] + 10, dur=30000))
    return files


# By name: how, and of what the answer may be unknown then.
TRANSFORMATIONS = {
    "no-annotations": (without_annotations, {"units", "backward", "forward", "limit", "job"}),
    "no-profiler-steps": (without("^ProfilerStep"), {"step"}),
    "no-steps-at-all": (without("^ProfilerStep|^Optimizer"), {"step", "accumulation"}),
    "no-optimizer": (without("^Optimizer"), set()),
    "no-autograd": (without("autograd::engine"), {"checkpointing"}),
    "no-host-ops": (lambda files: [keep(file, lambda one: one.get("cat") != "cpu_op") for file in files], None),
    "no-runtime": (without_calls, set()),  # the op with a kernel's external id launched it
    "no-launches": (lambda files: without_arguments("External id")(without_calls(files)), None),
    "no-sizes": (without_arguments("In msg nelems", "Out msg nelems", "Input Dims"), None),
    "no-groups": (without_arguments("Process Group Name", "Group size", "Process Group Ranks", "Process Group Description"), None),
    "stretched": (stretched(3.0), {"step"}),
    "other-processes": (moved_processes, set()),
    "shuffled": (shuffled, set()),
    "one-rank": (first_rank_alone, set()),
    "no-distributed-info": (without_distributed_info, set()),
    "own-clocks": (own_clocks, set()),
    "cut-last-step": (device_rows_end_early, {"step"}),
    "unknown-kernels": (renamed_kernels, {"checkpointing"}),
    "amd": (amd, set()),
    "nccl2": (nccl2, set()),
    "deepspeed-row": (other_engine("DeepSpeedEngine.allreduce_gradients"), {"job"}),
    "megatron-row": (other_engine("megatron_fsdp::all_gather"), {"job"}),
    "slower-rank": (one_rank_slower(1.5), {"step"}),
    "model-layers": (named("model.layers"), set()),
    "garbage": (garbage, set()),
}
