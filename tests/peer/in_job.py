"""fsdpbench.torch in real jobs of PyTorch on CPU ranks over gloo: `python in_job.py FOLDER [--case NAME]`.

Each case is a model under FSDP1, FSDP2 or DDP (profiled.py has it), or under Accelerate's FSDP plugin. Every rank trains, is profiled with trace_handler and
timed with step(), and what they say is printed and checked: who is late, where somebody was made late.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

import torch
import torch.multiprocessing as mp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.profiler import ProfilerActivity, profile, schedule

import engines
import profiled

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "analysis"))
import fsdpbench.torch  # noqa: E402
from fsdpbench.torch import explained, steps, trace  # noqa: E402

LATE_S = 1.0  # more than a busy machine delays a rank by


def case(preset, ranks=2, late=None, accumulate=1, checkpoint=False, **keys):
    return {**profiled.case(preset, ranks=ranks, **keys), "late": late, "accumulate": accumulate, "checkpoint": checkpoint}


CASES = {
    "fsdp1": case("fsdp1"),
    "fsdp2": case("fsdp2"),
    "hsdp": case("fsdp2", ranks=4, fsdp__strategy="hybrid_shard", **profiled.MESH),
    "ddp": case("ddp"),
    "fsdp2-late": case("fsdp2", late=1),
    "fsdp1-late": case("fsdp1", late=0),
    "ddp-late": case("ddp", late=1),
    "hsdp-late": case("fsdp2", ranks=4, late=2, fsdp__strategy="hybrid_shard", **profiled.MESH),
    "accelerate-fsdp1": case("accelerate1", accumulate=2),
    "accelerate-fsdp2": case("accelerate2", accumulate=2),
    "accelerate-fsdp1-late": case("accelerate1", late=0, accumulate=2),
    "accelerate-fsdp2-late": case("accelerate2", late=1, accumulate=2),
    "torchtitan": case("torchtitan"),
    "torchtitan-hsdp": case("torchtitan", ranks=4, **profiled.MESH),
    "torchtitan-late": case("torchtitan", late=1),
    "torchtitan-accumulation": case("torchtitan", accumulate=2, checkpoint=True),
    "accumulation": case("fsdp2", accumulate=2),
    "checkpointing": case("fsdp2", checkpoint=True),
}
WAIT, WARMUP, ACTIVE = 1, 1, 2
TIMED = 4  # steps of one line of step()


class Job:
    """A case on one rank, ready to train."""

    def __init__(self, name, rank, address):
        self.spec, self.rank = CASES[name], rank
        engines.join_job(rank, self.spec["ranks"], address)
        self.model = profiled.build(self.spec)
        if self.spec["checkpoint"]:
            apply_activation_checkpointing(self.model, check_fn=lambda module: isinstance(module, profiled.Block))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)
        self.tokens = torch.randint(profiled.VOCABULARY, (8, 64), generator=torch.Generator().manual_seed(rank))

    def train(self):
        for micro in range(self.spec["accumulate"]):
            if self.spec["accumulate"] > 1:
                self.model.set_requires_gradient_sync(micro + 1 == self.spec["accumulate"])
            if self.spec["late"] == self.rank:
                time.sleep(LATE_S)
            self.model(self.tokens).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def profiler(self, plan, handler):
        return profile(activities=[ProfilerActivity.CPU], schedule=schedule(**plan), on_trace_ready=handler)


class AcceleratedJob(Job):
    """The model wrapped, accumulated and profiled by Accelerate."""

    def __init__(self, name, rank, address):
        import accelerate
        from accelerate.state import PartialState
        self.spec, self.rank = CASES[name], rank
        ranks = self.spec["ranks"]
        engines.join_job(rank, ranks, address)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        PartialState(cpu=True)
        # Accelerate takes its FSDP plugin for GPUs only, so it is told that these CPU ranks are some.
        PartialState._shared_state.update(distributed_type=accelerate.DistributedType.MULTI_GPU, device=torch.device("cpu"))
        version = int(self.spec["preset"][-1])
        plugin = accelerate.FullyShardedDataParallelPlugin(
            fsdp_version=version, reshard_after_forward=True if version == 2 else "FULL_SHARD", cpu_ram_efficient_loading=False,
            auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"])
        self.accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin,
                                                  gradient_accumulation_steps=self.spec["accumulate"])
        torch.manual_seed(1)
        model = profiled.Model(profiled.Block(profiled.WIDTH) for _ in range(self.spec["layers"]))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.tokens = torch.randint(profiled.VOCABULARY, (8, 64), generator=torch.Generator().manual_seed(rank))

    def train(self):
        for _ in range(self.spec["accumulate"]):
            with self.accelerator.accumulate(self.model):
                if self.spec["late"] == self.rank:
                    time.sleep(LATE_S)
                self.accelerator.backward(self.model(self.tokens))
                self.optimizer.step()
                self.optimizer.zero_grad()

    def profiler(self, plan, handler):
        from accelerate import ProfileKwargs
        return self.accelerator.profile(ProfileKwargs(activities=["cpu"], schedule_option=plan, on_trace_ready=handler))


class TitanJob(Job):
    """torchtitan's Trainer, its data and its loop's step."""

    def __init__(self, name, rank, address):
        self.spec, self.rank = CASES[name], rank
        ranks = self.spec["ranks"]
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        engines.join_job(rank, ranks, address)
        import titan_job
        self.trainer = titan_job.trainer_of(os.path.dirname(address.removeprefix("file://")), self.spec["accumulate"],
                                            self.spec["checkpoint"], self.spec["keys"].get("mesh.replicate", 1))
        self.batches = self.trainer.batch_generator(self.trainer.dataloader)

    def train(self):
        if self.spec["late"] == self.rank:
            time.sleep(LATE_S)
        self.trainer.step += 1
        self.trainer.train_step(self.batches)


def job_of(name, rank, address):
    preset = CASES[name]["preset"]
    kind = AcceleratedJob if preset.startswith("accelerate") else TitanJob if preset == "torchtitan" else Job
    return kind(name, rank, address)


def work(rank, name, address, folder):
    job = job_of(name, rank, address)
    said, found = [], []
    steps.say = said.append
    for _ in range(1 + TIMED):
        with fsdpbench.torch.step(every=TIMED):
            job.train()
    plan = {"wait": WAIT, "warmup": WARMUP, "active": ACTIVE, "repeat": 1}
    handler = fsdpbench.torch.trace_handler(os.path.join(folder, "traces"), on_explained=found.append)
    with job.profiler(plan, handler) as profiler:
        for _ in range(WAIT + WARMUP + ACTIVE + 1):
            job.train()
            profiler.step()
    if rank == 0:
        trace._finish(300)
        for thread in threading.enumerate():
            if thread.name == "fsdpbench-step":
                thread.join(60)  # the other ranks' times come by the store
        pathlib.Path(folder, "said.json").write_text(json.dumps({"explanation": found[0], "lines": said}))
    engines.leave_job()


def cost(rank, name, address, folder):
    """Steps with and without step(), in turns: the CPU time of this process, which other programs do not change."""
    job = job_of(name, rank, address)
    used = {True: [], False: []}
    for i in range(2 * COST_STEPS + 4):
        timed = i % 2 == 0
        begin = time.process_time_ns()
        with fsdpbench.torch.step(every=50) if timed else contextlib.nullcontext():
            job.train()
        used[timed].append(time.process_time_ns() - begin)
    with_it, without = (torch.tensor(used[timed][2:], dtype=torch.float64) for timed in (True, False))
    generator = torch.Generator().manual_seed(1)
    picks = torch.randint(len(without), (1000, len(without)), generator=generator)
    ratios = (with_it[picks].median(1).values / without[picks].median(1).values - 1) * 100
    if rank == 0:
        low, middle, high = torch.quantile(ratios, torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)).tolist()
        print(f"{name}: {without.median() / 1e6:.2f} ms of CPU per step; step() costs {middle:+.2f} % [{low:+.2f} to {high:+.2f}]")
    engines.leave_job()


COST_STEPS = 300


def check(name, folder):
    spec = CASES[name]
    said = json.loads(pathlib.Path(folder, "said.json").read_text())
    explanation, (line,) = said["explanation"], said["lines"]
    print(f"  {line}")
    assert len(explanation["ranks"]) == spec["ranks"], len(explanation["ranks"])
    assert "waits for reductions" in line and ("waits for gathers" in line) == (spec["preset"] != "ddp"), line
    if spec["late"] is not None:
        assert f"rank {spec['late']} is late" in line, line
        said = explained.line_of(explanation)
        assert f"rank {spec['late']} " in said, said


VERSIONS = {"accelerate": "1.", "torchtitan": "0.3"}  # what it begins with; titan_job.py says how to install it


def has(package, version):
    try:
        return importlib.metadata.version(package).startswith(version)
    except importlib.metadata.PackageNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description="fsdpbench.torch in real jobs.")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be given several times")
    parser.add_argument("--cost", action="store_true", help="what step() costs, instead")
    arguments = parser.parse_args()
    for name in arguments.case or CASES:
        if missing := [package for package, version in VERSIONS.items() if name.startswith(package) and not has(package, version)]:
            print(f"{name}: skipped, {missing[0]} {VERSIONS[missing[0]]} is not installed", flush=True)
            continue
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(cost if arguments.cost else work, args=(name, f"file://{folder}/store", folder), nprocs=CASES[name]["ranks"])
            if not arguments.cost:
                check(name, folder)


if __name__ == "__main__":
    main()
