# Settings for MaxText (August 2026) on GPUs, with XLA's flags of JAX 0.10, written by fsdpbench export.
# Chosen for 8 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 1 microbatch a step.
#
# No word for these here; what it does instead:
#   fsdp.layout = "per_param": each array is split along one of its axes
#   fsdp.all_gather_limit = "fsdp2_event": one collective in flight, as the compiler orders them
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.reduce_lane = "reduce_scatter": gathers and reductions take turns: collectives that share devices never overlap
#
# Near, not the same:
#   fsdp.forward_prefetch = "implicit": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#   fsdp.backward_prefetch = "pre": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#
# For your training script, launcher or environment:
#   mesh.ranks = 8: for your launcher
#   train.learning_rate = 0.001: in the YAML
#   train.beta1 = 0.9: in the YAML
#   train.beta2 = 0.999: in the YAML
#   train.epsilon = 1e-08: in the YAML
#   train.weight_decay = 0.01: in the YAML
#   train.clip_norm = 0.0: in the YAML

# JAX 0.10 and before. Later ones say --xla_gpu_pipeline_all_gather=on and --xla_gpu_pipeline_reduce_scatter=on.
export XLA_FLAGS="$XLA_FLAGS \
  --xla_gpu_enable_latency_hiding_scheduler=true \
  --xla_gpu_enable_highest_priority_async_stream=true \
  --xla_gpu_enable_pipelined_all_gather=true \
  --xla_gpu_enable_pipelined_reduce_scatter=false \
  --xla_gpu_enable_while_loop_double_buffering=true \
  --xla_gpu_all_gather_combine_threshold_bytes=436224000 \
  --xla_gpu_reduce_scatter_combine_threshold_bytes=872448000 \
  --xla_gpu_all_reduce_combine_threshold_bytes=872448000"
