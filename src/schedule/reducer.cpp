#include "schedule/reducer.h"

namespace fsdpbench::schedule {

using config::AccumulateMode;

Reducer::Reducer(StepBuilder& builder)
    : builder_(builder),
      factors_(gradient_factors(builder.policy.fsdp.gradient_scaling, builder.plan.mesh)),
      states_(builder.plan.units.size() * 2) {}

void Reducer::begin_step() {
  states_.assign(states_.size(), {});
  inputs_.clear();
  ready_.clear();
}

std::vector<BufferId> Reducer::gradients(int unit, std::vector<BufferId>* fresh) {
  std::vector<BufferId> result;
  for (bool replicated : {false, true}) {
    const std::int64_t numel = replicated ? layout(unit).replicated_numel : layout(unit).unsharded_numel;
    if (numel == 0) continue;
    State& s = state(unit, replicated);
    if (s.unsharded == kNoBuffer) {
      const auto buffers = static_cast<std::size_t>(builder_.policy.fsdp.reduce_scatter_buffers);
      if (!replicated && layout(unit).views() && buffers > 0) release_inputs_down_to(buffers);
      const DType dtype = builder_.plan.param_dtype;
      s.unsharded = builder_.new_buffer(replicated ? BufferRole::gradients_replicated : BufferRole::gradients,
                                        MemoryCategory::gradients, dtype, numel * size_of(dtype), unit);
      fresh->push_back(s.unsharded);
    }
    result.push_back(s.unsharded);
  }
  return result;
}

void Reducer::release_inputs_down_to(std::size_t count) {
  while (inputs_.size() > count) {
    builder_.wait(Lane::compute, inputs_.front().reduced, WaitReason::reuse);
    builder_.append(OpKind::release, Lane::compute, inputs_.front().unit).frees = {inputs_.front().buffer};
    inputs_.pop_front();
  }
}

void Reducer::move_to(Flow& flow, Lane lane) {
  if (flow.lane == lane) return;
  builder_.wait(lane, flow.ready, WaitReason::data);
  flow.lane = lane;
}

void Reducer::reduce(int unit, bool last_micro) {
  builder_.append(OpKind::post_backward, Lane::compute, unit);
  const EventId backward_done = builder_.record(EventRole::backward_done, unit);
  for (bool replicated : {false, true}) {
    State& s = state(unit, replicated);
    if (s.unsharded == kNoBuffer) continue;
    Flow flow{unit,          replicated,    s.unsharded,
              Lane::compute, backward_done, replicated ? layout(unit).replicated_numel : layout(unit).unsharded_numel};
    s.unsharded = kNoBuffer;
    if (!accumulate_unsharded(flow, last_micro)) continue;
    const plan::Mesh& mesh = builder_.plan.mesh;
    if (replicated) {
      cast(flow, Lane::all_reduce);
      all_reduce(flow, Group::shard, factors_.shard);
      if (mesh.replicate > 1) all_reduce(flow, Group::replicate, factors_.replicate);
    } else {
      if (mesh.shard > 1) {
        if (!layout(unit).views()) copy_in(flow);
        cast(flow, Lane::reduce_scatter);
        reduce_scatter(flow);
        if (!accumulate_partial(flow, last_micro)) continue;
      } else {
        cast(flow, mesh.replicate > 1 ? Lane::all_reduce : Lane::compute);
      }
      if (mesh.replicate > 1) all_reduce(flow, Group::replicate, factors_.replicate);
    }
    finish_gradient(flow);
  }
}

bool Reducer::accumulate_unsharded(Flow& flow, bool last_micro) {
  if (builder_.policy.accumulate_mode != AccumulateMode::no_sync || builder_.policy.accumulate == 1) return true;
  State& s = state(flow.unit, flow.replicated);
  const bool first = s.accumulated == kNoBuffer;
  if (first && builder_.dtype_of(flow.buffer) == DType::f32) {
    s.accumulated = flow.buffer;  // the first gradient is the sum so far
    return last_micro;
  }
  std::vector<BufferId> fresh;
  if (first) {
    s.accumulated = builder_.new_buffer(flow.replicated ? BufferRole::accumulated_replicated : BufferRole::accumulated,
                                        MemoryCategory::gradients, DType::f32, flow.numel * 4, flow.unit);
    fresh.push_back(s.accumulated);
  }
  Op& add = builder_.append(OpKind::accumulate_gradients, Lane::compute, flow.unit);
  add.first = first;
  add.count = flow.numel;
  add.allocates = fresh;
  add.reads = {flow.buffer};
  if (!first) add.reads.push_back(s.accumulated);
  add.writes = {s.accumulated};
  add.frees = {flow.buffer};
  flow.buffer = s.accumulated;
  flow.ready = builder_.record(flow.replicated ? EventRole::replicated_accumulated : EventRole::accumulated, flow.unit);
  return last_micro;
}

void Reducer::copy_in(Flow& flow) {
  const auto buffers = static_cast<std::size_t>(builder_.policy.fsdp.reduce_scatter_buffers);
  if (buffers > 0) release_inputs_down_to(buffers - 1);
  const DType dtype = builder_.plan.reduce_dtype;
  const std::int64_t numel = layout(flow.unit).gathered_numel();
  const BufferId input = builder_.new_buffer(BufferRole::reduce_input, MemoryCategory::communication_buffers, dtype,
                                             numel * size_of(dtype), flow.unit);
  Op& copy = builder_.append(OpKind::reduce_copy_in, Lane::compute, flow.unit);
  copy.count = numel;
  copy.allocates = {input};
  copy.reads = {flow.buffer};
  copy.writes = {input};
  copy.frees = {flow.buffer};
  flow.buffer = input;
  flow.numel = numel;
  flow.ready = builder_.record(EventRole::gradients_copied_in, flow.unit);
}

void Reducer::cast(Flow& flow, Lane lane) {
  const DType dtype = builder_.plan.reduce_dtype;
  const bool converts = builder_.dtype_of(flow.buffer) != dtype;
  if (!converts && factors_.before == 1.0F) return;
  move_to(flow, lane);
  BufferId output = flow.buffer;
  if (converts) {
    output = builder_.new_buffer(flow.replicated ? BufferRole::reduce_input_replicated : BufferRole::reduce_input,
                                 MemoryCategory::communication_buffers, dtype, flow.numel * size_of(dtype), flow.unit);
  }
  Op& op = builder_.append(OpKind::reduce_cast, lane, flow.unit);
  op.count = flow.numel;
  op.scale = factors_.before;
  op.reads = {flow.buffer};
  op.writes = {output};
  if (converts) {
    op.allocates = {output};
    op.frees = {flow.buffer};
  }
  flow.buffer = output;
  flow.ready = builder_.record(flow.replicated ? EventRole::replicated_cast : EventRole::gradients_cast, flow.unit);
}

bool Reducer::keeps_result(const Flow& flow) const {
  const State& s = states_[static_cast<std::size_t>(flow.unit) * 2 + (flow.replicated ? 1 : 0)];
  return s.result == kNoBuffer && factors_.after == 1.0F && builder_.dtype_of(flow.buffer) == DType::f32;
}

void Reducer::reduce_scatter(Flow& flow) {
  move_to(flow, Lane::reduce_scatter);
  const Policy& policy = builder_.policy;
  const bool adds_partials = policy.accumulate_mode == AccumulateMode::reduce_scatter_only && policy.accumulate > 1 &&
                             builder_.plan.mesh.replicate > 1;
  const bool direct = keeps_result(flow) && !adds_partials;
  const DType dtype = builder_.plan.reduce_dtype;
  const std::int64_t numel = layout(flow.unit).shard_numel;
  const BufferId output =
      builder_.new_buffer(direct ? BufferRole::gradient_shard : BufferRole::reduce_output,
                          direct ? MemoryCategory::gradients : MemoryCategory::communication_buffers, dtype,
                          numel * size_of(dtype), flow.unit);
  Op& op = builder_.append(OpKind::reduce_scatter, Lane::reduce_scatter, flow.unit);
  op.group = policy.fsdp.separate_reduce_scatter_comm ? Group::shard_separate : Group::shard;
  op.count = numel;
  op.dtype = dtype;
  op.scale = factors_.shard;
  op.allocates = {output};
  op.reads = {flow.buffer};
  op.writes = {output};
  const bool compute_frees = policy.fsdp.reduce_scatter_buffers > 0;
  if (!compute_frees) op.frees = {flow.buffer};
  const EventId reduced = builder_.record(EventRole::reduced, flow.unit);
  if (compute_frees) inputs_.push_back({flow.buffer, reduced, flow.unit});
  flow.buffer = output;
  flow.numel = numel;
  flow.ready = reduced;
}

bool Reducer::accumulate_partial(Flow& flow, bool last_micro) {
  const Policy& policy = builder_.policy;
  if (policy.accumulate_mode != AccumulateMode::reduce_scatter_only || policy.accumulate == 1 ||
      builder_.plan.mesh.replicate == 1) {
    return true;
  }
  State& s = state(flow.unit, false);
  const bool first = s.partial == kNoBuffer;
  std::vector<BufferId> fresh;
  if (first) {
    s.partial = builder_.new_buffer(BufferRole::partial_shard, MemoryCategory::gradients, DType::f32, flow.numel * 4,
                                    flow.unit);
    fresh.push_back(s.partial);
  }
  Op& add = builder_.append(OpKind::finish_gradient, Lane::reduce_scatter, flow.unit);
  add.first = first;
  add.count = flow.numel;
  add.allocates = fresh;
  add.reads = {flow.buffer};
  if (!first) add.reads.push_back(s.partial);
  add.writes = {s.partial};
  add.frees = {flow.buffer};
  flow.ready = builder_.record(EventRole::partial, flow.unit);
  flow.buffer = s.partial;
  if (!last_micro) return false;
  if (builder_.plan.reduce_dtype != DType::f32) {
    move_to(flow, Lane::all_reduce);
    const DType dtype = builder_.plan.reduce_dtype;
    const BufferId output = builder_.new_buffer(BufferRole::reduce_output, MemoryCategory::communication_buffers, dtype,
                                                flow.numel * size_of(dtype), flow.unit);
    Op& narrow = builder_.append(OpKind::reduce_cast, Lane::all_reduce, flow.unit);
    narrow.count = flow.numel;
    narrow.allocates = {output};
    narrow.reads = {flow.buffer};
    narrow.writes = {output};
    narrow.frees = {flow.buffer};
    flow.ready = builder_.record(EventRole::gradients_cast, flow.unit);
    flow.buffer = output;
  }
  return true;
}

void Reducer::all_reduce(Flow& flow, Group group, float scale) {
  move_to(flow, Lane::all_reduce);
  Op& op = builder_.append(OpKind::all_reduce, Lane::all_reduce, flow.unit);
  op.group = group;
  op.count = flow.numel;
  op.dtype = builder_.dtype_of(flow.buffer);
  op.scale = scale;
  op.reads = {flow.buffer};
  op.writes = {flow.buffer};
  const bool across = group == Group::replicate;
  flow.ready = builder_.record(flow.replicated ? (across ? EventRole::replicated_across : EventRole::replicated_reduced)
                                               : EventRole::reduced_across,
                               flow.unit);
}

void Reducer::finish_gradient(Flow& flow) {
  State& s = state(flow.unit, flow.replicated);
  if (keeps_result(flow)) {
    s.result = flow.buffer;
  } else {
    const bool first = s.result == kNoBuffer;
    std::vector<BufferId> fresh;
    if (first) {
      s.result = builder_.new_buffer(flow.replicated ? BufferRole::gradient_replicated : BufferRole::gradient_shard,
                                     MemoryCategory::gradients, DType::f32, flow.numel * 4, flow.unit);
      fresh.push_back(s.result);
    } else if (s.result_lane != flow.lane) {
      builder_.wait(flow.lane, s.result_ready, WaitReason::data);
    }
    Op& op = builder_.append(OpKind::finish_gradient, flow.lane, flow.unit);
    op.first = first;
    op.count = flow.numel;
    op.scale = factors_.after;
    op.allocates = fresh;
    op.reads = {flow.buffer};
    if (!first) op.reads.push_back(s.result);
    op.writes = {s.result};
    op.frees = {flow.buffer};
    flow.ready = builder_.record(flow.replicated ? EventRole::replicated_ready : EventRole::gradient_ready, flow.unit);
  }
  s.result_ready = flow.ready;
  s.result_lane = flow.lane;
}

void Reducer::finish() {
  for (int unit = 0; unit < static_cast<int>(builder_.plan.units.size()); ++unit) {
    for (bool replicated : {false, true}) {
      const State& s = state(unit, replicated);
      if (s.result == kNoBuffer) continue;
      if (s.result_lane != Lane::compute) builder_.wait(Lane::compute, s.result_ready, WaitReason::data);
      ready_.push_back({unit, replicated, s.result});
    }
  }
  release_inputs_down_to(0);
}

}  // namespace fsdpbench::schedule
