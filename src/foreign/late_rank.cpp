#include "foreign/late_rank.h"

#include <algorithm>
#include <functional>

#include "base/enum_table.h"

namespace fsdpbench::foreign {
namespace {

/// What a rank has of `part` beyond the median of the others, by step.
template <typename Part>
std::vector<double> excess_ms(const std::vector<std::vector<OwnTime>>& own, std::size_t rank, std::size_t steps,
                              Part part) {
  std::vector<double> excess;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<double> others;
    for (std::size_t other = 0; other < own.size(); ++other) {
      if (other != rank) others.push_back(static_cast<double>(std::invoke(part, own[other][step])));
    }
    excess.push_back((static_cast<double>(std::invoke(part, own[rank][step])) - account::median(std::move(others))) *
                     1e-6);
  }
  return excess;
}

}  // namespace

std::string_view to_string(OwnPart part) {
  static constexpr EnumNames<OwnPart> kParts{"its kernels", "its host", "its input", "its communication"};
  return kParts[part];
}

std::optional<LateRank> find_late_rank(const std::vector<std::vector<OwnTime>>& own, double step_ms, int blamed) {
  if (own.size() < 2) return std::nullopt;
  std::size_t steps = own.front().size();
  for (const auto& rank : own) steps = std::min(steps, rank.size());
  if (steps == 0) return std::nullopt;
  std::optional<LateRank> latest;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    const account::Summary late = account::summarize(excess_ms(own, rank, steps, &OwnTime::all));
    const double least = static_cast<int>(rank) == blamed ? 0 : kLeastLate * step_ms * (steps == 1 ? 2 : 1);
    // More than what it differs by from step to step, also where there are too few for an interval.
    const bool is_late = late.ci_low > least && late.median > kLeastLate * step_ms && late.median > late.max - late.min;
    if (!is_late || (latest && late.median <= latest->late_ms.median)) continue;
    latest = LateRank{static_cast<int>(rank), late, OwnPart::kernels, 0};
  }
  if (!latest) return std::nullopt;
  const auto part_ms = [&](auto member) {
    return account::median(excess_ms(own, static_cast<std::size_t>(latest->place), steps,
                                     [member](const OwnTime& time) { return time.*member; }));
  };
  const EnumTable<OwnPart, double> parts{part_ms(&OwnTime::kernels), part_ms(&OwnTime::host), part_ms(&OwnTime::input),
                                         part_ms(&OwnTime::communication)};
  for (const OwnPart part : kEnumerators<OwnPart>) {
    if (parts[part] <= latest->where_ms) continue;
    latest->where = part;
    latest->where_ms = parts[part];
  }
  return latest;
}

}  // namespace fsdpbench::foreign
