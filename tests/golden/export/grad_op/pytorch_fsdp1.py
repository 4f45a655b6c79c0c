"""Settings for PyTorch 2.15's FullyShardedDataParallel (FSDP1), written by fsdpbench export.
Chosen for 4 ranks and a decoder of 12 blocks, width 768; 2 sequences of 128 tokens a rank and microbatch, 1 microbatch a step.

For your training script, launcher or environment:
  train.seq_len = 128: in your data loader
  train.batch_per_rank = 2: in your data loader

    mesh = make_mesh()
    model = apply_fsdp(model, mesh)
    optimizer = make_optimizer(model)
    for microbatches in batches:  # MICROBATCHES of them each
        train_step(model, optimizer, microbatches, loss_of)
"""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy)
from torch.distributed.fsdp.wrap import CustomPolicy

BLOCKS_OF_UNITS = [1] * 12
BLOCKS = sum(BLOCKS_OF_UNITS)
MICROBATCHES = 1  # a step, each of 2 a rank


def make_mesh(device_type="cuda"):
    return init_device_mesh(device_type, (4,), mesh_dim_names=("shard",))


def blocks_of(model):
    """The repeated blocks in forward order: the longest list of modules. Return your own if those are others."""
    lists = [list(m.values()) if isinstance(m, nn.ModuleDict) else list(m)
             for m in model.modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
    blocks = max(lists, key=len, default=[])
    if len(blocks) != BLOCKS:
        raise ValueError(f"These settings are for {BLOCKS} blocks; this model has {len(blocks)}.")
    return blocks


def apply_fsdp(model, mesh):
    units = set(blocks_of(model))
    device = torch.device(mesh.device_type)
    model = FullyShardedDataParallel(
        model,
        device_id=device if device.type == "cpu" else torch.accelerator.current_device_index(),
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch=False,
        limit_all_gathers=False,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        cpu_offload=CPUOffload(offload_params=True),
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
    optimizer.step()
    optimizer.zero_grad()
