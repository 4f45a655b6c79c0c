#include "schedule/reducer.h"

#include <algorithm>

namespace fsdpbench::schedule {

using config::AccumulateMode;

namespace {

Lane lane_of(config::ReduceLane lane) {
  switch (lane) {
    case config::ReduceLane::all_gather: return Lane::all_gather;
    case config::ReduceLane::compute: return Lane::compute;
    case config::ReduceLane::reduce_scatter: break;
  }
  return Lane::reduce_scatter;
}

}  // namespace

Reducer::Reducer(StepBuilder& builder)
    : builder_(builder),
      factors_(gradient_factors(builder.policy.fsdp, builder.plan.mesh)),
      states_(builder.plan.units.size() * 2),
      lane_(lane_of(builder.policy.fsdp.reduce_lane)),
      inputs_(builder),
      offload_(builder) {}

void Reducer::begin_step() {
  states_.assign(states_.size(), {});
  ready_.clear();
}

Reducer::Gradients Reducer::gradients(int unit) {
  Gradients result;
  for (bool replicated : {false, true}) {
    if (numel(unit, replicated) == 0) continue;
    State& s = state(unit, replicated);
    if (s.unsharded == kNoBuffer) {
      if (!replicated && layout(unit).views() && !builder_.policy.fsdp.gradient_copy_in) inputs_.make_room(false);
      const DType dtype = builder_.plan.gradient_dtype;
      s.unsharded = builder_.new_buffer(replicated ? BufferRole::gradients_replicated : BufferRole::gradients, dtype,
                                        numel(unit, replicated) * size_of(dtype), unit);
      result.fresh = true;
    }
    (replicated ? result.replicated : result.sharded) = s.unsharded;
  }
  return result;
}

void Reducer::move_to(Flow& flow, Lane lane) {
  if (flow.lane == lane) return;
  builder_.wait(lane, flow.ready, WaitReason::data);
  offload_.before_reduction(lane);
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
  if (first)
    sum = builder_.new_buffer(role, builder_.plan.state_dtype, flow.numel * size_of(builder_.plan.state_dtype),
                              flow.unit);
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
  // FSDP2 waits for earlier reductions before it looks whether a unit has gradients.
  const bool only_adds_up = builder_.policy.accumulate_mode == AccumulateMode::no_sync && !last_micro;
  if (!builder_.plan.units[unit].has_gradients() && !only_adds_up) inputs_.make_room(true);
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
      if (builder_.plan.shares_units()) {
        if (takes_buckets()) {
          put_into_bucket(flow);
          continue;
        }
        if (!layout(unit).views() || builder_.policy.fsdp.gradient_copy_in) copy_in(flow);
        cast(flow, lane_);
        reduce_scatter(flow);
        if (!accumulate_partial(flow, last_micro)) {
          leave(flow);
          continue;
        }
      } else if (!needs_no_cast(flow)) {
        cast(flow, reduces_across() ? Lane::all_reduce : Lane::compute);
      }
      if (reduces_across()) all_reduce(flow, Group::replicate, factors_.replicate);
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
  if (s.accumulated == kNoBuffer && builder_.dtype_of(flow.buffer) == builder_.plan.state_dtype) {
    s.accumulated = flow.buffer;  // the first gradient is the sum so far
  } else {
    add_to(s.accumulated, flow, OpKind::accumulate_gradients,
           flow.replicated ? BufferRole::accumulated_replicated : BufferRole::accumulated, 1.0F,
           flow.replicated ? EventRole::replicated_accumulated : EventRole::accumulated);
  }
  return last_micro;
}

void Reducer::copy_in(Flow& flow) {
  // FSDP2 waits for earlier reductions once a module, before the first of its parameter groups: the experts'.
  const bool after_experts = builder_.plan.units[flow.unit].has_experts();
  if (!after_experts || builder_.plan.nests_experts) inputs_.make_room(true);
  const DType dtype = builder_.plan.reduce_dtype;
  flow.numel = layout(flow.unit).gathered_numel();
  const BufferId input = builder_.new_buffer(BufferRole::reduce_input, dtype, flow.numel * size_of(dtype), flow.unit);
  Work copy = LayoutCopy{.from = flow.buffer, .to = input};
  if (layout(flow.unit).views()) copy = Cast{.from = flow.buffer, .to = input, .count = flow.numel};
  builder_.append(OpKind::reduce_copy_in, {.unit = flow.unit}, copy, {.allocates = {input}, .frees = {flow.buffer}});
  flow.buffer = input;
  flow.ready = builder_.record(EventRole::gradients_copied_in, flow.unit);
}

void Reducer::cast(Flow& flow, Lane lane) {
  if (builder_.dtype_of(flow.buffer) == builder_.plan.reduce_dtype && factors_.before == 1.0F) return;
  move_to(flow, lane);
  convert(flow, flow.replicated ? BufferRole::reduce_input_replicated : BufferRole::reduce_input, factors_.before,
          flow.replicated ? EventRole::replicated_cast : EventRole::gradients_cast);
}

// PyTorch asks the strategy, not how many replicas there are: hybrid ones, and FSDP1's NO_SHARD on one rank, reduce
// over a group of one, too. That moves nothing.
bool Reducer::reduces_across() const {
  const config::Fsdp& fsdp = builder_.policy.fsdp;
  const plan::Mesh& mesh = builder_.plan.mesh;
  const bool hybrid =
      fsdp.strategy == config::Strategy::hybrid_shard || fsdp.strategy == config::Strategy::hybrid_shard_grad_op;
  return mesh.replicate > 1 || hybrid || (mesh.data_ranks() == 1 && fsdp.layout == config::Layout::flat);
}

bool Reducer::adds_partials() const {
  return builder_.policy.accumulate_mode == AccumulateMode::reduce_scatter_only && builder_.policy.accumulate > 1 &&
         reduces_across();
}

void Reducer::reduce_scatter(Flow& flow) {
  move_to(flow, lane_);
  const BufferId input = flow.buffer;
  const DType dtype = builder_.plan.reduce_dtype;
  const std::int64_t input_numel = flow.numel;
  flow.numel = layout(flow.unit).shard_numel;
  flow.buffer = new_output(flow);
  const bool compute_frees = inputs_.compute_frees();
  const Lifetimes lifetimes{.allocates = {flow.buffer}, .frees = {compute_frees ? kNoBuffer : input}};
  if (builder_.plan.units[flow.unit].copies_alone()) {
    builder_.append(OpKind::reduce_cast, {.lane = lane_, .unit = flow.unit},
                    Cast{.from = input, .to = flow.buffer, .count = flow.numel, .factor = factors_.shard}, lifetimes);
  } else {
    builder_.append(OpKind::reduce_scatter, {.lane = lane_, .unit = flow.unit},
                    Collective{.group = reduce_group(flow.unit),
                               .input = input,
                               .output = flow.buffer,
                               .count = flow.numel,
                               .dtype = dtype,
                               .scale = factors_.shard},
                    lifetimes);
  }
  flow.ready = builder_.record(EventRole::reduced, flow.unit);
  if (compute_frees) inputs_.add(input, flow.ready, flow.unit, input_numel);
}

/// For the reduced gradient of a shard, which is the result if nothing more is to be done with it.
BufferId Reducer::new_output(const Flow& flow) {
  const DType dtype = builder_.plan.reduce_dtype;
  const bool result =
      state(flow.unit, false).result == kNoBuffer && factors_.after == 1.0F && dtype == builder_.plan.state_dtype;
  return builder_.new_buffer(result && !adds_partials() ? BufferRole::gradient_shard : BufferRole::reduce_output, dtype,
                             layout(flow.unit).shard_numel * size_of(dtype), flow.unit);
}

Group Reducer::reduce_group(int unit) const {
  const plan::Unit& u = builder_.plan.units[unit];
  const bool separate = builder_.policy.fsdp.separate_reduce_scatter_comm;
  if (u.is_experts()) return separate ? Group::expert_shard_separate : Group::expert_shard;
  return separate ? Group::shard_separate : Group::shard;
}

bool Reducer::accumulate_partial(Flow& flow, bool last_micro) {
  if (!adds_partials()) return true;
  add_to(state(flow.unit, false).partial, flow, OpKind::finish_gradient, BufferRole::partial_shard, 1.0F,
         EventRole::partial);
  if (!last_micro) return false;
  if (builder_.plan.reduce_dtype != builder_.plan.state_dtype) {
    move_to(flow, Lane::all_reduce);
    convert(flow, BufferRole::reduce_output, 1.0F, EventRole::gradients_cast);
  }
  return true;
}

void Reducer::all_reduce(Flow& flow, Group group, float scale) {
  move_to(flow, Lane::all_reduce);
  builder_.append(OpKind::all_reduce, {.lane = Lane::all_reduce, .unit = flow.unit, .others = flow.others},
                  Collective{.group = group,
                             .input = flow.buffer,
                             .output = flow.buffer,
                             .count = flow.numel,
                             .dtype = builder_.dtype_of(flow.buffer),
                             .scale = scale});
  flow.ready = builder_.record(flow.replicated ? EventRole::replicated_reduced : EventRole::reduced_across, flow.unit);
}

void Reducer::finish_gradient(Flow& flow) {
  State& s = state(flow.unit, flow.replicated);
  if (offload_.on() && !flow.replicated) {
    float factor = factors_.after;
    if (offload_.finishes_on_device() && !is_finished(flow)) {
      BufferId sum = kNoBuffer;
      add_to(sum, flow, OpKind::finish_gradient, BufferRole::gradient_shard, factor, EventRole::gradient_ready);
      factor = 1.0F;
    }
    return offload_.append({flow.unit, flow.buffer, flow.lane, flow.ready, flow.numel, factor}, s.result);
  }
  if (s.result == kNoBuffer && (is_finished(flow) || is_ready_as_it_is(flow))) {
    s.result = flow.buffer;
  } else {
    add_to(s.result, flow, OpKind::finish_gradient,
           flow.replicated ? BufferRole::gradient_replicated : BufferRole::gradient_shard, factors_.after,
           flow.replicated ? EventRole::replicated_ready : EventRole::gradient_ready);
  }
}

// ---------------------------------------------------------------------------------------------------- buckets

bool Reducer::takes_buckets() const {
  return builder_.plan.mesh.shard > 1 && (builder_.policy.fsdp.reduce_bucket > 0 || all_reduces());
}

Reducer::Bucket& Reducer::bucket_for(int unit) {
  const Group group = reduce_group(unit);
  const auto same = std::ranges::find(buckets_, group, &Bucket::group);
  return same == buckets_.end() ? buckets_.emplace_back(Bucket{.group = group}) : *same;
}

void Reducer::put_into_bucket(Flow flow) {
  const std::int64_t limit = builder_.policy.fsdp.reduce_bucket;
  const std::int64_t numel = layout(flow.unit).parameter_numel();
  if (!buckets_.empty() && bucket_numel_ + numel > limit) flush();
  Bucket& bucket = bucket_for(flow.unit);
  const DType dtype = builder_.plan.reduce_dtype;
  const std::int64_t whole = layout(flow.unit).gathered_numel();
  // A unit larger than a bucket has it for itself, and is reduced in place if it can be.
  const bool as_it_lies = numel > limit && layout(flow.unit).views() && builder_.dtype_of(flow.buffer) == dtype;
  Waiting waiting{.flow = flow, .copied = !as_it_lies};
  if (as_it_lies) {
    bucket.buffer = flow.buffer;
  } else if (all_reduces()) {
    const bool first = bucket.waiting.empty();
    if (first) {
      bucket.buffer = builder_.new_buffer(BufferRole::reduce_input, dtype, whole * size_of(dtype), flow.unit);
    } else {
      const Waiting& before = bucket.waiting.back();
      waiting.offset = before.offset + layout(before.flow.unit).gathered_numel();
      builder_.grow(bucket.buffer, whole * size_of(dtype));
    }
    move_to(waiting.flow, lane_);
    const LayoutCopy copy{
        .from = flow.buffer, .to = bucket.buffer, .offset = waiting.offset, .stride = layout(flow.unit).shard_numel};
    builder_.append(OpKind::reduce_copy_in, {.lane = lane_, .unit = flow.unit}, copy,
                    {.allocates = {first ? bucket.buffer : kNoBuffer}, .frees = {flow.buffer}});
  } else {
    Flow& copied = waiting.flow;
    move_to(copied, lane_);
    copied.buffer = builder_.new_buffer(BufferRole::reduce_input, dtype, copied.numel * size_of(dtype), copied.unit);
    builder_.append(OpKind::reduce_cast, {.lane = lane_, .unit = copied.unit},
                    Cast{.from = flow.buffer, .to = copied.buffer, .count = copied.numel, .factor = factors_.before},
                    {.allocates = {copied.buffer}, .frees = {flow.buffer}});
  }
  bucket.waiting.push_back(waiting);
  bucket_numel_ += numel;
  if (limit == 0) flush();
}

void Reducer::flush() {
  if (buckets_.empty()) return;
  const std::size_t most = builder_.policy.fsdp.reductions_in_flight;
  if (most > 0 && in_flight_.size() > most) {
    builder_.host_wait(in_flight_.front(), WaitReason::limit, buckets_.front().waiting.front().flow.unit);
    in_flight_.pop_front();
  }
  EventId done = kNoEvent;
  for (const Bucket& bucket : buckets_) done = reduce_bucket(bucket);
  if (most > 0) in_flight_.push_back(done);
  buckets_.clear();
  bucket_numel_ = 0;
}

EventId Reducer::reduce_bucket(const Bucket& bucket) {
  Flow flow = bucket.waiting.front().flow;
  for (auto waiting = bucket.waiting.begin() + 1; waiting != bucket.waiting.end(); ++waiting) {
    flow.others.push_back(waiting->flow.unit);
  }
  if (all_reduces()) {
    all_reduce_bucket(bucket, flow);
  } else {
    reduce_scatter_bucket(bucket, flow);
  }
  if (builder_.plan.mesh.replicate > 1) all_reduce(flow, Group::replicate, factors_.replicate);
  finish_bucket(bucket, flow);
  return flow.ready;
}

void Reducer::reduce_scatter_bucket(const Bucket& bucket, Flow& flow) {
  const DType dtype = builder_.plan.reduce_dtype;
  const bool alone = bucket.waiting.size() == 1;
  std::int64_t part = 0;
  for (const Waiting& w : bucket.waiting) part += layout(w.flow.unit).shard_numel;
  const std::int64_t numel = part * layout(flow.unit).shards;
  inputs_.make_room(true);
  if (!alone || !layout(flow.unit).views()) {
    const BufferId input = builder_.new_buffer(BufferRole::reduce_input, dtype, numel * size_of(dtype), flow.unit);
    std::int64_t offset = 0;
    for (const Waiting& w : bucket.waiting) {
      builder_.append(OpKind::reduce_copy_in, {.lane = lane_, .unit = w.flow.unit},
                      LayoutCopy{.from = w.flow.buffer, .to = input, .offset = offset, .stride = part},
                      {.allocates = {&w == &bucket.waiting.front() ? input : kNoBuffer}, .frees = {w.flow.buffer}});
      offset += layout(w.flow.unit).shard_numel;
    }
    flow.buffer = input;
  } else {
    move_to(flow, lane_);
    if (!bucket.waiting.front().copied && factors_.before != 1.0F) {
      convert(flow, BufferRole::reduce_input, factors_.before, EventRole::gradients_cast);
    }
  }
  const BufferId input = flow.buffer;
  flow.numel = part;
  flow.buffer = builder_.new_buffer(BufferRole::reduce_output, dtype, part * size_of(dtype), flow.unit);
  const bool compute_frees = inputs_.compute_frees();
  builder_.append(OpKind::reduce_scatter, {.lane = lane_, .unit = flow.unit, .others = flow.others},
                  Collective{.group = reduce_group(flow.unit),
                             .input = input,
                             .output = flow.buffer,
                             .count = part,
                             .dtype = dtype,
                             .scale = factors_.shard},
                  {.allocates = {flow.buffer}, .frees = {compute_frees ? kNoBuffer : input}});
  flow.ready = builder_.record(EventRole::reduced, flow.unit);
  if (compute_frees) inputs_.add(input, flow.ready, flow.unit, numel);
}

void Reducer::all_reduce_bucket(const Bucket& bucket, Flow& flow) {
  flow.buffer = bucket.buffer;
  flow.numel = 0;
  for (const Waiting& w : bucket.waiting) flow.numel += layout(w.flow.unit).gathered_numel();
  move_to(flow, lane_);
  if (factors_.before != 1.0F) convert(flow, BufferRole::reduce_input, factors_.before, EventRole::gradients_cast);
  builder_.append(OpKind::all_reduce, {.lane = lane_, .unit = flow.unit, .others = flow.others},
                  Collective{.group = reduce_group(flow.unit),
                             .input = flow.buffer,
                             .output = flow.buffer,
                             .count = flow.numel,
                             .dtype = builder_.plan.reduce_dtype,
                             .scale = factors_.shard});
  flow.ready = builder_.record(EventRole::reduced, flow.unit);
}

void Reducer::finish_bucket(const Bucket& bucket, const Flow& flow) {
  std::int64_t offset = 0;
  for (const Waiting& w : bucket.waiting) {
    const int unit = w.flow.unit;
    State& s = state(unit, false);
    BufferId to_host = kNoBuffer;
    BufferId& sum = offload_.on() ? to_host : s.result;
    const bool first = sum == kNoBuffer;
    const std::int64_t numel = layout(unit).shard_numel;
    if (first)
      sum = builder_.new_buffer(BufferRole::gradient_shard, builder_.plan.state_dtype,
                                numel * size_of(builder_.plan.state_dtype), unit);
    builder_.append(
        OpKind::finish_gradient, {.lane = flow.lane, .unit = unit},
        Accumulate{.from = flow.buffer,
                   .sum = sum,
                   .count = numel,
                   .factor = factors_.after,
                   .overwrite = first,
                   .offset = all_reduces() ? w.offset : offset,
                   .stride = all_reduces() ? numel : 0},
        {.allocates = {first ? sum : kNoBuffer}, .frees = {&w == &bucket.waiting.back() ? flow.buffer : kNoBuffer}});
    const EventId ready = builder_.record(EventRole::gradient_ready, unit);
    if (flow.lane != Lane::compute) s.unfinished = ready;
    if (offload_.on()) offload_.append({unit, to_host, flow.lane, ready, numel}, s.result);
    offset += numel;
  }
}

void Reducer::end_backward() {
  flush();
  if (in_flight_.empty()) return;
  builder_.host_wait(in_flight_.back(), WaitReason::limit, kNone);
  in_flight_.clear();
}

void Reducer::wait_for_all() {
  for (const State& s : states_) {
    if (s.unfinished != kNoEvent) builder_.wait(Lane::compute, s.unfinished, WaitReason::data);
  }
  inputs_.release_all();
  offload_.host_waits();
}

void Reducer::finish() {
  for (int unit = 0; unit < static_cast<int>(builder_.plan.units.size()); ++unit) {
    for (bool replicated : {false, true}) {
      const State& s = state(unit, replicated);
      if (s.result == kNoBuffer) continue;
      const std::int64_t numel = replicated ? layout(unit).replicated_numel : layout(unit).shard_numel;
      ready_.push_back({unit, replicated, s.result, numel, offload_.on() && !replicated});
    }
  }
  wait_for_all();
}

}  // namespace fsdpbench::schedule
