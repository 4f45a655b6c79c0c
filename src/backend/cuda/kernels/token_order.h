#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace fsdpbench::backend::cuda {

/// Device memory that order_tokens() needs.
std::int64_t token_order_bytes(std::int64_t count);

/// The positions 0 .. count-1 by their tokens, those of equal tokens in order; tokens outside [0, vocab) come last. In
/// `memory`. Takes time in proportion to `count`: digit by digit, from the lowest.
const std::int32_t* order_tokens(cudaStream_t stream, const std::int32_t* tokens, std::int64_t count,
                                 std::int64_t vocab, std::byte* memory);

}  // namespace fsdpbench::backend::cuda
