#include "foreign/watch/step_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "foreign/watch/json_fields.h"

namespace fsdpbench::watch {
namespace {

using nlohmann::json;

double milliseconds(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return -1;
  const double value = found->get<double>();
  return value >= 0 && value < 1e12 ? value : -1;
}

}  // namespace

bool is_step_line(const json& line) { return line.is_object() && line.contains("fsdpbench_step"); }

std::string add_step_line(JobView& job, const json& line) {
  if (!is_step_line(line)) return "is no line of fsdpbench.torch.step().";
  const auto rank = count_in(line, "rank", kMostMembers), ranks = count_in(line, "ranks", kMostMembers);
  const auto number = count_in(line, "fsdpbench_step", kMostCount), ended_ns = count_in(line, "ended_ns", kMostCount);
  const double step_ms = milliseconds(line, "step_ms");
  if (!rank || !ranks || *rank >= *ranks || !number || !ended_ns || step_ms < 0) {
    return "lacks one of fsdpbench_step, rank, ranks, ended_ns and step_ms, or it is no number that may be there.";
  }
  RankView& view = job.ranks[static_cast<int>(*rank)];
  job.world = std::max(job.world, static_cast<int>(*ranks));
  if (std::string host = text_in(line, "host"); !host.empty()) view.host = std::move(host);
  view.heard.add(*ended_ns);
  double waits_ms = -1;  // no hook saw any
  for (const char* const of : {"gathers_ms", "reductions_ms", "own_ms"}) {
    if (const double ms = milliseconds(line, of); ms >= 0) waits_ms = std::max(0.0, waits_ms) + ms;
  }
  add_step(view, {*number, *ended_ns, step_ms, waits_ms});
  return {};
}

}  // namespace fsdpbench::watch
