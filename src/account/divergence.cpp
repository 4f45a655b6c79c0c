#include "account/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdpbench::account {
namespace {

constexpr const char* kAdvice =
    "what was trained means nothing, and times of such numbers may not be those of ordinary ones; a smaller "
    "train.learning_rate, or train.clip_norm, usually helps";

}  // namespace

std::string why_diverged(std::span<const double> losses, std::int64_t not_finite) {
  const auto bad = std::ranges::find_if(losses, [](double loss) { return !std::isfinite(loss); });
  if (bad != losses.end()) {
    return fmt::format("the loss is {} at step {} of {}, warm-up included: {}", loss_text(*bad),
                       bad - losses.begin() + 1, losses.size(), kAdvice);
  }
  if (not_finite > 0) {
    return fmt::format("{} elements of the final parameters are NaN or infinite: {}", not_finite, kAdvice);
  }
  return {};
}

std::string why_no_digest(const config::RunConfig& config, std::int64_t not_finite) {
  if (!config.train.params_digest) return "train.params_digest = false leaves the final parameters where they are";
  if (not_finite == 0) {
    return config.device.repeats()
               ? ""
               : "another run of the same may end with other bits; device.deterministic = true gives the "
                 "same, more slowly";
  }
  return fmt::format("{} elements of the final parameters are NaN or infinite, and runs that are would seem equal",
                     not_finite);
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "NaN";
  return std::isinf(loss) ? "infinite" : fmt::format("{:.4f}", loss);
}

}  // namespace fsdpbench::account
