"""Writes down what DeepSpeed does: `python deepspeed_record.py FOLDER` trains each configuration below on real CPU ranks
over gloo; `--check N` runs each Nth again and says whether it still is what the folder has.

A step is a line of tokens in the order in which the host does things, as `host_order` of our schedules writes it.
i: a unit, R: the root (embedding and head).

    AGi AGi*   all-gather, * if nothing needs it yet; AG{0,1} of several at once     fi    unit i is freed
    RS{1,2}    reduce-scatter of a bucket; AR{1,2} all-reduce of one                  Fi Bi unit i computes first
    |          between forward and backward, || between microbatches                  step  after the optimizer

A unit has one parameter here, of as many elements as our unit has: DeepSpeed gathers, keeps and reduces parameter by
parameter, so that only then its units are ours. A block with experts (Ei) is a parameter, DeepSpeed's MoE layer of one
expert a rank, and that layer's gate, for whose few elements the buckets below have room.
"""

import argparse
import os
import random
import re
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed.runtime.zero import stage3, stage_1_and_2
from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
from torch import nn

from record import check, record, wrap, write

STEPS = 5
DRAWN, SEED = 90, 20261124
# Elements of the decoder of case.toml; what is computed with them is less.
BLOCK = 3 * 128 * 128 + 3 * 128 * 352 + 2 * 128
ROOT = 2 * 256 * 128 + 128
WIDTH, VOCABULARY = 8, 16
# Two experts on two ranks: what a rank has of them, and the rest of a block with its router.
EXPERT = 3 * 128 * 352
GATE = 2 * WIDTH
REST = BLOCK - EXPERT + 2 * 128


def case(stage, layers, ranks=2, **keys):
    result = {"fsdp.preset": f"deepspeed-z{stage}", "model.layers": layers, "mesh.ranks": ranks}
    result.update({key.replace("__", "."): value for key, value in keys.items()})
    return result


def z3(layers, prefetch=None, live=None, reuse=None, bucket=None, persist=None, **keys):
    """Numbers of elements, as DeepSpeed's; None: so many that the whole model is below, or of a threshold none."""
    given = {"fsdp.forward_prefetch": prefetch and f"rate:{prefetch - 1}",
             "fsdp.backward_prefetch": prefetch and f"rate:{prefetch - 1}",
             "fsdp.max_live_parameters": live, "fsdp.max_reuse_distance": reuse, "fsdp.reduce_bucket": bucket,
             "fsdp.persistence_threshold": 0 if persist is None else persist}
    keys = case(3, layers, **keys)
    keys.update({key: value for key, value in given.items() if value is not None})
    return keys


def cases():
    found = []
    for layers in (2, 3, 5):
        for prefetch in (1, BLOCK, BLOCK + 2, 2 * BLOCK + 1, 1 << 40):  # z3() takes one off: 0 is a value
            for reuse in (0, 3 * BLOCK):
                found.append(z3(layers, prefetch, reuse=reuse, bucket=BLOCK))
    for live in (BLOCK, ROOT + 2 * BLOCK, ROOT + 3 * BLOCK + 5):
        for reuse in (0, 2 * BLOCK, 5 * BLOCK + ROOT, 1 << 40):
            found.append(z3(5, 2 * BLOCK, live=live, reuse=reuse, bucket=2 * BLOCK))
    for bucket in (1, BLOCK, 2 * BLOCK, 3 * BLOCK - 1, 1 << 22):  # DeepSpeed allocates it
        for accumulate in (1, 2, 3):
            found.append(z3(4, BLOCK, reuse=0, bucket=bucket, train__accumulate=accumulate))
        for stage in (1, 2):
            for accumulate in (1, 2):
                found.append(case(stage, 4, fsdp__reduce_bucket=bucket, train__accumulate=accumulate))
    for persist in (ROOT + 1, BLOCK + 1):
        for layers in (2, 4):
            found.append(z3(layers, BLOCK, reuse=0, bucket=BLOCK, persist=persist))
    for bucket in (BLOCK, 2 * BLOCK):  # overlap_comm: stage 1 reduces while backward goes on, too
        for accumulate in (1, 2):
            overlaps = {"fsdp__reduce_bucket": bucket, "fsdp__reduce_lane": "reduce_scatter",
                        "fsdp__reduce_scatter_buffers": 1, "train__accumulate": accumulate}
            found += [case(1, 4, fsdp__reduce_lag=0, **overlaps), case(2, 4, **overlaps)]
    found += [z3(3, BLOCK, reuse=0, bucket=BLOCK, ranks=4), case(2, 3, ranks=4, fsdp__reduce_bucket=BLOCK)]
    for layers in (2, 3, 4):
        for bucket in (REST + GATE + EXPERT, REST + GATE + 2 * EXPERT, 2 * (REST + GATE + EXPERT), 1 << 22):
            experts = {"model__experts": 2, "model__active_experts": 1, "mesh__expert": 2, "fsdp__expert_unit": "bucket",
                       "fsdp__reduce_bucket": bucket}
            found += [case(stage, layers, ranks=4, **experts) for stage in (1, 2)]
    generator = random.Random(SEED)
    some = lambda most: generator.choice((1, BLOCK // 2, BLOCK, BLOCK + 1, generator.randint(1, most * BLOCK)))
    for _ in range(DRAWN):
        accumulate = generator.choice((1, 1, 1, 2))
        found.append(z3(generator.choice((2, 3, 4, 5, 7)), some(4), live=some(8) + ROOT,
                        reuse=generator.choice((0, some(9), some(9) + ROOT)), bucket=some(4),
                        persist=generator.choice((None, None, ROOT + 1)), train__accumulate=accumulate))
    return [keys for i, keys in enumerate(found) if keys not in found[:i]]


class Log:
    def __init__(self):
        self.tokens, self.begun, self.module, self.units, self.waiting = [], set(), None, [], []

    def __call__(self, token):
        self.tokens.append(token)

    def first(self, verb, name):
        if (verb, name) not in self.begun:
            self.begun.add((verb, name))
            self(verb + name)


LOG = Log()


def bucket(names):
    names = sorted(set(names), key=lambda name: 1 << 30 if name == "R" else int(name.removeprefix("E")))
    return names[0] if len(names) == 1 else "{" + ",".join(names) + "}"


def watch(rank, ranks):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1")
    deepspeed.init_distributed(dist_backend="gloo")
    own = "_PartitionedParameterCoordinator__"

    def fetch(original, self, module, forward, is_leaf):
        LOG.module = getattr(module, "peer_label", None)
        original(self, module, forward, is_leaf)

    def gather(original, self, params, forward, quantize=False):
        names = [p.peer_label for p in params if p.ds_status.name == "NOT_AVAILABLE"]
        if names:
            LOG(f"AG{bucket(names)}" + ("*" if LOG.module not in names else ""))
        original(self, params, forward, quantize)

    def release(original, self, param, free_data=True):
        if param.ds_status.name == "AVAILABLE" and not param.ds_active_sub_modules:
            LOG(f"f{param.peer_label}")
        original(self, param, free_data)

    def reduce_scatter(original, self, params, dtype):
        LOG(f"RS{bucket(p.peer_label for p in params)}")
        return original(self, params, dtype)

    def reduce_bucket(original, self, *args, **kwargs):
        buckets = self.ipg_buckets.values()
        LOG.waiting = [self.bit16_groups[i][index].peer_label for one in buckets for i, index, _ in one.params]
        if LOG.waiting and not self.has_moe_layers:  # else the only gradient is larger than the bucket, and comes next
            LOG(f"AR{bucket(LOG.waiting)}")
        return original(self, *args, **kwargs)

    def reduce_over(original, self, *args, process_group=None, **kwargs):
        if self.has_moe_layers:
            of_experts = process_group is not self.dp_process_group
            LOG(f"AR{bucket(name for name in LOG.waiting if name.startswith('E') == of_experts)}")
        return original(self, *args, process_group=process_group, **kwargs)

    def bring_persistent(original, self, *args, **kwargs):
        if self.persistent_parameters:
            LOG(f"AG{bucket(p.peer_label for p in self.persistent_parameters)}")
        return original(self, *args, **kwargs)

    def gather_all(original, *args, **kwargs):
        for group in kwargs["dp_process_group"]:
            of_experts = torch.distributed.get_world_size(group) < ranks
            LOG(f"AG{bucket(name for name in LOG.units if name.startswith('E') == of_experts)}")
        return original(*args, **kwargs)

    wrap(PartitionedParameterCoordinator, "_fetch_sub_module_impl", fetch)
    wrap(PartitionedParameterCoordinator, own + "all_gather_params_", gather)
    wrap(PartitionedParameterCoordinator, own + "release_param", release)
    wrap(stage3.DeepSpeedZeroOptimizer_Stage3, "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads", reduce_scatter)
    wrap(stage3.DeepSpeedZeroOptimizer_Stage3, "_post_step", bring_persistent)
    wrap(stage_1_and_2.DeepSpeedZeroOptimizer, "reduce_ipg_grads", reduce_bucket)
    wrap(stage_1_and_2.DeepSpeedZeroOptimizer, "allreduce_and_scatter", reduce_over)
    wrap(stage_1_and_2, "all_gather_dp_groups", gather_all)


class Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        LOG.first("B", ctx.name)
        return gradient, None


class Block(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.peer_label = name
        self.flat = nn.Parameter(torch.randn(BLOCK) / WIDTH)
        self.flat.peer_label = name

    def forward(self, x):
        LOG.first("F", self.peer_label)
        weight = self.flat[:WIDTH * WIDTH].view(WIDTH, WIDTH)
        return Mark.apply(x + torch.tanh(x @ weight) * self.flat.sum(), self.peer_label)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat = nn.Parameter(torch.randn(EXPERT) / WIDTH)

    def forward(self, x):
        return x * self.flat.sum()


class BlockOfExperts(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.peer_label = name
        self.flat = nn.Parameter(torch.randn(REST) / WIDTH)
        self.flat.peer_label = name
        self.moe = MoE(WIDTH, Expert(), num_experts=2, ep_size=2, k=1)
        for parameter in self.moe.parameters():
            parameter.peer_label = ("" if getattr(parameter, "allreduce", True) else "E") + name

    def forward(self, x):
        LOG.first("F", self.peer_label)
        weight = self.flat[:WIDTH * WIDTH].view(WIDTH, WIDTH)
        x = x + torch.tanh(x @ weight) * self.flat.sum()
        return Mark.apply(x + self.moe(x)[0], self.peer_label)


class Model(nn.Module):
    def __init__(self, layers, of_experts=False):
        super().__init__()
        self.peer_label = "R"
        self.flat = nn.Parameter(torch.randn(ROOT) / WIDTH)
        self.flat.peer_label = "R"
        self.blocks = nn.ModuleList((BlockOfExperts if of_experts else Block)(str(i)) for i in range(layers))

    def forward(self, tokens):
        LOG.first("F", "R")
        size = VOCABULARY * WIDTH
        x = self.flat[:size].view(VOCABULARY, WIDTH)[tokens]
        for block in self.blocks:
            x = block(x)
        logits = x @ self.flat[size:2 * size].view(WIDTH, VOCABULARY)
        return Mark.apply(logits, "R").float().square().mean()


def engine_for(keys):
    stage = int(keys["fsdp.preset"][-1])
    rate = lambda key: int(str(keys.get(key, "rate:50000000")).split(":")[1])
    zero = {"stage": stage, "reduce_bucket_size": keys.get("fsdp.reduce_bucket", 500000000)}
    if stage == 3:
        zero.update({
            "stage3_prefetch_bucket_size": rate("fsdp.forward_prefetch"),
            "stage3_max_live_parameters": keys.get("fsdp.max_live_parameters", 1000000000),
            "stage3_max_reuse_distance": keys.get("fsdp.max_reuse_distance", 1000000000),
            "stage3_param_persistence_threshold": keys["fsdp.persistence_threshold"],
        })
    else:
        zero["overlap_comm"] = keys.get("fsdp.reduce_lane") == "reduce_scatter"
    torch.manual_seed(1)
    of_experts = "model.experts" in keys
    model = Model(keys["model.layers"], of_experts)
    labels = {name: p.peer_label for name, p in model.named_parameters()}
    LOG.units = list(labels.values())
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": keys.get("train.accumulate", 1),
              "zero_optimization": zero, "zero_allow_untested_optimizer": True, "steps_per_print": 1 << 30}
    parameters = model.parameters()
    if of_experts:
        parameters = split_params_into_different_moe_groups_for_optimizer({"params": list(parameters), "name": "rest"})
    engine, _, _, _ = deepspeed.initialize(model=model, config=config,
                                           optimizer=torch.optim.AdamW(parameters, lr=1e-3))
    for name, parameter in engine.module.named_parameters():
        parameter.peer_label = labels[name]
    return engine


def steps_of(keys, rank):
    """One line a step; the last is the steady state."""
    engine = engine_for(keys)
    tokens = torch.randint(VOCABULARY, (2, 4), generator=torch.Generator().manual_seed(rank))
    lines = []
    for _ in range(STEPS):
        LOG.tokens = []
        for micro in range(keys.get("train.accumulate", 1)):
            LOG.begun = set()
            if micro > 0:
                LOG("||")
            loss = engine(tokens)
            LOG("|")
            engine.backward(loss)
            in_backward, LOG.tokens = LOG.tokens, []
            engine.step()
            gathers = [token for token in LOG.tokens if token.startswith("AG")]  # what is updated is freed before
            LOG.tokens = in_backward + (["step"] + gathers if gathers else [])
        lines.append(" ".join(LOG.tokens))
    engine.destroy()
    while len(lines) > 1 and lines[-1] == lines[-2]:
        lines.pop()
    block = REST if "model.experts" in keys else BLOCK
    return {"keys": keys, "elements": {"block": block, "root": ROOT}, "steps": lines}


def record_deepspeed(some):
    return record(some, watch, steps_of)


def main():
    parser = argparse.ArgumentParser(description="What DeepSpeed's ZeRO does, in order.")
    parser.add_argument("folder")
    parser.add_argument("--check", type=int, metavar="N", help="compare each Nth configuration with what is stored")
    parser.add_argument("--only", type=int, metavar="I", help="print what configuration I does, and write nothing")
    arguments = parser.parse_args()
    version = re.match(r"[\d.]+", deepspeed.__version__).group()
    path = os.path.join(arguments.folder, f"deepspeed-{version}.json")
    if arguments.only is not None:
        for row in record_deepspeed([cases()[arguments.only]]):
            print(row["keys"], *row["steps"], sep="\n")
        return 0
    if arguments.check:
        return check(path, cases()[::arguments.check], record_deepspeed, f"DeepSpeed {version}")
    write(path, record_deepspeed(cases()))
    print(f"{len(cases())} configurations on DeepSpeed {version}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
