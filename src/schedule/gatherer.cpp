#include "schedule/gatherer.h"

#include <algorithm>
#include <utility>

namespace fsdpbench::schedule {

using LimitMode = config::AllGatherLimit::Mode;

Gatherer::Gatherer(StepBuilder& builder, AllGatherLimiter& limiter)
    : builder_(builder), limiter_(limiter), states_(builder.plan.units.size()) {}

void Gatherer::begin_step() { states_.assign(states_.size(), {}); }

void Gatherer::order(Lane lane) {
  if (start_after_ != kNoEvent) builder_.wait(lane, start_after_, WaitReason::limit);
  if (!builder_.policy.fsdp.gathers_follow_compute) return;
  if (const EventId issued = builder_.mark(Lane::compute); issued != kNoEvent) {
    builder_.wait(lane, issued, WaitReason::limit);
  }
}

bool Gatherer::unshard(int unit, bool prefetch) {
  const plan::Unit& u = unit_of(unit);
  if (!u.has_parameters() || state(unit).prefetched) {  // a prefetch has done all of this
    state(unit).prefetched = prefetch;
    return false;
  }
  if (resident() || u.stays_gathered) {
    state(unit).prefetched = prefetch;
    return true;
  }
  const bool gathers = u.has_sharded() && !state(unit).issued;
  const std::int64_t bytes = u.layout.gathered_numel() * size_of(builder_.plan.param_dtype);
  if (prefetch && gathers && unit != plan::Plan::kRoot && !limiter_.allows_prefetch(bytes)) return false;
  state(unit).prefetched = prefetch;
  limiter_.before_unshard(unit, bytes, gathers);
  if (!gathers) return true;
  if (copies_out(unit)) {
    gather_copied(unit, prefetch);
  } else {
    gather_views(unit, prefetch);
  }
  state(unit).issued = true;
  limiter_.gathered(unit, bytes);
  return true;
}

void Gatherer::unshard_together(const std::vector<int>& units, bool prefetch) {
  std::vector<int> wanted;
  bool alike = builder_.plan.mesh.shard > 1;
  for (int u : units) {
    if (!missing(u)) continue;
    wanted.push_back(u);
    alike = alike && over(u) == over(wanted.front());
  }
  if (wanted.size() < 2 || !alike) {
    for (int u : wanted) unshard(u, prefetch);
    return;
  }
  std::ranges::sort(wanted);
  const auto bytes = [&](int u) { return unit_of(u).layout.gathered_numel() * size_of(builder_.plan.param_dtype); };
  for (int u : wanted) limiter_.before_unshard(u, bytes(u), true);
  gather_bucket({wanted, Lane::all_gather, prefetch, false});
  for (int u : wanted) limiter_.gathered(u, bytes(u));
}

void Gatherer::gather_those_that_stay() {
  for (const Group group : {Group::shard, Group::expert_shard}) {
    Bucket bucket{.units = {}, .lane = Lane::compute, .prefetch = false, .stays = true};
    for (int u = 0; u < static_cast<int>(states_.size()); ++u) {
      if (unit_of(u).stays_gathered && unit_of(u).group == group) bucket.units.push_back(u);
    }
    if (!bucket.units.empty()) gather_bucket(bucket);
  }
}

const plan::ShardLayout& Gatherer::layout_of(int unit) const {
  const State& s = states_[unit];
  return s.grouped ? unit_of(unit).group_layout.front() : unit_of(unit).layout;
}

BufferId Gatherer::copy_to_device(BufferRole role, int unit, bool prefetch) {
  order(Lane::host_to_device);
  if (const EventId copied = builder_.mark(Lane::copy); copied != kNoEvent) {
    builder_.wait(Lane::host_to_device, copied, WaitReason::limit);
  }
  // A unit that stays gathered is gathered once the host has updated it.
  if (const EventId updated = builder_.mark(Lane::host_compute);
      builder_.phase == Phase::optimizer && updated != kNoEvent) {
    builder_.wait(Lane::host_to_device, updated, WaitReason::data);
  }
  const std::int64_t bytes = unit_of(unit).layout.shard_numel * size_of(DType::f32);
  const BufferId to = builder_.new_buffer(role, DType::f32, bytes, unit);
  builder_.transfer(builder_.persistent(BufferRole::master_shard, unit), to, unit, prefetch, {.allocates = {to}});
  return to;
}

Gatherer::Shard Gatherer::shard_for(int unit, Lane reader, bool prefetch) {
  switch (builder_.policy.fsdp.cpu_offload) {
    case config::CpuOffload::none:
      return {.buffer = builder_.persistent(
                  builder_.keeps_device_shards() ? BufferRole::device_shard : BufferRole::master_shard, unit)};
    case config::CpuOffload::optimizer:
      if (const EventId sent = builder_.mark(Lane::host_to_device); sent != kNoEvent) {
        builder_.wait(reader, sent, WaitReason::data);  // in the optimizer's phase only
      }
      return {.buffer = builder_.persistent(BufferRole::device_shard, unit)};
    case config::CpuOffload::all: break;
  }
  const BufferId copy = copy_to_device(BufferRole::device_shard, unit, prefetch);
  builder_.wait(reader, builder_.record(EventRole::copied_to_device, unit), WaitReason::data);
  return {copy, copy};
}

void Gatherer::copy_in(int unit, const At& at, BufferId message, Place place, Lifetimes lifetimes) {
  const State& s = state(unit);
  if (s.grouped) builder_.wait(at.lane, s.group_shard_kept, WaitReason::data);
  const Shard from = s.grouped ? Shard{.buffer = s.group_shard} : shard_for(unit, at.lane, at.prefetch);
  lifetimes.frees.push_back(from.temporary);
  builder_.append(
      OpKind::copy_in, at,
      LayoutCopy{
          .from = from.buffer, .to = message, .over = over(unit), .offset = place.offset, .stride = place.stride},
      std::move(lifetimes));
}

void Gatherer::copy_out(int unit, const At& at, BufferId message, BufferId parameters, Place place,
                        Lifetimes lifetimes) {
  builder_.append(
      OpKind::copy_out, at,
      LayoutCopy{.from = message, .to = parameters, .over = over(unit), .offset = place.offset, .stride = place.stride},
      std::move(lifetimes));
}

void Gatherer::gather_bucket(const Bucket& bucket) {
  const int first = bucket.units.front();
  const Group over = this->over(first);
  std::int64_t part = 0;
  for (int u : bucket.units) part += layout_of(u).shard_numel;
  const BufferId gathered = new_parameters(BufferRole::gathered, first, part * layout_of(first).shards);

  Place place{.offset = 0, .stride = part};
  order(bucket.lane);
  for (int u : bucket.units) {
    copy_in(u, {.lane = bucket.lane, .unit = u, .prefetch = bucket.prefetch}, gathered, place,
            {.allocates = {u == first ? gathered : kNoBuffer}});
    place.offset += layout_of(u).shard_numel;
  }
  builder_.append(
      OpKind::all_gather,
      {.lane = bucket.lane,
       .unit = first,
       .prefetch = bucket.prefetch,
       .others = {bucket.units.begin() + 1, bucket.units.end()}},
      Collective{
          .group = over, .input = gathered, .output = gathered, .count = part, .dtype = builder_.plan.param_dtype});
  place.offset = 0;
  for (int u : bucket.units) {
    const bool last = u == bucket.units.back();
    const BufferId unsharded = bucket.stays
                                   ? builder_.persistent(BufferRole::unsharded, u)
                                   : new_parameters(BufferRole::unsharded, u, unit_of(u).layout.unsharded_numel);
    copy_out(u, {.lane = bucket.lane, .unit = u, .prefetch = bucket.prefetch}, gathered, unsharded, place,
             {.allocates = {bucket.stays ? kNoBuffer : unsharded}, .frees = {last ? gathered : kNoBuffer}});
    place.offset += layout_of(u).shard_numel;
    if (!bucket.stays) state(u).unsharded = unsharded;
  }
  if (bucket.stays) return;
  const EventId ready = record_gathered(first);
  for (int u : bucket.units) {
    State& s = state(u);
    s.issued = true;
    s.prefetched = bucket.prefetch;
    s.ready = ready;
  }
}

bool Gatherer::allows_prefetch(int unit, const std::vector<std::int64_t>& beside) const {
  return limiter_.allows_prefetch(unit_of(unit).layout.gathered_numel() * size_of(builder_.plan.param_dtype), beside);
}

std::int64_t Gatherer::live_elements() const {
  std::int64_t elements = 0;
  for (std::size_t u = 0; u < states_.size(); ++u) {
    if (states_[u].issued) elements += builder_.plan.units[u].layout.parameter_numel();
  }
  return elements;
}

BufferId Gatherer::new_parameters(BufferRole role, int unit, std::int64_t numel) {
  const DType dtype = builder_.plan.param_dtype;
  return builder_.new_buffer(role, dtype, numel * size_of(dtype), unit);
}

BufferId Gatherer::cast_shard(BufferRole role, int unit, bool prefetch) {
  order(Lane::copy);
  const std::int64_t numel = unit_of(unit).layout.shard_numel;
  const Shard shard = shard_for(unit, Lane::copy, prefetch);
  const BufferId low = new_parameters(role, unit, numel);
  builder_.append(OpKind::cast_shard, {.lane = Lane::copy, .unit = unit, .prefetch = prefetch},
                  Cast{.from = shard.buffer, .to = low, .count = numel},
                  {.allocates = {low}, .frees = {shard.temporary}});
  return low;
}

void Gatherer::gather_views(int unit, bool prefetch) {
  const plan::Unit& u = unit_of(unit);
  State& s = state(unit);
  const bool low = builder_.plan.param_dtype != builder_.plan.state_dtype;
  if (u.layout.shards == 1) {  // a lower dtype, or from the host, but nobody to gather from
    s.gathered =
        low ? cast_shard(BufferRole::gathered, unit, prefetch) : copy_to_device(BufferRole::gathered, unit, prefetch);
    s.ready = builder_.record(EventRole::gathered, unit);
    return;
  }
  Shard shard;
  if (s.grouped) {
    shard.buffer = s.group_shard;
    builder_.wait(Lane::all_gather, s.group_shard_kept, WaitReason::data);
  } else if (low && !builder_.keeps_device_shards()) {
    shard.buffer = shard.temporary = cast_shard(BufferRole::cast_shard, unit, prefetch);
    builder_.wait(Lane::all_gather, builder_.record(EventRole::cast, unit), WaitReason::data);
  } else {
    shard = shard_for(unit, Lane::all_gather, prefetch);
  }
  order(Lane::all_gather);
  s.gathered = new_parameters(BufferRole::gathered, unit, u.layout.gathered_numel());
  all_gather(unit, prefetch, shard.buffer, {.allocates = {s.gathered}, .frees = {shard.temporary}});
}

void Gatherer::gather_copied(int unit, bool prefetch) {
  State& s = state(unit);
  if (unit_of(unit).copies_alone()) {
    builder_.append(OpKind::unshard, {.unit = unit, .prefetch = prefetch});
    if (copies_from_resident(unit)) {
      s.gathered = shard_for(unit, Lane::compute, prefetch).buffer;
    } else {
      s.gathered = copy_to_device(BufferRole::device_shard, unit, prefetch);
      s.ready = record_gathered(unit);
    }
    return;
  }
  order(Lane::copy);
  s.gathered = new_parameters(BufferRole::gathered, unit, layout_of(unit).shard_numel * layout_of(unit).shards);
  copy_in(unit, {.lane = Lane::copy, .unit = unit, .prefetch = prefetch}, s.gathered, {}, {.allocates = {s.gathered}});
  builder_.wait(Lane::all_gather, builder_.record(EventRole::copied_in, unit), WaitReason::data);
  all_gather(unit, prefetch, s.gathered, {});
}

void Gatherer::all_gather(int unit, bool prefetch, BufferId input, Lifetimes lifetimes) {
  State& s = state(unit);
  builder_.append(OpKind::all_gather, {.lane = Lane::all_gather, .unit = unit, .prefetch = prefetch},
                  Collective{.group = over(unit),
                             .input = input,
                             .output = s.gathered,
                             .count = layout_of(unit).shard_numel,
                             .dtype = builder_.plan.param_dtype},
                  std::move(lifetimes));
  s.ready = record_gathered(unit);
}

/// A unit may be gathered twice in one phase: for its forward, and again for its backward.
EventId Gatherer::record_gathered(int unit) {
  const bool again = builder_.recorded(builder_.event(EventRole::gathered, unit));
  return builder_.record(again ? EventRole::gathered_again : EventRole::gathered, unit);
}

void Gatherer::wait_for_unshard(int unit) {
  State& s = state(unit);
  if (nothing_to_gather(unit) || s.waited) return;
  s.waited = true;
  const bool alone = copies_from_resident(unit);  // the shard itself is what was gathered, and stays
  if (!alone) limiter_.before_wait(s.ready, unit);
  if (!alone) builder_.wait(Lane::compute, s.ready, WaitReason::data);
  if (!copies_out(unit) || s.unsharded != kNoBuffer) return;

  const bool event_limit = builder_.policy.fsdp.all_gather_limit.mode == LimitMode::fsdp2_event;
  const bool hold = event_limit && !alone && builder_.phase == Phase::forward;
  if (hold) release_held();
  s.unsharded = new_parameters(BufferRole::unsharded, unit, unit_of(unit).layout.unsharded_numel);
  // The root's output goes before the next copy-in, so that limits on gathers count the units and nothing else.
  const bool release_now = !alone && (unit == plan::Plan::kRoot ? !hold : event_limit && !hold);
  // A gather over the reshard group was rank-major over fewer, larger chunks.
  copy_out(unit, {.lane = Lane::compute, .unit = unit}, s.gathered, s.unsharded, {},
           {.allocates = {s.unsharded}, .frees = {alone || hold || release_now ? kNoBuffer : s.gathered}});
  const Held output{unit, s.gathered, builder_.record(EventRole::copied_out, unit)};
  if (hold) {
    held_ = output;
  } else if (release_now) {
    release(output);
  }
}

void Gatherer::release(const Held& held) {
  builder_.wait(Lane::copy, held.copied_out, WaitReason::reuse);
  builder_.append(OpKind::release, {.lane = Lane::copy, .unit = held.unit}, {}, {.frees = {held.gathered}});
}

void Gatherer::release_held() {
  if (held_) release(*held_);
  held_.reset();
}

void Gatherer::reshard(int unit, bool keep_group) {
  State& s = state(unit);
  if (nothing_to_gather(unit) || !s.issued) return;
  const plan::Unit& u = unit_of(unit);
  const BufferId parameters = s.unsharded != kNoBuffer ? s.unsharded : s.gathered;
  BufferId group_shard_over = kNoBuffer;
  State after;
  if (s.group_shard != kNoBuffer && (keep_group || builder_.policy.fsdp.keep_group_shard)) {
    after.group_shard = s.group_shard;  // kept since an earlier forward; parameters have not changed
    after.group_shard_kept = s.group_shard_kept;
    after.grouped = keep_group;
  } else if (keep_group && !u.group_layout.empty()) {
    after.grouped = true;
    after.group_shard = new_parameters(BufferRole::group_shard, unit, u.group_layout.front().shard_numel);
    builder_.append(OpKind::keep_group_shard, {.lane = Lane::compute, .unit = unit},
                    LayoutCopy{.from = parameters, .to = after.group_shard, .over = Group::reshard},
                    {.allocates = {after.group_shard}});
    if (builder_.policy.fsdp.host_sync_at_group_shard) {
      builder_.host_wait(builder_.record(EventRole::group_kept, unit), WaitReason::limit, unit);
    }
  } else {
    group_shard_over = s.group_shard;
  }
  const bool on_gathers_lane = builder_.policy.fsdp.free_lane == config::FreeLane::all_gather;
  if (on_gathers_lane) builder_.wait(Lane::all_gather, builder_.mark(Lane::compute), WaitReason::reuse);
  builder_.append(OpKind::reshard, {.lane = on_gathers_lane ? Lane::all_gather : Lane::compute, .unit = unit}, {},
                  {.frees = {parameters, group_shard_over}});
  const EventId freed = builder_.record(EventRole::freed, unit);
  if (after.group_shard_kept == kNoEvent) after.group_shard_kept = freed;
  // FSDP1 queues no event where nobody else has a part, though a copy in a lower dtype is freed.
  limiter_.released(unit, freed, !u.layout.views() || u.layout.shards > 1);
  s = after;
}

void Gatherer::reshard_group_shard(int unit) {
  State& s = state(unit);
  if (s.group_shard == kNoBuffer || builder_.policy.fsdp.keep_group_shard) return;
  const bool copied = !unit_of(unit).layout.views();  // of which only the copy reads it
  if (s.issued) {
    builder_.wait(Lane::compute, copied ? builder_.event(EventRole::copied_in, unit) : s.ready, WaitReason::reuse);
  }
  builder_.append(OpKind::reshard, {.lane = Lane::compute, .unit = unit}, {},
                  {.frees = {std::exchange(s.group_shard, kNoBuffer)}});
}

void Gatherer::discard_unused() {
  for (int u = 0; u < static_cast<int>(states_.size()); ++u) {
    State& s = state(u);
    if (!s.issued || s.waited) continue;
    if (!copies_from_resident(u)) {
      builder_.wait(Lane::compute, s.ready, WaitReason::reuse);
      builder_.append(OpKind::release, {.lane = Lane::compute, .unit = u}, {}, {.frees = {s.gathered, s.unsharded}});
    }
    State after;
    after.group_shard = s.group_shard;
    s = after;
  }
}

void Gatherer::release_group_shards() {
  for (int u = 0; u < static_cast<int>(states_.size()); ++u) {
    const BufferId kept = std::exchange(state(u).group_shard, kNoBuffer);
    if (kept != kNoBuffer) builder_.append(OpKind::release, {.unit = u}, {}, {.frees = {kept}});
  }
}

Gatherer::Parameters Gatherer::parameters(int unit) const {
  const plan::Unit& u = unit_of(unit);
  const State& s = states_[unit];
  Parameters result;
  if (u.has_sharded()) {
    const BufferRole whole = builder_.keeps_device_shards() ? BufferRole::device_shard : BufferRole::master_shard;
    result.sharded = resident()                 ? builder_.persistent(whole, unit)
                     : u.stays_gathered         ? builder_.persistent(BufferRole::unsharded, unit)
                     : s.unsharded != kNoBuffer ? s.unsharded
                                                : s.gathered;
  }
  if (u.has_replicated()) {
    const bool low = builder_.plan.param_dtype != builder_.plan.state_dtype;
    result.replicated =
        builder_.persistent(low ? BufferRole::replicated_parameters : BufferRole::master_replicated, unit);
  }
  return result;
}

}  // namespace fsdpbench::schedule
