"""Settings for PyTorch 2.15's fully_shard (FSDP2), written by fsdpbench export.
Chosen for 64 ranks and a decoder of 32 blocks, width 4096; 2 sequences of 4096 tokens a rank and microbatch, 4 microbatches a step.

Near, not the same:
  fsdp.shard_threshold = 10000: ignored_params, whose gradients train_step() all-reduces after the last backward

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
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

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


def head_of(model):
    """What has parameters and comes after the blocks: the final norm and the head."""
    inside = {m for block in blocks_of(model) for m in block.modules()}
    order = list(model.modules())
    after = max(i for i, m in enumerate(order) if m in inside)
    return [m for m in order[after + 1:] if any(True for _ in m.parameters(recurse=False))]


def by_size(model):
    """Parameters to be split, and those that are too small for that: every rank holds them whole."""
    parameters = list(model.parameters())
    return [p for p in parameters if p.numel() >= 10000], [p for p in parameters if p.numel() < 10000]


def apply_fsdp(model, mesh):
    checkpoint_blocks(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    replicated = set(by_size(model)[1])
    units = []
    blocks = iter(blocks_of(model))
    for count in BLOCKS_OF_UNITS:
        unit = [next(blocks) for _ in range(count)]
        fully_shard(unit if count > 1 else unit[0], mesh=mesh, mp_policy=policy, ignored_params=replicated)
        units.append(unit[0])
    head = head_of(model)
    fully_shard(head, mesh=mesh, mp_policy=policy, ignored_params=replicated)
    units.append(head[0])
    fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=replicated)
    model.set_reduce_scatter_max_input_buffers(3)
    model.set_separate_reduce_scatter_group(True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_symm_mem_for_comm()
    # Units to gather before a unit computes: those of the root, then those of each unit.
    ahead = [2] * 11 + [1, 0]
    model.set_modules_to_forward_prefetch(units[:ahead[0]])
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1:i + 1 + ahead[i + 1]])
    behind = [2] * 12
    for i, unit in enumerate(units):
        unit.set_modules_to_backward_prefetch(units[:i][::-1][:behind[i]])
    return model


def make_optimizer(model):
    return torch.optim.AdamW([{"params": some} for some in by_size(model) if some], lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)


def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
    for i, batch in enumerate(microbatches):
        last = i + 1 == len(microbatches)
        model.set_requires_all_reduce(last)
        model.set_reshard_after_backward(last)
        model.set_is_last_backward(last)
        (loss_of(model, batch) / len(microbatches)).backward()
    sharded, replicated = by_size(model)
    for parameter in replicated:
        dist.all_reduce(parameter.grad.div_(dist.get_world_size()))
    norms = [torch.nn.utils.get_total_norm([p.grad for p in some]) for some in (sharded, replicated) if some]
    norm = torch.stack([n.full_tensor() if hasattr(n, "full_tensor") else n for n in norms]).norm()
    for some in (sharded, replicated):
        torch.nn.utils.clip_grads_with_norm_(some, 1, norm)
    optimizer.step()
    optimizer.zero_grad()
