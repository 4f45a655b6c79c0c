"""Settings for PyTorch 2.15's fully_shard (FSDP2), written by fsdpbench export.
Chosen for 16 ranks and a decoder of 12 blocks, width 768; 4 sequences of 1024 tokens a rank and microbatch, 2 microbatches a step.

No word for these here; what it does instead:
  fsdp.layout = "flat": each parameter is split by rows, with a copy in and a copy out
  fsdp.gradients_after_views = true: it does as gradients_after_views = false (true: a unit is freed and reduced when backward is past everything computed since its gather was issued in forward, so a prefetched unit later (FSDP1, whose gather makes the views that autograd differentiates); false: after its own backward)
  fsdp.learn_execution_order = true: prefetch lists count from the first step on
  fsdp.backward_prefetch = "post": the next unit is gathered before the backward of this one (pre); there is no post
  fsdp.all_gather_limit = "fsdp1_queue:3": gathers wait on the device for the copy-out before last: two buffers
  fsdp.gradient_scaling = "pre_post_divide": the collective averages; only fp16 is divided before and after

Near, not the same:
  fsdp.reduce_scatter_buffers = 0: set_reduce_scatter_max_input_buffers(7): one for each unit, all of them held to the end of backward

For your training script, launcher or environment:
  train.seq_len = 1024: in your data loader
  train.batch_per_rank = 4: in your data loader

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


def apply_fsdp(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = []
    blocks = iter(blocks_of(model))
    for count in BLOCKS_OF_UNITS:
        unit = [next(blocks) for _ in range(count)]
        fully_shard(unit if count > 1 else unit[0], mesh=mesh, reshard_after_forward=False, mp_policy=policy)
        units.append(unit[0])
    fully_shard(model, mesh=mesh, reshard_after_forward=False, mp_policy=policy)
    model.set_reduce_scatter_max_input_buffers(7)
    # Units to gather before a unit computes: those of the root, then those of each unit.
    ahead = [1] * 7
    model.set_modules_to_forward_prefetch(units[:ahead[0]])
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1:i + 1 + ahead[i + 1]])
    return model


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for i, batch in enumerate(microbatches):
        last = i + 1 == len(microbatches)
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)
        (loss_of(model, batch) / len(microbatches)).backward()
    optimizer.step()
    optimizer.zero_grad()
