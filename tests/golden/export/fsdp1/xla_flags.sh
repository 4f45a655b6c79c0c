# Settings for MaxText (August 2026) on GPUs, with XLA's flags of JAX 0.10, written by fsdpbench export.
# Chosen for 16 ranks and a decoder of 12 blocks, width 768; 4 sequences of 1024 tokens a rank and microbatch, 2 microbatches a step.
#
# No word for these here; what it does instead:
#   train.accumulate_mode = "no_sync": XLA decides where the sum over microbatches is reduced
#   fsdp.strategy = "hybrid_shard_grad_op": parameters are gathered again in backward: remat_policy recomputes what is not saved, gathers among it
#   fsdp.keep_unreduced = true: it does as keep_unreduced = false (true: units that are not freed after forward stay gathered after a microbatch that reduces nothing (FSDP1's no_sync); false: reshard_after_backward alone decides)
#   fsdp.gradients_after_views = true: it does as gradients_after_views = false (true: a unit is freed and reduced when backward is past everything computed since its gather was issued in forward, so a prefetched unit later (FSDP1, whose gather makes the views that autograd differentiates); false: after its own backward)
#   fsdp.learn_execution_order = true: it does as learn_execution_order = false (true: the first step learns the order of units, so forward prefetching to a depth starts with the second (FSDP1); false: the order is given (FSDP2))
#   fsdp.all_gather_limit = "fsdp1_queue:3": one collective in flight, as the compiler orders them
#   fsdp.reduce_scatter_buffers = 0: it does as reduce_scatter_buffers = 1 (reduce-scatter inputs alive at a time; 0: no limit)
#   fsdp.gradient_scaling = "pre_post_divide": it does as gradient_scaling = "average" (how a sum over ranks becomes the mean)
#   fsdp.gathers_follow_compute = false: it does as gathers_follow_compute = true (a gather starts after all computation that was issued before it)
#   fsdp.reduce_lane = "reduce_scatter": gathers and reductions take turns: collectives that share devices never overlap
#
# Near, not the same:
#   mesh.shard = 4: ici_fsdp_parallelism = 4, dcn_data_parallelism = 4: a shard group is a node or slice
#   mesh.replicate = 4: ici_fsdp_parallelism = 4, dcn_data_parallelism = 4: a shard group is a node or slice
#   fsdp.backward_prefetch = "post": --xla_gpu_enable_pipelined_all_gather=true, which is one layer ahead
#   fsdp.wrap = "blocks:2": the combine thresholds hold a unit's bytes, but the scan over layers keeps collectives to a layer
#   fsdp.activation_checkpointing = false: remat_policy: minimal, which keeps products and recomputes the rest
#
# For your training script, launcher or environment:
#   mesh.ranks = 16: for your launcher
#   train.learning_rate = 0.1: in the YAML
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
  --xla_gpu_all_gather_combine_threshold_bytes=28317696 \
  --xla_gpu_reduce_scatter_combine_threshold_bytes=56635392 \
  --xla_gpu_all_reduce_combine_threshold_bytes=56635392"
