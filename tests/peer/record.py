"""Writes down what PyTorch does: `python record.py FOLDER` runs every configuration of grid.py on real ranks;
`python record.py FOLDER --check N` runs each Nth again and says whether it still is what the folder has.

A step is a line of tokens in the order in which the host does things. i: a unit, R: the root, e and h: embedding, head.

    AGi    all-gather, AGi* if nothing needed it yet    Ci   parameters are copied out (FSDP2)
    Ui Ui* the same on one rank, where nothing is sent  Si   they are freed
    RSi    reduce-scatter, RSi' on its own communicator ARi  all-reduce
    Pi     unit i's gradients are complete              Di   computation waits for RSi and frees its input (FSDP2)
    Fi Xi  forward, recomputation                       Bi   backward begins
    W(fi)  the host waits for the free of unit i that forward (f) or backward (b) did; a quote for each microbatch
           before it; W(step): one of a step before that has been followed by another
    Ei     in place of i: the experts of unit i's block, as a parameter group or a module of their own
    Ni     ranks tell each other how many rows they will send, and the host waits for it
    >i <i  rows go to the experts of block i, and come back
    E      computation waits for all reductions         |    between forward and backward, || between microbatches
"""

import argparse
import functools
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import engines
import grid

STEPS = 6
VERSION = torch.__version__.split("+")[0]
DTYPE_NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


class Log:
    def __init__(self):
        self.tokens = []
        self.dtypes = {}
        self.unit = []          # whose collectives these are, innermost last
        self.prefetching = 0
        self.step = self.micro = 0
        self.phase = "f"
        self.freed = set()      # names of this step's frees

    def __call__(self, token):
        self.tokens.append(token)

    def begin_step(self, step):
        engines.goes_on()
        self.tokens, self.freed, self.step = [], set(), step

    def collective(self, verb, tensor, quote=""):
        if not self.unit:
            return
        star = "*" if verb == "AG" and self.prefetching else ""
        self(f"{verb}{self.unit[-1]}{quote}{star}")
        self.dtypes[verb] = DTYPE_NAMES[tensor.dtype]


LOG = Log()


def label(thing):
    return getattr(thing, "peer_label", None)


def wrap(owner, name, around):
    """owner.name(...) becomes around(original, ...)."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(functools.partial(around, original))
            if not isinstance(owner, type) else bound(original, around))


def bound(original, around):
    @functools.wraps(original)
    def method(self, *args, **kwargs):
        return around(original, self, *args, **kwargs)
    return method


def of_unit(thing, call):
    LOG.unit.append(label(thing))
    try:
        return call()
    finally:
        LOG.unit.pop()


def watch_collectives():
    # FSDP1 passes (output, input) by place, FSDP2 by name.
    def sent(args, kwargs):
        by_name = [value for key, value in kwargs.items() if key.startswith("input")]
        return by_name[0] if by_name else args[1]

    def gather(original, *args, **kwargs):
        LOG.collective("AG", sent(args, kwargs))
        return original(*args, **kwargs)

    def reduce_scatter(original, *args, **kwargs):
        group = kwargs.get("group")
        own = group is not None and group.group_desc == "fsdp_reduce_scatter"
        LOG.collective("RS", sent(args, kwargs), "'" if own else "")
        return original(*args, **kwargs)

    def all_reduce(original, tensor, *args, **kwargs):
        LOG.collective("AR", tensor)
        return original(tensor, *args, **kwargs)

    wrap(dist, "all_gather", gather)  # FSDP1 on CPUs
    wrap(dist, "all_gather_single", gather)
    wrap(dist, "reduce_scatter_single", reduce_scatter)
    wrap(dist, "all_reduce", all_reduce)


def watch_fsdp2():
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group, _fsdp_state
    group_type = _fsdp_param_group.FSDPParamGroup

    def unshard(original, self, *args, **kwargs):
        pending = self._all_gather_result is not None
        before = len(LOG.tokens)
        of_unit(self, lambda: original(self, *args, **kwargs))
        if not pending and self._all_gather_result is not None and len(LOG.tokens) == before:
            LOG(f"U{label(self)}" + ("*" if LOG.prefetching else ""))

    def wait_for_unshard(original, self):
        if self._all_gather_result is not None:
            LOG(f"C{label(self)}")
        original(self)

    def reshard(original, self):
        before = self._sharded_state
        original(self)
        if self._sharded_state != before:
            LOG(f"S{label(self)}")

    def post_backward(original, self, *args):
        start = len(LOG.tokens)
        of_unit(self, lambda: original(self, *args))
        freed = start < len(LOG.tokens) and LOG.tokens[start] == f"S{label(self)}"
        LOG.tokens.insert(start + freed, f"P{label(self)}")

    def prefetch(original, *args):
        LOG.prefetching += 1
        try:
            original(*args)
        finally:
            LOG.prefetching -= 1

    class Inputs(list):
        """The reduce-scatter inputs alive; tells when computation has waited for one."""
        def pop(self, index=-1):
            LOG(f"D{label(self[index].param_group)}")
            return super().pop(index)

        def clear(self):
            for state in self:
                LOG(f"D{label(state.param_group)}")
            super().clear()

    def lazy_init(original, self, device):
        original(self, device)
        self.reduce_scatter_states = Inputs()

    def end(original, self):
        if self._comm_ctx._last_post_reduce_events:
            LOG("E")
        original(self)

    wrap(group_type, "unshard", unshard)
    wrap(group_type, "wait_for_unshard", wait_for_unshard)
    wrap(group_type, "reshard", reshard)
    wrap(group_type, "post_backward", post_backward)
    original_prefetch = group_type._prefetch_unshard
    group_type._prefetch_unshard = staticmethod(functools.partial(prefetch, original_prefetch))
    wrap(_fsdp_param_group.FSDPCommContext, "lazy_init", lazy_init)
    wrap(_fsdp_state.FSDPState, "_end_backward_iteration", end)


def watch_fsdp1():
    from torch.distributed.fsdp import _limiter_utils, _runtime_utils as runtime

    def unshard(original, state, handle, *args):
        return of_unit(handle, lambda: original(state, handle, *args))

    def prefetch_handle(original, state, handle, mode):
        LOG.prefetching += 1
        try:
            original(state, handle, mode)
        finally:
            LOG.prefetching -= 1

    def reshard(original, state, handle, free):
        if free:
            LOG(f"S{label(handle)}")
        of_unit(handle, lambda: original(state, handle, free))

    def post_backward_reshard(original, state, handle, *args):
        original(state, handle, *args)
        LOG(f"P{label(handle)}")

    def post_backward(original, state, handle, *args):
        return of_unit(handle, lambda: original(state, handle, *args))

    def enqueue(original, self, event):
        name = LOG.phase + LOG.unit[-1] + "'" * LOG.micro
        LOG.freed.add(name)
        event.peer_free = (name, LOG.step)
        original(self, event)

    def dequeue(original, self):
        event = original(self)
        if event is not None:
            name, step = event.peer_free
            age = LOG.step - step
            LOG("W(step)" if age > 1 or (age == 1 and name in LOG.freed) else f"W({name})")
        return event

    def end(original, state, module):
        if state._sync_gradients:
            LOG("E")
        return original(state, module)

    wrap(runtime, "_unshard", unshard)
    wrap(runtime, "_prefetch_handle", prefetch_handle)
    wrap(runtime, "_reshard", reshard)
    wrap(runtime, "_post_backward_reshard", post_backward_reshard)
    wrap(runtime, "_post_backward_hook", post_backward)
    wrap(runtime, "_post_backward_final_callback", end)
    wrap(_limiter_utils._FreeEventQueue, "enqueue", enqueue)
    wrap(_limiter_utils._FreeEventQueue, "dequeue_if_needed", dequeue)


def steps_of(keys, rank):
    """One line a step; the last is the steady state."""
    model = engines.build(keys, LOG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = engines.batch_for(keys, rank)
    lines = []
    LOG.dtypes = {}
    for step in range(STEPS):
        LOG.begin_step(step)
        for micro in range(keys.get("train.accumulate", 1)):
            if micro > 0:
                LOG("||")
            with engines.microbatch(model, keys, micro):
                LOG.micro, LOG.phase = micro, "f"
                loss = model(batch)
                LOG("|")
                LOG.phase = "b"
                loss.backward()
        lines.append(" ".join(LOG.tokens))
        optimizer.step()
        optimizer.zero_grad()
    while len(lines) > 1 and lines[-1] == lines[-2]:
        lines.pop()
    return {"keys": keys, "steps": lines, "dtypes": LOG.dtypes}


def watch(rank, ranks):
    watch_collectives()
    watch_fsdp1()
    watch_fsdp2()


def work(rank, ranks, address, cases, path, watch, steps_of):
    engines.join_job(rank, ranks, address)
    watch(rank, ranks)
    found = []
    for keys in cases:
        try:
            result = steps_of(keys, rank)
        except Exception as error:
            raise RuntimeError(f"rank {rank}: {keys}") from error
        everyone = [None] * ranks
        dist.all_gather_object(everyone, result)
        if any(other != result for other in everyone):
            raise RuntimeError(f"ranks differ: {keys}: {[other['steps'] for other in everyone]}")
        found.append(result)
    if rank == 0:
        with open(path, "w") as out:
            json.dump(found, out)
    engines.leave_job()


def record(cases, watch=watch, steps_of=steps_of):
    """All cases, in order of the grid. On each rank watch(rank, ranks) is called once, and steps_of(keys, rank) for
    each case: functions of a module."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for ranks in sorted({keys["mesh.ranks"] for keys in cases}):
            path = os.path.join(folder, f"{ranks}.json")
            some = [keys for keys in cases if keys["mesh.ranks"] == ranks]
            mp.spawn(work, args=(ranks, f"file://{folder}/store-{ranks}", some, path, watch, steps_of), nprocs=ranks)
            with open(path) as recorded:
                found += json.load(recorded)
    return found


def write(path, cases, keys=("steps",)):
    """`keys` of a case are lists of lines; those that several share are stored once."""
    numbers = {}
    number = lambda lines: [numbers.setdefault(line, len(numbers)) for line in lines]
    rows = [{**case, **{key: number(case[key]) for key in keys}} for case in cases]
    with open(path, "w") as out:
        out.write('{"pytorch": "%s",\n "lines": [\n  ' % VERSION)
        out.write(",\n  ".join(json.dumps(line) for line in numbers))
        out.write('],\n "cases": [\n  ')
        out.write(",\n  ".join(json.dumps(row) for row in rows))
        out.write("]}\n")


def stored(path, keys=("steps",)):
    """What write() was given."""
    with open(path) as file:
        content = json.load(file)
    lines = lambda numbers: [content["lines"][i] for i in numbers]
    return [{**row, **{key: lines(row[key]) for key in keys}} for row in content["cases"]]


def check(path, cases, record, system):
    """Exit status 1 if one of these configurations is no longer as stored."""
    some = {json.dumps(keys, sort_keys=True) for keys in cases}
    expected = [row for row in stored(path) if json.dumps(row["keys"], sort_keys=True) in some]
    found = record([row["keys"] for row in expected])
    differing = [row for row in found if row not in expected]
    for row in differing:
        print(f"not as stored: {row}")
    print(f"{len(found) - len(differing)} of {len(found)} configurations on {system} are as stored: {path}")
    return 1 if differing or len(found) < len(some) else 0


def main():
    parser = argparse.ArgumentParser(description="What PyTorch's FSDP does, in order.")
    parser.add_argument("folder")
    parser.add_argument("--check", type=int, metavar="N",
                        help="compare each Nth configuration with what is stored; of those with reentrant checkpoints each 2Nth, "
                             "with frozen parameters or experts each 4Nth")
    arguments = parser.parse_args()
    status = 0
    for name, cases, apart in (("schedules", grid.cases(), 1), ("schedules-frozen", grid.frozen_cases(), 4),
                               ("schedules-reentrant", grid.reentrant_cases(), 2),
                               ("schedules-experts", grid.expert_cases(), 4),
                               ("schedules-nested", grid.nested_cases(), 4), ("schedules-tied", grid.tied_cases(), 2),
                               ("schedules-ignored", grid.ignored_cases(), 2)):
        path = os.path.join(arguments.folder, f"{name}-{VERSION}.json")
        if arguments.check:
            status = max(status, check(path, cases[::apart * arguments.check], record, f"PyTorch {VERSION}"))
            continue
        write(path, record(cases))
        print(f"{len(cases)} configurations on PyTorch {VERSION}: {path}")
    return status


if __name__ == "__main__":
    sys.exit(main())
