#!/usr/bin/python3
"""What `trace explain` says of jobs whose settings are known: right, wrong or unknown, a row a job.

    truth_table.py PROGRAM TRUTH.json FOLDER_OF_ARCHIVES [NAME...]

TRUTH.json is a list of what tests/peer/gpu_corpus.py told of each job, or what lies beside the traces in recorded-h100;
the folder has an archive or a folder for each. Wrong is what is wrong and said to be sure; what is said to be less sure
counts as unknown. Exits with 1 if anything is wrong, or if a column is right for less than nine of ten.
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

CONFIDENT = 0.8  # of what is said to be less sure nobody relies
# What differs between ranks: README.md beside the traces.
LATE = {"fsdp2-slow-gpu": 1, "fsdp2-uneven-sequences": 0}
RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"


def is_sharded(case: dict) -> bool:
    """Whether it trains, sharded: what only gathers has none of the settings of backward."""
    return not case.get("eval") and case["engine"] in ("fsdp1", "fsdp2") and case["world"] > 1 and case.get("strategy") != "NO_SHARD"


def keeps(case: dict) -> bool:
    """Whether parameters stay gathered between forward and backward."""
    return case.get("reshard") is False or case.get("strategy") in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")


def several_units(case: dict) -> bool:
    return is_sharded(case) and case.get("wrap") != 0


def job_is(case: dict, said: str) -> bool:
    if case.get("eval"):
        return said == "inference"
    if case["engine"] == "pipeline":
        return said == "sharded"  # within each stage
    if case["world"] == 1:
        return said == "single"
    if is_sharded(case):
        return said == "sharded"
    return said == ("sharded_optimizer" if case.get("zero1") else "data_parallel")


def strategy_is(case: dict, said: str) -> bool:
    plain = "shard_grad_op" if keeps(case) else "full_shard"
    hybrid = "hybrid_shard_grad_op" if keeps(case) else "hybrid_shard"
    if case.get("wrap") == 0:  # one unit is kept anyway
        return said == "full_shard or shard_grad_op"
    return said == (hybrid if case.get("mesh") else plain)


def reshard_is(case: dict, said: str) -> bool:
    if case.get("reshard") == 2:
        return said == "2"
    return said in (("false", "auto") if keeps(case) else ("true", "auto"))  # auto: as the strategy has it


def forward_is(case: dict, said: str) -> bool:
    values = said.split(" or ")
    if "forward_depth" in case:
        return f"explicit:{case['forward_depth']}" in values
    return any(value.startswith("explicit") for value in values) if case.get("forward_prefetch") else "implicit" in values


def backward_is(case: dict, said: str) -> bool:
    values = said.split(" or ")
    if "backward_depth" in case:
        explicit = f"explicit:{case['backward_depth']}"
        return explicit in values or (case["backward_depth"] == 1 and "pre" in values)  # the same gathers in the same order
    return keeps(case) or (case.get("backward_prefetch", "pre") or "none") in values


def limit_is(case: dict, said: str) -> bool:
    if case["engine"] == "fsdp2":
        return said == "fsdp2_event"
    return said == "unlimited" if case.get("limit") is False else said.startswith("fsdp1_queue")


def checkpointing_is(case: dict, said: str) -> bool:
    return said == {None: "false", "block": "true", "selective": "selective"}[case.get("checkpoint")]


def units_are(case: dict, said: str) -> bool:
    wrap = case.get("wrap", 1)
    if "units" in case:
        return said == case["units"]
    return said == ("1" if wrap == 0 else f"{6 // wrap} and the root")


# Column: the finding that answers it, whether that is right of a case, which cases have it.
COLUMNS = {
    "job": ("job", job_is, lambda case: True),
    "strategy": ("strategy", strategy_is, is_sharded),
    "layout": ("layout", lambda case, said: said == ("flat" if case["engine"] == "fsdp1" else "per_param"), is_sharded),
    "units": ("units", units_are, is_sharded),
    "reshard": ("reshard after forward", reshard_is, several_units),
    "forward": ("forward prefetch", forward_is, several_units),
    "backward": ("backward prefetch", backward_is, several_units),
    "limit": ("all-gather limit", limit_is, several_units),
    "checkpointing": ("activation checkpointing", checkpointing_is, lambda case: case["engine"] != "pipeline" and not case.get("eval")),
}


def profiled_step_ms(files: list[Path]) -> list[float]:
    """From the end of what was launched within one ProfilerStep to the end of what was launched within the next, of the
    slowest rank."""
    ranks = []
    for file in files:
        events = [one for one in json.loads(file.read_text())["traceEvents"] if one.get("ph") == "X"]
        marks = sorted((one["ts"], one["ts"] + one["dur"]) for one in events
                       if one["name"].startswith("ProfilerStep#") and one["cat"] == "user_annotation")
        launched = {one["args"]["correlation"]: one["ts"] for one in events if one.get("cat") in ("cuda_runtime", "cuda_driver")}
        work = [(launched.get(one["args"].get("correlation"), -1), one["ts"], one["ts"] + one["dur"]) for one in events
                if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        begins = [begin for begin, _ in marks[1:]] + [marks[-1][1]]
        steps = [[row for row in work if low <= row[0] < high] for low, high in zip([marks[0][0], *begins], begins)]
        ends = [min(row[1] for row in steps[0])] + [max(row[2] for row in step) for step in steps]
        if all(row[2] <= high for step, high in zip(steps, begins) for row in step):  # the device waits at each mark
            ends = [marks[0][0], *begins]
        ranks.append([(end - begin) / 1e3 for begin, end in zip(ends, ends[1:])])
    return [max(rank[i] for rank in ranks) for i in range(len(ranks[0]))]


def late_of(case: dict, answer: dict) -> str:
    accused = re.search(r"[Rr]ank (\d+) (is late|took)", answer["headline"])
    said = int(accused[1]) if accused else None
    truth = LATE.get(case["name"])
    if said == truth:
        return RIGHT
    # What a rank took in these few steps accuses nobody.
    return UNKNOWN if said is None or accused[2] == "took" else f"{WRONG}: {said}"


def step_of(case: dict, answer: dict) -> str:
    """As the trace has it; and as it was without the profiler, where that did not hold up the host."""
    steps = answer["step"]["slowest_rank"]["steps_ms"]
    traced = case["profiled_step_ms"]
    # Where the host waits for the device at the end of a step, the profiler's own marks are its ends.
    as_traced = len(steps) == len(traced) and abs(median(steps) / median(traced) - 1) < 0.03
    ahead = case.get("host_ms_a_step", 0) < 0.75 * case["step_ms_median"] and case["world"] == 2
    right = as_traced and (not ahead or abs(median(steps) / case["step_ms_median"] - 1) < 0.06)
    sure = {one["what"]: one for one in answer["recognition"]["findings"]}["steps"]["confidence"] >= CONFIDENT
    return RIGHT if right else f"{WRONG if sure else UNKNOWN}: {median(steps):.1f}"


def score(case: dict, answer: dict) -> dict[str, str]:
    """By column: right, wrong or unknown, and what was said."""
    findings = {one["what"]: one for one in answer["recognition"]["findings"]}
    row = {}
    for column, (what, is_right, has) in COLUMNS.items():
        if not has(case):
            continue
        said = findings.get(what)
        if said is None:
            row[column] = UNKNOWN
        elif is_right(case, said["value"]):
            row[column] = RIGHT
        else:
            row[column] = f"{WRONG if said['confidence'] >= CONFIDENT else UNKNOWN}: {said['value']}"
    if case["engine"] != "pipeline":
        count = int(findings["accumulation"]["value"]) if "accumulation" in findings else 1
        sure = findings.get("accumulation", {"confidence": 1})["confidence"] >= CONFIDENT
        row["accumulation"] = RIGHT if count == case.get("accumulate", 1) else f"{WRONG if sure else UNKNOWN}: {count}"
    row["late"] = late_of(case, answer)
    row["step"] = step_of(case, answer)
    return row


def main(program: str, truth: str, folder: str, *names: str) -> int:
    def ask(case: dict) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as scratch:
            at = Path(folder) / case["name"]
            if not at.exists():
                at = Path(scratch)
                with tarfile.open(Path(folder) / f"{case['name']}.tar.xz") as archive:
                    archive.extractall(at)
            if "profiled_step_ms" not in case:
                case["profiled_step_ms"] = profiled_step_ms(sorted(at.glob("*.json")))
            done = subprocess.run([program, "trace", "explain", str(at), "--json"], capture_output=True, text=True, check=True)
            return score(case, json.loads(done.stdout))

    cases = [case for case in json.loads(Path(truth).read_text()) if not names or case["name"] in names]
    cases = [case for case in cases if any((Path(folder) / (case["name"] + end)).exists() for end in ("", ".tar.xz"))]
    with ThreadPoolExecutor(2) as pool:
        table = {case["name"]: row for case, row in zip(cases, pool.map(ask, cases))}
    columns = [*COLUMNS, "accumulation", "late", "step"]
    for name, row in table.items():
        other = [f"{column} {row[column]}" for column in columns if row.get(column, RIGHT) != RIGHT]
        print(f"{name:28} {sum(result == RIGHT for result in row.values()):2} of {len(row):2} right  {', '.join(other)}")
    print(f"\n{'column':14} right  wrong  unknown")
    good = True
    for column in columns:
        results = [row[column].split(":")[0] for row in table.values() if column in row]
        if not results:
            continue
        counts = [results.count(one) for one in (RIGHT, WRONG, UNKNOWN)]
        good = good and counts[1] == 0 and counts[0] >= 0.9 * len(results)
        print(f"{column:14} {counts[0]:5}  {counts[1]:5}  {counts[2]:7}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
