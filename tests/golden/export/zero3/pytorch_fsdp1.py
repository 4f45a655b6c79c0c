"""Settings for PyTorch 2.15's FullyShardedDataParallel (FSDP1), written by fsdpbench export.
Chosen for 32 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 2 microbatches a step.

No word for these here; what it does instead:
  fsdp.keep_unreduced = false: no_sync() keeps what the strategy does not free after forward
  fsdp.gradients_after_views = false: autograd goes back from the views that a gather made: a prefetched unit is freed and reduced a block later
  fsdp.all_gather_limit = "fetched:2": the host waits for the second last free before each gather (limit_all_gathers=True, fsdp1_queue:2)
  fsdp.gradient_scaling = "average": gradients are divided before the sum and after it
  fsdp.max_live_parameters = 600000000: it does as max_live_parameters = 0 (with "rate" prefetching: none is begun while so many elements are gathered; 0: no limit)
  fsdp.persistence_threshold = 100000: it does as persistence_threshold = 0 (units of fewer elements stay gathered; after the optimizer one gather brings them all)
  fsdp.reduce_bucket = 500000000: it does as reduce_bucket = 0 (gradients of so many elements are reduced together, as soon as the next does not fit; 0: unit by unit)
  fsdp.reductions_in_flight = 2: it does as reductions_in_flight = 0 (reduce_bucket: the host waits for the oldest of more reductions; 0: it never does)

Near, not the same:
  fsdp.reshard_after_forward = true: ShardingStrategy.FULL_SHARD, which keeps the root
  fsdp.forward_prefetch = "rate:100000000": forward_prefetch=True, which is one unit ahead
  fsdp.backward_prefetch = "rate:100000000": BACKWARD_PRE, which is one unit ahead

For your training script, launcher or environment:
  train.seq_len = 8192: in your data loader
  train.batch_per_rank = 1: in your data loader

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
    BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy)
from torch.distributed.fsdp.wrap import CustomPolicy

BLOCKS_OF_UNITS = [1] * 32
BLOCKS = sum(BLOCKS_OF_UNITS)
MICROBATCHES = 2  # a step, each of 1 a rank


def make_mesh(device_type="cuda"):
    return init_device_mesh(device_type, (32,), mesh_dim_names=("shard",))


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
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch=True,
        limit_all_gathers=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
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
