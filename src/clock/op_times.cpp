#include "clock/op_times.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace fsdpbench::clock {
namespace {

/// A power of two, so that bits of a random number are an index.
constexpr std::size_t kTable = 4096;

/// Whole nanoseconds; exact below 2^51. Adding pushes the fraction out of the mantissa.
inline double whole(double x) {
  constexpr double kPush = 6755399441055744.0;  // 1.5 * 2^52
  return (x + kPush) - kPush;
}

}  // namespace

Jitter::Jitter(std::uint64_t seed, std::vector<std::vector<double>> distributions, double pause_chance, double pause_ns)
    : seed_(mixed(seed + 0x9e3779b97f4a7c15ULL)),
      pause_below_(static_cast<std::uint64_t>(pause_chance * 4294967296.0)),
      pause_ns_(pause_ns),
      distributions_(distributions.size()) {
  if (distributions.empty()) throw std::logic_error("Jitter: distributions are missing");
  for (std::vector<double>& residuals : distributions) {
    if (residuals.empty()) throw std::logic_error("Jitter: residuals are missing");
    std::ranges::sort(residuals);
    for (std::size_t i = 0; i < kTable; ++i) residuals_.push_back(residuals[i * residuals.size() / kTable]);
  }
}

std::vector<double> Jitter::lognormal(double sigma, std::size_t count) {
  std::vector<double> residuals;
  for (std::size_t i = 0; i < count; ++i) {
    residuals.push_back(std::exp(sigma * normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(count))));
  }
  return residuals;
}

void Jitter::apply(std::int64_t step, std::size_t op, std::size_t first, bool pauses, std::span<double> by_rank,
                   int distribution) const {
  if (residuals_.empty()) return;
  const std::uint64_t key = op_key(seed_, step, op);
  const double* const table = residuals_.data() + (distributions_ == 1 ? 0 : distribution * kTable);
  const double pause_ns = pauses ? pause_ns_ : 0;
  for (std::size_t k = 0; k < by_rank.size(); ++k) {
    const std::uint64_t random = of_rank(key, first + k);
    by_rank[k] = whole(by_rank[k] * table[random >> 52]);
    if ((random & 0xffffffffULL) < pause_below_) by_rank[k] += pause_ns;
  }
}

void Delays::add(std::int64_t step, std::size_t op, Lane lane, std::size_t first, std::span<double> begin) const {
  const double fixed = fixed_ns[index_of(lane)];
  for (std::size_t k = 0; k < begin.size(); ++k) {
    if (rank < 0 || first + k == static_cast<std::size_t>(rank)) begin[k] += fixed;
  }
  if (!by_rank_ns.empty()) {
    for (std::size_t k = 0; k < begin.size(); ++k) begin[k] += by_rank_ns[first + k][index_of(lane)];
  }
  const std::uint64_t key = op_key(mixed(seed + 1), step, op);
  const auto range = static_cast<std::uint64_t>(uniform_ns) + 1;
  for (std::size_t k = 0; k < begin.size(); ++k) {
    begin[k] += static_cast<double>((of_rank(key, first + k) >> 32) * range >> 32);
  }
}

bool too_long(const OpTimes& times) {
  constexpr double kLongest_ns = 9007199254740992.0;  // 2^53
  const auto slowest = [](const std::vector<double>& factors) {
    return factors.empty() ? 1.0 : *std::ranges::max_element(factors);
  };
  const double run = slowest(times.compute_factor), link = slowest(times.link_factor);
  return std::ranges::any_of(times.steps, [&](const StepCosts& costs) {
    double sum = 0;
    for (const OpCost& cost : costs) sum += cost.run_ns * run + cost.link_ns * link;
    return !(sum <= kLongest_ns);
  });
}

}  // namespace fsdpbench::clock
