#include "replay/delays.h"

#include "replay/random.h"

namespace fsdpbench::replay {

void Delays::add(std::int64_t step, std::size_t op, Lane lane, std::size_t first, std::span<double> begin) const {
  const double fixed = fixed_ns[index_of(lane)];
  for (std::size_t k = 0; k < begin.size(); ++k) {
    if (rank < 0 || first + k == static_cast<std::size_t>(rank)) begin[k] += fixed;
  }
  if (!by_rank_ns.empty()) {
    for (std::size_t k = 0; k < begin.size(); ++k) begin[k] += by_rank_ns[first + k][index_of(lane)];
  }
  if (uniform_ns <= 0) return;
  const std::uint64_t key = op_key(mixed(seed + 1), step, op);
  const auto range = static_cast<std::uint64_t>(uniform_ns) + 1;
  for (std::size_t k = 0; k < begin.size(); ++k) {
    begin[k] += static_cast<double>((of_rank(key, first + k) >> 32) * range >> 32);
  }
}

}  // namespace fsdpbench::replay
