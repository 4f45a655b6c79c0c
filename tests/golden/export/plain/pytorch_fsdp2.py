"""Settings for PyTorch 2.15's fully_shard (FSDP2), written by fsdpbench export.
Chosen for 8 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 1 microbatch a step.

For your training script, launcher or environment:
  train.seq_len = 8192: in your data loader
  train.batch_per_rank = 1: in your data loader

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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BLOCKS_OF_UNITS = [1] * 32
BLOCKS = sum(BLOCKS_OF_UNITS)
MICROBATCHES = 1  # a step, each of 1 a rank


def make_mesh(device_type="cuda"):
    return init_device_mesh(device_type, (8,), mesh_dim_names=("shard",))


def blocks_of(model):
    """The repeated blocks in forward order: the longest list of modules. Return your own if those are others."""
    lists = [list(m.values()) if isinstance(m, nn.ModuleDict) else list(m)
             for m in model.modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
    blocks = max(lists, key=len, default=[])
    if len(blocks) != BLOCKS:
        raise ValueError(f"These settings are for {BLOCKS} blocks; this model has {len(blocks)}.")
    return blocks


def checkpoint_blocks(model):
    """Keeps only the input of each block, and recomputes the rest in backward."""
    chosen = set(blocks_of(model))
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: m in chosen)


def apply_fsdp(model, mesh):
    checkpoint_blocks(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = []
    blocks = iter(blocks_of(model))
    for count in BLOCKS_OF_UNITS:
        unit = [next(blocks) for _ in range(count)]
        fully_shard(unit if count > 1 else unit[0], mesh=mesh, mp_policy=policy)
        units.append(unit[0])
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for batch in microbatches:
        (loss_of(model, batch) / len(microbatches)).backward()
    optimizer.step()
    optimizer.zero_grad()
