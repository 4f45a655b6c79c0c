#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "accept/collectives/collectives_arguments.h"

namespace fsdpbench::app {

/// What ranks put into their buffers, so that what comes out can be known exactly: small integers that depend on rank
/// and place. Bytes that came from another rank, another place or another round differ.
class Pattern {
 public:
  /// `round`: tells one filling of the buffers from the next. Of values that are to be reduced, all sums of all `ranks`
  /// are exact in `dtype`, in whatever order they are added.
  Pattern(DType dtype, bool reduced, int ranks, std::uint64_t round);

  /// Elements first.. of what `rank` holds, in `out`: a whole number of elements.
  void fill(int rank, std::int64_t first, std::span<std::byte> out) const;
  /// How many elements of `got` are not what `rank` holds there.
  std::int64_t wrong(int rank, std::int64_t first, std::span<const std::byte> got) const;
  /// How many are not the sum over all ranks of what they hold there, or the average. An average that is exact in the
  /// dtype must be met exactly, others within the rounding of an inexact factor.
  std::int64_t wrong_sums(Reduction reduction, std::int64_t first, std::span<const std::byte> got) const;

 private:
  int value(int rank, std::int64_t index) const;

  DType dtype_;
  int ranks_;
  std::uint64_t round_;
  int peak_ = 0;    // the largest value
  int stride_ = 1;  // one rank in so many holds something there
  int least_ = 0;
};

}  // namespace fsdpbench::app
