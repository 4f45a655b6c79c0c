# Settings for the Trainer of Hugging Face Transformers 5.23, written by fsdpbench export.
# Chosen for 8 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 1 microbatch a step.
#
# No word for these here; what it does instead:
#   fsdp.reduce_dtype = "fp32": as param_dtype, unless your script passes FullyShardedDataParallelPlugin a mixed_precision_policy
#   fsdp.head_unit = false: embedding, and norm with head, are units of their own; the latter stays gathered after forward
#
# For your training script, launcher or environment:
#   mesh.ranks = 8: for your launcher
#   train.seq_len = 8192: in your data loader
#   train.learning_rate = 0.001: as arguments of TrainingArguments
#   train.beta1 = 0.9: as arguments of TrainingArguments
#   train.beta2 = 0.999: as arguments of TrainingArguments
#   train.epsilon = 1e-08: as arguments of TrainingArguments
#   train.weight_decay = 0.01: as arguments of TrainingArguments
#   train.clip_norm = 0.0: as arguments of TrainingArguments

from transformers import TrainingArguments

FSDP_CONFIG = {
    "version": 2,
    "reshard_after_forward": True,
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "activation_checkpointing": True,
    "state_dict_type": "SHARDED_STATE_DICT",
}


def training_arguments(output_dir, **others):
    return TrainingArguments(
        output_dir=output_dir,
        fsdp=True,
        fsdp_config=dict(FSDP_CONFIG),
        bf16=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        optim="adamw_torch_fused",
        # What decides about learning is yours, in `others`. Measured with learning_rate=0.001, weight_decay=0.01,
        # max_grad_norm=0, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-08.
        **others,
    )
