"""A model under FSDP1, FSDP2 or DDP, as a configuration of fsdpbench asks for it, on CPU ranks over gloo.

The model is the shape of fsdpbench's own: an embedding and a head that stay in the root unit, blocks between them; or,
as `mlp`, blocks alone. It tells a log when each of its modules computes, forward and backward.
"""

import contextlib
import faulthandler
import functools
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Shard
from torch.utils.checkpoint import checkpoint

WIDTH = 8
VOCABULARY = 16
is_bw = _fsdp_param_group.is_bw
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


HANG_S = 600


def goes_on():
    """Says that this rank is alive. One of which that is not heard for HANG_S seconds writes where it stands and ends its
    job; a step of these small models takes seconds on the busiest machine."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)


def join_job(rank, ranks, address):
    """Makes this process a rank of a job over gloo. One thread each: ranks share the cores of a small machine."""
    goes_on()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)


def leave_job():
    """Ends this rank's process once all have come here. Without a shutdown of the interpreter: on a busy machine threads
    of gloo that are still there abort that now and then ("terminate called without an active exception")."""
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class BackwardMark(torch.autograd.Function):
    """Tells the log when backward reaches the module whose output this is; recomputes first, where that is asked."""

    @staticmethod
    def forward(ctx, x, name, log):
        ctx.save_for_backward(x)
        ctx.name, ctx.log = name, log
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        (_,) = ctx.saved_tensors
        ctx.log("B" + ctx.name)
        return gradient, None, None


class Exchange(torch.autograd.Function):
    """Equal parts of the rows go to each rank of `group`; their gradients come back. `there` and `back` are told to the
    log: what forward and what backward is."""

    @staticmethod
    def forward(ctx, rows, group, there, back, log):
        ctx.group, ctx.back, ctx.log = group, back, log
        log(there)
        return all_to_all(rows, group)

    @staticmethod
    def backward(ctx, gradient):
        ctx.log(ctx.back)
        return all_to_all(gradient, ctx.group), None, None, None, None


def all_to_all(rows, group):
    received = torch.empty_like(rows)
    dist.all_to_all_single(received, rows.contiguous(), group=group)
    return received


class Experts(nn.Module):
    """This rank's experts of a block: a matrix each, in one parameter as torchtitan's are."""

    def __init__(self, count):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, WIDTH, WIDTH) / WIDTH)

    def forward(self, rows):  # [experts, rows, width]
        return torch.bmm(rows, self.weight)


class ExpertsOfBlock(nn.Module):
    """Rows go to the experts and come back, in equal parts: where they go changes no order."""

    def __init__(self, keys, name, log):
        super().__init__()
        self.ranks, self.told = keys["mesh.expert"], keys.get("mesh.expert_sync", True)
        self.group = expert_mesh_of(keys).get_group("ep")
        self.count = keys["model.experts"] // self.ranks
        self.experts = Experts(self.count)
        self.name, self.log = name, log

    def forward(self, x):
        if self.told:
            self.log("N" + self.name)
            counts = torch.full((self.ranks,), x.numel() // x.size(-1) // self.ranks)
            all_to_all(counts, self.group).tolist()
        rows = Exchange.apply(x.reshape(-1, WIDTH), self.group, ">" + self.name, "<" + self.name, self.log)
        y = self.experts(rows.reshape(self.count, -1, WIDTH)).reshape(-1, WIDTH)
        return Exchange.apply(y, self.group, "<" + self.name, ">" + self.name, self.log).reshape(x.shape)


class Block(nn.Module):
    def __init__(self, name, log, rank=0, experts=None):
        super().__init__()
        self.map = nn.Linear(WIDTH, WIDTH)
        self.adapters, self.experts = None, experts
        if rank > 0:
            self.adapters = nn.Sequential(nn.Linear(WIDTH, rank, bias=False), nn.Linear(rank, WIDTH, bias=False))
        self.name, self.log = name, log

    def forward(self, x):
        recomputes = torch._C._current_graph_task_id() != -1
        self.log(("X" if recomputes else "F") + self.name)
        y = self.map(x) if self.adapters is None else self.map(x) + self.adapters(x)
        y = y if self.experts is None else y + self.experts(y)
        return BackwardMark.apply(torch.tanh(y), self.name, self.log)


def trained_blocks(keys):
    """Those of which something trains."""
    trainable = keys.get("model.trainable", "all")
    if trainable == "all":
        return range(keys["model.layers"])
    first, last = trainable.split(":")[1].split("-")
    return range(int(first), int(last) + 1)


def freeze(model, blocks, keys):
    """Leaves only those parameters trainable that the keys want to be."""
    rank, trained = keys.get("model.lora_rank", 0), trained_blocks(keys)
    if rank == 0 and keys.get("model.trainable", "all") == "all":
        return
    model.requires_grad_(False)
    for i in trained:
        (blocks[i].adapters if rank > 0 else blocks[i]).requires_grad_(True)


class Model(nn.Module):
    def __init__(self, keys, log):
        super().__init__()
        self.log = log
        self.decoder = keys.get("model.kind", "decoder") == "decoder"
        rank, trained = keys.get("model.lora_rank", 0), trained_blocks(keys)
        experts = lambda i: ExpertsOfBlock(keys, str(i), log) if keys.get("mesh.expert", 1) > 1 else None
        bare = blocks = [Block(str(i), log, rank if i in trained else 0, experts(i)) for i in range(keys["model.layers"])]
        self.reentrant = 0  # each so many-th block is called in a reentrant checkpoint, which is around its hooks
        if keys.get("fsdp.checkpoint_reentrant"):
            self.reentrant = keys.get("fsdp.checkpoint_every", 1)
        elif keys.get("fsdp.activation_checkpointing"):
            every = keys.get("fsdp.checkpoint_every", 1)
            blocks = [checkpoint_wrapper(block, CheckpointImpl.NO_REENTRANT) if i % every == 0 else block
                      for i, block in enumerate(blocks)]
        wrap = keys.get("fsdp.wrap", "block")
        if wrap.startswith("blocks:"):
            size = int(wrap.split(":")[1])
            blocks = [Run(*blocks[i:i + size]) for i in range(0, len(blocks), size)]
        self.embedding = nn.Embedding(VOCABULARY, WIDTH) if self.decoder else None
        self.blocks = nn.ModuleList(blocks)
        self.head = Head(log) if self.decoder else None
        if keys.get("model.tied_head"):
            self.head.weight = self.embedding.weight
        freeze(self, bare, keys)

    def forward(self, batch):
        x = batch
        if self.decoder:
            self.log("Fe")
            x = BackwardMark.apply(self.embedding(batch), "e", self.log)
        for i, block in enumerate(self.blocks):
            again = self.reentrant > 0 and i % self.reentrant == 0
            x = checkpoint(block, x, use_reentrant=True) if again else block(x)
        if self.decoder:
            x = self.head(x)
        return x.float().square().mean()


class Head(nn.Linear):
    """It tells of itself from within: where it is a unit, after its unit has been gathered."""

    def __init__(self, log):
        super().__init__(WIDTH, VOCABULARY)
        self.log = log

    def forward(self, x):
        self.log("Fh")
        return BackwardMark.apply(super().forward(x), "h", self.log)


class Run(nn.Sequential):
    """Several blocks that are one unit."""


def batch_for(keys, rank):
    generator = torch.Generator().manual_seed(rank)
    if keys.get("model.kind") == "mlp":
        return torch.randn(2, WIDTH, generator=generator)
    return torch.randint(VOCABULARY, (2, 4), generator=generator)


def is_hybrid(keys):
    return keys.get("fsdp.strategy", "full_shard").startswith("hybrid")


def depth(keys, key):
    value = keys.get(key)
    return value if isinstance(value, int) else 0


@functools.lru_cache(maxsize=None)
def make_mesh(ranks, shape=None):
    """Communicators are kept: one case after another uses them."""
    if shape is None:
        return DeviceMesh("cpu", torch.arange(ranks), mesh_dim_names=("shard",))
    return DeviceMesh("cpu", torch.arange(ranks).view(shape), mesh_dim_names=("replicate", "shard"))


def mesh_of(keys):
    shape = (keys["mesh.replicate"], keys["mesh.shard"]) if is_hybrid(keys) else None
    return make_mesh(keys["mesh.ranks"], shape)


@functools.lru_cache(maxsize=None)
def make_expert_mesh(replicate, shards, experts):
    return DeviceMesh("cpu", torch.arange(replicate * shards * experts).view(replicate, shards, experts),
                      mesh_dim_names=("replicate", "efsdp", "ep"))


def expert_mesh_of(keys):
    """torchtitan's mesh of experts: those who split them are neighbours."""
    replicate = keys["mesh.replicate"] if is_hybrid(keys) else 1
    experts = keys["mesh.expert"]
    return make_expert_mesh(replicate, keys["mesh.ranks"] // replicate // experts, experts)


def dimension_of_experts(keys):
    """Along which experts are split over the ranks that have the same ones: 1 where there are more ranks than experts."""
    replicate = keys["mesh.replicate"] if is_hybrid(keys) else 1
    return 1 if keys["mesh.ranks"] // replicate > keys["model.experts"] else 0


def mesh_of_experts(keys):
    """That of a module of experts with hooks of its own."""
    return expert_mesh_of(keys)[("replicate", "efsdp") if is_hybrid(keys) else "efsdp"]


def placement_of(keys, model):
    """Where parameters of a block are split: experts over the ranks that have the same ones, as torchtitan 0.3 does it
    (distributed/fsdp.py)."""
    if keys.get("mesh.expert", 1) == 1:
        return None
    mesh = expert_mesh_of(keys)
    of_experts = FSDPMeshInfo(mesh["efsdp"], shard_mesh_dim=0)
    of_all = FSDPMeshInfo(mesh_of(keys), shard_mesh_dim=0)
    if is_hybrid(keys):
        of_experts = HSDPMeshInfo(mesh["replicate", "efsdp"], shard_mesh_dim=1, replicate_mesh_dim=0)
        of_all = HSDPMeshInfo(mesh_of(keys), shard_mesh_dim=1, replicate_mesh_dim=0)
    dimension = dimension_of_experts(keys)
    own = {p for module in model.modules() if isinstance(module, Experts) for p in module.parameters()}
    return lambda p: (ShardPlacementResult(Shard(dimension), of_experts) if p in own
                      else ShardPlacementResult(Shard(0), of_all))


FSDP1_STRATEGIES = {
    "full_shard": ShardingStrategy.FULL_SHARD,
    "shard_grad_op": ShardingStrategy.SHARD_GRAD_OP,
    "no_shard": ShardingStrategy.NO_SHARD,
    "hybrid_shard": ShardingStrategy.HYBRID_SHARD,
    "hybrid_shard_grad_op": ShardingStrategy._HYBRID_SHARD_ZERO2,
}


def fsdp1(model, keys):
    prefetch = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, "none": None}
    mixed = None
    if "fsdp.param_dtype" in keys:
        mixed = MixedPrecision(param_dtype=DTYPES[keys["fsdp.param_dtype"]],
                               reduce_dtype=DTYPES[keys["fsdp.reduce_dtype"]])
    policy = None
    if keys.get("fsdp.wrap") != "model":
        policy = ModuleWrapPolicy({type(block) for block in model.blocks})
    limit = keys.get("fsdp.all_gather_limit", "fsdp1_queue:2")
    result = FullyShardedDataParallel(
        model,
        device_id=torch.device("cpu"),
        device_mesh=mesh_of(keys),
        sharding_strategy=FSDP1_STRATEGIES[keys.get("fsdp.strategy", "full_shard")],
        backward_prefetch=prefetch[keys.get("fsdp.backward_prefetch", "pre")],
        forward_prefetch=depth(keys, "fsdp.forward_prefetch") > 0,
        limit_all_gathers=limit != "unlimited",
        mixed_precision=mixed,
        auto_wrap_policy=policy,
        use_orig_params=keys.get("use_orig_params", True),
    )
    modules = FullyShardedDataParallel.fsdp_modules(result)
    for label, module in zip(["R"] + [str(i) for i in range(len(modules))], modules):
        if module._handle is not None:
            module._handle.peer_label = label
        if limit != "unlimited":
            module._free_event_queue._max_num_inflight_all_gathers = int(limit.split(":")[1])
    return result


def fsdp2(model, keys):
    policy = MixedPrecisionPolicy()
    if "fsdp.param_dtype" in keys:
        policy = MixedPrecisionPolicy(param_dtype=DTYPES[keys["fsdp.param_dtype"]],
                                      reduce_dtype=DTYPES[keys["fsdp.reduce_dtype"]])
    reshard = {"auto": None}.get(keys.get("fsdp.reshard_after_forward", "auto"),
                                 keys.get("fsdp.reshard_after_forward"))
    if keys.get("fsdp.strategy", "full_shard").endswith("shard_grad_op") and reshard is None:
        reshard = False
    # Biases stand for what is too small to be split, as norms are in fsdpbench's model.
    ignored = {m.bias for m in model.modules() if isinstance(m, nn.Linear) and m.bias is not None}
    shard = functools.partial(fully_shard, mesh=mesh_of(keys), mp_policy=policy, reshard_after_forward=reshard,
                              ignored_params=ignored if keys.get("fsdp.shard_threshold") else None)
    units = [] if keys.get("fsdp.wrap") == "model" else list(model.blocks)
    names = ["R"] + [str(i) for i in range(len(units))]
    nested = keys.get("fsdp.expert_unit") == "module"
    placement = None if nested else placement_of(keys, model)
    experts = {}  # a block's module of experts, which is inside of what its unit wraps
    for unit in units:
        if nested:
            (experts[unit],) = (m for m in unit.modules() if isinstance(m, ExpertsOfBlock))
            dimension = dimension_of_experts(keys)
            shard(experts[unit], mesh=mesh_of_experts(keys), shard_placement_fn=lambda p: Shard(dimension))
        shard(unit, shard_placement_fn=placement)
    if keys.get("fsdp.head_unit"):
        shard(model.head)
        units.append(model.head)
        names.append("T")
    shard(model)
    for label, module in zip(names, [model] + units):
        for group, kind in zip(module._get_fsdp_state()._fsdp_param_groups, ("", "E")):
            group.peer_label = kind + label
        if module in experts:
            experts[module]._get_fsdp_state()._fsdp_param_groups[0].peer_label = "E" + label
    with_experts = lambda listed: [m for unit in listed for m in (unit, experts.get(unit)) if m is not None]
    ahead, behind = depth(keys, "fsdp.forward_prefetch"), depth(keys, "fsdp.backward_prefetch")
    for i, unit in enumerate(units):
        if ahead:
            unit.set_modules_to_forward_prefetch(with_experts(units[i + 1:i + 1 + ahead]))
        if behind:
            unit.set_modules_to_backward_prefetch(with_experts(units[max(0, i - behind):i][::-1]))
    if ahead and units and keys.get("fsdp.root_prefetches_forward", True):
        model.set_modules_to_forward_prefetch(with_experts(units[:1]))
    model.set_reduce_scatter_max_input_buffers(keys.get("fsdp.reduce_scatter_buffers", 1))
    if keys.get("fsdp.separate_reduce_scatter_comm"):
        model.set_separate_reduce_scatter_group(True)
    return model


def build(keys, log):
    """The model under the engine that the preset names; all ranks begin with equal parameters.

    `fsdp.recompute_frees` puts the rule back that PyTorch had before pytorch#164009: the hook after forward did not ask
    whether it is called in a backward."""
    torch.manual_seed(1)
    _fsdp_param_group.is_bw = (lambda: False) if keys.get("fsdp.recompute_frees") else is_bw
    make = {"fsdp1": fsdp1, "fsdp2": fsdp2}[keys["fsdp.preset"]]
    return make(Model(keys, log), keys)


@contextlib.contextmanager
def microbatch(model, keys, micro):
    """What PyTorch's users write around one of several microbatches."""
    last = micro + 1 == keys.get("train.accumulate", 1)
    mode = keys.get("train.accumulate_mode", "reduce_each")
    if keys["fsdp.preset"] == "fsdp1":
        with model.no_sync() if mode == "no_sync" and not last else contextlib.nullcontext():
            yield
        return
    model.set_requires_gradient_sync(mode != "no_sync" or last)
    model.set_requires_all_reduce(mode != "reduce_scatter_only" or last)
    model.set_reshard_after_backward(keys.get("fsdp.reshard_after_backward", True) or last)
    model.set_is_last_backward(keys.get("fsdp.wait_each_backward", True) or last)
    yield
