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
  const bool sleeps = communicates ? team.emulation().link.has_value() : !team.computes();
  settings.urgency = sleeps ? Urgency::prompt : Urgency::normal;
  const double slowdown = lane == Lane::compute ? team.compute_slowdown(rank) : 1.0;
  if (team.computes()) {
    settings.slowdown = slowdown;
  } else {
    settings.flops_per_s = *team.emulation().compute_flops_per_s / slowdown;
  }
  return settings;
}

}  // namespace

CpuDevice::CpuDevice(Team& team, int rank, std::string bound)
    : team_(team), rank_(rank), bound_(std::move(bound)), memory_(team.make_memory()) {
  for (const Lane lane : kLanes) {
    lanes_[index_of(lane)] = std::make_unique<LaneWorker>(team.abort(), lane_settings(team, rank, lane));
  }
}

CpuDevice::~CpuDevice() { join_lanes(); }

Facts CpuDevice::facts() const {
  Facts all = team_.facts();
  if (!bound_.empty()) all.emplace_back("bound", bound_);
  return all;
}

void CpuDevice::join_lanes() {
  for (const auto& lane : lanes_) lane->join();
}

void CpuDevice::push(Lane lane, LaneItem&& item) {
  guarded([&] { worker(lane).push(std::move(item)); });
}

void CpuDevice::enqueue(Lane lane, const char* name, Task task, Stamp* stamp) {
  order_.issue(lane);
  push(lane, {.name = name, .task = std::move(task), .stamp = stamp});
}

void CpuDevice::enqueue_collective(Lane lane, const char* name, CollectiveCall call, Stamp* stamp) {
  order_.issue(lane);
  push(lane, {.name = name, .collective = std::move(call), .stamp = stamp});
}

void CpuDevice::record(Event event, Lane lane) {
  if (event < 0) throw std::logic_error("Device::record: an event is a number from 0 up");
  const auto index = static_cast<std::size_t>(event);
  if (index >= events_.size()) events_.resize(index + 1);
  events_[index] = {true, lane, worker(lane).pushed(), order_.record(lane)};
}

const CpuDevice::Recording& CpuDevice::recording(Event event) const {
  static const Recording kNever;
  const auto index = static_cast<std::size_t>(event);
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
    guarded([&] { worker(lane).wait_completed(worker(lane).pushed()); });
    order_.host_wait(order_.record(lane));
  }
  abort().throw_if_set();
}

std::byte* CpuDevice::allocate(std::int64_t bytes, MemoryCategory category, Lane lane) {
  if (bytes < 0) throw std::logic_error("Device::allocate: negative size");
  if (bytes > memory_.bytes()) throw_out_of_memory(bytes, category);
  const std::int64_t offset = pool_.allocate(bytes, category, lane, order_);
  if (offset + pool_.size_of_block(offset) > memory_.bytes()) {
    pool_.free(offset, lane, order_);
    throw_out_of_memory(bytes, category);
  }
  wait_for_poison(offset, pool_.size_of_block(offset), lane);
  return memory_.data() + offset;
}

void CpuDevice::throw_out_of_memory(std::int64_t bytes, MemoryCategory category) const {
  throw ResourceError(
      fmt::format("rank {} cannot allocate {} for {}: {} are in use and its share of this machine's memory is {}",
                  rank_, format_bytes(bytes), to_string(category), format_bytes(pool_.statistics().live_total),
                  format_bytes(memory_.bytes())));
}

void CpuDevice::free(std::byte* memory, Lane lane) {
  const std::int64_t offset = memory - memory_.data();
  const std::int64_t bytes = pool_.size_of_block(offset);
  pool_.free(offset, lane, order_);
  if (team_.options().poison_freed_memory && computes()) poison(offset, bytes, lane);
}

void CpuDevice::poison(std::int64_t offset, std::int64_t bytes, Lane lane) {
  std::byte* const block = memory_.data() + offset;
  // All bits set is a NaN in fp32 and in bf16.
  Task fill = [block, bytes](Kernels&) { std::memset(block, 0xFF, static_cast<std::size_t>(bytes)); };
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
