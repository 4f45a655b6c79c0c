# Settings for the Trainer of Hugging Face Transformers 5.23, written by fsdpbench export.
# Chosen for 64 ranks and a decoder of 32 blocks, width 4096; 2 sequences of 4096 tokens a rank and microbatch, 4 microbatches a step.
#
# No word for these here; what it does instead:
#   fsdp.reshard_after_backward = false: it does as reshard_after_backward = true (false: units stay gathered between accumulated microbatches)
#   fsdp.wait_each_backward = false: it does as wait_each_backward = true (true: computation waits for all reductions at the end of each microbatch's backward; false: only at the end of the step (FSDP2's set_is_last_backward))
#   fsdp.forward_prefetch = "window:1000000000": no list of modules (version 2): the host runs ahead
#   fsdp.backward_prefetch = "explicit:2": always one unit ahead (pre), version 2 has no choice
#   fsdp.reduce_scatter_buffers = 3: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.separate_reduce_scatter_comm = true: it does as separate_reduce_scatter_comm = false (own communicator for reduce-scatter, so that it need not queue behind all-gathers)
#   fsdp.wrap = "blocks:3": each block is a unit (TRANSFORMER_BASED_WRAP)
#   fsdp.gradient_scaling = "sum": it does as gradient_scaling = "average" (how a sum over ranks becomes the mean)
#   fsdp.checkpoint_every = 2: every unit is checkpointed
#   fsdp.shard_threshold = 10000: it does as shard_threshold = 0 (parameters of fewer elements stay replicated)
#   nccl.register_buffers = "window": it does as register_buffers = "none" (cuda: none; local: ncclCommRegister; window: ncclMemAlloc and symmetric windows)
#
# Near, not the same:
#   train.accumulate_mode = "reduce_scatter_only": accelerator_config: sync_each_batch: replicas are reduced in each microbatch, too
#   fsdp.head_unit = true: norm and head are a unit that stays gathered after forward; the embedding is another
#
# For your training script, launcher or environment:
#   mesh.ranks = 64: for your launcher
#   train.seq_len = 4096: in your data loader
#   train.learning_rate = 0.001: as arguments of TrainingArguments
#   train.beta1 = 0.9: as arguments of TrainingArguments
#   train.beta2 = 0.999: as arguments of TrainingArguments
#   train.epsilon = 1e-08: as arguments of TrainingArguments
#   train.weight_decay = 0.01: as arguments of TrainingArguments
#   train.clip_norm = 1.0: as arguments of TrainingArguments
#   nccl.cta_policy = "zero": NCCL_CTA_POLICY=2 in the environment

from accelerate import ParallelismConfig
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
        parallelism_config=ParallelismConfig(dp_replicate_size=8, dp_shard_size=8),
        bf16=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}},
        optim="adamw_torch_fused",
        # What decides about learning is yours, in `others`. Measured with learning_rate=0.001, weight_decay=0.01,
        # max_grad_norm=1, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-08.
        **others,
    )
