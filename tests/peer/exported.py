"""Runs what `fsdpbench export` writes for PyTorch on real ranks and writes down what happens, as record.py does.

    python exported.py FOLDER PROGRAM     exports every configuration below, runs each script, and stores both
    python exported.py FOLDER --check N   runs each Nth stored script again: does the same happen still?
    python exported.py FOLDER PROGRAM --grid N
                                          exports and runs each Nth configuration of grid.py: does the script do what
                                          engines.py did? Those that the script can say only nearly are left out.

The model is that of engines.py without any of its sharding: all of that is the script's.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

import engines
import grid
import record
from record import LOG

SYSTEMS = {"fsdp1": "pytorch-fsdp1", "fsdp2": "pytorch-fsdp2"}


def fsdp2():
    case = lambda layers, **keys: grid.case("fsdp2", layers, **keys)
    for strategy in ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_grad_op"):
        yield case(3, fsdp__strategy=strategy, **grid.meshes(strategy))
    for reshard in (True, False, 2):
        yield case(3, ranks=4, fsdp__reshard_after_forward=reshard)
    for forward, backward in ((1, 1), (2, 2), (3, "none"), ("implicit", 3), ("implicit", "none")):
        yield case(5, fsdp__forward_prefetch=forward, fsdp__backward_prefetch=backward)
    # Blocks of case.toml have 184,576 parameters: windows of two and of three units.
    yield case(5, fsdp__forward_prefetch="window:300000", fsdp__backward_prefetch="window:500000")
    for backward in ("pre", 2):
        yield case(4, fsdp__root_prefetches_backward=False, fsdp__backward_prefetch=backward)
    for buffers, separate in ((1, True), (2, True), (3, False)):
        yield case(5, fsdp__reduce_scatter_buffers=buffers, fsdp__separate_reduce_scatter_comm=separate)
    for mode, kept, waits in (("reduce_each", False, True), ("no_sync", True, True), ("no_sync", False, False)):
        yield case(3, train__accumulate=3, train__accumulate_mode=mode, fsdp__reshard_after_backward=not kept,
                   fsdp__wait_each_backward=waits)
    for strategy, mode in itertools.product(("hybrid_shard", "hybrid_shard_grad_op"), ("reduce_scatter_only", "no_sync")):
        yield case(3, train__accumulate=2, train__accumulate_mode=mode, fsdp__strategy=strategy, **grid.meshes(strategy))
    for strategy in ("full_shard", "shard_grad_op"):
        yield case(3, train__accumulate=2, train__accumulate_mode="no_sync", fsdp__keep_unreduced=True,
                   fsdp__strategy=strategy)
    for every in (1, 2):
        yield case(4, fsdp__activation_checkpointing=True, fsdp__checkpoint_every=every)
    for keeps in ("attention", "every_second_product", "products"):
        yield case(4, fsdp__activation_checkpointing=True, fsdp__checkpoint_keeps=keeps)
    for wrap, forward in itertools.product(("blocks:2", "size:400000", "model"), ("implicit", 1)):
        yield case(5, fsdp__wrap=wrap, fsdp__forward_prefetch=forward, fsdp__activation_checkpointing=True)
    for param, reduce in (("bf16", "f32"), ("bf16", "bf16"), ("f32", "bf16")):
        yield case(3, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce)
    for forward, backward in (("implicit", "pre"), (2, 2), (1, "none")):
        yield case(3, fsdp__head_unit=True, fsdp__forward_prefetch=forward, fsdp__backward_prefetch=backward)
    # Without "sum" a divide factor asks for a reduction that gloo does not have.
    for factor in (0.0, 3.0):
        yield case(3, fsdp__gradient_scaling="sum", fsdp__gradient_divide_factor=factor, train__clip_norm=1.0)
    yield case(3, model__kind="mlp", fsdp__forward_prefetch=2, fsdp__backward_prefetch=2)
    yield case(3, train__optimizer="sgd", fsdp__strategy="hybrid_shard", mesh__shard=1, mesh__replicate=2)


def fsdp1():
    case = lambda layers, **keys: grid.case("fsdp1", layers, **keys)
    for strategy in ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_grad_op"):
        yield case(3, fsdp__strategy=strategy, **grid.meshes(strategy))
    for forward, backward in itertools.product(("implicit", 1), ("pre", "post", "none")):
        yield case(4, fsdp__forward_prefetch=forward, fsdp__backward_prefetch=backward)
    for limit in ("unlimited", "fsdp1_queue:1", "fsdp1_queue:4"):
        yield case(5, fsdp__all_gather_limit=limit)
    yield case(3, fsdp__reshard_after_forward=False)
    for strategy, mode in itertools.product(grid.FULL_FSDP1, ("reduce_each", "no_sync")):
        yield case(3, train__accumulate=2, train__accumulate_mode=mode, fsdp__strategy=strategy)
    for every in (1, 2):
        yield case(4, fsdp__activation_checkpointing=True, fsdp__checkpoint_every=every)
    yield case(4, fsdp__activation_checkpointing=True, fsdp__checkpoint_keeps="every_second_product")
    for wrap in ("blocks:2", "model"):
        yield case(5, fsdp__wrap=wrap, train__clip_norm=1.0)
    for param, reduce in (("bf16", "f32"), ("f32", "bf16")):
        yield case(3, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce)


def plain_model(keys):
    """The model of engines.py, unsharded."""
    of_the_script = ("fsdp.wrap", "fsdp.activation_checkpointing")
    return engines.Model({key: value for key, value in keys.items() if key not in of_the_script}, LOG)


def exported(program, keys):
    """The script for these keys."""
    sets = [word for key, value in keys.items()
            for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]
    profile = pathlib.Path(__file__).with_name("case.toml")
    made = subprocess.run([program, "export", str(profile), *sets, "--to", SYSTEMS[keys["fsdp.preset"]], "--quiet"],
                          check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout


def name_units(model, keys):
    if isinstance(model, FullyShardedDataParallel):
        modules = FullyShardedDataParallel.fsdp_modules(model)
        groups = [module._handle for module in modules]
    else:
        states = [module._get_fsdp_state() for module in model.modules() if isinstance(module, FSDPModule)]
        groups = [state._fsdp_param_group for state in dict.fromkeys(states)]
    names = ["R"] + [str(i) for i in range(len(groups) - 1)]
    if keys.get("fsdp.head_unit"):
        names[-1] = "T"
    for name, group in zip(names, groups):
        if group is not None:
            group.peer_label = name


def steps_of(keys, script, rank):
    """One line a step, as record.steps_of() gives them."""
    settings = types.ModuleType("settings")
    exec(compile(script, "settings.py", "exec"), settings.__dict__)
    torch.manual_seed(1)
    model = settings.apply_fsdp(plain_model(keys), settings.make_mesh("cpu"))
    name_units(model, keys)
    optimizer = settings.make_optimizer(model)
    batch = engines.batch_for(keys, rank)

    def loss_of(model, micro):
        if micro > 0:
            LOG("||")
        LOG.micro, LOG.phase = micro, "f"
        loss = model(batch)
        LOG("|")
        LOG.phase = "b"
        return loss

    lines = []
    LOG.dtypes = {}
    for step in range(record.STEPS):
        LOG.begin_step(step)
        settings.train_step(model, optimizer, range(settings.MICROBATCHES), loss_of)
        lines.append(" ".join(LOG.tokens))
    while len(lines) > 1 and lines[-1] == lines[-2]:
        lines.pop()
    return {"steps": lines, "dtypes": LOG.dtypes}


def work(rank, ranks, address, cases, path):
    engines.join_job(rank, ranks, address)
    record.watch_collectives()
    record.watch_fsdp1()
    record.watch_fsdp2()
    found = []
    for case in cases:
        try:
            result = steps_of(case["keys"], case["script"], rank)
        except Exception as error:
            raise RuntimeError(f"rank {rank}: {case['keys']}") from error
        everyone = [None] * ranks
        dist.all_gather_object(everyone, result)
        if any(other != result for other in everyone):
            raise RuntimeError(f"ranks differ: {case['keys']}")
        found.append({**case, **result})
    if rank == 0:
        pathlib.Path(path).write_text(json.dumps(found))
    engines.leave_job()


def run(cases):
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for ranks in sorted({case["keys"]["mesh.ranks"] for case in cases}):
            path = os.path.join(folder, f"{ranks}.json")
            some = [case for case in cases if case["keys"]["mesh.ranks"] == ranks]
            mp.spawn(work, args=(ranks, f"file://{folder}/store-{ranks}", some, path), nprocs=ranks)
            found += json.loads(pathlib.Path(path).read_text())
    return found


LINES = ("steps", "script")


def write(path, cases):
    record.write(path, [{**case, "script": case["script"].split("\n")} for case in cases], LINES)


def stored(path):
    return [{**case, "script": "\n".join(case["script"])} for case in record.stored(path, LINES)]


def exactly_said(script):
    head = script.split('"""')[1]
    return "No word for these" not in head and "Near, not the same" not in head


def check_grid(folder, program, every):
    recorded = record.stored(os.path.join(folder, f"schedules-{record.VERSION}.json"))
    expected = [{**row, "script": exported(program, row["keys"])} for row in recorded[::every]]
    said = [row for row in expected if exactly_said(row["script"])]
    found = run([{"keys": row["keys"], "script": row["script"]} for row in said])
    differing = [row for row in found if row not in said]
    for row in differing:
        print(f"not as recorded: {row['keys']}: {row['steps']}")
    print(f"{len(found) - len(differing)} of {len(found)} scripts do on PyTorch {record.VERSION} what was recorded; "
          f"{len(expected) - len(said)} more are said nearly")
    return 1 if differing else 0


def main():
    parser = argparse.ArgumentParser(description="What exported scripts do, in order.")
    parser.add_argument("folder")
    parser.add_argument("program", nargs="?", help="fsdpbench, to export anew")
    parser.add_argument("--check", type=int, metavar="N", help="run each Nth stored script again")
    parser.add_argument("--grid", type=int, metavar="N", help="export and run each Nth configuration of grid.py")
    arguments = parser.parse_args()
    path = os.path.join(arguments.folder, f"exported-{record.VERSION}.json")
    if arguments.check:
        expected = stored(path)[::arguments.check]
        found = run(expected)
        differing = [row for row in found if row not in expected]
        for row in differing:
            print(f"not as stored: {row['keys']}: {row['steps']}")
        print(f"{len(found) - len(differing)} of {len(found)} exported scripts do on PyTorch {record.VERSION} what is stored")
        return 1 if differing else 0
    if arguments.program is None:
        parser.error("PROGRAM is needed to export anew")
    if arguments.grid:
        return check_grid(arguments.folder, arguments.program, arguments.grid)
    cases = [{"keys": keys, "script": exported(arguments.program, keys)} for keys in itertools.chain(fsdp1(), fsdp2())]
    write(path, run(cases))
    print(f"{len(cases)} exported scripts on PyTorch {record.VERSION}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
