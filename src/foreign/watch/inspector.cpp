#include "foreign/watch/inspector.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "foreign/watch/json_fields.h"

namespace fsdpbench::watch {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostMicroseconds = 4'000'000'000'000'000;  // the year 2096

}  // namespace

bool is_inspector_line(const json& line) {
  return line.is_object() && has_object(line, "header") && has_object(line, "metadata") &&
         (has_object(line, "coll_perf") || has_object(line, "p2p_perf"));
}

std::string add_inspector_line(JobView& job, const json& line) {
  if (!is_inspector_line(line)) return "is no line of NCCL's Inspector: it has no header, metadata and coll_perf.";
  if (!has_object(line, "coll_perf")) return {};
  const json &header = line["header"], &metadata = line["metadata"], &collective = line["coll_perf"];
  const std::string id = text_in(header, "id");
  const auto rank = count_in(header, "rank", kMostMembers), size = count_in(header, "n_ranks", kMostMembers);
  const auto sequence = count_in(collective, "coll_sn", kMostCount);
  const auto told_us = count_in(metadata, "dump_timestamp_us", kMostMicroseconds);
  const auto took_us = count_in(collective, "coll_exec_time_us", kMostMicroseconds);
  const std::string name = text_in(collective, "coll");
  if (id.empty() || name.empty() || !rank || !size || *rank >= *size || !sequence || !told_us || !took_us) {
    return "lacks one of id, rank, n_ranks, dump_timestamp_us, coll, coll_sn and coll_exec_time_us, or it is no number "
           "that may be there.";
  }
  Communicator& communicator = job.communicators["NCCL Inspector/" + id];
  communicator.source = "NCCL Inspector";
  const std::string label = text_in(header, "comm_name");
  communicator.name = label.empty() || label == "unknown" ? id : fmt::format("{} ({})", label, id);
  communicator.size = static_cast<int>(*size);
  communicator.nodes = static_cast<int>(count_in(header, "nnodes", kMostMembers).value_or(0));
  communicator.lateness = Lateness::waits;
  Member& member = communicator.members[static_cast<int>(*rank)];
  member.heard.add(*told_us * 1000);
  Operation operation;
  operation.sequence = *sequence;
  operation.name = name;
  operation.bytes = count_in(collective, "coll_msg_size_bytes", kMostCount).value_or(-1);
  operation.told_ns = *told_us * 1000;
  operation.took_ns = *took_us * 1000;
  // Times of the GPU and of the host differ by what it takes to notice: they are not compared.
  operation.shape = text_in(collective, "coll_timing_source");
  if (const auto trace = collective.find("event_trace_ts"); trace != collective.end() && trace->is_object()) {
    if (const auto came_us = count_in(*trace, "coll_start_ts", kMostMicroseconds)) operation.came_ns = *came_us * 1000;
  }
  add_operation(member, std::move(operation));
  return {};
}

}  // namespace fsdpbench::watch
