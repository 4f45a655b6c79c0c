"""What PyTorch's own profiler writes of FSDP1, FSDP2 and DDP on CPU ranks over gloo: `python profiled.py FOLDER`.

One folder a case, FOLDER/traces-VERSION/CASE, with experts FOLDER/experts-VERSION/CASE: rank_N.json.gz as torch.profiler exports it, and truth.json: what the
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
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

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


class Exchange(torch.autograd.Function):
    """Rows to the ranks of their experts, `give[r]` to rank r, and `take[r]` from there; back again in backward."""

    @staticmethod
    def forward(ctx, rows, give, take):
        ctx.splits = give, take
        out = rows.new_empty(sum(take), rows.size(1))
        dist.all_to_all_single(out, rows, take, give)
        return out

    @staticmethod
    def backward(ctx, grad):
        give, take = ctx.splits
        out = grad.new_empty(sum(give), grad.size(1))
        dist.all_to_all_single(out, grad.contiguous(), give, take)
        return out, None, None


class ExpertBlock(Block):
    """An expert per rank, of which the first gets three quarters of all rows. Each tells the others how many come."""

    def __init__(self, width):
        super().__init__(width)
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        rows = self.norm(x).reshape(-1, x.size(-1))
        ranks = dist.get_world_size()
        others = rows.size(0) // 4 // (ranks - 1)
        give = [rows.size(0) - others * (ranks - 1)] + [others] * (ranks - 1)
        counts = torch.empty(ranks, dtype=torch.long)
        dist.all_to_all_single(counts, torch.tensor(give))
        take = counts.tolist()
        y = Exchange.apply(self.expert(Exchange.apply(rows, give, take)), take, give)
        return super().forward(x) + y.reshape(x.shape)


class Model(nn.Module):
    """Takes its blocks, an iterable of modules that keep `width`, for some cases shard or wrap them one by one before."""

    def __init__(self, blocks, width=WIDTH):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, VOCABULARY)
        self.reentrant = False  # each block is called in a reentrant checkpoint, which is around its hooks

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.reentrant else block(x)
        return self.head(x).float().square().mean()


def case(preset, ranks=2, layers=3, steps=2, stacks=False, experts=False, **keys):
    return {"preset": preset, "ranks": ranks, "layers": layers, "steps": steps, "stacks": stacks, "experts": experts,
            "keys": {key.replace("__", "."): value for key, value in keys.items()}}


SPLIT = {"mesh__expert": 2, "model__experts": 4}
MESH = {"mesh__shard": 2, "mesh__replicate": 2}
CASES = {
    "fsdp2": case("fsdp2"),
    "fsdp2-stacks": case("fsdp2", layers=1, steps=1, stacks=True),
    "fsdp2-grad-op": case("fsdp2", fsdp__strategy="shard_grad_op"),
    "fsdp2-explicit": case("fsdp2", fsdp__forward_prefetch=2, fsdp__backward_prefetch=2),
    # Of units whose backward is over some are gathered again, and nobody uses them.
    "fsdp2-reentrant": case("fsdp2", layers=4, fsdp__forward_prefetch=1, fsdp__activation_checkpointing=True,
                            fsdp__checkpoint_reentrant=True),
    "fsdp2-bf16": case("fsdp2", fsdp__param_dtype="bf16", fsdp__reduce_dtype="f32"),
    "fsdp2-hybrid": case("fsdp2", ranks=4, fsdp__strategy="hybrid_shard", **MESH),
    "fsdp1": case("fsdp1"),
    "fsdp1-grad-op": case("fsdp1", fsdp__strategy="shard_grad_op"),
    "fsdp1-no-shard": case("fsdp1", fsdp__strategy="no_shard"),
    "fsdp1-forward-prefetch": case("fsdp1", fsdp__forward_prefetch=1),
    "fsdp1-no-backward-prefetch": case("fsdp1", fsdp__backward_prefetch="none"),
    "fsdp1-hybrid": case("fsdp1", ranks=4, fsdp__strategy="hybrid_shard", **MESH),
    "experts-fsdp2": case("fsdp2", experts=True),  # in a folder of its own
    # Those of the engines' own model, split over two ranks as torchtitan has them, and as modules of their own with lists.
    "experts-torchtitan": case("torchtitan-moe", ranks=4, experts=True, fsdp__forward_prefetch=1,
                               fsdp__backward_prefetch=1, fsdp__head_unit=True, **SPLIT),
    "experts-modules": case("fsdp2", ranks=4, experts=True, fsdp__forward_prefetch=1, fsdp__backward_prefetch=1,
                            fsdp__root_prefetches_forward=False, fsdp__expert_unit="module", **SPLIT),
    # No preset, but an order that FSDP2 has: each unit lists the next two.
    "experts-two-ahead": case("fsdp2", ranks=4, experts=True, fsdp__forward_prefetch=2, fsdp__backward_prefetch=1,
                              fsdp__root_prefetches_forward=False, **SPLIT),
    "ddp": case("ddp"),
    "alone": case("none", ranks=1),
}


def build(spec):
    if spec["keys"].get("mesh.expert", 1) > 1:
        engines.WIDTH, engines.VOCABULARY = WIDTH, VOCABULARY
        return engines.build({"fsdp.preset": "fsdp2", "mesh.ranks": spec["ranks"], "model.layers": spec["layers"],
                              **spec["keys"]}, record.LOG)
    torch.manual_seed(1)
    model = Model((ExpertBlock if spec["experts"] else Block)(WIDTH) for _ in range(spec["layers"]))
    experts = {p for name, p in model.named_parameters() if ".expert." in name}  # each rank has its own
    if spec["experts"]:
        for block in model.blocks:
            fully_shard(block, ignored_params=experts)
        return fully_shard(model, ignored_params=experts)
    if spec["preset"] == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.2)
    keys = {"mesh.ranks": spec["ranks"], **spec["keys"]}
    model.reentrant = keys.get("fsdp.checkpoint_reentrant", False)
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=not spec["experts"])
    tokens = torch.randint(VOCABULARY, (8, 64), generator=torch.Generator().manual_seed(rank))
    steps = []
    plan = schedule(wait=WARMUP, warmup=1, active=spec["steps"], repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, with_stack=spec["stacks"],
                 record_shapes=spec["stacks"] or spec["experts"]) as profiler:
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
        place = os.path.join(arguments.folder, f"{'experts' if CASES[name]['experts'] else 'traces'}-{record.VERSION}", name)
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
