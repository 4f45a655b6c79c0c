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

Reducer::Gradients Reducer::gradients(int unit) {
  Gradients result;
  for (bool replicated : {false, true}) {
    if (numel(unit, replicated) == 0) continue;
    State& s = state(unit, replicated);
    if (s.unsharded == kNoBuffer) {
      const auto buffers = static_cast<std::size_t>(builder_.policy.fsdp.reduce_scatter_buffers);
      if (!replicated && layout(unit).views() && buffers > 0) release_inputs_down_to(buffers);
      const DType dtype = builder_.plan.param_dtype;
      s.unsharded = builder_.new_buffer(replicated ? BufferRole::gradients_replicated : BufferRole::gradients, dtype,
                                        numel(unit, replicated) * size_of(dtype), unit);
      result.fresh = true;
    }
    (replicated ? result.replicated : result.sharded) = s.unsharded;
  }
  return result;
}

void Reducer::release_inputs_down_to(std::size_t count) {
  while (inputs_.size() > count) {
    builder_.wait(Lane::compute, inputs_.front().reduced, WaitReason::reuse);
    builder_.append(OpKind::release, {.unit = inputs_.front().unit}, {}, {.frees = {inputs_.front().buffer}});
    inputs_.pop_front();
  }
}

void Reducer::move_to(Flow& flow, Lane lane) {
  if (flow.lane == lane) return;
  builder_.wait(lane, flow.ready, WaitReason::data);
  flow.lane = lane;
}

void Reducer::convert(Flow& flow, BufferRole role, float factor, EventRole done) {
  const DType dtype = builder_.plan.reduce_dtype;
  const bool in_place = builder_.dtype_of(flow.buffer) == dtype;
  const BufferId from = flow.buffer;
  if (!in_place) flow.buffer = builder_.new_buffer(role, dtype, flow.numel * size_of(dtype), flow.unit);
  builder_.append(OpKind::reduce_cast, {.lane = flow.lane, .unit = flow.unit},
                  Cast{.from = from, .to = flow.buffer, .count = flow.numel, .factor = factor},
                  {.allocates = {in_place ? kNoBuffer : flow.buffer}, .frees = {in_place ? kNoBuffer : from}});
  flow.ready = builder_.record(done, flow.unit);
}

void Reducer::add_to(BufferId& sum, Flow& flow, OpKind kind, BufferRole role, float factor, EventRole done) {
  const bool first = sum == kNoBuffer;
  if (first) sum = builder_.new_buffer(role, DType::f32, flow.numel * 4, flow.unit);
  builder_.append(
      kind, {.lane = flow.lane, .unit = flow.unit},
      Accumulate{.from = flow.buffer, .sum = sum, .count = flow.numel, .factor = factor, .overwrite = first},
      {.allocates = {first ? sum : kNoBuffer}, .frees = {flow.buffer}});
  flow.buffer = sum;
  flow.ready = builder_.record(done, flow.unit);
}

void Reducer::reduce(int unit, bool last_micro) {
  builder_.append(OpKind::post_backward, {.unit = unit});
  const EventId backward_done = builder_.record(EventRole::backward_done, unit);
  for (bool replicated : {false, true}) {
    State& s = state(unit, replicated);
    if (s.unsharded == kNoBuffer) continue;
    Flow flow{unit,          replicated,    s.unsharded,
              Lane::compute, backward_done, replicated ? layout(unit).replicated_numel : layout(unit).unsharded_numel};
    s.unsharded = kNoBuffer;
    if (!accumulate_unsharded(flow, last_micro)) continue;
    const plan::Mesh& mesh = builder_.plan.mesh;
    // One rank of FSDP1 is NO_SHARD, which reduces over whatever group there is.
    const bool reduces_across =
        mesh.replicate > 1 || (mesh.ranks() == 1 && layout(unit).layout == config::Layout::flat);
    if (replicated) {
      cast(flow, Lane::all_reduce);
      all_reduce(flow, Group::shard, factors_.shard);
      if (mesh.replicate > 1) all_reduce(flow, Group::replicate, factors_.replicate);
    } else {
      if (builder_.plan.shares_units()) {
        if (!layout(unit).views()) copy_in(flow);
        cast(flow, Lane::reduce_scatter);
        reduce_scatter(flow);
        if (!accumulate_partial(flow, last_micro)) {
          leave(flow);
          continue;
        }
      } else {
        cast(flow, reduces_across ? Lane::all_reduce : Lane::compute);
      }
      if (reduces_across) all_reduce(flow, Group::replicate, factors_.replicate);
    }
    finish_gradient(flow);
    leave(flow);
  }
}

void Reducer::leave(const Flow& flow) {
  if (flow.lane != Lane::compute) state(flow.unit, flow.replicated).unfinished = flow.ready;
}

bool Reducer::accumulate_unsharded(Flow& flow, bool last_micro) {
  if (builder_.policy.accumulate_mode != AccumulateMode::no_sync || builder_.policy.accumulate == 1) return true;
  State& s = state(flow.unit, flow.replicated);
  if (s.accumulated == kNoBuffer && builder_.dtype_of(flow.buffer) == DType::f32) {
    s.accumulated = flow.buffer;  // the first gradient is the sum so far
  } else {
    add_to(s.accumulated, flow, OpKind::accumulate_gradients,
           flow.replicated ? BufferRole::accumulated_replicated : BufferRole::accumulated, 1.0F,
           flow.replicated ? EventRole::replicated_accumulated : EventRole::accumulated);
  }
  return last_micro;
}

void Reducer::copy_in(Flow& flow) {
  const auto buffers = static_cast<std::size_t>(builder_.policy.fsdp.reduce_scatter_buffers);
  if (buffers > 0) release_inputs_down_to(buffers - 1);
  const DType dtype = builder_.plan.reduce_dtype;
  flow.numel = layout(flow.unit).gathered_numel();
  const BufferId input = builder_.new_buffer(BufferRole::reduce_input, dtype, flow.numel * size_of(dtype), flow.unit);
  builder_.append(OpKind::reduce_copy_in, {.unit = flow.unit}, LayoutCopy{.from = flow.buffer, .to = input},
                  {.allocates = {input}, .frees = {flow.buffer}});
  flow.buffer = input;
  flow.ready = builder_.record(EventRole::gradients_copied_in, flow.unit);
}

void Reducer::cast(Flow& flow, Lane lane) {
  if (builder_.dtype_of(flow.buffer) == builder_.plan.reduce_dtype && factors_.before == 1.0F) return;
  move_to(flow, lane);
  convert(flow, flow.replicated ? BufferRole::reduce_input_replicated : BufferRole::reduce_input, factors_.before,
          flow.replicated ? EventRole::replicated_cast : EventRole::gradients_cast);
}

bool Reducer::adds_partials() const {
  return builder_.policy.accumulate_mode == AccumulateMode::reduce_scatter_only && builder_.policy.accumulate > 1 &&
         builder_.plan.mesh.replicate > 1;
}

bool Reducer::keeps_result(const Flow& flow) const {
  return state(flow.unit, flow.replicated).result == kNoBuffer && factors_.after == 1.0F &&
         builder_.dtype_of(flow.buffer) == DType::f32;
}

void Reducer::reduce_scatter(Flow& flow) {
  move_to(flow, Lane::reduce_scatter);
  const config::Fsdp& fsdp = builder_.policy.fsdp;
  const BufferId input = flow.buffer;
  const DType dtype = builder_.plan.reduce_dtype;
  flow.numel = layout(flow.unit).shard_numel;
  flow.buffer = builder_.new_buffer(
      keeps_result(flow) && !adds_partials() ? BufferRole::gradient_shard : BufferRole::reduce_output, dtype,
      flow.numel * size_of(dtype), flow.unit);
  const bool compute_frees = fsdp.reduce_scatter_buffers > 0;
  const Lifetimes lifetimes{.allocates = {flow.buffer}, .frees = {compute_frees ? kNoBuffer : input}};
  if (builder_.plan.copies_alone) {
    builder_.append(OpKind::reduce_cast, {.lane = Lane::reduce_scatter, .unit = flow.unit},
                    Cast{.from = input, .to = flow.buffer, .count = flow.numel, .factor = factors_.shard}, lifetimes);
  } else {
    const Group group = fsdp.separate_reduce_scatter_comm ? Group::shard_separate : Group::shard;
    builder_.append(OpKind::reduce_scatter, {.lane = Lane::reduce_scatter, .unit = flow.unit},
                    Collective{.group = group,
                               .input = input,
                               .output = flow.buffer,
                               .count = flow.numel,
                               .dtype = dtype,
                               .scale = factors_.shard},
                    lifetimes);
  }
  flow.ready = builder_.record(EventRole::reduced, flow.unit);
  if (compute_frees) inputs_.push_back({input, flow.ready, flow.unit});
}

bool Reducer::accumulate_partial(Flow& flow, bool last_micro) {
  if (!adds_partials()) return true;
  add_to(state(flow.unit, false).partial, flow, OpKind::finish_gradient, BufferRole::partial_shard, 1.0F,
         EventRole::partial);
  if (!last_micro) return false;
  if (builder_.plan.reduce_dtype != DType::f32) {
    move_to(flow, Lane::all_reduce);
    convert(flow, BufferRole::reduce_output, 1.0F, EventRole::gradients_cast);
  }
  return true;
}

void Reducer::all_reduce(Flow& flow, Group group, float scale) {
  move_to(flow, Lane::all_reduce);
  builder_.append(OpKind::all_reduce, {.lane = Lane::all_reduce, .unit = flow.unit},
                  Collective{.group = group,
                             .input = flow.buffer,
                             .output = flow.buffer,
                             .count = flow.numel,
                             .dtype = builder_.dtype_of(flow.buffer),
                             .scale = scale});
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
    if (s.result != kNoBuffer && s.result_lane != flow.lane) {
      builder_.wait(flow.lane, s.result_ready, WaitReason::data);
    }
    add_to(s.result, flow, OpKind::finish_gradient,
           flow.replicated ? BufferRole::gradient_replicated : BufferRole::gradient_shard, factors_.after,
           flow.replicated ? EventRole::replicated_ready : EventRole::gradient_ready);
  }
  s.result_ready = flow.ready;
  s.result_lane = flow.lane;
}

void Reducer::wait_for_all() {
  for (State& s : states_) {
    if (s.unfinished != kNoEvent) builder_.wait(Lane::compute, s.unfinished, WaitReason::data);
    s.unfinished = kNoEvent;
  }
  release_inputs_down_to(0);
}

void Reducer::finish() {
  for (int unit = 0; unit < static_cast<int>(builder_.plan.units.size()); ++unit) {
    for (bool replicated : {false, true}) {
      const State& s = state(unit, replicated);
      if (s.result == kNoBuffer) continue;
      const std::int64_t numel = replicated ? layout(unit).replicated_numel : layout(unit).shard_numel;
      ready_.push_back({unit, replicated, s.result, numel});
    }
  }
  wait_for_all();
}

}  // namespace fsdpbench::schedule
