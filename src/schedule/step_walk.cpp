#include "schedule/step_walk.h"

#include <algorithm>

namespace fsdpbench::schedule {
namespace {

constexpr int kRoot = plan::Plan::kRoot;

}  // namespace

StepWalk::StepWalk(StepBuilder& builder)
    : builder_(builder),
      limiter_(builder),
      gatherer_(builder, limiter_),
      reducer_(builder),
      order_known_(!builder.policy.fsdp.learn_execution_order) {}

void StepWalk::walk() {
  builder_.begin_step();
  limiter_.begin_step();
  gatherer_.begin_step();
  reducer_.begin_step();
  // Gathers read what the last step's optimizer wrote.
  builder_.wait(Lane::copy, builder_.step_done(), WaitReason::data);
  builder_.wait(Lane::all_gather, builder_.step_done(), WaitReason::data);

  for (int micro = 0; micro < builder_.policy.accumulate; ++micro) {
    builder_.micro = micro;
    builder_.phase = Phase::forward;
    forward();
    builder_.phase = Phase::backward;
    backward(micro + 1 == builder_.policy.accumulate);
  }
  builder_.phase = Phase::optimizer;
  builder_.micro = 0;
  optimizer();
  order_known_ = true;
}

BufferId StepWalk::new_activation(BufferRole role, DType dtype, std::int64_t bytes, int module) {
  if (bytes == 0) return kNoBuffer;
  return builder_.new_buffer(role, MemoryCategory::activations, dtype, bytes, module < 0 ? -1 : unit_of(module),
                             module);
}

void StepWalk::add(std::vector<BufferId>& list, BufferId buffer) {
  if (buffer != kNoBuffer) list.push_back(buffer);
}

bool StepWalk::checkpointed(int module) const {
  const plan::ModuleKind kind = builder_.plan.shapes.modules[static_cast<std::size_t>(module)].kind;
  return builder_.policy.fsdp.activation_checkpointing && kind == plan::ModuleKind::block;
}

// ---------------------------------------------------------------------------------------------------- forward

void StepWalk::forward() {
  const bool on_demand_only = builder_.policy.fsdp.forward_prefetch.mode == Prefetch::Mode::none;
  saved_.assign(static_cast<std::size_t>(module_count()), kNoBuffer);
  boundary_.assign(static_cast<std::size_t>(module_count()), kNoBuffer);

  const plan::ModuleSizes& batch = builder_.sizes.front();
  inputs_ = new_activation(BufferRole::batch_inputs, DType::i32, batch.batch_input_bytes, -1);
  targets_ = new_activation(BufferRole::batch_targets, DType::i32, batch.batch_target_bytes, -1);
  Op& load = builder_.append(OpKind::load_batch, Lane::compute, -1);
  for (BufferId buffer : {inputs_, targets_}) {
    add(load.allocates, buffer);
    add(load.writes, buffer);
  }
  if (builder_.micro == 0 && builder_.plan.param_dtype != DType::f32) {
    for (int u = 0; u < static_cast<int>(builder_.plan.units.size()); ++u) {
      if (!unit(u).has_replicated()) continue;
      Op& cast = builder_.append(OpKind::cast_replicated, Lane::compute, u);
      cast.count = unit(u).layout.replicated_numel;
      cast.reads = {builder_.persistent(BufferRole::master_replicated, u)};
      cast.writes = {builder_.persistent(BufferRole::replicated_parameters, u)};
    }
  }

  gatherer_.unshard(kRoot, false);
  gatherer_.wait_for_unshard(kRoot);
  prefetch_forward(kRoot);
  for (int module = 0; module < module_count(); ++module) {
    const int u = unit_of(module);
    const std::vector<int>& members = unit(u).members.modules;
    if (u != kRoot && module == members.front()) {
      if (on_demand_only) gatherer_.start_after(last_forward_);
      gatherer_.unshard(u, false);
      gatherer_.start_after(kNoEvent);
      gatherer_.wait_for_unshard(u);
      prefetch_forward(u);
    }
    forward_module(module);
    if (u != kRoot && module == members.back()) {
      if (reshards_after_forward(builder_.policy, builder_.plan, u)) {
        gatherer_.reshard(u, true);
      } else {
        limiter_.released(u, last_forward_, false);
      }
    }
  }
  gatherer_.release_held();
  if (reshards_after_forward(builder_.policy, builder_.plan, kRoot)) gatherer_.reshard(kRoot, true);
}

void StepWalk::forward_module(int module) {
  const int u = unit_of(module);
  const plan::ModuleSizes& size = sizes(module);
  const DType dtype = builder_.plan.param_dtype;
  const bool recomputes = checkpointed(module);
  const bool last = module + 1 == module_count();

  const BufferId saved = new_activation(BufferRole::saved, dtype, size.saved_bytes, module);
  const BufferId output = new_activation(BufferRole::boundary, dtype, size.output_bytes, module);
  const BufferId workspace = new_activation(BufferRole::workspace, dtype, size.forward_workspace_bytes, module);
  const std::vector<BufferId> parameters = gatherer_.parameters(u);

  Op& op = builder_.append(OpKind::forward, Lane::compute, u, module);
  op.reads = parameters;
  if (module > 0) add(op.reads, boundary_[static_cast<std::size_t>(module) - 1]);
  if (module == 0) add(op.reads, inputs_);
  if (last) add(op.reads, targets_);
  for (BufferId buffer : {saved, output, workspace}) {
    add(op.allocates, buffer);
    add(op.writes, buffer);
  }
  if (last) op.writes.push_back(builder_.persistent(BufferRole::loss));
  add(op.frees, workspace);
  if (recomputes) add(op.frees, saved);
  saved_[static_cast<std::size_t>(module)] = recomputes ? kNoBuffer : saved;
  boundary_[static_cast<std::size_t>(module)] = output;
  last_forward_ = builder_.record(EventRole::forward_done, module);

  const plan::ModuleShape& shape = builder_.plan.shapes.modules[static_cast<std::size_t>(module)];
  const bool layer = shape.kind == plan::ModuleKind::block || shape.kind == plan::ModuleKind::linear;
  if (layer && shape.index == builder_.policy.host_sync_after_layer) {
    builder_.append(OpKind::host_sync, Lane::compute, u, module);
  }
}

void StepWalk::prefetch_forward(int u) {
  const Prefetch& prefetch = builder_.policy.fsdp.forward_prefetch;
  if (prefetch.mode != Prefetch::Mode::explicit_ || !order_known_) return;
  // The root runs its first module only after its own list; PyTorch's users set lists on the blocks.
  const int depth = u == kRoot ? 1 : prefetch.depth;
  const int last = std::min(u + depth, static_cast<int>(builder_.plan.units.size()) - 1);
  for (int next = u + 1; next <= last; ++next) {
    if (!gatherer_.gathered(next)) gatherer_.unshard(next, true);
  }
}

// --------------------------------------------------------------------------------------------------- backward

void StepWalk::backward(bool last_micro) {
  std::int64_t widest = 0;
  for (const plan::ModuleSizes& size : builder_.sizes) widest = std::max(widest, size.output_bytes);
  d_stream_ = new_activation(BufferRole::d_stream, builder_.plan.param_dtype, widest, -1);

  gatherer_.unshard(kRoot, false);
  gatherer_.wait_for_unshard(kRoot);
  if (unit(kRoot).has_parameters()) prefetch_backward(kRoot);
  for (int module = module_count() - 1; module >= 0; --module) {
    const int u = unit_of(module);
    const std::vector<int>& members = unit(u).members.modules;
    if (u != kRoot && module == members.back()) {
      gatherer_.unshard(u, false);
      gatherer_.wait_for_unshard(u);
      prefetch_backward(u);
    }
    if (checkpointed(module)) recompute(module);
    backward_module(module);
    if (u != kRoot && module == members.front()) post_backward(u, last_micro);
  }
  post_backward(kRoot, last_micro);
}

void StepWalk::recompute(int module) {
  const int u = unit_of(module);
  const plan::ModuleSizes& size = sizes(module);
  const DType dtype = builder_.plan.param_dtype;
  const BufferId saved = new_activation(BufferRole::saved, dtype, size.saved_bytes, module);
  const BufferId workspace = new_activation(BufferRole::workspace, dtype, size.forward_workspace_bytes, module);
  const std::vector<BufferId> parameters = gatherer_.parameters(u);
  Op& op = builder_.append(OpKind::recompute, Lane::compute, u, module);
  op.reads = parameters;
  if (module > 0) add(op.reads, boundary_[static_cast<std::size_t>(module) - 1]);
  for (BufferId buffer : {saved, workspace}) {
    add(op.allocates, buffer);
    add(op.writes, buffer);
  }
  add(op.frees, workspace);
  saved_[static_cast<std::size_t>(module)] = saved;
}

void StepWalk::backward_module(int module) {
  const int u = unit_of(module);
  const plan::ModuleSizes& size = sizes(module);
  const bool last = module + 1 == module_count();
  std::vector<BufferId> fresh;
  const std::vector<BufferId> gradients = reducer_.gradients(u, &fresh);
  const BufferId workspace =
      new_activation(BufferRole::workspace, builder_.plan.param_dtype, size.backward_workspace_bytes, module);
  const std::vector<BufferId> parameters = gatherer_.parameters(u);
  const BufferId saved = saved_[static_cast<std::size_t>(module)];
  const BufferId input = module > 0 ? boundary_[static_cast<std::size_t>(module) - 1] : kNoBuffer;

  Op& op = builder_.append(OpKind::backward, Lane::compute, u, module);
  op.allocates = fresh;
  add(op.allocates, workspace);
  op.reads = parameters;
  add(op.reads, saved);
  add(op.reads, input);
  if (module == 0) add(op.reads, inputs_);
  op.writes = gradients;
  add(op.writes, workspace);
  add(op.writes, d_stream_);
  if (last) {
    add(op.allocates, d_stream_);
  } else {
    add(op.reads, d_stream_);
  }
  add(op.frees, workspace);
  add(op.frees, saved);
  add(op.frees, input);
  if (module == 0) {
    for (BufferId buffer : {d_stream_, inputs_, targets_}) add(op.frees, buffer);
  }
}

void StepWalk::prefetch_backward(int u) {
  const Prefetch& prefetch = builder_.policy.fsdp.backward_prefetch;
  if (prefetch.mode == Prefetch::Mode::pre) prefetch_before(u, 1);
  if (prefetch.mode == Prefetch::Mode::explicit_) prefetch_before(u, u == kRoot ? 1 : prefetch.depth);
}

void StepWalk::prefetch_before(int u, int depth) {
  // Post-forward order: 1, 2, …, n, root. What comes before the root is the last unit.
  const int from = u == kRoot ? static_cast<int>(builder_.plan.units.size()) : u;
  for (int target = from - 1; target > kRoot && target >= from - depth; --target) gatherer_.unshard(target, true);
}

void StepWalk::post_backward(int u, bool last_micro) {
  if (!unit(u).has_parameters()) return;
  if (last_micro || builder_.policy.fsdp.reshard_after_backward) gatherer_.reshard(u, false);
  if (builder_.policy.fsdp.backward_prefetch.mode == Prefetch::Mode::post && u != kRoot) prefetch_before(u, 1);
  reducer_.reduce(u, last_micro);
}

// -------------------------------------------------------------------------------------------------- optimizer

void StepWalk::optimizer() {
  clip_factor_ = kNoBuffer;
  reducer_.finish();
  if (builder_.policy.clip) clip();
  const bool adamw = builder_.policy.optimizer == config::Optimizer::adamw;
  const BufferId factor = clip_factor_;
  const std::vector<Reducer::Gradient>& gradients = reducer_.ready();
  for (const Reducer::Gradient& g : gradients) {
    const plan::ShardLayout& layout = unit(g.unit).layout;
    Op& op = builder_.append(OpKind::optimizer, Lane::compute, g.unit);
    op.count = g.replicated ? layout.replicated_numel : layout.shard_numel;
    op.reads = {g.buffer};
    add(op.reads, factor);
    const auto state = [&](BufferRole sharded, BufferRole replicated) {
      return builder_.persistent(g.replicated ? replicated : sharded, g.unit);
    };
    op.writes = {state(BufferRole::master_shard, BufferRole::master_replicated)};
    if (adamw) {
      op.writes.push_back(state(BufferRole::first_moment, BufferRole::first_moment_replicated));
      op.writes.push_back(state(BufferRole::second_moment, BufferRole::second_moment_replicated));
    }
    op.frees = {g.buffer};
    if (&g == &gradients.back()) add(op.frees, factor);
  }
  builder_.record(EventRole::step_done, -1);
}

void StepWalk::clip() {
  const auto small = [&](BufferRole role, DType dtype, std::int64_t bytes) {
    return builder_.new_buffer(role, MemoryCategory::communication_buffers, dtype, bytes, -1);
  };
  const int shards = builder_.plan.mesh.shard;
  const BufferId partial = small(BufferRole::norm_partial, DType::f32, 8);
  bool first = true;
  for (const Reducer::Gradient& g : reducer_.ready()) {
    Op& op = builder_.append(OpKind::gradient_norm, Lane::compute, g.unit);
    op.first = first;
    op.count = g.replicated ? unit(g.unit).layout.replicated_numel : unit(g.unit).layout.shard_numel;
    // Every rank of the shard group adds the replicated gradients: each counts its part.
    op.scale = g.replicated ? 1.0F / static_cast<float>(shards) : 1.0F;
    if (first) op.allocates = {partial};
    op.reads = {g.buffer};
    if (!first) op.reads.push_back(partial);
    op.writes = {partial};
    first = false;
  }
  BufferId sums = partial;
  if (shards > 1) {
    builder_.wait(Lane::all_gather, builder_.record(EventRole::norm, -1), WaitReason::data);
    sums = small(BufferRole::norm_gathered, DType::f32, 8 * shards);
    Op& gather = builder_.append(OpKind::gather_norm, Lane::all_gather, -1);
    gather.group = Group::shard;
    gather.dtype = DType::i32;  // a double travels as two words
    gather.count = 2;
    gather.allocates = {sums};
    gather.reads = {partial};
    gather.writes = {sums};
    builder_.wait(Lane::compute, builder_.record(EventRole::norm_gathered, -1), WaitReason::data);
  }
  clip_factor_ = small(BufferRole::clip_factor, DType::f32, 4);
  Op& op = builder_.append(OpKind::clip, Lane::compute, -1);
  op.count = shards;
  op.allocates = {clip_factor_};
  op.reads = {sums};
  op.writes = {clip_factor_};
  op.frees = {sums};
  if (sums != partial) op.frees.push_back(partial);
}

}  // namespace fsdpbench::schedule
