"""The same PyTorch job under two settings, on CPU ranks over gloo: `python pairs.py FOLDER`.

One folder a pair, FOLDER/pairs-VERSION/PAIR: a/ and b/ with rank_N.json.gz, as torch.profiler wrote them, and pair.json:
both settings in fsdpbench's keys and what their steps took. Both run in the same processes in turns, a b b a a b b a,
so that whatever else the machine does meets both alike; one profile of all steps is then cut into two files. A test
asks each side what the other's setting would gain, and compares the answer with what it did (tests/foreign/traced_pairs_test.cpp).
"""

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import engines
import record

VOCABULARY = 64
ROUNDS = 4  # steps of either setting
WARMUP = 2
SEQUENCES = 16


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, layers, width, wrap):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        blocks = [Block(width) for _ in range(layers)]
        if wrap.startswith("blocks:"):
            size = int(wrap.split(":")[1])
            blocks = [engines.Run(*blocks[i:i + size]) for i in range(0, layers, size)]
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).float().square().mean()


def pair(preset, a, b, ranks=2, layers=2, width=128, sleeps=0.0):
    """`sleeps`: seconds of each step that the last rank sleeps."""
    def keys(setting):
        return {"fsdp." + key: value for key, value in setting.items()}
    return {"preset": preset, "ranks": ranks, "layers": layers, "width": width, "sleeps": sleeps,
            "a": keys(a), "b": keys(b)}


PAIRS = {
    "fsdp2-reshard": pair("fsdp2", {}, {"strategy": "shard_grad_op"}),
    "fsdp2-reshard-wide": pair("fsdp2", {}, {"strategy": "shard_grad_op"}, width=384),
    "fsdp2-forward-prefetch": pair("fsdp2", {}, {"forward_prefetch": 1}),
    "fsdp2-both-prefetch": pair("fsdp2", {}, {"forward_prefetch": 2, "backward_prefetch": 2}, layers=3),
    "fsdp2-wrap": pair("fsdp2", {}, {"wrap": "blocks:2"}, layers=4),
    "fsdp2-wrap-wide": pair("fsdp2", {}, {"wrap": "blocks:2"}, layers=4, width=256),
    "fsdp1-reshard": pair("fsdp1", {}, {"strategy": "shard_grad_op"}),
    "fsdp1-reshard-wide": pair("fsdp1", {}, {"strategy": "shard_grad_op"}, width=384),
    "fsdp1-forward-prefetch": pair("fsdp1", {}, {"forward_prefetch": 1}, layers=3),
    "fsdp1-backward-prefetch": pair("fsdp1", {"backward_prefetch": "none"}, {}, layers=3),
    "fsdp1-post": pair("fsdp1", {"backward_prefetch": "post"}, {}, layers=3),
    "fsdp1-wrap": pair("fsdp1", {}, {"wrap": "blocks:2"}, layers=4),
    "fsdp2-sleeper": pair("fsdp2", {}, {"strategy": "shard_grad_op"}, sleeps=0.1),
    "fsdp1-sleeper": pair("fsdp1", {}, {"strategy": "shard_grad_op"}, ranks=4, sleeps=0.5),
}


def build(spec, side):
    torch.manual_seed(1)
    keys = {"mesh.ranks": spec["ranks"], **spec[side]}
    model = Model(spec["layers"], spec["width"], spec[side].get("fsdp.wrap", "block"))
    return {"fsdp1": engines.fsdp1, "fsdp2": engines.fsdp2}[spec["preset"]](model, keys)


def turns():
    return "".join("ab" if i % 2 == 0 else "ba" for i in range(ROUNDS))


def split(path, order, folder, rank):
    """A profile of all steps as one file for either setting, without what no reader of traces looks at."""
    with open(path) as file:
        trace = json.load(file)
    marks = sorted((e for e in trace["traceEvents"] if e.get("name", "").startswith("ProfilerStep#")
                    and e.get("cat") == "user_annotation"), key=lambda e: e["ts"])
    assert len(marks) == len(order), (len(marks), len(order))
    for side in "ab":
        windows = [(m["ts"], m["ts"] + m["dur"]) for m, turn in zip(marks, order) if turn == side]
        events = []
        for event in trace["traceEvents"]:
            if event["ph"] == "M":
                events.append(event)
                continue
            if event.get("cat") not in ("cpu_op", "user_annotation"):
                continue
            if not any(begin <= event["ts"] < end for begin, end in windows):
                continue
            kept = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if key in event}
            wanted = ("Input Dims", "Input type") if "c10d::" in event["name"] or "gloo:" in event["name"] else ()
            kept["args"] = {key: value for key, value in event.get("args", {}).items() if key in wanted}
            events.append(kept)
        out = {**trace, "traceEvents": events, "traceName": f"/traces/{side}"}
        text = json.dumps(out, separators=(",", ":"))
        text = re.sub(r'("host_name":)"[^"]*"', r'\1"host"', text)
        with open(os.path.join(folder, side, f"rank_{rank}.json.gz"), "wb") as file:
            file.write(gzip.compress(text.encode(), 9, mtime=0))


def work(rank, name, address, folder):
    spec = PAIRS[name]
    engines.join_job(rank, spec["ranks"], address)
    sides = {side: build(spec, side) for side in "ab"}
    optimizers = {side: torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True) for side, model in sides.items()}
    tokens = torch.randint(VOCABULARY, (SEQUENCES, 64), generator=torch.Generator().manual_seed(rank))
    took = {"a": [], "b": []}
    order = turns()
    plan = schedule(wait=2 * WARMUP - 1, warmup=1, active=len(order), repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for step, side in enumerate("ab" * WARMUP + order):
            dist.barrier()
            begin = time.perf_counter()
            if rank == spec["ranks"] - 1 and spec["sleeps"]:
                time.sleep(spec["sleeps"])
            sides[side](tokens).backward()
            optimizers[side].step()
            optimizers[side].zero_grad()
            if step >= 2 * WARMUP:
                took[side].append((time.perf_counter() - begin) * 1e3)
            profiler.step()
    path = os.path.join(folder, f"whole-{rank}.json")
    profiler.export_chrome_trace(path)
    split(path, order, folder, rank)
    os.remove(path)
    if rank == 0:
        with open(os.path.join(folder, "pair.json"), "w") as out:
            json.dump({**spec, "steps_ms": {side: [round(ms, 3) for ms in took[side]] for side in "ab"}}, out, indent=1)
            out.write("\n")
        print(name, {side: round(statistics.median(ms), 1) for side, ms in took.items()}, flush=True)
    engines.leave_job()


def main():
    parser = argparse.ArgumentParser(description="Traces of PyTorch jobs under two settings each.")
    parser.add_argument("folder", help="e.g. recorded")
    parser.add_argument("--pair", action="append", choices=PAIRS, help="only this one; may be given several times")
    arguments = parser.parse_args()
    for name in arguments.pair or PAIRS:
        place = os.path.join(arguments.folder, f"pairs-{record.VERSION}", name)
        shutil.rmtree(place, ignore_errors=True)
        for side in "ab":
            os.makedirs(os.path.join(place, side))
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, args=(name, f"file://{folder}/store", place), nprocs=PAIRS[name]["ranks"])


if __name__ == "__main__":
    main()
