"""Settings for PyTorch 2.15's fully_shard (FSDP2), written by fsdpbench export.
Chosen for 32 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 2 microbatches a step.

No word for these here; what it does instead:
  fsdp.layout = "flat": each parameter is split by rows, with a copy in and a copy out
  fsdp.learn_execution_order = true: prefetch lists count from the first step on
  fsdp.all_gather_limit = "fetched:2": gathers wait on the device for the copy-out before last: two buffers
  fsdp.max_live_parameters = 600000000: it does as max_live_parameters = 0 (with "rate" prefetching: none is begun while so many elements are gathered; 0: no limit)
  fsdp.persistence_threshold = 100000: it does as persistence_threshold = 0 (units of fewer elements stay gathered; after the optimizer one gather brings them all)
  fsdp.reduce_bucket = 500000000: it does as reduce_bucket = 0 (gradients of so many elements are reduced together, as soon as the next does not fit; 0: unit by unit)
  fsdp.reductions_in_flight = 2: it does as reductions_in_flight = 0 (reduce_bucket: the host waits for the oldest of more reductions; 0: it never does)

Near, not the same:
  fsdp.forward_prefetch = "rate:100000000": set_modules_to_forward_prefetch: a fixed list a module, as many units as one hook asks for
  fsdp.backward_prefetch = "rate:100000000": set_modules_to_backward_prefetch: a fixed list a module, as many units as one hook asks for
  fsdp.reduce_scatter_buffers = 0: set_reduce_scatter_max_input_buffers(33): one for each unit, all of them held to the end of backward

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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

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
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = []
    blocks = iter(blocks_of(model))
    for count in BLOCKS_OF_UNITS:
        unit = [next(blocks) for _ in range(count)]
        fully_shard(unit if count > 1 else unit[0], mesh=mesh, reshard_after_forward=True, mp_policy=policy)
        units.append(unit[0])
    fully_shard(model, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    model.set_reduce_scatter_max_input_buffers(33)
    # Units to gather before a unit computes: those of the root, then those of each unit.
    ahead = [1] * 32 + [0]
    model.set_modules_to_forward_prefetch(units[:ahead[0]])
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1:i + 1 + ahead[i + 1]])
    behind = [0] + [1] * 31
    for i, unit in enumerate(units):
        unit.set_modules_to_backward_prefetch(units[:i][::-1][:behind[i]])
    return model


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for batch in microbatches:
        (loss_of(model, batch) / len(microbatches)).backward()
    optimizer.step()
    optimizer.zero_grad()
