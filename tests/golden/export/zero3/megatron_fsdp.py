# Settings for Megatron-LM's Megatron-FSDP (August 2026; package megatron-fsdp 0.6), written by fsdpbench export.
# Chosen for 32 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 2 microbatches a step.
#
# No word for these here; what it does instead:
#   fsdp.learn_execution_order = true: it does as learn_execution_order = false (true: the first step learns the order of units, so forward prefetching to a depth starts with the second (FSDP1); false: the order is given (FSDP2))
#   fsdp.all_gather_limit = "fetched:2": nothing limits gathers but the size of the window
#   fsdp.reduce_scatter_buffers = 0: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.max_live_parameters = 600000000: it does as max_live_parameters = 0 (with "rate" prefetching: none is begun while so many elements are gathered; 0: no limit)
#   fsdp.persistence_threshold = 100000: it does as persistence_threshold = 0 (units of fewer elements stay gathered; after the optimizer one gather brings them all)
#   fsdp.gathers_ascend = false: it does as gathers_ascend = true (what one hook gathers is issued from the first unit to the last, in backward too)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.root_prefetches_backward = true: it does as root_prefetches_backward = false (false: the first gather of backward is on demand)
#   fsdp.reduce_bucket = 500000000: it does as reduce_bucket = 0 (gradients of so many elements are reduced together, as soon as the next does not fit; 0: unit by unit)
#   fsdp.reductions_in_flight = 2: it does as reductions_in_flight = 0 (reduce_bucket: the host waits for the oldest of more reductions; 0: it never does)
#   fsdp.reduce_scatter_elements = 0: as many elements as --suggested-communication-unit-size
#
# Near, not the same:
#   fsdp.reshard_after_forward = true: embedding and head stay to the end
#   fsdp.forward_prefetch = "rate:100000000": --suggested-communication-unit-size 436224000: half of it is the window, in forward and in backward
#   fsdp.backward_prefetch = "rate:100000000": --suggested-communication-unit-size 436224000: half of it is the window, in forward and in backward
#
# For your training script, launcher or environment:
#   mesh.ranks = 32: for your launcher
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

MESH = (32,), ("shard",)  # init_device_mesh("cuda", *MESH)


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
