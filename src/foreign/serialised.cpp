#include "foreign/serialised.h"

#include <algorithm>
#include <iterator>

#include "foreign/kineto_names.h"

namespace fsdpbench::foreign {
namespace {

/// Most between one row's end and another's begin where one let the other begin.
constexpr std::int64_t kTogether = 20'000;

/// Whether a layer computes it: no copy into the next reduction's buffer, and nothing that scales or casts it.
bool is_of_a_layer(const RankRows& rank, const DeviceRow& row) {
  if (row.kind != Activity::computation) return false;
  const KernelKind kind = kernel_kind(row.kind, rank.names[row.name], std::nullopt);
  return kind == KernelKind::products || kind == KernelKind::attention || kind == KernelKind::other;
}

/// Whether computation waited for a reduction without need.
enum class BesideReduction : std::uint8_t { unknown, ran, waited };

/// Looks at the first row on the stream of computation that was launched after reduction `row`, before that began, if
/// another reduction follows it: what the optimizer does needs all of them, and the copies before the next reduction
/// may need this one's buffer. It waited without need if its stream had been free since the reduction began, and it
/// began just when that was over.
BesideReduction beside_reduction(const RankRows& rank, const JobSteps& cut, std::size_t step,
                                 const std::vector<bool>& reduces, int compute_stream, std::size_t place) {
  const auto device = [&](std::int32_t other) -> const DeviceRow& { return rank.device[other]; };
  const std::vector<std::int32_t>& order = cut.steps[step].device;
  const std::int32_t row = order[place];
  const DeviceRow& own = device(row);
  const auto computes = [&](std::int32_t other) { return other != row && device(other).stream == compute_stream; };
  const auto launch = order.begin() + static_cast<std::ptrdiff_t>(place);
  const auto next = std::find_if(launch, order.end(), computes);
  if (next == order.end() || device(*next).launch < 0) return BesideReduction::unknown;
  if (cut.launched[*next] + kTogether >= own.begin_ns) return BesideReduction::unknown;
  bool layer = false, another = false;
  for (auto at = next; at != order.end() && !another; ++at) {
    another = reduces[*at];
    layer = layer || is_of_a_layer(rank, device(*at));
  }
  if (!layer || !another) return BesideReduction::unknown;
  bool still_ran = false;  // rows of one stream end as they are launched
  for (auto at = std::reverse_iterator(launch); at != order.rend() && !still_ran; ++at) {
    if (!computes(*at)) continue;
    if (device(*at).end_ns <= own.begin_ns + kTogether) break;
    still_ran = device(*at).begin_ns < own.end_ns;
  }
  if (still_ran || device(*next).begin_ns < own.end_ns - kTogether) return BesideReduction::ran;
  return device(*next).begin_ns <= own.end_ns + kTogether ? BesideReduction::waited : BesideReduction::unknown;
}

}  // namespace

std::set<std::int32_t> find_serialised(const RankRows& rank, const JobSteps& cut,
                                       const std::vector<std::vector<CollectiveUse>>& uses, int compute_stream) {
  constexpr std::size_t kFewest = 6;
  std::set<std::int32_t> waited;
  std::size_t told = 0;
  if (rank.computes_on_host()) return waited;
  std::vector<bool> reduces(rank.device.size());
  for (std::size_t step = 0; step < uses.size(); ++step) {
    for (const CollectiveUse& use : uses[step]) reduces[use.row] = use.purpose == Purpose::gradients;
    const std::vector<std::int32_t>& order = cut.steps[step].device;
    for (std::size_t place = 0; place < order.size(); ++place) {
      const DeviceRow& row = rank.device[order[place]];
      if (!reduces[order[place]] || row.end_ns - row.begin_ns <= 4 * kTogether) continue;
      const BesideReduction beside = beside_reduction(rank, cut, step, reduces, compute_stream, place);
      told += beside != BesideReduction::unknown;
      if (beside == BesideReduction::waited) waited.insert(order[place]);
    }
  }
  const bool rule = waited.size() >= kFewest && waited.size() * 10 >= told * 9;
  return rule ? waited : std::set<std::int32_t>();
}

}  // namespace fsdpbench::foreign
