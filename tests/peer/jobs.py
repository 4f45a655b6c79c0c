"""Some 230 small jobs of PyTorch, drawn at random, each traced by torch.profiler on CPU ranks, and how often `trace
explain` tells what was set in them.

    jobs.py FOLDER [--seed N]         records: in FOLDER/NNN a file a rank, and set.json with what was set
    jobs.py FOLDER --score PROGRAM    asks `PROGRAM trace explain` of each rank 0, and counts right answers by confidence

Rules were mended with the jobs of the default seed; --seed gives others, on which nothing was. A process that has imported
PyTorch once forks each job's ranks: importing takes longer than a job does. stored_jobs.py keeps
those of seed 20261126 in recorded/.
"""

import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import random
import tempfile
import time

import torch
import torch._dynamo  # noqa: F401  an optimizer's first step imports it; here it is imported once for all jobs
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile, schedule

import engines
import grid
import profiled
import stored_jobs

SEED = 20261125
SYSTEMS = {"fsdp2": 84, "fsdp1": 72, "ddp": 18, "zero1": 12, "tensor": 10, "fsdp2-tensor": 16, "alone": 6,
           "inference": 8}
WARMUP = 2  # steps before the profiler's own
SECONDS = 120  # a job that takes longer hangs


class Attention(nn.Module):
    """A block with heads; its products are the same kernels in forward and backward."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        split = [t.unflatten(-1, (-1, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1)]
        return x + self.out(nn.functional.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(2))


class Recomputed(nn.Module):
    """A block that checkpoints itself, as models of transformers do; None: nothing is recomputed."""

    def __init__(self, block, reentrant):
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=self.reentrant)


BLOCKS = {"mlp": profiled.Block, "attention": Attention}


def draw(generator, system):
    """Settings of one job: fsdpbench's keys, as engines.py reads them, and those that have no key."""
    job = grid.Draw(generator, system=system, ranks=2, layers=generator.choice((2, 3, 3, 4, 5)))
    job.one_of(width=(8, 16, 32, 64), block=("mlp", "attention"), steps=(1, 2, 2, 3), schedule=(True, True, True, False),
               shapes=(False, True), clip=(False, True), optimizer=("AdamW", "AdamW", "SGD"))
    keys = grid.Draw(generator)
    if system in ("fsdp1", "fsdp2", "ddp", "fsdp2-tensor"):
        job.one_of(checkpointing=(None, None, None, "wrapper", "reentrant" if system == "ddp" else "function"))
        keys.one_of(train__accumulate=(1, 1, 1, 2, 3))
        if keys.keys["train__accumulate"] > 1:
            keys.one_of(train__accumulate_mode=("reduce_each", "no_sync"))
    if system == "fsdp1":
        keys.one_of(fsdp__strategy=("full_shard", "full_shard", "full_shard", "shard_grad_op", "shard_grad_op", "no_shard",
                                    "hybrid_shard", "hybrid_shard_grad_op"),
                    fsdp__forward_prefetch=("implicit", "implicit", 1), fsdp__backward_prefetch=("pre", "pre", "post", "none"),
                    fsdp__all_gather_limit=("fsdp1_queue:2", "fsdp1_queue:2", "unlimited"),
                    fsdp__wrap=("block", "block", "block", "blocks:2"), use_orig_params=(True, False))
    if system == "fsdp2":
        keys.one_of(fsdp__strategy=("full_shard", "full_shard", "full_shard", "hybrid_shard"),
                    fsdp__reshard_after_forward=("auto", "auto", True, False),
                    fsdp__forward_prefetch=(None, None, 1, 2), fsdp__backward_prefetch=(None, None, 1, 2),
                    fsdp__wrap=("block", "block", "block", "blocks:2"))
        job.one_of(prefetch_blocks_alone=(False, True))
        if keys.keys["fsdp__strategy"] == "full_shard" and generator.random() < 0.2:
            job.keys["ranks"] = 4
            keys.one_of(fsdp__reshard_after_forward=("auto", 2, 2))
    if system == "fsdp2-tensor":
        job.keys["ranks"] = 4
        keys.one_of(fsdp__reshard_after_forward=("auto", "auto", True, False))
    if system in ("fsdp1", "fsdp2", "fsdp2-tensor"):
        dtypes = generator.choice((None, None, ("bf16", "bf16"), ("bf16", "f32")))
        if dtypes:
            keys.keys["fsdp__param_dtype"], keys.keys["fsdp__reduce_dtype"] = dtypes
    if keys.keys.get("fsdp__strategy", "").startswith("hybrid"):
        job.keys["ranks"] = 4
        keys.keys.update(mesh__shard=2, mesh__replicate=2)
    if system in ("ddp", "zero1"):
        job.one_of(bucket_mb=(0.001, 0.01, 25))
    if system == "inference":
        job.one_of(block=("mlp", "attention"))
    if system == "alone":
        job.keys["ranks"] = 1
    if job.keys["width"] == 8:
        job.keys["block"] = "mlp"
    keys.keys["mesh__ranks"] = job.keys["ranks"]
    return {**job.keys, "keys": {key.replace("__", "."): value for key, value in keys.keys.items()}}


def jobs(seed):
    """All of them, each system's spread over the whole, so that every half of them has some of each."""
    generator = random.Random(seed)
    names = [system for system, count in SYSTEMS.items() for _ in range(count)]
    generator.shuffle(names)
    return [draw(generator, system) for system in names]


def tensor_parallel(model, mesh):
    plan = {}
    for name, kind in (("up", ColwiseParallel), ("down", RowwiseParallel)):
        plan[f"blocks.*.{name}"] = plan[f"blocks.*.block.{name}"] = kind()
    parallelize_module(model, mesh, plan)


def build(job):
    torch.manual_seed(1)
    keys = job["keys"]
    block = BLOCKS["mlp" if "tensor" in job["system"] else job["block"]]
    wrap = job.get("checkpointing")
    blocks = [block(job["width"]) for _ in range(job["layers"])]
    if wrap in ("function", "reentrant"):
        blocks = [Recomputed(one, wrap == "reentrant") for one in blocks]
    if keys.get("fsdp.wrap", "block").startswith("blocks:"):
        size = int(keys["fsdp.wrap"].split(":")[1])
        blocks = [engines.Run(*blocks[i:i + size]) for i in range(0, len(blocks), size)]
    model = profiled.Model(blocks, job["width"])
    system = job["system"]
    if system == "tensor":
        tensor_parallel(model, init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)))
    mesh = None
    if system == "fsdp2-tensor":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        tensor_parallel(model, mesh["tp"])
        engines.mesh_of = lambda _: mesh["dp"]
    if wrap == "wrapper":
        model.blocks = nn.ModuleList(checkpoint_wrapper(one, CheckpointImpl.NO_REENTRANT) for one in model.blocks)
    if system in ("ddp", "zero1"):
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=job["bucket_mb"])
    if system == "fsdp1":
        return engines.fsdp1(model, keys)
    if system in ("fsdp2", "fsdp2-tensor", "inference"):
        engines.fsdp2(model, keys)
        if job.get("prefetch_blocks_alone") and engines.depth(keys, "fsdp.forward_prefetch"):
            model.set_modules_to_forward_prefetch([])  # as in PyTorch's tutorial
        return model
    return model


def make_optimizer(job, model):
    if job["optimizer"] == "SGD":
        kind, settings = torch.optim.SGD, {"lr": 1e-3}
    else:
        kind, settings = torch.optim.AdamW, {"lr": 1e-3, "foreach": job["system"] not in ("tensor", "fsdp2-tensor")}
    if job["system"] == "zero1":
        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, **settings)
    return kind(model.parameters(), **settings)


@contextlib.contextmanager
def microbatch(job, model, micro):
    keys = job["keys"]
    if job["system"] == "ddp":
        quiet = keys.get("train.accumulate_mode") == "no_sync" and micro + 1 < keys["train.accumulate"]
        with model.no_sync() if quiet else contextlib.nullcontext():
            yield
    elif job["system"] in ("fsdp1", "fsdp2", "fsdp2-tensor"):
        with engines.microbatch(model, {**keys, "fsdp.preset": job["system"]}, micro):
            yield
    else:
        yield


def one_step(job, model, optimizer, tokens):
    if job["system"] == "inference":
        with torch.no_grad():
            model(tokens)
        return
    for micro in range(job["keys"].get("train.accumulate", 1)):
        with microbatch(job, model, micro):
            model(tokens).backward()
    if job["clip"] and job["system"] not in ("tensor", "fsdp2-tensor"):
        if isinstance(model, FullyShardedDataParallel):
            model.clip_grad_norm_(1.0)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def work(rank, job, address, folder):
    engines.join_job(rank, job["ranks"], address)
    model = build(job)
    optimizer = make_optimizer(job, model)
    tokens = torch.randint(profiled.VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(rank))
    plan = schedule(wait=WARMUP - 1, warmup=1, active=job["steps"], repeat=1) if job["schedule"] else None
    if plan is None:
        for _ in range(WARMUP):
            one_step(job, model, optimizer, tokens)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=job["shapes"]) as profiler:
        for _ in range(job["steps"] + (WARMUP if plan else 0)):
            one_step(job, model, optimizer, tokens)
            if plan:
                profiler.step()
    profiler.export_chrome_trace(os.path.join(folder, f"{rank}.json"))
    engines.leave_job()


def record_job(job, folder):
    """Runs it, with a trace of each rank in `folder`; whether it went well."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=(rank, job, f"file://{folder}/store", folder))
             for rank in range(job["ranks"])]
    for rank in ranks:
        rank.start()
    until = time.monotonic() + SECONDS
    for rank in ranks:
        rank.join(max(0.0, until - time.monotonic()))
    for rank in ranks:
        if rank.is_alive():
            rank.kill()
    return all(rank.exitcode == 0 for rank in ranks)


def main():
    parser = argparse.ArgumentParser(description="Traces of small jobs, with what was set in them.")
    parser.add_argument("raw", metavar="FOLDER", help="the traces, as the profiler wrote them")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--score", metavar="PROGRAM")
    arguments = parser.parse_args()
    if arguments.score:
        return stored_jobs.score(stored_jobs.recorded(arguments.raw), arguments.score)
    failed = 0
    for number, job in enumerate(jobs(arguments.seed)):
        if arguments.only and number not in arguments.only:
            continue
        place = os.path.join(arguments.raw, f"{number:03}")
        if os.path.exists(os.path.join(place, "set.json")) and not arguments.only:
            continue
        os.makedirs(place, exist_ok=True)
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            good = record_job(job, folder)
            failed += not good
            if good:
                for rank in range(job["ranks"]):
                    with open(os.path.join(folder, f"{rank}.json"), "rb") as trace:
                        text = trace.read().replace(folder.encode(), b"/traces")
                    with open(os.path.join(place, f"rank_{rank}.json.gz"), "wb") as out:
                        out.write(gzip.compress(text, 6, mtime=0))
                with open(os.path.join(place, "set.json"), "w") as out:
                    json.dump(job, out)
        print(number, job["system"], "" if good else "FAILED", round(time.monotonic() - begin, 1), flush=True)
    print(failed, "failed")


if __name__ == "__main__":
    main()
