#include "foreign/watch/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/read_input.h"

namespace fsdpbench::watch {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
constexpr std::size_t kMostName = 200;

const json* member_of(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

/// A whole number, also as text: PyTorch writes those of pg_status so in JSON.
std::optional<std::int64_t> whole(const json& object, const char* key) {
  const json* value = member_of(object, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) {
    const auto number = value->get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value->is_number_integer()) return value->get<std::int64_t>();
  return std::nullopt;
}

std::string words(const json& object, const char* key) {
  const json* value = member_of(object, key);
  return value != nullptr && value->is_string() ? clean_text(value->get_ref<const std::string&>(), kMostName)
                                                : std::string();
}

bool is_true(const json& object, const char* key) {
  const json* value = member_of(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

/// "[0, 1, 5]"
std::vector<int> ranks_of(const std::string& text) {
  std::vector<int> ranks;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error == std::errc{} && next != at) {
      if (rank >= 0 && rank < kMostRanks) ranks.push_back(rank);
      at = next;
    } else {
      ++at;
    }
  }
  return ranks;
}

/// Collectives to which all ranks bring the same sizes: no gather, scatter, all_to_all or uneven variants.
bool brings_same_sizes(std::string_view name) {
  constexpr std::array<std::string_view, 6> kSame{"all_reduce",           "allreduce", "_all_gather_base",
                                                  "_reduce_scatter_base", "broadcast", "reduce"};
  return std::ranges::find(kSame, name) != kSame.end();
}

std::string shape_of(const json& entry, std::string_view name) {
  const json* types = member_of(entry, "input_dtypes");
  const json* sizes = member_of(entry, "input_sizes");
  if (!brings_same_sizes(name) || types == nullptr || sizes == nullptr || !types->is_array() || !sizes->is_array())
    return {};
  std::string shape;
  for (const json& type : *types)
    shape += (shape.empty() ? "" : " ") + (type.is_string() ? type.get<std::string>() : "?");
  for (const json& one : *sizes) {
    if (!one.is_array()) return {};
    std::string all;
    for (const json& size : one) {
      if (!size.is_number_integer()) return {};
      all += fmt::format("{}{}", all.empty() ? "" : " x ", size.get<std::int64_t>());
    }
    shape += fmt::format(" [{}]", all);
  }
  return clean_text(shape, kMostName);
}

/// The bytes of what the rank brings; -1: not told.
std::int64_t bytes_of(const json& entry) {
  const json* sizes = member_of(entry, "input_sizes");
  const json* types = member_of(entry, "input_dtypes");
  if (sizes == nullptr || types == nullptr || !sizes->is_array() || !types->is_array()) return -1;
  if (sizes->size() != types->size()) return -1;
  double bytes = 0;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    if (!(*types)[i].is_string() || !(*sizes)[i].is_array()) return -1;
    const auto& type = (*types)[i].get_ref<const std::string&>();
    double count = type == "Double" || type == "Long"                        ? 8
                   : type == "Float" || type == "Int"                        ? 4
                   : type == "Half" || type == "BFloat16" || type == "Short" ? 2
                                                                             : 1;
    for (const json& size : (*sizes)[i]) {
      if (!size.is_number_integer() || size.get<std::int64_t>() < 0) return -1;
      count *= static_cast<double>(size.get<std::int64_t>());
    }
    bytes += count;
  }
  return bytes < 9e18 ? static_cast<std::int64_t>(bytes) : -1;
}

struct GroupName {
  std::string name, description;
  std::string all() const { return description.empty() ? name : fmt::format("{} ({})", name, description); }
};

GroupName group_of(const json& entry) {
  const json* group = member_of(entry, "process_group");
  GroupName found;
  if (group == nullptr || !group->is_array()) return found;
  const auto part = [&](std::size_t i) {
    return group->size() > i && (*group)[i].is_string()
               ? clean_text((*group)[i].get_ref<const std::string&>(), kMostName)
               : std::string();
  };
  return {part(0), part(1)};
}

/// The members of a group. PyTorch may list the default group under another name than its operations have, so that the
/// largest one counts for it.
std::vector<int> members_of(const json& dump, const GroupName& group) {
  const json* groups = member_of(dump, "pg_config");
  if (groups == nullptr || !groups->is_object()) return {};
  if (const json* own = member_of(*groups, group.name.c_str())) return ranks_of(words(*own, "ranks"));
  std::vector<int> largest;
  if (group.description != "default_pg") return largest;
  for (const auto& [name, one] : groups->items()) {
    std::vector<int> ranks = ranks_of(words(one, "ranks"));
    if (ranks.size() > largest.size()) largest = std::move(ranks);
  }
  return largest;
}

/// Entries of one dump. Returns why there are none to be read.
std::string add_entries(JobView& job, const json& dump, int rank, std::int64_t written_ns) {
  const json* entries = member_of(dump, "entries");
  if (entries == nullptr) return {};  // PyTorch leaves them out where nothing was recorded
  if (!entries->is_array()) return "its entries are not a list.";
  std::set<const Member*> renewed;
  for (const json& entry : *entries) {
    const std::string full = words(entry, "profiling_name");
    const auto sequence = whole(entry, "collective_seq_id");
    if (full.empty() || !sequence || is_true(entry, "is_p2p")) continue;
    const std::size_t colon = full.find(':');
    const std::string backend = colon == std::string::npos ? "" : full.substr(0, colon);
    const bool by_retiring = backend == "gloo";
    Operation operation;
    operation.name = colon == std::string::npos ? full : full.substr(colon + 1);
    operation.sequence = *sequence;
    operation.shape = shape_of(entry, operation.name);
    operation.bytes = bytes_of(entry);
    operation.came_ns = whole(entry, "time_created_ns").value_or(-1);
    operation.told_ns = operation.came_ns;
    for (const char* key : {"time_discovered_started_ns", "time_discovered_completed_ns"}) {
      operation.told_ns = std::max(operation.told_ns, whole(entry, key).value_or(-1));
    }
    const bool retired = is_true(entry, "retired");
    const bool completed = words(entry, "state") == "completed";
    operation.done = completed || (by_retiring && retired);
    operation.timed_out = !by_retiring && retired && !completed;
    const json* duration = member_of(entry, "duration_ms");
    if (duration != nullptr && duration->is_number()) {
      const double ms = duration->get<double>();
      if (ms >= 0 && ms < 1e9) operation.took_ns = static_cast<std::int64_t>(ms * 1e6);
    }
    const GroupName group = group_of(entry);
    Communicator& communicator = job.communicators[fmt::format("flight recorder/{}/{}", backend, group.all())];
    communicator.source = "flight recorder";
    communicator.name = backend.empty() ? group.all() : fmt::format("{} of {}", group.all(), backend);
    communicator.tells_pending = true;
    if (communicator.ranks.empty()) communicator.ranks = members_of(dump, group);
    communicator.size = static_cast<int>(communicator.ranks.size());
    // A host that issues to a GPU runs ahead: when it comes says nothing of who is waited for.
    if (by_retiring)
      communicator.lateness = Lateness::arrivals;
    else if (operation.took_ns >= 0)
      communicator.lateness = Lateness::waits;
    Member& mine = communicator.members[rank];
    // A dump is all that its rank has to say: what an earlier one said is replaced.
    if (renewed.insert(&mine).second) mine.operations.clear();
    mine.heard.add(std::max(written_ns, operation.told_ns));
    add_operation(mine, std::move(operation));
  }
  return {};
}

}  // namespace

std::optional<int> rank_at_end(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view end : {".json", ".pickle", ".pkl"}) {
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  std::size_t first = name.size();
  while (first > 0 && name[first - 1] >= '0' && name[first - 1] <= '9') --first;
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data() + first, name.data() + name.size(), rank);
  return error == std::errc{} && end != name.data() + first && rank < kMostRanks ? std::optional(rank) : std::nullopt;
}

std::string add_flight_record(JobView& job, const json& dump, const DumpFile& file) {
  const json* ours = member_of(dump, "fsdpbench");
  if (ours == nullptr && member_of(dump, "pg_config") == nullptr && member_of(dump, "entries") == nullptr) {
    return "is no dump of a flight recorder: neither pg_config nor entries are in it.";
  }
  std::optional<int> rank = rank_at_end(file.path);
  std::int64_t written_ns = file.seen_ns;
  if (ours != nullptr) {
    const auto told = whole(*ours, "rank");
    if (told && *told >= 0 && *told < kMostRanks) rank = static_cast<int>(*told);
    written_ns = whole(*ours, "written_ns").value_or(written_ns);
  }
  if (!rank) return "does not tell its rank: a dump of PyTorch has it at the end of its file's name.";
  if (written_ns >= 0) {
    RankView& view = job.ranks[*rank];
    view.heard.add(written_ns);
    if (ours != nullptr) {
      view.host = words(*ours, "host");
      view.ended = is_true(*ours, "ended");
      job.world = static_cast<int>(std::clamp<std::int64_t>(whole(*ours, "ranks").value_or(0), job.world, kMostRanks));
    }
  }
  if (const json* dumps = member_of(dump, "dumps"); ours != nullptr && dumps != nullptr && dumps->is_array()) {
    std::string why;
    for (const json& one : *dumps) {
      if (why.empty()) why = add_entries(job, one, *rank, written_ns);
    }
    return why;
  }
  return add_entries(job, dump, *rank, written_ns);
}

}  // namespace fsdpbench::watch
