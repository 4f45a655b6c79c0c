#include "plan/shard_layout.h"

#include <algorithm>

#include "base/bytes.h"

namespace fsdpbench::plan {
namespace {

constexpr std::int64_t kFlatAlignment = 4;        // 16 bytes of fp32, FSDP1's choice
constexpr std::int64_t kUnshardedAlignment = 16;  // 64 bytes of fp32: kernels like aligned weights

void place_flat(ShardLayout& result) {
  std::int64_t end = 0;
  for (ParameterPlacement& p : result.sharded) {
    p.unsharded_offset = round_up(end, kFlatAlignment);
    end = p.unsharded_offset + p.numel;
  }
  result.shard_numel = ceil_div(end, result.shards);
  result.unsharded_numel = result.gathered_numel();
}

void place_per_param(ShardLayout& result) {
  std::int64_t end = 0;
  for (ParameterPlacement& p : result.sharded) {
    p.chunk_rows = ceil_div(p.rows, result.shards);
    // One shard: the shard is the unsharded buffer, so its parameters are aligned as that one's.
    p.shard_offset = result.views() ? round_up(result.shard_numel, kUnshardedAlignment) : result.shard_numel;
    result.shard_numel = p.shard_offset + p.chunk_numel();
    p.unsharded_offset = round_up(end, kUnshardedAlignment);
    end = p.unsharded_offset + p.chunk_numel() * result.shards;
  }
  result.unsharded_numel = end;
}

}  // namespace

std::int64_t ShardLayout::parameter_numel() const {
  std::int64_t n = 0;
  for (const ParameterPlacement& p : sharded) n += p.numel;
  return n;
}

std::vector<ShardPiece> ShardLayout::pieces(int index) const {
  std::vector<ShardPiece> result;
  for (const ParameterPlacement& p : sharded) {
    if (layout == config::Layout::flat) {
      const std::int64_t first = std::max(p.unsharded_offset, index * shard_numel);
      const std::int64_t last = std::min(p.unsharded_offset + p.numel, (index + 1) * shard_numel);
      if (first < last) {
        result.push_back({p.parameter, first - p.unsharded_offset, first - index * shard_numel, last - first});
      }
    } else {
      const std::int64_t first = std::min(index * p.chunk_rows, p.rows);
      const std::int64_t last = std::min(first + p.chunk_rows, p.rows);
      if (first < last) {
        result.push_back({p.parameter, first * p.row_numel, p.shard_offset, (last - first) * p.row_numel});
      }
    }
  }
  return result;
}

std::vector<ShardPiece> ShardLayout::replicated_pieces() const {
  std::vector<ShardPiece> result;
  for (const ParameterPlacement& p : replicated) result.push_back({p.parameter, 0, p.unsharded_offset, p.numel});
  return result;
}

ShardLayout make_shard_layout(const ModelShapes& shapes, const std::vector<int>& parameters, config::Layout layout,
                              int shards, std::int64_t replicate_below, bool copied, int dimension) {
  ShardLayout result;
  result.layout = layout;
  result.shards = shards;
  result.copied = copied;
  std::vector<int> ordered = parameters;
  std::ranges::stable_partition(ordered, [&](int index) { return !shapes.parameters[index].frozen; });
  for (int index : ordered) {
    const ParameterShape& shape = shapes.parameters[index];
    ParameterPlacement placement;
    placement.parameter = index;
    placement.numel = shape.numel();
    placement.rows = shape.shape[dimension];
    placement.row_numel = placement.rows == 0 ? 0 : placement.numel / placement.rows;
    if (placement.numel < replicate_below && shards > 1) {
      placement.unsharded_offset = round_up(result.replicated_numel, kUnshardedAlignment);
      result.replicated_numel = placement.unsharded_offset + placement.numel;
      result.replicated.push_back(placement);
    } else {
      result.sharded.push_back(placement);
    }
  }
  if (layout == config::Layout::flat) {
    place_flat(result);
  } else {
    place_per_param(result);
  }
  return result;
}

}  // namespace fsdpbench::plan
