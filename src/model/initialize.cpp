#include "model/initialize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/random.h"

namespace fsdpbench::model {
namespace {

/// Uniform in (0, 1), never its ends: (the upper 52 bits + 1/2) / 2^52. They are made a double as the fraction of one
/// between 2^52 and 2^53, which is exact and which processors can do for several at once.
double uniform(std::uint64_t bits) {
  return (std::bit_cast<double>(bits >> 12 | 0x4330000000000000ULL) - 0x1p52 + 0.5) * 0x1p-52;
}

constexpr std::int64_t kBlock = 256;

/// Elements [begin, begin + kBlock). The loops have no branches and a fixed length, so that the compiler makes vectors
/// of them; every element has the bits that it would have alone. One in seven then gets its other part.
void fill_block(std::uint64_t key, double deviation, std::int64_t begin, float* target) {
  std::array<double, kBlock> p;
  for (std::int64_t i = 0; i < kBlock; ++i) {
    p[i] = uniform(split_mixed(key ^ split_mixed(static_cast<std::uint64_t>(begin + i))));
  }
  for (std::int64_t i = 0; i < kBlock; ++i) {
    target[i] = static_cast<float>(deviation * central_normal_quantile(p[i] - 0.5));
  }
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const double at = p[i];
    if (std::abs(at - 0.5) > kCentralQuantiles) target[i] = static_cast<float>(deviation * normal_quantile(at));
  }
}

void fill(std::uint64_t seed, int number, double deviation, std::int64_t begin, std::int64_t end, float* target) {
  const std::uint64_t key = split_mixed(split_mixed(seed) ^ static_cast<std::uint64_t>(number));
  for (; begin + kBlock <= end; begin += kBlock, target += kBlock) fill_block(key, deviation, begin, target);
  if (begin == end) return;
  std::array<float, kBlock> last;
  fill_block(key, deviation, begin, last.data());
  std::copy_n(last.data(), end - begin, target);
}

}  // namespace

void initialize_parameter(const plan::ParameterShape& parameter, std::uint64_t seed, std::int64_t begin,
                          std::int64_t end, float* target) {
  switch (parameter.initialization) {
    case plan::Initialization::ones: std::fill_n(target, end - begin, 1.0F); return;
    case plan::Initialization::zeros: std::fill_n(target, end - begin, 0.0F); return;
    case plan::Initialization::normal: break;
  }
  fill(seed, parameter.number, parameter.deviation, begin, end, target);
}

}  // namespace fsdpbench::model
