#pragma once

#include <cstdint>
#include <vector>

#include "config/run_config.h"
#include "plan/model_shapes.h"

namespace fsdpbench::plan {

/// Place of one parameter. Offsets and counts are elements.
struct ParameterPlacement {
  int parameter = 0;
  std::int64_t numel = 0;
  /// Start in the unit's unsharded buffer (contiguous, row-major from there); replicated parameters: start in the
  /// unit's replicated buffer.
  std::int64_t unsharded_offset = 0;
  // per_param only: rank r owns rows [r*chunk_rows, min((r+1)*chunk_rows, rows)), padded to chunk_rows.
  std::int64_t rows = 0;
  std::int64_t row_numel = 0;
  std::int64_t chunk_rows = 0;
  std::int64_t shard_offset = 0;  ///< of its chunk in every rank's shard

  std::int64_t chunk_numel() const { return chunk_rows * row_numel; }
};

/// A run of a parameter's elements that a rank's shard holds.
struct ShardPiece {
  int parameter = 0;
  std::int64_t parameter_offset = 0;  ///< first element within the parameter
  std::int64_t shard_offset = 0;      ///< where it lies in the shard
  std::int64_t count = 0;
};

/// Split of one unit over `shards` ranks.
///
/// flat (FSDP1 with use_orig_params): parameters concatenated, each start aligned to 16 bytes of fp32, the total
/// padded to a multiple of the rank count and cut into equal parts. gathered == unsharded: parameters are views.
///
/// per_param (FSDP2): each parameter split along dim 0 as torch.chunk does, chunks padded to equal size; a shard is
/// its rank's chunks one after another; gathered is rank-major and is copied out to the unsharded buffer.
///
/// Padding is always zero. With one shard both layouts are the same: the shard is the unsharded buffer; unless
/// `copied`: then per_param is as ever, a shard that is copied out to the unsharded buffer.
struct ShardLayout {
  config::Layout layout = config::Layout::flat;
  int shards = 1;
  bool copied = false;
  std::int64_t shard_numel = 0;      ///< per rank, padding included
  std::int64_t unsharded_numel = 0;  ///< size of the unsharded buffer
  std::int64_t replicated_numel = 0;
  std::vector<ParameterPlacement> sharded;
  std::vector<ParameterPlacement> replicated;

  std::int64_t gathered_numel() const { return shard_numel * shards; }
  /// Gathered and unsharded buffer are one.
  bool views() const { return layout == config::Layout::flat || (shards == 1 && !copied); }
  std::int64_t parameter_numel() const;  ///< of the sharded parameters, without padding
  std::int64_t padding_numel() const { return gathered_numel() - parameter_numel(); }
  /// Pieces in shard `index`, in shard order. Padding is in no piece.
  std::vector<ShardPiece> pieces(int index) const;
  /// The replicated parameters, whole; offsets are those in the replicated buffer.
  std::vector<ShardPiece> replicated_pieces() const;
};

/// Splits `parameters` (indices into shapes) over `shards` ranks, frozen ones behind all others; those of fewer than
/// `replicate_below` elements stay replicated. `copied`: per_param is copied out even of one shard. `dimension`: which
/// one per_param splits (FSDP2's Shard(1) for experts where there are more ranks than experts); of another than 0 the
/// placements count rows of that dimension, and pieces() has the right counts but not the right offsets.
ShardLayout make_shard_layout(const ModelShapes& shapes, const std::vector<int>& parameters, config::Layout layout,
                              int shards, std::int64_t replicate_below, bool copied = false, int dimension = 0);

}  // namespace fsdpbench::plan
