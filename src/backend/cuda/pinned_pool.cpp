#include "backend/cuda/pinned_pool.h"

#include <fmt/format.h>

#include <functional>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

PinnedPool::PinnedPool(const LaneStreams& streams, int rank, std::int64_t bytes, bool poison)
    : rank_(rank),
      poison_(poison),
      memory_(rank, round_up(bytes, LanePool::kGranule), "what fsdp.cpu_offload keeps there"),
      poisoned_(streams) {}

std::byte* PinnedPool::allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order) {
  const auto all = static_cast<std::int64_t>(region().size());
  const auto refuse = [&] {
    throw ResourceError(fmt::format(
        "rank {} cannot allocate {} of pinned host memory for {}: {} are in use, and {} were set aside", rank_,
        format_bytes(bytes), to_string(category), format_bytes(pool_.statistics().live_total), format_bytes(all)));
  };
  if (bytes > all) refuse();
  const std::int64_t offset = pool_.allocate(bytes, category, lane, order);
  const std::int64_t size = pool_.size_of_block(offset);
  if (offset + size > all) {
    pool_.free(offset, lane, order);
    refuse();
  }
  std::byte* const memory = region().data() + offset;
  if (poison_) poisoned_.wait(lane, memory, size);
  return memory;
}

bool PinnedPool::contains(const std::byte* memory) const {
  const std::span<std::byte> all = region();
  return std::greater_equal<>()(memory, all.data()) && std::less<>()(memory, all.data() + all.size());
}

void PinnedPool::free(std::byte* memory, Lane lane, const LaneOrder& order) {
  const std::int64_t offset = memory - region().data();
  const std::int64_t bytes = pool_.size_of_block(offset);
  pool_.free(offset, lane, order);
  if (poison_) poisoned_.fill(memory, bytes, lane);
}

Facts PinnedPool::facts() const {
  const std::optional<int> node = memory_.numa_node();
  return {{"pinned host memory", format_bytes(static_cast<std::int64_t>(region().size())) +
                                     (node ? fmt::format(", its first page on NUMA node {}", *node) : "")}};
}

}  // namespace fsdpbench::backend::cuda
