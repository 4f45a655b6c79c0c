#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// target[i] = scale * (sources[0][i] + sources[1][i] + …): fp32 sum in the order given, one multiplication, one
/// rounding to `dtype` (f32 or bf16; anything else throws BackendError). The bits of an element depend on its inputs
/// alone, not on count or alignment. `target` may be one of the sources.
void reduce(std::span<const std::byte* const> sources, std::byte* target, std::int64_t count, DType dtype, float scale);

}  // namespace fsdpbench::backend::cpu
