# Settings for Megatron-LM's Megatron-FSDP (August 2026; package megatron-fsdp 0.6), written by fsdpbench export.
# Chosen for 4 ranks and a decoder of 12 blocks, width 768; 2 sequences of 128 tokens a rank and microbatch, 1 microbatch a step.
#
# No word for these here; what it does instead:
#   fsdp.keep_unreduced = true: it does as keep_unreduced = false (true: units that are not freed after forward stay gathered after a microbatch that reduces nothing (FSDP1's no_sync); false: reshard_after_backward alone decides)
#   fsdp.gradients_after_views = true: it does as gradients_after_views = false (true: a unit is freed and reduced when backward is past everything computed since its gather was issued in forward, so a prefetched unit later (FSDP1, whose gather makes the views that autograd differentiates); false: after its own backward)
#   fsdp.learn_execution_order = true: it does as learn_execution_order = false (true: the first step learns the order of units, so forward prefetching to a depth starts with the second (FSDP1); false: the order is given (FSDP2))
#   fsdp.reduce_scatter_buffers = 0: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.gradient_scaling = "pre_post_divide": gradients are divided by the ranks before the sum
#   fsdp.gathers_ascend = false: it does as gathers_ascend = true (what one hook gathers is issued from the first unit to the last, in backward too)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.root_prefetches_backward = true: it does as root_prefetches_backward = false (false: the first gather of backward is on demand)
#   fsdp.reduce_scatter_elements = 0: as many elements as --suggested-communication-unit-size
#   fsdp.cpu_offload = "all": all state is in the device's memory
#
# Near, not the same:
#   fsdp.forward_prefetch = "implicit": --suggested-communication-unit-size 14158848: half of it is the window, in forward and in backward
#   fsdp.backward_prefetch = "pre": --suggested-communication-unit-size 14158848: half of it is the window, in forward and in backward
#
# For your training script, launcher or environment:
#   mesh.ranks = 4: for your launcher
#   train.learning_rate = 0.001: as flags of Megatron-LM
#   train.beta1 = 0.9: as flags of Megatron-LM
#   train.beta2 = 0.999: as flags of Megatron-LM
#   train.epsilon = 1e-08: as flags of Megatron-LM
#   train.weight_decay = 0.01: as flags of Megatron-LM
#   train.clip_norm = 0.0: as --clip-grad
#
# The package megatron-fsdp without Megatron-LM: window and reductions have no argument there.
# model.bfloat16() before this; masters stay fp32.

import torch
from megatron_fsdp import MixedPrecisionPolicy, fully_shard_model

MESH = (4,), ("shard",)  # init_device_mesh("cuda", *MESH)


def apply_fsdp(model, mesh, unit_modules):
    """`unit_modules`: the classes of blocks, or their names."""
    return fully_shard_model(
        model,
        device_mesh=mesh,
        dp_shard_dim="shard",
        fsdp_unit_modules=unit_modules,
        zero_dp_strategy=2,
        mixed_precision_policy=MixedPrecisionPolicy(grad_comm_dtype=torch.bfloat16),
        overlap_param_gather=True,
        overlap_grad_reduce=True,
        average_in_collective=False,
    )
