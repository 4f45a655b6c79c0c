"""How long a step takes here and under PyTorch, on the CPUs of this machine: `python bench.py FSDPBENCH [--rounds N]`.

The same decoder (4.5 million parameters), batch, ranks and threads. Engines take turns, round after round, so that
whatever else the machine does is shared; a step's time is the slowest rank's, an engine's figure in a round the median of
its steps, and the ratio printed the median over rounds of PyTorch's figure by ours. PyTorch's collectives go over gloo,
one process a rank; ours through shared memory, one thread a rank.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import train

RANKS, BATCH, SEQ, WARMUP, STEPS = 2, 2, 128, 3, 10
MODEL = dict(layers=6, width=256, heads=8, kv_heads=4, ffn_width=704, vocab=256, rope_theta=10000.0, norm_epsilon=1e-5)
# PyTorch's engine, and the keys that make ours the same.
ENGINES = {
    "fsdp2": ["fsdp.preset=fsdp2"],
    "fsdp2-async": ["fsdp.preset=fsdp2"],
    "fsdp1": ["fsdp.preset=fsdp1"],
    "ddp": ["fsdp.strategy=no_shard"],
}


def theirs(rank, engine, address, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    train.make_decoder.MODEL.update(MODEL)
    parameters = {name: torch.randn(shape) * 0.02 for name, shape in train.make_decoder.parameter_shapes(MODEL, tied=False).items()}
    model = train.under(engine.removesuffix("-async"), train.Decoder(parameters))
    if engine.endswith("-async"):
        model._set_unshard_async_op(True)
        blocks = list(model.blocks)
        for this, following in zip(blocks, blocks[1:]):
            this.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([this])
    optimizer = torch.optim.AdamW(model.parameters(), **train.ADAMW)
    tokens = torch.randint(MODEL["vocab"], (BATCH, SEQ + 1))
    times = []
    for step in range(WARMUP + STEPS):
        dist.barrier()
        begin = time.perf_counter()
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        slowest = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if step >= WARMUP:
            times.append(slowest.item() * 1e3)
    if rank == 0:
        pathlib.Path(path).write_text(json.dumps(times))
    dist.destroy_process_group()


def their_ms(engine):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "times.json")
        mp.spawn(theirs, args=(engine, f"file://{folder}/store", path), nprocs=RANKS)
        return statistics.median(json.loads(pathlib.Path(path).read_text()))


def our_ms(program, engine):
    keys = [f"model.{key}={value}" for key, value in MODEL.items()] + [
        f"mesh.ranks={RANKS}", f"train.batch_per_rank={BATCH}", f"train.seq_len={SEQ}", f"train.warmup={WARMUP}",
        f"train.steps={STEPS}"] + ENGINES[engine]
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for key in keys for word in ("--set", key)]
        profile = pathlib.Path(__file__).with_name("case.toml")
        subprocess.run([program, "run", str(profile), *sets, "--out", f"{folder}/run", "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        result = json.loads(pathlib.Path(folder, "run", "result.json").read_text())
        return result["metrics"]["step_ms"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="a JSON file for the figures")
    options = parser.parse_args()
    rounds = {engine: [] for engine in ENGINES}
    load = [os.getloadavg()[0]]
    for number in range(options.rounds):
        for engine in ENGINES:
            ours, pytorch = our_ms(options.program, engine), their_ms(engine)
            rounds[engine].append({"ours_ms": ours, "pytorch_ms": pytorch})
            print(f"round {number + 1}: {engine:12} ours {ours:8.2f} ms, PyTorch {pytorch:8.2f} ms", flush=True)
        load.append(os.getloadavg()[0])
    found = {
        "pytorch": torch.__version__, "cpus": os.cpu_count(), "machine": platform.machine(), "load_average": load,
        "model": MODEL, "ranks": RANKS, "batch_per_rank": BATCH, "seq_len": SEQ, "steps": STEPS, "rounds": rounds,
        "pytorch_over_ours": {
            engine: statistics.median(r["pytorch_ms"] / r["ours_ms"] for r in some) for engine, some in rounds.items()},
    }
    for engine, ratio in found["pytorch_over_ours"].items():
        print(f"{engine:12} PyTorch takes {ratio:.2f} times as long")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
