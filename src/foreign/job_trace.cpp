#include "foreign/job_trace.h"

#include <algorithm>
#include <map>

#include "base/enum_table.h"

namespace fsdpbench::foreign {

std::string_view to_string(Activity kind) {
  static constexpr EnumNames<Activity> kNames{"computation", "collective", "copy", "fill"};
  return kNames[kind];
}

std::string_view to_string(Communication kind) {
  static constexpr EnumNames<Communication> kNames{"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                                   "broadcast",  "reduce",         "gather",     "scatter",
                                                   "send",       "receive",        "barrier",    "other"};
  return kNames[kind];
}

std::vector<StreamRole> stream_roles(const RankRows& rank, int& compute) {
  std::vector<StreamRole> roles(rank.streams.size());
  std::vector<std::int64_t> computes(roles.size(), 0), copies(roles.size(), 0);
  std::vector<std::map<Communication, std::int64_t>> sends(roles.size());
  for (const DeviceRow& row : rank.device) {
    const auto stream = static_cast<std::size_t>(row.stream);
    const std::int64_t ns = row.end_ns - row.begin_ns;
    roles[stream].busy_ns += ns;
    ++roles[stream].rows;
    if (row.kind == Activity::computation) computes[stream] += ns;
    if (row.kind == Activity::copy || row.kind == Activity::fill) copies[stream] += ns;
    if (row.kind == Activity::collective) {
      const Communication kind = row.collective < 0 ? Communication::other : rank.collectives[row.collective].kind;
      sends[stream][kind] += std::max<std::int64_t>(ns, 1);
    }
  }
  compute = -1;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (computes[i] > 0 && (compute < 0 || computes[i] > computes[compute])) compute = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const bool computing = static_cast<int>(i) == compute;
    if (!sends[i].empty()) {
      std::int64_t most = 0, all = 0;
      Communication kind = Communication::other;
      for (const auto& [sent, ns] : sends[i]) {
        all += ns;
        if (ns > most) kind = sent;
        most = std::max(most, ns);
      }
      const std::string sort = most * 10 >= all * 9 ? std::string(to_string(kind)) : "communication";
      roles[i].role = computing ? "compute and " + sort : sort;
    } else if (computing) {
      roles[i].role = "compute";
    } else {
      roles[i].role = computes[i] >= copies[i] && computes[i] > 0 ? "beside compute" : "copy";
    }
  }
  return roles;
}

}  // namespace fsdpbench::foreign
