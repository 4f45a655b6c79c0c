#include "model/initialize.h"

#include <algorithm>

#include "base/random.h"

namespace fsdpbench::model {
namespace {

/// Uniform in (0, 1), never its ends.
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

}  // namespace

void initialize_parameter(const plan::ParameterShape& parameter, int parameter_index, std::uint64_t seed,
                          std::int64_t begin, std::int64_t end, float* target) {
  switch (parameter.initialization) {
    case plan::Initialization::ones: std::fill_n(target, end - begin, 1.0F); return;
    case plan::Initialization::zeros: std::fill_n(target, end - begin, 0.0F); return;
    case plan::Initialization::normal: break;
  }
  const std::uint64_t key = split_mixed(split_mixed(seed) ^ static_cast<std::uint64_t>(parameter_index));
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint64_t bits = split_mixed(key ^ split_mixed(static_cast<std::uint64_t>(i)));
    target[i - begin] = static_cast<float>(parameter.deviation * normal_quantile(uniform(bits)));
  }
}

}  // namespace fsdpbench::model
