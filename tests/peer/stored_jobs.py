"""Traces of jobs.py, reduced to what `trace explain` reads, in one small file; and how often it tells what was set in them.

    stored_jobs.py FOLDER FILE PROGRAM    stores rank 0 of each job that jobs.py recorded in FOLDER, if PROGRAM says the same
                                          of the reduced trace as of the whole one

Left out are links between events, numbers of events and the names of host and files. Times are in whole microseconds. The file
is lines of JSON, compressed by xz: the first has how many answers at 90 % and more there were and were right; each other one is a
job, with a list per field of an event. It needs no PyTorch.
"""

import gzip
import itertools
import json
import lzma
import os
import subprocess
import sys
import tempfile

NOT_READ = {"External id", "Record function id", "Ev Idx", "Op count"}  # arguments of events
HEADER = ("schemaVersion", "distributedInfo", "baseTimeNanoseconds")
FIELDS = ("name", "cat", "pid", "tid", "args")
SURE = 0.9


def what_was_set(job):
    """The right answers by what is asked, as `trace explain` words them."""
    keys, system = job["keys"], job["system"]
    strategy = keys.get("fsdp.strategy", "full_shard")
    kinds = {"ddp": "data_parallel", "zero1": "sharded_optimizer", "tensor": "model_parallel", "alone": "single",
             "inference": "inference"}
    kind = "data_parallel" if strategy == "no_shard" else kinds.get(system, "sharded")
    right = {"job": kind, "steps": str(job["steps"]), "accumulation": str(keys.get("train.accumulate", 1)),
             "activation checkpointing": str(bool(job.get("checkpointing"))).lower()}
    if kind != "sharded":
        return right
    layers = (job["layers"] + 1) // 2 if keys.get("fsdp.wrap") == "blocks:2" else job["layers"]
    hybrid = strategy.startswith("hybrid")
    shards = 2 if hybrid or system == "fsdp2-tensor" else job["ranks"]
    reshard = False if strategy.endswith("grad_op") else keys.get("fsdp.reshard_after_forward", "auto")
    forward = keys.get("fsdp.forward_prefetch", "implicit")
    if job.get("prefetch_blocks_alone") and layers == 1:  # there is none to prefetch
        forward = "implicit"
    flat = system == "fsdp1"
    return right | {
        "units": f"{layers} and the root", "mesh": f"{shards} shards x {2 if hybrid else 1} replicas",
        "schedule": "fsdp1" if flat else "fsdp2", "layout": "flat" if flat else "per_param",
        "reshard after forward": str(reshard).lower(),
        "strategy": ("hybrid_" if hybrid else "") + ("shard_grad_op" if reshard is False else
                                                     "shard" if hybrid else "full_shard"),
        "forward prefetch": str(forward), "backward prefetch": str(keys.get("fsdp.backward_prefetch", "pre")),
        "all-gather limit": keys.get("fsdp.all_gather_limit", "fsdp1_queue:2") if flat else "fsdp2_event"}


def in_one_word(what, value, answers):
    """Two values that are one setting: a depth of 1 backward is "pre", and a strategy says what "auto" means."""
    value = value.removeprefix("explicit:") if what.endswith("prefetch") else value
    if what == "backward prefetch" and value == "1":
        return "pre"
    if what == "reshard after forward" and value == "auto" and answers["strategy"]["value"].endswith("grad_op"):
        return "false"
    return value


def reduced(trace):
    """A trace as it is stored: each distinct value of a field once, and by event the places of its values."""
    spans = [one for one in trace["traceEvents"] if one["ph"] == "X" and one["cat"] in ("cpu_op", "user_annotation")]
    spans.sort(key=lambda one: one["ts"])
    stored = {"header": {key: trace[key] for key in HEADER if key in trace},
              "threads": [{key: one[key] for key in ("ph", "name", "pid", "tid", "args")} for one in trace["traceEvents"]
                          if one["ph"] == "M" and one["name"] in ("process_name", "process_labels", "thread_name")],
              "fields": {}, "gaps_us": [], "took_us": []}
    first = last = spans[0]["ts"]
    for one in spans:
        begin, end = round(one["ts"] - first), round(one["ts"] + one["dur"] - first)
        stored["gaps_us"].append(begin - round(last - first))
        stored["took_us"].append(end - begin)
        last = one["ts"]
        one["args"] = {key: value for key, value in one.get("args", {}).items() if key not in NOT_READ}
    for field in FIELDS:
        values = {json.dumps(one[field]): one[field] for one in spans}
        places = {text: place for place, text in enumerate(values)}
        stored["fields"][field] = {"values": list(values.values()), "of_events": [places[json.dumps(one[field])] for one in spans]}
    return stored


def whole(stored):
    """The text of the trace that was stored, as a profiler would write it. Its lines are put together here, because json.dump takes several times as long."""
    events, now = [json.dumps(one) for one in stored["threads"]], 0
    parts = []
    for name, field in stored["fields"].items():
        texts = [f',"{name}":{json.dumps(value)}' for value in field["values"]]
        parts.append([texts[place] for place in field["of_events"]])
    for gap, took, *fields in zip(stored["gaps_us"], stored["took_us"], *parts):
        now += gap
        events.append(f'{{"ph":"X","ts":{now},"dur":{took}{"".join(fields)}}}')
    return json.dumps(stored["header"])[:-1] + ',"traceEvents":[' + ",".join(events) + "]}"


def recorded(folder):
    """Of each job in jobs.py's FOLDER: its place, what was set, the path of rank 0's trace."""
    for place in sorted(os.listdir(folder)):
        with open(os.path.join(folder, place, "set.json")) as file:
            yield place, json.load(file), os.path.join(folder, place, "rank_0.json.gz")


def stored(path, each=1):
    """The same of each so many-th job of a file of this program; each trace is there until the next one is asked for."""
    with lzma.open(path, "rt") as lines, tempfile.TemporaryDirectory() as folder:
        next(lines)
        trace = os.path.join(folder, "rank_0.json")
        for line in itertools.islice(lines, 0, None, each):
            job = json.loads(line)
            with open(trace, "w") as file:
                file.write(whole(job["trace"]))
            yield job["place"], job["set"], trace


def counts(path):
    """How many answers were said to be right by 90 % or more when the file was made, and how many were."""
    with lzma.open(path, "rt") as lines:
        return json.loads(next(lines))


def recognition(program, trace):
    done = subprocess.run([program, "trace", "explain", trace, "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)["recognition"]


def findings(recognised):
    return {one["what"]: one for one in recognised["findings"]}


def judged(jobs, program, look=lambda recognised: None):
    """What is asked, its confidence, and whether it is right, of all jobs. "A or B" is right if either is. `look` gets what
    was recognised of each."""
    said = []
    for place, job, trace in jobs:
        right = what_was_set(job)
        recognised = recognition(program, trace)
        look(recognised)
        answers = findings(recognised)
        for what, one in answers.items():
            if what in ("order", "device"):  # of these nothing was set
                continue
            values = [in_one_word(what, value, answers) for value in one["value"].split(" or ")]
            is_right = what in right and in_one_word(what, right[what], answers) in values
            said.append((what, one["confidence"], is_right))
            if not is_right:
                print(f"{place}: {what} is said to be {one['value']} ({one['confidence']}), and is {right.get(what)}")
    return said


def score(jobs, program):
    """Prints how many answers are right, by stated confidence and by what is asked."""
    said = judged(jobs, program)
    for low, high in ((0, 0.5), (0.5, 0.8), (0.8, SURE), (SURE, 0.95), (0.95, 1.01)):
        some = [is_right for _, confidence, is_right in said if low <= confidence < high]
        print(f"confidence from {low}: {sum(some)} of {len(some)} right")
    for what in sorted({one[0] for one in said}):
        some = [is_right for other, confidence, is_right in said if other == what and confidence >= SURE]
        print(f"{what}, from {SURE}: {sum(some)} of {len(some)} right")


def store(folder, path, program):
    lines = []
    for place, job, trace in recorded(folder):
        with gzip.open(trace) as file:
            lines.append({"place": place, "set": job, "trace": reduced(json.load(file))})
    sure = [is_right for _, confidence, is_right in judged(recorded(folder), program) if confidence >= SURE]
    with lzma.open(path, "wt", preset=9 | lzma.PRESET_EXTREME) as out:
        for line in [{"sure": len(sure), "right": sum(sure)}, *lines]:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    for (place, _, small), (_, _, full) in zip(stored(path), recorded(folder)):
        if findings(recognition(program, small)) != findings(recognition(program, full)):
            os.remove(path)
            sys.exit(f"{place}: the reduced trace is explained in another way than the whole one.")
    print(f"{len(lines)} jobs, {os.path.getsize(path)} bytes, {sum(sure)} of {len(sure)} answers from {SURE} right")


if __name__ == "__main__":
    store(*sys.argv[1:])
