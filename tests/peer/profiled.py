"""What PyTorch's own profiler writes of FSDP1, FSDP2 and DDP on CPU ranks over gloo: `python profiled.py FOLDER`.

One folder a case, FOLDER/traces-VERSION/CASE: rank_N.json.gz as torch.profiler exports it, and truth.json: what the
case is, in fsdpbench's keys, and for each profiled step its collectives in order of issue with their units ("AG0 AG1
RS1 RS0"; R is the root), told by the engine itself (record.py), not by the trace.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import tempfile

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import engines
import record

WIDTH, VOCABULARY = 96, 64
WARMUP = 3  # steps before the profiler's own


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """Takes its blocks, an iterable of modules that keep `width`, for some cases shard or wrap them one by one before."""

    def __init__(self, blocks, width=WIDTH):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).float().square().mean()


def case(preset, ranks=2, layers=3, steps=2, stacks=False, **keys):
    return {"preset": preset, "ranks": ranks, "layers": layers, "steps": steps, "stacks": stacks,
            "keys": {key.replace("__", "."): value for key, value in keys.items()}}


MESH = {"mesh__shard": 2, "mesh__replicate": 2}
CASES = {
    "fsdp2": case("fsdp2"),
    "fsdp2-stacks": case("fsdp2", layers=1, steps=1, stacks=True),
    "fsdp2-grad-op": case("fsdp2", fsdp__strategy="shard_grad_op"),
    "fsdp2-explicit": case("fsdp2", fsdp__forward_prefetch=2, fsdp__backward_prefetch=2),
    "fsdp2-bf16": case("fsdp2", fsdp__param_dtype="bf16", fsdp__reduce_dtype="f32"),
    "fsdp2-hybrid": case("fsdp2", ranks=4, fsdp__strategy="hybrid_shard", **MESH),
    "fsdp1": case("fsdp1"),
    "fsdp1-grad-op": case("fsdp1", fsdp__strategy="shard_grad_op"),
    "fsdp1-no-shard": case("fsdp1", fsdp__strategy="no_shard"),
    "fsdp1-forward-prefetch": case("fsdp1", fsdp__forward_prefetch=1),
    "fsdp1-no-backward-prefetch": case("fsdp1", fsdp__backward_prefetch="none"),
    "fsdp1-hybrid": case("fsdp1", ranks=4, fsdp__strategy="hybrid_shard", **MESH),
    "ddp": case("ddp"),
    "alone": case("none", ranks=1),
}


def build(spec):
    torch.manual_seed(1)
    model = Model(Block(WIDTH) for _ in range(spec["layers"]))
    if spec["preset"] == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.2)
    keys = {"mesh.ranks": spec["ranks"], **spec["keys"]}
    return {"fsdp1": engines.fsdp1, "fsdp2": engines.fsdp2, "none": lambda model, _: model}[spec["preset"]](model, keys)


def collectives(tokens):
    return " ".join(token for token in tokens if token[:2] in ("AG", "RS", "AR"))


def work(rank, name, address, folder):
    spec = CASES[name]
    engines.join_job(rank, spec["ranks"], address)
    record.watch_collectives()
    record.watch_fsdp1()
    record.watch_fsdp2()
    model = build(spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    tokens = torch.randint(VOCABULARY, (8, 64), generator=torch.Generator().manual_seed(rank))
    steps = []
    plan = schedule(wait=WARMUP, warmup=1, active=spec["steps"], repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, with_stack=spec["stacks"],
                 record_shapes=spec["stacks"]) as profiler:
        for step in range(WARMUP + 1 + spec["steps"]):
            record.LOG.begin_step(step)
            model(tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps.append(collectives(record.LOG.tokens))
            profiler.step()
    profiler.export_chrome_trace(os.path.join(folder, f"{rank}.json"))
    if rank == 0:
        with open(os.path.join(folder, "truth.json"), "w") as out:
            json.dump({"preset": spec["preset"], "ranks": spec["ranks"], "layers": spec["layers"],
                       "keys": spec["keys"], "steps": steps[-spec["steps"]:]}, out, indent=1)
            out.write("\n")
    engines.leave_job()


def main():
    parser = argparse.ArgumentParser(description="Small traces of PyTorch's profiler, with what is true of them.")
    parser.add_argument("folder", help="e.g. recorded")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be given several times")
    arguments = parser.parse_args()
    for name in arguments.case or CASES:
        place = os.path.join(arguments.folder, f"traces-{record.VERSION}", name)
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, args=(name, f"file://{folder}/store", folder), nprocs=CASES[name]["ranks"])
            shutil.move(os.path.join(folder, "truth.json"), place)
            for rank in range(CASES[name]["ranks"]):
                with open(os.path.join(folder, f"{rank}.json"), "rb") as trace:
                    text = trace.read().replace(folder.encode(), b"/traces")  # traceName
                text = re.sub(rb'("host_name": )"[^"]*"', rb'\1"host"', text)
                with open(os.path.join(place, f"rank_{rank}.json.gz"), "wb") as out:
                    out.write(gzip.compress(text, 9, mtime=0))
        print(name)


if __name__ == "__main__":
    main()
