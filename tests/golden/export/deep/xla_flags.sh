# Settings for MaxText (August 2026) on GPUs, with XLA's flags of JAX 0.10, written by fsdpbench export.
# Chosen for 64 ranks and a decoder of 32 blocks, width 4096; 2 sequences of 4096 tokens a rank and microbatch, 4 microbatches a step.
#
# No word for these here; what it does instead:
#   train.accumulate_mode = "reduce_scatter_only": XLA decides where the sum over microbatches is reduced
#   fsdp.layout = "per_param": each array is split along one of its axes
#   fsdp.reshard_after_backward = false: it does as reshard_after_backward = true (false: units stay gathered between accumulated microbatches)
#   fsdp.wait_each_backward = false: it does as wait_each_backward = true (true: computation waits for all reductions at the end of each microbatch's backward; false: only at the end of the step (FSDP2's set_is_last_backward))
#   fsdp.all_gather_limit = "fsdp2_event": one collective in flight, as the compiler orders them
#   fsdp.reduce_scatter_buffers = 3: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.separate_reduce_scatter_comm = true: it does as separate_reduce_scatter_comm = false (own communicator for reduce-scatter, so that it need not queue behind all-gathers)
#   fsdp.gradient_scaling = "sum": it does as gradient_scaling = "average" (how a sum over ranks becomes the mean)
#   fsdp.checkpoint_every = 2: every layer is recomputed
#   fsdp.shard_threshold = 10000: it does as shard_threshold = 0 (parameters of fewer elements stay replicated)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.reduce_lane = "reduce_scatter": gathers and reductions take turns: collectives that share devices never overlap
#   fsdp.head_unit = true: it does as head_unit = false (final norm and head are the last unit instead of parts of the root)
#   nccl.register_buffers = "window": it does as register_buffers = "none" (cuda: none; local: ncclCommRegister; window: ncclMemAlloc and symmetric windows)
#
# Near, not the same:
#   mesh.shard = 8: ici_fsdp_parallelism = 8, dcn_data_parallelism = 8: a shard group is a node or slice
#   mesh.replicate = 8: ici_fsdp_parallelism = 8, dcn_data_parallelism = 8: a shard group is a node or slice
#   fsdp.forward_prefetch = "window:1000000000": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#   fsdp.backward_prefetch = "explicit:2": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#   fsdp.wrap = "blocks:3": the combine thresholds hold a unit's bytes, but the scan over layers keeps collectives to a layer
#
# For your training script, launcher or environment:
#   mesh.ranks = 64: for your launcher
#   train.learning_rate = 0.001: in the YAML
#   train.beta1 = 0.9: in the YAML
#   train.beta2 = 0.999: in the YAML
#   train.epsilon = 1e-08: in the YAML
#   train.weight_decay = 0.01: in the YAML
#   train.clip_norm = 1.0: in the YAML
#   nccl.cta_policy = "zero": NCCL_CTA_POLICY=2 in the environment

# JAX 0.10 and before. Later ones say --xla_gpu_pipeline_all_gather=on and --xla_gpu_pipeline_reduce_scatter=on.
export XLA_FLAGS="$XLA_FLAGS \
  --xla_gpu_enable_latency_hiding_scheduler=true \
  --xla_gpu_enable_highest_priority_async_stream=true \
  --xla_gpu_enable_pipelined_all_gather=true \
  --xla_gpu_enable_pipelined_reduce_scatter=false \
  --xla_gpu_enable_while_loop_double_buffering=true \
  --xla_gpu_all_gather_combine_threshold_bytes=1308672000 \
  --xla_gpu_reduce_scatter_combine_threshold_bytes=1308672000 \
  --xla_gpu_all_reduce_combine_threshold_bytes=1308672000"
