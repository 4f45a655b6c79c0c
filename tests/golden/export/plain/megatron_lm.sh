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

MEGATRON_FSDP_ARGS=(
  --use-megatron-fsdp --use-distributed-optimizer
  --data-parallel-sharding-strategy optim_grads_params
  --ckpt-format fsdp_dtensor --no-gradient-accumulation-fusion
  --overlap-param-gather --overlap-grad-reduce
  --suggested-communication-unit-size 436224000
  --ddp-average-in-collective
  --bf16
  --megatron-fsdp-grad-comm-dtype fp32
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
  --seq-length 8192 --micro-batch-size 1 --global-batch-size 8
  --optimizer adam
)
# What decides about learning is yours. Measured with --lr 0.001 --weight-decay 0.01 --clip-grad 0
# --adam-beta1 0.9 --adam-beta2 0.999 --adam-eps 1e-08.
