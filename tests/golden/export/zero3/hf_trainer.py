# Settings for the Trainer of Hugging Face Transformers 5.23, written by fsdpbench export.
# Chosen for 32 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 2 microbatches a step.
#
# No word for these here; what it does instead:
#   fsdp.keep_unreduced = false: it does as keep_unreduced = true (true: units that are not freed after forward stay gathered after a microbatch that reduces nothing (FSDP1's no_sync); false: reshard_after_backward alone decides)
#   fsdp.gradients_after_views = false: it does as gradients_after_views = true (true: a unit is freed and reduced when backward is past everything computed since its gather was issued in forward, so a prefetched unit later (FSDP1, whose gather makes the views that autograd differentiates); false: after its own backward)
#   fsdp.all_gather_limit = "fetched:2": limit_all_gathers is on (fsdp1_queue:2)
#   fsdp.reduce_dtype = "fp32": as param_dtype, unless your script passes FullyShardedDataParallelPlugin a mixed_precision_policy
#   fsdp.gradient_scaling = "average": it does as gradient_scaling = "pre_post_divide" (how a sum over ranks becomes the mean)
#   fsdp.max_live_parameters = 600000000: it does as max_live_parameters = 0 (with "rate" prefetching: none is begun while so many elements are gathered; 0: no limit)
#   fsdp.persistence_threshold = 100000: it does as persistence_threshold = 0 (units of fewer elements stay gathered; after the optimizer one gather brings them all)
#   fsdp.reduce_bucket = 500000000: it does as reduce_bucket = 0 (gradients of so many elements are reduced together, as soon as the next does not fit; 0: unit by unit)
#   fsdp.reductions_in_flight = 2: it does as reductions_in_flight = 0 (reduce_bucket: the host waits for the oldest of more reductions; 0: it never does)
#
# Near, not the same:
#   fsdp.reshard_after_forward = true: FSDP_SHARDING_STRATEGY = FULL_SHARD, which keeps the root
#   fsdp.forward_prefetch = "rate:100000000": forward_prefetch = true, which is one unit ahead
#   fsdp.backward_prefetch = "rate:100000000": backward_prefetch = BACKWARD_PRE, which is one unit ahead
#
# For your training script, launcher or environment:
#   mesh.ranks = 32: for your launcher
#   train.seq_len = 8192: in your data loader
#   train.learning_rate = 0.001: as arguments of TrainingArguments
#   train.beta1 = 0.9: as arguments of TrainingArguments
#   train.beta2 = 0.999: as arguments of TrainingArguments
#   train.epsilon = 1e-08: as arguments of TrainingArguments
#   train.weight_decay = 0.01: as arguments of TrainingArguments
#   train.clip_norm = 0.0: as arguments of TrainingArguments

import os

from transformers import TrainingArguments

FSDP_CONFIG = {
    "version": 1,
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "backward_prefetch": "BACKWARD_PRE",
    "forward_prefetch": True,
    "use_orig_params": True,
    "activation_checkpointing": False,
    "state_dict_type": "SHARDED_STATE_DICT",
}


def training_arguments(output_dir, **others):
    # Accelerate's: fsdp_config has a reshard_after_forward, but a strategy that nobody sets overrides it.
    os.environ["FSDP_SHARDING_STRATEGY"] = "FULL_SHARD"
    return TrainingArguments(
        output_dir=output_dir,
        fsdp=True,
        fsdp_config=dict(FSDP_CONFIG),
        bf16=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}},
        optim="adamw_torch_fused",
        # What decides about learning is yours, in `others`. Measured with learning_rate=0.001, weight_decay=0.01,
        # max_grad_norm=0, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-08.
        **others,
    )
