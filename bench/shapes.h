#pragma once

// Shapes of the benchmarks for GPUs: those of real models, and small ones where every thread of a kernel runs on the
// CPU (tests/gpu/rehearsal). CMake says by how much.

#include <algorithm>
#include <cstdint>

namespace fsdpbench::bench {

constexpr std::int64_t kShrink = FSDPBENCH_SHRINK;            ///< of rows, widths and vocabularies
constexpr std::int64_t kShrinkOfHeads = kShrink > 1 ? 8 : 1;  ///< of their number and their size

/// A multiple of 8, as tensor cores want it.
constexpr std::int64_t shrunk(std::int64_t width) { return std::max<std::int64_t>(8, width / kShrink / 8 * 8); }

/// `count` of them, or few.
constexpr std::int64_t repetitions(std::int64_t count) { return std::max<std::int64_t>(1, count / kShrinkOfHeads); }

}  // namespace fsdpbench::bench
