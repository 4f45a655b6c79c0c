#include "engine/buffer_table.h"

#include <algorithm>

namespace fsdpbench::engine {

using backend::CopyRun;
using plan::ParameterPlacement;
using plan::ShardLayout;

std::vector<CopyRun> copy_out_runs(const ShardLayout& layout, InBucket in) {
  if (in.stride == 0) in.stride = layout.shard_numel;
  if (layout.layout == config::Layout::flat) {
    return {{in.offset, 0, layout.shards, layout.shard_numel, in.stride, layout.shard_numel, 0}};
  }
  std::vector<CopyRun> runs;
  for (const ParameterPlacement& p : layout.sharded) {
    runs.push_back({in.offset + p.shard_offset, p.unsharded_offset, layout.shards, p.chunk_numel(), in.stride,
                    p.chunk_numel(), 0});
  }
  return runs;
}

std::vector<CopyRun> reduce_copy_in_runs(const ShardLayout& layout, InBucket in) {
  if (in.stride == 0) in.stride = layout.shard_numel;
  if (layout.layout == config::Layout::flat) {
    return {{0, in.offset, layout.shards, layout.shard_numel, layout.shard_numel, in.stride, 0}};
  }
  std::vector<CopyRun> runs;
  for (const ParameterPlacement& p : layout.sharded) {
    const std::int64_t full = p.chunk_numel() == 0 ? 0 : p.numel / p.chunk_numel();  // ranks whose chunk has no padding
    if (full > 0) {
      runs.push_back(
          {p.unsharded_offset, in.offset + p.shard_offset, full, p.chunk_numel(), p.chunk_numel(), in.stride, 0});
    }
    for (std::int64_t r = full; r < layout.shards; ++r) {
      const std::int64_t rest = std::max<std::int64_t>(0, p.numel - r * p.chunk_numel());
      runs.push_back({p.unsharded_offset + std::min(p.numel, r * p.chunk_numel()),
                      r * in.stride + in.offset + p.shard_offset, 1, rest, 0, 0, p.chunk_numel() - rest});
    }
  }
  return runs;
}

std::vector<CopyRun> keep_group_runs(const ShardLayout& group, int index) {
  if (group.layout == config::Layout::flat) {
    return {{index * group.shard_numel, 0, 1, group.shard_numel, 0, 0, 0}};
  }
  std::vector<CopyRun> runs;
  for (const ParameterPlacement& p : group.sharded) {
    runs.push_back({p.unsharded_offset + index * p.chunk_numel(), p.shard_offset, 1, p.chunk_numel(), 0, 0, 0});
  }
  return runs;
}

std::vector<std::pair<std::int64_t, std::int64_t>> gaps_between(const std::vector<ParameterPlacement>& placements,
                                                                std::int64_t numel) {
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
  std::int64_t end = 0;
  const auto gap_before = [&](std::int64_t begin) {
    if (begin > end) gaps.push_back({end, begin - end});
  };
  for (const ParameterPlacement& p : placements) {
    gap_before(p.unsharded_offset);
    end = p.unsharded_offset + p.numel;
  }
  gap_before(numel);
  return gaps;
}

using schedule::Buffer;
using schedule::BufferId;

BufferTable::BufferTable(backend::Device& device, const schedule::Schedule& schedule)
    : device_(device), schedule_(&schedule) {
  for (const Buffer& buffer : schedule.buffers) {
    if (!buffer.persistent) break;  // they come first
    memory_.push_back(allocate(buffer, Lane::compute));
  }
  persistent_count_ = memory_.size();
}

BufferTable::~BufferTable() {
  for (std::size_t i = 0; i < persistent_count_; ++i) {
    try {
      device_.free(memory_[i], Lane::compute);
    } catch (...) {  // the ranks are being stopped, and the device goes with them
    }
  }
}

void BufferTable::begin_step(const schedule::Schedule& schedule) {
  schedule_ = &schedule;
  memory_.resize(schedule.buffers.size());
}

void BufferTable::allocate(BufferId id, Lane lane) { memory_[id] = allocate(info(id), lane); }

std::byte* BufferTable::allocate(const Buffer& buffer, Lane lane) {
  return buffer.space == MemorySpace::host ? device_.allocate_host(buffer.bytes, buffer.category, lane)
                                           : device_.allocate(buffer.bytes, buffer.category, lane);
}

void BufferTable::free(BufferId id, Lane lane) {
  std::byte*& memory = memory_[id];
  device_.free(memory, lane);
  memory = nullptr;
}

std::span<std::byte> BufferTable::persistent(schedule::BufferRole role, int unit) const {
  for (std::size_t i = 0; i < persistent_count_; ++i) {
    const Buffer& buffer = schedule_->buffers[i];
    if (buffer.role == role && buffer.unit == unit) return {memory_[i], static_cast<std::size_t>(buffer.bytes)};
  }
  return {};
}

}  // namespace fsdpbench::engine
