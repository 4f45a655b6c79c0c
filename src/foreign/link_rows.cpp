#include "foreign/link_rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/enum_table.h"
#include "base/student.h"

namespace fsdpbench::foreign {
namespace {

using Key = std::pair<std::int64_t, std::int32_t>;  // what rows know each other by, and a host's row

/// The first row with this key, else -1. `keys` are sorted.
std::int32_t find_row(const std::vector<Key>& keys, std::int64_t key) {
  const auto found = std::ranges::lower_bound(keys, key, {}, &Key::first);
  return found == keys.end() || found->first != key ? -1 : found->second;
}

std::vector<Key> calls_by_correlation(const std::vector<LinkedHost>& host) {
  std::vector<Key> keys;
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (host[i].correlation >= 0) keys.emplace_back(host[i].correlation, static_cast<std::int32_t>(i));
  }
  // Calls that launch before others of the same correlation, outer ones before inner ones, which come later.
  std::ranges::sort(keys, [&](const Key& a, const Key& b) {
    const auto order = [&](const Key& key) {
      const bool launches = host[key.second].row.kind == HostWork::launch;
      return std::pair(launches ? 0 : 1, key.second);
    };
    return a.first != b.first ? a.first < b.first : order(a) < order(b);
  });
  return keys;
}

void link_by_arrows(const std::vector<LinkedHost>& host, const Arrows& arrows, std::vector<LinkedDevice>& device) {
  std::vector<Key> begins;  // by id, the call that begins there
  for (const Arrows::End& begin : arrows.begins) {
    auto row = std::ranges::lower_bound(host, begin.time_ns, {}, [](const LinkedHost& h) { return h.row.begin_ns; });
    for (; row != host.end() && row->row.begin_ns == begin.time_ns; ++row) {
      if (row->row.thread != begin.track || row->row.kind != HostWork::launch) continue;
      begins.emplace_back(begin.id, static_cast<std::int32_t>(row - host.begin()));
      break;
    }
  }
  std::ranges::sort(begins);
  for (const Arrows::End& end : arrows.ends) {
    auto row = std::ranges::lower_bound(device, end.time_ns, {}, [](const LinkedDevice& d) { return d.row.begin_ns; });
    for (; row != device.end() && row->row.begin_ns == end.time_ns; ++row) {
      if (row->row.stream == end.track && row->row.launch < 0) row->row.launch = find_row(begins, end.id);
    }
  }
}

}  // namespace

void nest(std::vector<LinkedHost>& host, const std::vector<bool>& apart) {
  const auto before = [](const LinkedHost& a, const LinkedHost& b) {
    return a.row.begin_ns != b.row.begin_ns ? a.row.begin_ns < b.row.begin_ns : a.row.end_ns > b.row.end_ns;
  };
  if (!std::ranges::is_sorted(host, before)) std::ranges::stable_sort(host, before);
  std::vector<std::vector<std::int32_t>> open;  // by thread, the innermost last
  for (std::size_t i = 0; i < host.size(); ++i) {
    HostRow& row = host[i].row;
    if (open.size() <= static_cast<std::size_t>(row.thread)) open.resize(static_cast<std::size_t>(row.thread) + 1);
    std::vector<std::int32_t>& around = open[row.thread];
    const auto at = [&](std::int32_t index) -> const HostRow& { return host[index].row; };
    while (!around.empty() && at(around.back()).end_ns <= row.begin_ns) around.pop_back();
    // Rows of a thread nest, but for those with broken times, which enclose nothing that outlasts them.
    const auto parent = std::find_if(around.rbegin(), around.rend(),
                                     [&](std::int32_t index) { return at(index).end_ns >= row.end_ns; });
    row.parent = parent == around.rend() ? -1 : *parent;
    if (!apart[row.name]) around.push_back(static_cast<std::int32_t>(i));
  }
}

void link_launches(const std::vector<LinkedHost>& host, const Arrows& arrows, std::vector<LinkedDevice>& device) {
  const auto begin = [](const LinkedDevice& d) { return std::pair(d.row.begin_ns, d.row.end_ns); };
  if (!std::ranges::is_sorted(device, {}, begin)) std::ranges::stable_sort(device, {}, begin);
  const std::vector<Key> calls = calls_by_correlation(host);
  for (LinkedDevice& d : device) {
    if (d.correlation >= 0) d.row.launch = find_row(calls, d.correlation);
  }
  if (!arrows.ends.empty()) link_by_arrows(host, arrows, device);
  std::vector<Key> ops;  // by external id
  for (std::size_t i = 0; i < host.size(); ++i) {
    const bool op = host[i].row.kind == HostWork::op && host[i].external >= 0;
    if (op) ops.emplace_back(host[i].external, static_cast<std::int32_t>(i));
  }
  std::ranges::sort(ops);
  for (LinkedDevice& d : device) {
    if (d.row.launch < 0 && d.external >= 0) d.row.launch = find_row(ops, d.external);
  }
}

void link_collectives(const std::vector<LinkedHost>& host, std::vector<LinkedDevice>& device) {
  const auto unknown = [](const LinkedDevice& d) { return d.row.kind == Activity::collective && d.row.collective < 0; };
  if (std::ranges::none_of(device, unknown)) return;
  std::vector<Key> calls;  // by external id, those that know what is communicated
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (host[i].row.collective >= 0 && host[i].external >= 0) {
      calls.emplace_back(host[i].external, static_cast<std::int32_t>(i));
    }
  }
  std::ranges::sort(calls);
  for (LinkedDevice& d : device) {
    if (!unknown(d)) continue;
    for (std::int32_t at = d.row.launch; at >= 0 && d.row.collective < 0;) {
      const HostRow& around = host[at].row;
      d.row.collective = around.collective;
      at = around.parent;
    }
    if (d.row.collective >= 0 || d.external < 0) continue;
    if (const std::int32_t call = find_row(calls, d.external); call >= 0) d.row.collective = host[call].row.collective;
  }
}
namespace {

/// Excess of a rank in `part` beyond the median of the others, by step.
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

/// The lower end of Student's 95 % interval of the mean, of two values or more: a few of them can all be above what
/// they differ by.
double lowest_mean(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return mean - student_quantile(0.025, static_cast<int>(values.size()) - 1) * std::sqrt(squares / (n - 1) / n);
}

}  // namespace

std::string_view to_string(OwnPart part) {
  static constexpr EnumNames<OwnPart> kParts{"its kernels", "its host", "its garbage collection", "its input",
                                             "its communication"};
  return kParts[part];
}

std::optional<LateRank> find_late_rank(const std::vector<std::vector<OwnTime>>& own, double step_ms, int blamed) {
  if (own.size() < 2) return std::nullopt;
  std::size_t steps = own.front().size();
  for (const auto& rank : own) steps = std::min(steps, rank.size());
  if (steps == 0) return std::nullopt;
  std::optional<LateRank> latest;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    const std::vector<double> excess = excess_ms(own, rank, steps, &OwnTime::all);
    const account::Summary late = account::summarize(excess);
    const double least = static_cast<int>(rank) == blamed ? 0 : kLeastLate * step_ms * (steps == 1 ? 2 : 1);
    const double low = late.interval == account::IntervalKind::range ? lowest_mean(excess) : late.ci_low;
    const bool is_late = low > least && late.median > kLeastLate * step_ms;
    if (!is_late || (latest && late.median <= latest->late_ms.median)) continue;
    latest = LateRank{static_cast<int>(rank), late, OwnPart::kernels, 0};
  }
  if (!latest) return std::nullopt;
  const auto part_ms = [&](auto member) {
    return account::median(excess_ms(own, static_cast<std::size_t>(latest->place), steps,
                                     [member](const OwnTime& time) { return time.*member; }));
  };
  const EnumTable<OwnPart, double> parts{part_ms(&OwnTime::kernels), part_ms(&OwnTime::host),
                                         part_ms(&OwnTime::garbage), part_ms(&OwnTime::input),
                                         part_ms(&OwnTime::communication)};
  for (const OwnPart part : kEnumerators<OwnPart>) {
    if (parts[part] <= latest->where_ms) continue;
    latest->where = part;
    latest->where_ms = parts[part];
  }
  return latest;
}

}  // namespace fsdpbench::foreign
