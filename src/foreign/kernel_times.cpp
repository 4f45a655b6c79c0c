#include "foreign/kernel_times.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "base/enum_table.h"
#include "foreign/host_words.h"

namespace fsdpbench::foreign {
using schedule::Phase;

KernelTimes find_kernel_times(const JobTrace& job, const Recognition& found) {
  KernelTimes times;
  EnumTable<KernelKind, KernelSum> kinds;
  std::map<std::pair<KernelKind, std::string_view>, KernelSum> kernels;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    const HostWords words(rank);
    // By kind and name, which are numbers of the rank: there are fewer of them than rows.
    std::map<std::pair<Activity, std::int32_t>, KernelKind> by_name;
    std::map<std::pair<KernelKind, std::int32_t>, KernelSum> sums;
    for (const JobStep& step : found.ranks[r].cut.steps) {
      for (const std::int32_t index : step.device) {
        const DeviceRow& row = rank.device[index];
        KernelKind kind{};
        if (words.phase(row.launch) == Phase::optimizer) {
          kind = kernel_kind(row.kind, rank.names[row.name], Phase::optimizer);
        } else {
          const auto [known, fresh] = by_name.try_emplace({row.kind, row.name}, KernelKind::other);
          if (fresh) known->second = kernel_kind(row.kind, rank.names[row.name], std::nullopt);
          kind = known->second;
        }
        KernelSum& sum = sums[{kind, row.name}];
        ++sum.launches;
        sum.ns += row.end_ns - row.begin_ns;
      }
    }
    for (const auto& [key, sum] : sums) {
      const std::string_view name = rank.names[key.second];
      for (KernelSum* into : {&kinds[key.first], &kernels[{key.first, name}]}) {
        into->kind = key.first;
        into->launches += sum.launches;
        into->ns += sum.ns;
      }
      times.ns += sum.ns;
    }
  }
  for (const KernelKind kind : kEnumerators<KernelKind>) {
    if (kinds[kind].launches > 0) times.by_kind.push_back(kinds[kind]);
  }
  std::ranges::stable_sort(times.by_kind, std::greater<>(), &KernelSum::ns);
  for (auto& [key, sum] : kernels) {
    sum.name = key.second;
    times.top.push_back(std::move(sum));
  }
  std::ranges::stable_sort(times.top, std::greater<>(), &KernelSum::ns);
  if (times.top.size() > kMostKernels) times.top.resize(kMostKernels);
  return times;
}

}  // namespace fsdpbench::foreign
