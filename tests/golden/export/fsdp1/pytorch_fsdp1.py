"""Settings for PyTorch 2.15's FullyShardedDataParallel (FSDP1), written by fsdpbench export.
Chosen for 16 ranks and a decoder of 12 blocks, width 768; 4 sequences of 1024 tokens a rank and microbatch, 2 microbatches a step.

Near, not the same:
  fsdp.wrap = "blocks:2": auto_wrap_policy over Group modules that take the place of the blocks; names of parameters change

For your training script, launcher or environment:
  train.seq_len = 1024: in your data loader
  train.batch_per_rank = 4: in your data loader

    mesh = make_mesh()
    model = apply_fsdp(model, mesh)
    optimizer = make_optimizer(model)
    for microbatches in batches:  # MICROBATCHES of them each
        train_step(model, optimizer, microbatches, loss_of)
"""

import contextlib

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy)
from torch.distributed.fsdp.wrap import CustomPolicy

BLOCKS_OF_UNITS = [2] * 6
BLOCKS = sum(BLOCKS_OF_UNITS)
MICROBATCHES = 2  # a step, each of 4 a rank


def make_mesh(device_type="cuda"):
    return init_device_mesh(device_type, (4, 4), mesh_dim_names=("replicate", "shard"))


def blocks_of(model):
    """The repeated blocks in forward order: the longest list of modules. Return your own if those are others."""
    lists = [list(m.values()) if isinstance(m, nn.ModuleDict) else list(m)
             for m in model.modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
    blocks = max(lists, key=len, default=[])
    if len(blocks) != BLOCKS:
        raise ValueError(f"These settings are for {BLOCKS} blocks; this model has {len(blocks)}.")
    return blocks


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
    units = set(group_blocks(model))
    device = torch.device(mesh.device_type)
    model = FullyShardedDataParallel(
        model,
        device_id=device if device.type == "cpu" else torch.accelerator.current_device_index(),
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,
        backward_prefetch=BackwardPrefetch.BACKWARD_POST,
        forward_prefetch=True,
        limit_all_gathers=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        auto_wrap_policy=CustomPolicy(lambda module: module in units),
        use_orig_params=True,
    )
    for module in FullyShardedDataParallel.fsdp_modules(model):  # not a public name of PyTorch
        module._free_event_queue._max_num_inflight_all_gathers = 3
    return model


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for i, batch in enumerate(microbatches):
        last = i + 1 == len(microbatches)
        with contextlib.nullcontext() if last else model.no_sync():
            (loss_of(model, batch) / len(microbatches)).backward()
    optimizer.step()
    optimizer.zero_grad()
