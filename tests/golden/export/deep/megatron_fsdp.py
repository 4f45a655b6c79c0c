# Settings for Megatron-LM's Megatron-FSDP (August 2026; package megatron-fsdp 0.6), written by fsdpbench export.
# Chosen for 64 ranks and a decoder of 32 blocks, width 4096; 2 sequences of 4096 tokens a rank and microbatch, 4 microbatches a step.
#
# No word for these here; what it does instead:
#   fsdp.layout = "per_param": a unit's parameters lie in one flat buffer
#   fsdp.reshard_after_backward = false: it does as reshard_after_backward = true (false: units stay gathered between accumulated microbatches)
#   fsdp.wait_each_backward = false: it does as wait_each_backward = true (true: computation waits for all reductions at the end of each microbatch's backward; false: only at the end of the step (FSDP2's set_is_last_backward))
#   fsdp.all_gather_limit = "fsdp2_event": nothing limits gathers but the size of the window
#   fsdp.reduce_scatter_buffers = 3: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.wrap = "blocks:3": each transformer layer is a unit (fsdp_unit_modules names classes)
#   fsdp.shard_threshold = 10000: it does as shard_threshold = 0 (parameters of fewer elements stay replicated)
#   fsdp.gathers_ascend = false: it does as gathers_ascend = true (what one hook gathers is issued from the first unit to the last, in backward too)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.root_prefetches_backward = true: it does as root_prefetches_backward = false (false: the first gather of backward is on demand)
#   fsdp.reduce_scatter_elements = 0: as many elements as --suggested-communication-unit-size
#   fsdp.head_unit = true: it does as head_unit = false (final norm and head are the last unit instead of parts of the root)
#
# Near, not the same:
#   train.accumulate_mode = "reduce_scatter_only": --outer-dp-sharding-strategy no_shard: replicas are reduced at the last microbatch
#   fsdp.backward_prefetch = "explicit:2": --suggested-communication-unit-size 2000000000: half of it is the window, in forward and in backward
#   fsdp.gradient_scaling = "sum": gradients are divided by the ranks before the sum, not after
#   fsdp.checkpoint_every = 2: --recompute-method block --recompute-num-layers 16: the first ones, not every 2th
#
# For your training script, launcher or environment:
#   mesh.ranks = 64: for your launcher
#   train.learning_rate = 0.001: as flags of Megatron-LM
#   train.beta1 = 0.9: as flags of Megatron-LM
#   train.beta2 = 0.999: as flags of Megatron-LM
#   train.epsilon = 1e-08: as flags of Megatron-LM
#   train.weight_decay = 0.01: as flags of Megatron-LM
#   train.clip_norm = 1.0: as --clip-grad
#   nccl.cta_policy = "zero": NCCL_CTA_POLICY=2 in the environment
#
# The package megatron-fsdp without Megatron-LM: window and reductions have no argument there.
# model.bfloat16() before this; masters stay fp32.

import torch
from megatron_fsdp import MixedPrecisionPolicy, fully_shard_model

MESH = (8, 8), ("replicate", "shard")  # init_device_mesh("cuda", *MESH)


def apply_fsdp(model, mesh, unit_modules):
    """`unit_modules`: the classes of blocks, or their names."""
    return fully_shard_model(
        model,
        device_mesh=mesh,
        dp_shard_dim="shard",
        dp_outer_dim="replicate",
        fsdp_unit_modules=unit_modules,
        zero_dp_strategy=3,
        mixed_precision_policy=MixedPrecisionPolicy(grad_comm_dtype=torch.bfloat16),
        overlap_param_gather=True,
        overlap_grad_reduce=True,
        average_in_collective=False,
        fsdp_double_buffer=True,
        nccl_ub=True,
        disable_symmetric_registration=False,
    )
