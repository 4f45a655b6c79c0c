# Settings for the Trainer of Hugging Face Transformers 5.23, written by fsdpbench export.
# Chosen for 16 ranks and a decoder of 12 blocks, width 768; 4 sequences of 1024 tokens a rank and microbatch, 2 microbatches a step.
#
# No word for these here; what it does instead:
#   fsdp.all_gather_limit = "fsdp1_queue:3": limit_all_gathers is on (fsdp1_queue:2)
#   fsdp.wrap = "blocks:2": each block is a unit (TRANSFORMER_BASED_WRAP)
#   fsdp.reduce_dtype = "fp32": as param_dtype, unless your script passes FullyShardedDataParallelPlugin a mixed_precision_policy
#
# Near, not the same:
#   mesh.shard = 4: HYBRID_SHARD: the ranks of one machine are a shard group
#   mesh.replicate = 4: HYBRID_SHARD: the ranks of one machine are a shard group
#
# For your training script, launcher or environment:
#   mesh.ranks = 16: for your launcher
#   train.seq_len = 1024: in your data loader
#   train.learning_rate = 0.1: as arguments of TrainingArguments
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
    "backward_prefetch": "BACKWARD_POST",
    "forward_prefetch": True,
    "use_orig_params": True,
    "activation_checkpointing": False,
    "state_dict_type": "SHARDED_STATE_DICT",
}


def training_arguments(output_dir, **others):
    # Accelerate's: fsdp_config has a reshard_after_forward, but a strategy that nobody sets overrides it.
    os.environ["FSDP_SHARDING_STRATEGY"] = "HYBRID_SHARD_ZERO2"
    return TrainingArguments(
        output_dir=output_dir,
        fsdp=True,
        fsdp_config=dict(FSDP_CONFIG),
        bf16=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        optim="sgd",
        # What decides about learning is yours, in `others`. Measured with learning_rate=0.1, weight_decay=0.01,
        # max_grad_norm=0.
        **others,
    )
