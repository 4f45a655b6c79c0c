#include "schedule/gatherer.h"

namespace fsdpbench::schedule {

using LimitMode = config::AllGatherLimit::Mode;

Gatherer::Gatherer(StepBuilder& builder, AllGatherLimiter& limiter)
    : builder_(builder), limiter_(limiter), states_(builder.plan.units.size()) {}

void Gatherer::begin_step() {
  states_.assign(states_.size(), {});
  held_.reset();
  start_after_ = kNoEvent;
}

void Gatherer::order(Lane lane) {
  if (start_after_ != kNoEvent) builder_.wait(lane, start_after_, WaitReason::limit);
}

void Gatherer::unshard(int unit, bool prefetch) {
  const plan::Unit& u = unit_of(unit);
  if (!u.has_parameters() || builder_.plan.resident()) return;
  if (!prefetch && state(unit).prefetched) {
    state(unit).prefetched = false;  // a prefetch has done all of this
    return;
  }
  const bool gathers = u.has_sharded() && !state(unit).issued;
  const std::int64_t bytes = u.layout.gathered_numel() * size_of(builder_.plan.param_dtype);
  if (prefetch && gathers && unit != plan::Plan::kRoot && !limiter_.allows_prefetch(bytes)) return;
  state(unit).prefetched = prefetch;
  limiter_.before_unshard(unit, bytes, gathers);
  if (!gathers) return;
  if (u.layout.views()) {
    gather_views(unit, prefetch);
  } else {
    gather_per_param(unit, prefetch);
  }
  state(unit).issued = true;
  state(unit).waited = false;
  limiter_.gathered(unit, bytes);
}

BufferId Gatherer::new_gathered(int unit) {
  const DType dtype = builder_.plan.param_dtype;
  const std::int64_t bytes = unit_of(unit).layout.gathered_numel() * size_of(dtype);
  return state(unit).gathered =
             builder_.new_buffer(BufferRole::gathered, MemoryCategory::unsharded_parameters, dtype, bytes, unit);
}

void Gatherer::gather_views(int unit, bool prefetch) {
  const plan::Plan& plan = builder_.plan;
  const plan::Unit& u = unit_of(unit);
  State& s = state(unit);
  const BufferId master = builder_.persistent(BufferRole::master_shard, unit);

  if (u.layout.shards == 1) {  // a lower dtype, but nobody to gather from
    order(Lane::copy);
    const BufferId output = new_gathered(unit);
    Op& cast = builder_.append(OpKind::cast_shard, Lane::copy, unit);
    cast.prefetch = prefetch;
    cast.count = u.layout.shard_numel;
    cast.allocates = {output};
    cast.reads = {master};
    cast.writes = {output};
    s.ready = builder_.record(EventRole::gathered, unit);
    return;
  }

  const bool grouped = s.group_shard != kNoBuffer;
  const plan::ShardLayout& layout = grouped ? u.group_layout.front() : u.layout;
  BufferId source = grouped ? s.group_shard : master;
  if (!grouped && plan.param_dtype != DType::f32) {
    order(Lane::copy);
    const BufferId low = builder_.new_buffer(BufferRole::cast_shard, MemoryCategory::communication_buffers,
                                             plan.param_dtype, layout.shard_numel * size_of(plan.param_dtype), unit);
    Op& cast = builder_.append(OpKind::cast_shard, Lane::copy, unit);
    cast.prefetch = prefetch;
    cast.count = layout.shard_numel;
    cast.allocates = {low};
    cast.reads = {master};
    cast.writes = {low};
    builder_.wait(Lane::all_gather, builder_.record(EventRole::cast, unit), WaitReason::data);
    source = low;
  } else if (grouped) {
    builder_.wait(Lane::all_gather, s.group_shard_kept, WaitReason::data);
  }
  order(Lane::all_gather);
  const BufferId output = new_gathered(unit);
  Op& gather = builder_.append(OpKind::all_gather, Lane::all_gather, unit);
  gather.prefetch = prefetch;
  gather.group = grouped ? Group::reshard : Group::shard;
  gather.count = layout.shard_numel;
  gather.dtype = plan.param_dtype;
  gather.allocates = {output};
  gather.reads = {source};
  gather.writes = {output};
  if (source != master && source != s.group_shard) gather.frees = {source};
  s.ready = builder_.record(EventRole::gathered, unit);
}

void Gatherer::gather_per_param(int unit, bool prefetch) {
  const plan::Unit& u = unit_of(unit);
  State& s = state(unit);
  const bool grouped = s.group_shard != kNoBuffer;
  const plan::ShardLayout& layout = grouped ? u.group_layout.front() : u.layout;
  const BufferId source = grouped ? s.group_shard : builder_.persistent(BufferRole::master_shard, unit);
  if (grouped) builder_.wait(Lane::copy, s.group_shard_kept, WaitReason::data);

  order(Lane::copy);
  const BufferId output = new_gathered(unit);
  Op& copy_in = builder_.append(OpKind::copy_in, Lane::copy, unit);
  copy_in.prefetch = prefetch;
  copy_in.group = Group::none;
  copy_in.count = layout.shard_numel;
  copy_in.allocates = {output};
  copy_in.reads = {source};
  copy_in.writes = {output};
  builder_.wait(Lane::all_gather, builder_.record(EventRole::copied_in, unit), WaitReason::data);

  Op& gather = builder_.append(OpKind::all_gather, Lane::all_gather, unit);
  gather.prefetch = prefetch;
  gather.group = grouped ? Group::reshard : Group::shard;
  gather.count = layout.shard_numel;
  gather.dtype = builder_.plan.param_dtype;
  gather.reads = {output};
  gather.writes = {output};
  s.ready = builder_.record(EventRole::gathered, unit);
}

void Gatherer::wait_for_unshard(int unit) {
  State& s = state(unit);
  if (nothing_to_gather(unit) || s.waited) return;
  s.waited = true;
  builder_.wait(Lane::compute, s.ready, WaitReason::data);
  if (unit_of(unit).layout.views()) return;

  const bool event_limit = builder_.policy.fsdp.all_gather_limit.mode == LimitMode::fsdp2_event;
  const bool hold = event_limit && builder_.phase == Phase::forward;
  if (hold) release_held();
  const DType dtype = builder_.plan.param_dtype;
  s.unsharded = builder_.new_buffer(BufferRole::unsharded, MemoryCategory::unsharded_parameters, dtype,
                                    unit_of(unit).layout.unsharded_numel * size_of(dtype), unit);
  Op& copy_out = builder_.append(OpKind::copy_out, Lane::compute, unit);
  // Which layout to read: a gather over the reshard group was rank-major over fewer, larger chunks.
  copy_out.first = s.group_shard == kNoBuffer;
  copy_out.allocates = {s.unsharded};
  copy_out.reads = {s.gathered};
  copy_out.writes = {s.unsharded};
  // The root's output goes before the next copy-in, so that limits on gathers count the units and nothing else.
  const bool release_now = unit == plan::Plan::kRoot ? !hold : event_limit && !hold;
  if (!hold && !release_now) copy_out.frees = {s.gathered};
  const Held output{unit, s.gathered, builder_.record(EventRole::copied_out, unit)};
  s.gathered = kNoBuffer;
  if (hold) {
    held_ = output;
  } else if (release_now) {
    release(output);
  }
}

void Gatherer::release(const Held& held) {
  builder_.wait(Lane::copy, held.copied_out, WaitReason::reuse);
  builder_.append(OpKind::release, Lane::copy, held.unit).frees = {held.gathered};
}

void Gatherer::release_held() {
  if (held_) release(*held_);
  held_.reset();
}

void Gatherer::reshard(int unit, bool keep_group) {
  State& s = state(unit);
  if (nothing_to_gather(unit) || !s.issued) return;
  const plan::Unit& u = unit_of(unit);
  const BufferId parameters = u.layout.views() ? s.gathered : s.unsharded;
  std::vector<BufferId> frees{parameters};
  State after;
  if (keep_group && s.group_shard != kNoBuffer) {
    after.group_shard = s.group_shard;  // kept since an earlier microbatch; parameters have not changed
    after.group_shard_kept = s.group_shard_kept;
  } else if (keep_group && !u.group_layout.empty()) {
    const DType dtype = builder_.plan.param_dtype;
    after.group_shard = builder_.new_buffer(BufferRole::group_shard, MemoryCategory::parameter_shards, dtype,
                                            u.group_layout.front().shard_numel * size_of(dtype), unit);
    Op& keep = builder_.append(OpKind::keep_group_shard, Lane::compute, unit);
    keep.count = u.group_layout.front().shard_numel;
    keep.allocates = {after.group_shard};
    keep.reads = {parameters};
    keep.writes = {after.group_shard};
  } else if (s.group_shard != kNoBuffer) {
    frees.push_back(s.group_shard);
  }
  builder_.append(OpKind::reshard, Lane::compute, unit).frees = frees;
  const EventId freed = builder_.record(EventRole::freed, unit);
  if (after.group_shard != kNoBuffer && after.group_shard_kept == kNoEvent) after.group_shard_kept = freed;
  limiter_.released(unit, freed, true);
  s = after;
}

std::vector<BufferId> Gatherer::parameters(int unit) const {
  const plan::Unit& u = unit_of(unit);
  const State& s = states_[static_cast<std::size_t>(unit)];
  std::vector<BufferId> result;
  if (u.has_sharded()) {
    if (builder_.plan.resident()) {
      result.push_back(builder_.persistent(BufferRole::master_shard, unit));
    } else {
      result.push_back(u.layout.views() ? s.gathered : s.unsharded);
    }
  }
  if (u.has_replicated()) {
    const bool low = builder_.plan.param_dtype != DType::f32;
    result.push_back(
        builder_.persistent(low ? BufferRole::replicated_parameters : BufferRole::master_replicated, unit));
  }
  return result;
}

}  // namespace fsdpbench::schedule
