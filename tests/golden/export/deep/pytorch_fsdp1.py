"""Settings for PyTorch 2.15's FullyShardedDataParallel (FSDP1), written by fsdpbench export.
Chosen for 64 ranks and a decoder of 32 blocks, width 4096; 2 sequences of 4096 tokens a rank and microbatch, 4 microbatches a step.

No word for these here; what it does instead:
  train.accumulate_mode = "reduce_scatter_only": every microbatch is all-reduced across replicas
  fsdp.layout = "per_param": a unit's parameters are one flat parameter, split into equal parts
  fsdp.reshard_after_backward = false: units are freed after each microbatch that is reduced
  fsdp.keep_unreduced = false: no_sync() keeps what the strategy does not free after forward
  fsdp.wait_each_backward = false: computation waits for all reductions at the end of each backward
  fsdp.gradients_after_views = false: autograd goes back from the views that a gather made: a prefetched unit is freed and reduced a block later
  fsdp.learn_execution_order = false: the first step learns the order
  fsdp.all_gather_limit = "fsdp2_event": the host waits for the second last free before each gather (limit_all_gathers=True, fsdp1_queue:2)
  fsdp.reduce_scatter_buffers = 3: inputs of reductions are as many as there are
  fsdp.separate_reduce_scatter_comm = true: gathers and reductions share a communicator
  fsdp.gradient_scaling = "sum": gradients are divided before the sum and after it
  fsdp.shard_threshold = 10000: it does as shard_threshold = 0 (parameters of fewer elements stay replicated)
  fsdp.head_unit = true: norm and head are in the root: a unit is one module
  nccl.register_buffers = "window": it does as register_buffers = "none" (cuda: none; local: ncclCommRegister; window: ncclMemAlloc and symmetric windows)

Near, not the same:
  fsdp.forward_prefetch = "window:1000000000": forward_prefetch=True, which is one unit ahead
  fsdp.backward_prefetch = "explicit:2": BACKWARD_PRE, which is one unit ahead
  fsdp.wrap = "blocks:3": auto_wrap_policy over Group modules that take the place of the blocks; names of parameters change

For your training script, launcher or environment:
  train.seq_len = 4096: in your data loader
  train.batch_per_rank = 2: in your data loader
  nccl.cta_policy = "zero": NCCL_CTA_POLICY=2 in the environment

    mesh = make_mesh()
    model = apply_fsdp(model, mesh)
    optimizer = make_optimizer(model)
    for microbatches in batches:  # MICROBATCHES of them each
        train_step(model, optimizer, microbatches, loss_of)
"""

import functools

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy)
from torch.distributed.fsdp.wrap import CustomPolicy

BLOCKS_OF_UNITS = [3] * 10 + [2]
BLOCKS = sum(BLOCKS_OF_UNITS)
MICROBATCHES = 4  # a step, each of 2 a rank


def make_mesh(device_type="cuda"):
    return init_device_mesh(device_type, (8, 8), mesh_dim_names=("replicate", "shard"))


def blocks_of(model):
    """The repeated blocks in forward order: the longest list of modules. Return your own if those are others."""
    lists = [list(m.values()) if isinstance(m, nn.ModuleDict) else list(m)
             for m in model.modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
    blocks = max(lists, key=len, default=[])
    if len(blocks) != BLOCKS:
        raise ValueError(f"These settings are for {BLOCKS} blocks; this model has {len(blocks)}.")
    return blocks


def checkpoint_blocks(model):
    """Keeps only the input of one block in 2, and recomputes the rest in backward."""
    chosen = set(blocks_of(model)[::2])
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: m in chosen)


class Group(nn.Module):
    """Blocks that are one unit: called as a block is."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, *args, **kwargs):
        for block in self.blocks:
            x = block(x, *args, **kwargs)
        return x


def group_blocks(model):
    """Puts groups into the place of the blocks, and returns them. The model must call its blocks one after another."""
    blocks = blocks_of(model)
    rest = iter(blocks)
    units = [Group([next(rest) for _ in range(count)]) for count in BLOCKS_OF_UNITS]
    owner, name = next((module, name) for module in model.modules() for name, child in module.named_children()
                       if isinstance(child, nn.ModuleList) and list(child) == blocks)
    setattr(owner, name, nn.ModuleList(units))
    return units


def apply_fsdp(model, mesh):
    checkpoint_blocks(model)
    units = set(group_blocks(model))
    device = torch.device(mesh.device_type)
    model = FullyShardedDataParallel(
        model,
        device_id=device if device.type == "cpu" else torch.accelerator.current_device_index(),
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch=True,
        limit_all_gathers=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        auto_wrap_policy=CustomPolicy(lambda module: module in units),
        use_orig_params=True,
    )
    return model


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for batch in microbatches:
        (loss_of(model, batch) / len(microbatches)).backward()
    model.clip_grad_norm_(1)
    optimizer.step()
    optimizer.zero_grad()
