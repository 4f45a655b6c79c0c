"""Settings for PyTorch 2.15's fully_shard (FSDP2), written by fsdpbench export.
Chosen for 4 ranks and a decoder of 12 blocks, width 768; 2 sequences of 128 tokens a rank and microbatch, 1 microbatch a step.

No word for these here; what it does instead:
  fsdp.layout = "flat": each parameter is split by rows, with a copy in and a copy out
  fsdp.gradients_after_views = true: it does as gradients_after_views = false (true: a unit is freed and reduced when backward is past everything computed since its gather was issued in forward, so a prefetched unit later (FSDP1, whose gather makes the views that autograd differentiates); false: after its own backward)
  fsdp.learn_execution_order = true: prefetch lists count from the first step on
  fsdp.all_gather_limit = "unlimited": gathers wait on the device for the copy-out before last: two buffers
  fsdp.gradient_scaling = "pre_post_divide": the collective averages; only fp16 is divided before and after

Near, not the same:
  fsdp.reduce_scatter_buffers = 0: set_reduce_scatter_max_input_buffers(13): one for each unit, all of them held to the end of backward

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
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

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
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    units = []
    blocks = iter(blocks_of(model))
    for count in BLOCKS_OF_UNITS:
        unit = [next(blocks) for _ in range(count)]
        fully_shard(unit if count > 1 else unit[0], mesh=mesh, reshard_after_forward=False, mp_policy=policy, offload_policy=CPUOffloadPolicy())
        units.append(unit[0])
    fully_shard(model, mesh=mesh, reshard_after_forward=False, mp_policy=policy, offload_policy=CPUOffloadPolicy())
    model.set_reduce_scatter_max_input_buffers(13)
    return model


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for batch in microbatches:
        (loss_of(model, batch) / len(microbatches)).backward()
    optimizer.step()
    optimizer.zero_grad()
