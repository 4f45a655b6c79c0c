# Settings for MaxText (August 2026) on GPUs, with XLA's flags of JAX 0.10, written by fsdpbench export.
# Chosen for 32 ranks and a decoder of 32 blocks, width 4096; 1 sequence of 8192 tokens a rank and microbatch, 2 microbatches a step.
#
# No word for these here; what it does instead:
#   fsdp.learn_execution_order = true: it does as learn_execution_order = false (true: the first step learns the order of units, so forward prefetching to a depth starts with the second (FSDP1); false: the order is given (FSDP2))
#   fsdp.all_gather_limit = "fetched:2": one collective in flight, as the compiler orders them
#   fsdp.reduce_scatter_buffers = 0: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.max_live_parameters = 600000000: it does as max_live_parameters = 0 (with "rate" prefetching: none is begun while so many elements are gathered; 0: no limit)
#   fsdp.persistence_threshold = 100000: it does as persistence_threshold = 0 (units of fewer elements stay gathered; after the optimizer one gather brings them all)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.reduce_bucket = 500000000: it does as reduce_bucket = 0 (gradients of so many elements are reduced together, as soon as the next does not fit; 0: unit by unit)
#   fsdp.reduce_lane = "reduce_scatter": gathers and reductions take turns: collectives that share devices never overlap
#   fsdp.reductions_in_flight = 2: it does as reductions_in_flight = 0 (reduce_bucket: the host waits for the oldest of more reductions; 0: it never does)
#
# Near, not the same:
#   fsdp.forward_prefetch = "rate:100000000": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#   fsdp.backward_prefetch = "rate:100000000": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#   fsdp.activation_checkpointing = false: remat_policy: minimal, which keeps products and recomputes the rest
#
# For your training script, launcher or environment:
#   mesh.ranks = 32: for your launcher
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
