# Settings for the Trainer of Hugging Face Transformers 5.23, written by fsdpbench export.
# Chosen for 4 ranks and a decoder of 12 blocks, width 768; 2 sequences of 128 tokens a rank and microbatch, 1 microbatch a step.
#
# For your training script, launcher or environment:
#   mesh.ranks = 4: for your launcher
#   train.seq_len = 128: in your data loader
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
    "forward_prefetch": False,
    "use_orig_params": True,
    "limit_all_gathers": False,
    "activation_checkpointing": False,
    "cpu_offload": True,
    "state_dict_type": "SHARDED_STATE_DICT",
}


def training_arguments(output_dir, **others):
    # Accelerate's: fsdp_config has a reshard_after_forward, but a strategy that nobody sets overrides it.
    os.environ["FSDP_SHARDING_STRATEGY"] = "SHARD_GRAD_OP"
    return TrainingArguments(
        output_dir=output_dir,
        fsdp=True,
        fsdp_config=dict(FSDP_CONFIG),
        bf16=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=1,
        optim="adamw_torch_fused",
        # What decides about learning is yours, in `others`. Measured with learning_rate=0.001, weight_decay=0.01,
        # max_grad_norm=0, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-08.
        **others,
    )
