#include "schedule/updates.h"

#include <utility>

namespace fsdpbench::schedule {

void Updates::append(const std::vector<Reducer::Ready>& gradients) {
  const BufferId factor = builder_.policy.clip ? clip(gradients) : kNoBuffer;
  if (builder_.offloads()) {
    factor_ = factor;
    // Before masters are updated every copy of them has been read.
    if (const EventId read = builder_.mark(Lane::host_to_device); read != kNoEvent) {
      builder_.wait(Lane::host_compute, read, WaitReason::reuse);
    }
  }
  const bool adamw = builder_.policy.optimizer == config::Optimizer::adamw;
  for (const Reducer::Ready& g : gradients) {
    const auto state = [&](BufferRole sharded, BufferRole replicated) {
      return builder_.persistent(g.replicated ? replicated : sharded, g.unit);
    };
    Update update{.gradient = g.buffer,
                  .parameters = state(BufferRole::master_shard, BufferRole::master_replicated),
                  .clip_factor = factor,
                  .count = g.numel};
    if (adamw) {
      update.first_moment = state(BufferRole::first_moment, BufferRole::first_moment_replicated);
      update.second_moment = state(BufferRole::second_moment, BufferRole::second_moment_replicated);
    }
    if (!g.replicated && !builder_.offloads()) update.rounded = builder_.persistent(BufferRole::device_shard, g.unit);
    const bool last = &g == &gradients.back();
    builder_.append(OpKind::optimizer, {.lane = lane_of(g), .unit = g.unit}, update,
                    {.frees = {g.buffer, last && !builder_.offloads() ? factor : kNoBuffer}});
    if (g.on_host) send_to_device(g.unit);
  }
}

void Updates::send_to_device(int unit) {
  if (builder_.policy.fsdp.cpu_offload != config::CpuOffload::optimizer) return;
  const BufferId master = builder_.persistent(BufferRole::master_shard, unit);
  const BufferId kept = builder_.persistent(BufferRole::device_shard, unit);
  const DType dtype = builder_.plan.param_dtype;
  const std::int64_t numel = builder_.plan.units[unit].layout.shard_numel;
  BufferId sent = master;
  if (dtype != DType::f32) {
    sent = builder_.new_buffer(BufferRole::host_shard, dtype, numel * size_of(dtype), unit, kNone, MemorySpace::host);
    builder_.append(OpKind::cast_shard, {.lane = Lane::host_compute, .unit = unit},
                    Cast{.from = master, .to = sent, .count = numel}, {.allocates = {sent}});
  }
  builder_.wait(Lane::host_to_device, builder_.record(EventRole::cast, unit), WaitReason::data);
  // All that has read it was waited for there.
  builder_.wait(Lane::host_to_device, builder_.mark(Lane::compute), WaitReason::reuse);
  builder_.transfer(sent, kept, unit, false, {.frees = {sent == master ? kNoBuffer : sent}});
}

void Updates::finish() {
  if (!builder_.offloads()) return;
  for (const Lane lane : {Lane::host_compute, Lane::host_to_device}) {
    if (const EventId done = builder_.mark(lane); done != kNoEvent) {
      builder_.wait(Lane::compute, done, WaitReason::data);
    }
  }
  builder_.append(OpKind::release, {}, {}, {.frees = {factor_}});
}

BufferId Updates::clip(const std::vector<Reducer::Ready>& gradients) {
  const plan::Mesh& mesh = builder_.plan.mesh;
  // Few numbers, which device and host read of each other where they lie: in pinned memory, if the host updates.
  const MemorySpace space = builder_.offloads() ? MemorySpace::host : MemorySpace::device;
  const auto numbers = [&](BufferRole role, DType dtype, std::int64_t count) {
    return builder_.new_buffer(role, dtype, count * size_of(dtype), kNone, kNone, space);
  };
  const BufferId partial = numbers(BufferRole::norm_partial, DType::f64, 1);
  Lane adds = lane_of(gradients.front());
  for (const Reducer::Ready& g : gradients) {
    const bool first = &g == &gradients.front();
    if (lane_of(g) != adds) {  // one sum, in one order, whoever adds
      adds = lane_of(g);
      builder_.wait(adds, builder_.record(EventRole::norm_part, g.unit), WaitReason::data);
    }
    // Every rank of a group adds what each of them has: each counts its part.
    builder_.append(OpKind::gradient_norm, {.lane = adds, .unit = g.unit},
                    SumOfSquares{.gradient = g.buffer,
                                 .sum = partial,
                                 .count = g.numel,
                                 .factor = g.replicated ? 1.0F / static_cast<float>(mesh.shard) : 1.0F,
                                 .overwrite = first,
                                 .replicated = g.replicated,
                                 .whole_factor = 1.0F / static_cast<float>(mesh.tensor)},
                    {.allocates = {first ? partial : kNoBuffer}});
  }
  // First the shards of each rank's part of the layers, then the parts.
  std::vector<BufferId> sums{partial};  // the last one in front
  EventId ready = kNoEvent;
  std::int64_t count = 1;
  const auto gather = [&](Group group, Lane lane) {
    const int ranks = builder_.plan.groups.size(group);
    if (ranks == 1) return;
    builder_.wait(lane, ready == kNoEvent ? builder_.record(EventRole::norm) : ready, WaitReason::data);
    const BufferId from = sums.front();
    sums.insert(sums.begin(), numbers(BufferRole::norm_gathered, DType::f64, count * ranks));
    builder_.append(
        OpKind::gather_norm, {.lane = lane},
        Collective{.group = group, .input = from, .output = sums.front(), .count = count, .dtype = DType::f64},
        {.allocates = {sums.front()}});
    ready = builder_.record(EventRole::norm_gathered, static_cast<int>(group));
    count *= ranks;
  };
  gather(Group::shard, Lane::all_gather);
  gather(Group::tensor, Lane::tensor);
  if (ready != kNoEvent) {
    adds = builder_.offloads() ? Lane::host_compute : Lane::compute;
    builder_.wait(adds, ready, WaitReason::data);
  }
  const BufferId factor = numbers(BufferRole::clip_factor, DType::f32, 1);
  builder_.append(OpKind::clip, {.lane = adds}, ClipFactor{.sums = sums.front(), .factor = factor, .count = count},
                  {.allocates = {factor}, .frees = sums});
  const Lane other = adds == Lane::compute ? Lane::host_compute : Lane::compute;
  if (builder_.offloads()) builder_.wait(other, builder_.record(EventRole::clipped), WaitReason::data);
  return factor;
}

}  // namespace fsdpbench::schedule
