#include "backend/cpu/world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/group.h"
#include "base/error.h"
#include "base/lane_pool.h"

namespace fsdpbench::backend::cpu {
namespace {

/// More than any model needs; allocations are then limited by nothing real.
constexpr std::int64_t kEmulatedMemory_bytes = std::int64_t{1} << 50;

void check_slowdown(const char* name, const std::vector<double>& factors, int ranks) {
  const bool fits = factors.empty() || factors.size() == static_cast<std::size_t>(ranks);
  if (!fits || std::any_of(factors.begin(), factors.end(), [](double factor) { return !(factor >= 1.0); })) {
    throw BackendError(fmt::format("{} needs no factors or one of at least 1 for each of the {} ranks", name, ranks));
  }
}

}  // namespace

std::int64_t memory_per_rank(int ranks) {
  const std::int64_t machine = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return machine / ranks / LanePool::kGranule * LanePool::kGranule;
}

World::World(const BackendOptions& options, KernelsFactory kernels) : options_(options), kernels_(std::move(kernels)) {
  if (options.ranks < 1) throw BackendError(fmt::format("{} ranks: at least one is needed", options.ranks));
  check_slowdown("link_slowdown", options.link_slowdown, options.ranks);
  check_slowdown("compute_slowdown", options.compute_slowdown, options.ranks);
  if (options.compute_flops_per_s && !(*options.compute_flops_per_s > 0)) {
    throw BackendError("the emulated compute rate must be positive");
  }
  if (options.link) {
    if (!(options.link->bytes_per_second > 0) || !(options.link->latency_seconds >= 0)) {
      throw BackendError("a modelled link needs a positive bandwidth and a latency of at least 0");
    }
    links_.emplace(abort_, *options.link, options.ranks, options.link_slowdown);
  }
}

double World::compute_slowdown(int rank) const {
  return options_.compute_slowdown.empty() ? 1.0 : options_.compute_slowdown[static_cast<std::size_t>(rank)];
}

MappedMemory& World::make_memory() {
  auto memory = moves_bytes()
                    ? std::make_unique<MappedMemory>(memory_per_rank(options_.ranks), MappedMemory::Kind::touchable)
                    : std::make_unique<MappedMemory>(kEmulatedMemory_bytes, MappedMemory::Kind::addresses_only);
  const std::lock_guard lock(mutex_);
  return *memories_.emplace_back(std::move(memory));
}

std::shared_ptr<Group> World::make_group(std::vector<int> world_ranks) {
  auto group = std::make_shared<Group>(*this, std::move(world_ranks));
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const std::weak_ptr<Group>& known) { return known.expired(); });
  groups_.push_back(group);
  return group;
}

void World::rank_ended(int rank) {
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Group>& known : groups_) {
    if (const std::shared_ptr<Group> group = known.lock()) group->member_ended(rank);
  }
}

}  // namespace fsdpbench::backend::cpu
