#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdpbench::config {

/// Distribution of rows of tokens over the ranks that split experts (mesh.expert_imbalance): told as one number, or as
/// what each expert gets, from which that number follows for any split.
struct ExpertLoad {
  enum class Kind : std::uint8_t {
    factor,  ///< `value`: rows of the busiest rank over the mean
    zipf,    ///< the k-th most popular expert of a block is chosen as 1 / k^`value`
    rows,    ///< `rows` of each expert
  };
  Kind kind = Kind::factor;
  double value = 1;
  std::vector<std::int64_t> rows = {};

  /// Every rank gets as many.
  bool even() const { return kind != Kind::rows && value == (kind == Kind::factor ? 1 : 0); }
  bool operator==(const ExpertLoad&) const = default;
};

/// Rows of the busiest rank over the mean, where `ranks` have as many neighbouring experts each. `of_expert`: rows of
/// each expert, a multiple of `ranks`, any unit; 0 if there are none.
double busiest_over_mean(std::span<const double> of_expert, std::int64_t ranks);

/// The part of all tokens that visits each expert, the most popular first, where each token visits `active` different
/// ones: as 1 / k^`exponent`, but no more than all tokens. They add up to `active`.
std::vector<double> zipf_shares(std::int64_t experts, std::int64_t active, double exponent);

/// Rows of the busiest of `ranks` over the mean. Of zipf: the mean over 200 random placements of the experts, always
/// the same ones, because no rule says which expert becomes popular.
double imbalance_of(const ExpertLoad& load, std::int64_t experts, std::int64_t active, std::int64_t ranks);

}  // namespace fsdpbench::config
