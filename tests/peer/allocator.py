"""What PyTorch's CUDA caching allocator does, recorded without a GPU: `python allocator.py recorded`.

The allocator itself (libc10_cuda.so) runs in `allocator_stand_in.cpp`, which answers its calls of CUDA's runtime; that
file describes the lines. Its requests are those of one step of FSDP1 and FSDP2 on CPU ranks over gloo, as
torch.profiler saw them (`profile_memory`), and some that are drawn, also on a device that becomes full. CPUs have no
streams, so those of the FSDP cases are planted: what is allocated while parameters are gathered belongs to stream 1,
what is allocated while gradients are reduced to stream 2, and FSDP1's are freed after `record_stream`, with an event
that passes DELAY requests later.
"""

import argparse
import json
import os
import random
import subprocess
import sysconfig
import tempfile

import torch
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile

import engines
import profiled
import record

WIDTH = 384  # a feed-forward weight is then 2.25 MiB: more than a small block
DELAY = 40
RANKS = 2
GATHERING = ("all_gather", "allgather", "_unshard", "fsdp.pre_forward", "FSDP::pre_backward")
REDUCING = ("reduce_scatter", "post_backward")


def work(rank, preset, address, folder):
    engines.join_job(rank, RANKS, address)
    profiled.WIDTH = WIDTH
    model = profiled.build({"preset": preset, "ranks": RANKS, "layers": 2, "keys": {}})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    tokens = torch.randint(profiled.VOCABULARY, (4, 64), generator=torch.Generator().manual_seed(rank))

    def step():
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    if rank == 0:
        profiler.export_chrome_trace(os.path.join(folder, "trace.json"))
    engines.leave_job()


def stream_of(ranges, thread, at):
    """The innermost range that says which stream the request would be on decides."""
    found = [name for first, last, tid, name in ranges if tid == thread and first <= at <= last]
    for name in reversed(found):
        if any(word in name for word in REDUCING):
            return 2
        if any(word in name for word in GATHERING):
            return 1
    return 0


def step_of(preset):
    """The requests of one step of rank 0, with sizes as PyTorch asked for them."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(preset, f"file://{folder}/store", folder), nprocs=RANKS)
        with open(os.path.join(folder, "trace.json")) as trace:
            events = json.load(trace)["traceEvents"]
    ranges = sorted((e["ts"], e["ts"] + e["dur"], e["tid"], e["name"]) for e in events if e.get("ph") == "X")
    lines, held, passed = [], {}, 0
    for event in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        address, size = event["args"]["Addr"], event["args"]["Bytes"]
        now = len(lines)
        if size > 0:
            stream = stream_of(ranges, event["tid"], event["ts"])
            held[address] = (now, stream)
            lines.append(f"+ {now} {stream} {size} {now}")
        elif address in held:  # what was there before the step is not freed in it
            block, stream = held.pop(address)
            late = preset == "fsdp1" and stream != 0
            passed = now + DELAY
            lines.append(f"~ {block} 0 {passed}" if late else f"- {block}")
    return ["capacity 0"] + lines


def drawn(seed, capacity, requests=300):
    """Sizes over all kinds of blocks and none; about as many frees as allocations; events that pass late."""
    draw = random.Random(seed)
    lines, held, passed = [f"capacity {capacity}"], [], {}
    for now in range(requests):
        if held and draw.random() < 0.49:
            block, stream = held.pop(draw.randrange(len(held)))
            other = draw.randrange(4)
            if draw.random() < 0.4 and other != stream:
                passed[other] = max(passed.get(other, 0), now + draw.randrange(60))
                lines.append(f"~ {block} {other} {passed[other]}")
            else:
                lines.append(f"- {block}")
        else:
            size = draw.choice([0, 1, 512, 1 << 20, (1 << 20) + 1, 10 << 20, (10 << 20) - 512, 20 << 20,
                                *(int(2 ** draw.uniform(0, 25)) for _ in range(8))])
            stream = draw.randrange(4)
            held.append((now, stream))
            lines.append(f"+ {now} {stream} {size} {now}")
    return lines


def build_stand_in(place):
    packages = sysconfig.get_path("purelib")
    torch_folder = os.path.join(packages, "torch")
    cuda = os.path.join(packages, "nvidia", "cu13")
    command = ["g++", "-std=c++20", "-w", f"-I{torch_folder}/include", f"-I{cuda}/include", "allocator_stand_in.cpp",
               "-o", place, "-rdynamic", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    for folder, libraries in ((f"{torch_folder}/lib", ("c10_cuda", "c10")), (f"{cuda}/lib", ())):
        command += [f"-L{folder}", f"-Wl,-rpath,{folder}", *(f"-l{library}" for library in libraries)]
    subprocess.run(command, check=True)


def main():
    parser = argparse.ArgumentParser(description="What PyTorch's CUDA caching allocator does with some requests.")
    parser.add_argument("folder", help="e.g. recorded")
    place = os.path.join(parser.parse_args().folder, f"allocator-{record.VERSION}.txt")
    cases = {preset: step_of(preset) for preset in ("fsdp1", "fsdp2")}
    cases |= {f"drawn-{seed}": drawn(seed, 0) for seed in (1, 2)}
    cases |= {f"full-{seed}": drawn(seed, mebi << 20) for seed, mebi in ((3, 240), (4, 200), (5, 160), (6, 48))}
    cases |= {f"{name} expandable": lines for name, lines in cases.items()}
    with tempfile.TemporaryDirectory() as folder, open(place, "w") as out:
        stand_in = os.path.join(folder, "stand_in")
        build_stand_in(stand_in)
        for name, lines in cases.items():
            expands = name.endswith(" expandable")
            answer = subprocess.run([stand_in], input="\n".join(lines) + "\n", capture_output=True, text=True,
                                    env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expands}"})
            if answer.returncode != 0:
                raise SystemExit(f"{name}: {answer.stderr}")
            out.write(f"case {name}\n{answer.stdout}")
            print(name, len(lines), answer.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
