#include "backend/cpu/device.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

LaneSettings lane_settings(const Team& team, int rank, Lane lane) {
  LaneSettings settings;
  settings.rank = rank;
  settings.lane = lane;
  settings.kernels = team.kernels();
  const bool communicates =
      lane == Lane::all_gather || lane == Lane::reduce_scatter || lane == Lane::all_reduce || lane == Lane::tensor;
  const bool transfers = lane == Lane::host_to_device || lane == Lane::device_to_host;
  const bool sleeps = communicates ? team.emulation().link.has_value() : !team.computes();
  settings.urgency = sleeps ? Urgency::prompt : Urgency::normal;
  const double slowdown = lane == Lane::compute ? team.compute_slowdown(rank) : 1.0;
  if (team.computes()) {
    settings.slowdown = slowdown;
  } else {
    settings.flops_per_s = *team.emulation().compute_flops_per_s / slowdown;
  }
  if (transfers && team.emulation().pcie) {
    settings.pcie = team.emulation().pcie;
    settings.urgency = Urgency::prompt;
  }
  return settings;
}

}  // namespace

CpuDevice::CpuDevice(Team& team, int rank)
    : team_(team),
      rank_(rank),
      memory_(team.make_memory()),
      device_{0, memory_.bytes() - team.host_pool_bytes(), "its share of this machine's memory"},
      host_{device_.bytes, team.host_pool_bytes(), "what was set aside of host memory"} {
  for (const Lane lane : kLanes) {
    if (is_offload_lane(lane) && !team.options().offload_lanes) continue;
    lanes_[index_of(lane)] = std::make_unique<LaneWorker>(team.abort(), lane_settings(team, rank, lane));
  }
}

CpuDevice::~CpuDevice() { join_lanes(); }

Facts CpuDevice::facts() const { return team_.facts(); }

void CpuDevice::join_lanes() {
  for (const auto& lane : lanes_) {
    if (lane) lane->join();
  }
}

void CpuDevice::push(Lane lane, LaneItem&& item) {
  guarded([&] { worker(lane).push(std::move(item)); });
}

void CpuDevice::enqueue(Lane lane, const char* name, Task task, Stamp* stamp) {
  order_.issue(lane);
  push(lane, {.name = name, .task = std::move(task), .stamp = stamp});
}

void CpuDevice::enqueue_collective(Lane lane, const char* name, CollectiveTask call, Stamp* stamp) {
  order_.issue(lane);
  push(lane, {.name = name, .collective = std::move(call), .stamp = stamp});
}

void CpuDevice::record(Event event, Lane lane) {
  if (event < 0) throw std::logic_error("Device::record: an event is a number from 0 up");
  const std::size_t index = event;
  if (index >= events_.size()) events_.resize(index + 1);
  events_[index] = {true, lane, worker(lane).pushed(), order_.record(lane)};
}

const CpuDevice::Recording& CpuDevice::recording(Event event) const {
  static const Recording kNever;
  const std::size_t index = event;
  return event >= 0 && index < events_.size() ? events_[index] : kNever;
}

void CpuDevice::wait(Lane lane, Event event) {
  const Recording& recorded = recording(event);
  if (!recorded.recorded) return;
  order_.wait(lane, recorded.clock);
  push_wait(lane, recorded.lane, recorded.position);
}

void CpuDevice::push_wait(Lane lane, Lane for_lane, std::int64_t position) {
  if (lane == for_lane || worker(for_lane).completed(position)) return;
  push(lane, {.name = "wait", .wait_for = &worker(for_lane), .wait_position = position});
}

void CpuDevice::host_wait(Event event) {
  const Recording& recorded = recording(event);
  if (!recorded.recorded) return;
  guarded([&] { worker(recorded.lane).wait_completed(recorded.position); });
  order_.host_wait(recorded.clock);
}

void CpuDevice::synchronize() {
  for (const Lane lane : kLanes) {
    if (!lanes_[index_of(lane)]) continue;
    guarded([&] { worker(lane).wait_completed(worker(lane).pushed()); });
    order_.host_wait(order_.record(lane));
  }
  abort().throw_if_set();
}

std::byte* CpuDevice::allocate(std::int64_t bytes, MemoryCategory category, Lane lane) {
  return allocate_in(device_, bytes, category, lane);
}

std::byte* CpuDevice::allocate_host(std::int64_t bytes, MemoryCategory category, Lane lane) {
  return allocate_in(host_, bytes, category, lane);
}

std::byte* CpuDevice::allocate_in(Space& space, std::int64_t bytes, MemoryCategory category, Lane lane) {
  if (bytes < 0) throw std::logic_error("Device::allocate: negative size");
  if (bytes > space.bytes) throw_out_of_memory(space, bytes, category);
  const std::int64_t offset = space.pool.allocate(bytes, category, lane, order_);
  const std::int64_t size = space.pool.size_of_block(offset);
  if (offset + size > space.bytes) {
    space.pool.free(offset, lane, order_);
    throw_out_of_memory(space, bytes, category);
  }
  wait_for_poison(space.begin + offset, size, lane);
  return memory_.data() + space.begin + offset;
}

void CpuDevice::throw_out_of_memory(const Space& space, std::int64_t bytes, MemoryCategory category) const {
  throw ResourceError(fmt::format(
      "rank {} cannot allocate {} for {}: {} are in use and {} is {}", rank_, format_bytes(bytes), to_string(category),
      format_bytes(space.pool.statistics().live_total), space.name, format_bytes(space.bytes)));
}

void CpuDevice::free(std::byte* memory, Lane lane) {
  const std::int64_t offset = memory - memory_.data();
  Space& space = offset < host_.begin ? device_ : host_;
  const std::int64_t bytes = space.pool.size_of_block(offset - space.begin);
  space.pool.free(offset - space.begin, lane, order_);
  if (team_.options().poison_freed_memory && computes()) poison(offset, bytes, lane);
}

void CpuDevice::poison(std::int64_t offset, std::int64_t bytes, Lane lane) {
  std::byte* const block = memory_.data() + offset;
  // All bits set is a NaN in fp32 and in bf16.
  Task fill = [block, bytes](Kernels&) { std::memset(block, 0xFF, bytes); };
  push(lane, {.name = "poison", .task = std::move(fill)});
  std::erase_if(poisonings_, [&](const Poisoning& p) { return worker(p.lane).completed(p.position); });
  poisonings_.push_back({offset, offset + bytes, lane, worker(lane).pushed()});
}

/// The filling is no op of the rank's order, so that poisoning does not change which blocks the pool hands out. A lane
/// that gets such a block early must therefore wait for the filling itself.
void CpuDevice::wait_for_poison(std::int64_t offset, std::int64_t bytes, Lane lane) {
  for (const Poisoning& p : poisonings_) {
    if (p.begin < offset + bytes && offset < p.end) push_wait(lane, p.lane, p.position);
  }
}

}  // namespace fsdpbench::backend::cpu
