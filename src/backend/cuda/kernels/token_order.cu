// A tile of positions is a warp's: it walks through them in order, 32 at a time, and gives each the next place of its
// digit. Places of a digit go from tile to tile, so positions with equal digits keep their order.

#include "backend/cuda/kernels/launchers.h"

#include <utility>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/reductions.cuh"
#include "base/bytes.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr std::int64_t kTile = 512;
constexpr int kScanThreads = 256;

/// Arguments of one pass. `from` null: the positions as they are.
struct Pass {
  const std::int32_t* tokens;
  const std::int32_t* from;
  std::int64_t count, vocab;
  int shift;

  __device__ std::int32_t position(std::int64_t i) const {
    return from == nullptr ? static_cast<std::int32_t>(i) : from[i];
  }
  __device__ int digit(std::int32_t position) const {
    const std::int32_t token = tokens[position];
    const std::int64_t key = token >= 0 && token < vocab ? token : vocab;
    return static_cast<int>(key >> shift) & (kDigits - 1);
  }
};

/// The lanes whose digit is this lane's; those that have none are not among them.
__device__ unsigned lanes_like(int digit, bool has_one) {
  unsigned same = __ballot_sync(kAllLanes, has_one);
#pragma unroll
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const unsigned ones = __ballot_sync(kAllLanes, ((digit >> bit) & 1) != 0);
    same &= ((digit >> bit) & 1) != 0 ? ones : ~ones;
  }
  return same;
}

/// Calls use(position, place) for each position of the tile; next[digit] is the next place of a digit, then and after.
template <class Use>
__device__ void walk(const Pass& pass, std::int64_t tile, std::int32_t* next, const Use& use) {
  const int lane = static_cast<int>(threadIdx.x);
  for (std::int64_t at = tile * kTile; at < (tile + 1) * kTile && at < pass.count; at += kWarp) {
    const bool has_one = at + lane < pass.count;
    const std::int32_t position = has_one ? pass.position(at + lane) : 0;
    const int digit = has_one ? pass.digit(position) : 0;
    const unsigned same = lanes_like(digit, has_one);
    const int before = __popc(same & ((1U << lane) - 1U));
    if (has_one) use(position, next[digit] + before);
    __syncwarp();
    if (has_one && before == 0) next[digit] += __popc(same);
    __syncwarp();
  }
}

/// A block of one warp a tile. counts: [kDigits, tiles].
__global__ void __launch_bounds__(kWarp) count_kernel(const Pass pass, std::int32_t* counts, std::int64_t tiles) {
  __shared__ std::int32_t next[kDigits];
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kWarp) next[d] = 0;
  __syncwarp();
  walk(pass, blockIdx.x, next, [](std::int32_t, std::int32_t) {});
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kWarp) counts[d * tiles + blockIdx.x] = next[d];
}

/// One block: each count becomes the sum of those before it.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(std::int32_t* counts, std::int64_t count) {
  __shared__ std::int32_t sums[kScanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t part = (count + kScanThreads - 1) / kScanThreads;
  const std::int64_t begin = thread * part;
  const std::int64_t end = begin + part < count ? begin + part : count;
  std::int32_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += counts[i];
  sums[thread] = sum;
  __syncthreads();
  for (int step = 1; step < kScanThreads; step *= 2) {
    const std::int32_t more = thread >= step ? sums[thread - step] : 0;
    __syncthreads();
    sums[thread] += more;
    __syncthreads();
  }
  std::int32_t before = sums[thread] - sum;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int32_t here = counts[i];
    counts[i] = before;
    before += here;
  }
}

/// A block of one warp a tile. places: what scan_kernel made of the counts.
__global__ void __launch_bounds__(kWarp)
    move_kernel(const Pass pass, const std::int32_t* places, std::int64_t tiles, std::int32_t* to) {
  __shared__ std::int32_t next[kDigits];
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kWarp) next[d] = places[d * tiles + blockIdx.x];
  __syncwarp();
  walk(pass, blockIdx.x, next, [to](std::int32_t position, std::int32_t place) { to[place] = position; });
}

std::int64_t tiles_of(std::int64_t count) { return ceil_div(count, kTile); }

}  // namespace

std::int64_t token_order_bytes(std::int64_t count) { return (2 * count + kDigits * tiles_of(count)) * 4; }

const std::int32_t* order_tokens(cudaStream_t stream, const std::int32_t* tokens, std::int64_t count,
                                 std::int64_t vocab, std::byte* memory) {
  const std::int64_t tiles = tiles_of(count);
  auto* const counts = reinterpret_cast<std::int32_t*>(memory);
  std::int32_t* to = counts + kDigits * tiles;
  std::int32_t* other = to + count;
  Pass pass{tokens, nullptr, count, vocab, 0};
  for (; pass.shift == 0 || vocab >> pass.shift > 0; pass.shift += kDigitBits) {
    launch(stream, "token_order_count", blocks_for(tiles), kWarp, count_kernel, pass, counts, tiles);
    launch(stream, "token_order_scan", 1, kScanThreads, scan_kernel, counts, kDigits * tiles);
    launch(stream, "token_order_move", blocks_for(tiles), kWarp, move_kernel, pass, counts, tiles, to);
    pass.from = to;
    std::swap(to, other);
  }
  return pass.from;
}

}  // namespace fsdpbench::backend::cuda
