# Settings for Megatron-LM's Megatron-FSDP (August 2026; package megatron-fsdp 0.6), written by fsdpbench export.
# Chosen for 8 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 1 microbatch a step.
#
# No word for these here; what it does instead:
#   fsdp.layout = "per_param": a unit's parameters lie in one flat buffer
#   fsdp.all_gather_limit = "fsdp2_event": nothing limits gathers but the size of the window
#   fsdp.gathers_ascend = false: it does as gathers_ascend = true (what one hook gathers is issued from the first unit to the last, in backward too)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.root_prefetches_backward = true: it does as root_prefetches_backward = false (false: the first gather of backward is on demand)
#   fsdp.reduce_scatter_elements = 0: as many elements as --suggested-communication-unit-size
#
# Near, not the same:
#   fsdp.forward_prefetch = "implicit": --suggested-communication-unit-size 436224000: half of it is the window, in forward and in backward
#   fsdp.backward_prefetch = "pre": --suggested-communication-unit-size 436224000: half of it is the window, in forward and in backward
#
# For your training script, launcher or environment:
#   mesh.ranks = 8: for your launcher
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

MESH = (8,), ("shard",)  # init_device_mesh("cuda", *MESH)


def apply_fsdp(model, mesh, unit_modules):
    """`unit_modules`: the classes of blocks, or their names."""
    return fully_shard_model(
        model,
        device_mesh=mesh,
        dp_shard_dim="shard",
        fsdp_unit_modules=unit_modules,
        zero_dp_strategy=3,
        mixed_precision_policy=MixedPrecisionPolicy(grad_comm_dtype=torch.float32),
        overlap_param_gather=True,
        overlap_grad_reduce=True,
        average_in_collective=True,
    )
