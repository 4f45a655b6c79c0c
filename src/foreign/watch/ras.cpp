#include "foreign/watch/ras.h"

#include <fmt/format.h>
#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/read_input.h"

namespace fsdpbench::watch {

using nlohmann::json;

std::optional<std::int64_t> count_in(const json& object, const char* key, std::int64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    return std::nullopt;
  const auto value = found->get<std::int64_t>();
  return value < 0 ? std::nullopt : std::optional(value);
}

std::string text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? clean_text(found->get_ref<const std::string&>(), kMostOfACell)
                                                     : "";
}

bool is_true_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

bool has_object(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object();
}
namespace {

using nlohmann::json;

// RAS asks all processes within some time, so that two answers at nearly the same time say nothing of their order.
constexpr std::int64_t kLooksApart_ns = 900'000'000;
constexpr std::int64_t kMostResult = 1'000;

/// What one answer says of one rank.
struct RankAnswer {
  int rank = 0;
  HandedOver told;
  bool is_ending = false, is_lost = false;
};

struct CommunicatorAnswer {
  std::string key, name;
  int size = 0;
  std::vector<RankAnswer> ranks;
};

std::int64_t local_time_ns(const std::string& text) {
  std::tm local{};
  local.tm_isdst = -1;
  const char* end = ::strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &local);
  if (end == nullptr || *end != '\0') return -1;
  const std::time_t seconds = std::mktime(&local);
  return seconds < 0 ? -1 : std::int64_t{seconds} * 1'000'000'000;
}

/// False if it lacks something.
bool read_rank(const json& from, int size, bool is_missing, RankAnswer& into) {
  if (!from.is_object()) return false;
  const auto rank = count_in(from, "rank", kMostMembers);
  if (!rank || *rank >= size || !has_object(from, "status")) return false;
  into.rank = static_cast<int>(*rank);
  const auto pid = count_in(from, "pid", kMostCount), gpu = count_in(from, "nvml_dev", kMostMembers);
  if (const std::string host = text_in(from, "host"); pid && !host.empty() && host != "unknown") {
    into.told.process = fmt::format("process {} on {}{}", *pid, host, gpu ? fmt::format(", GPU {}", *gpu) : "");
  }
  const json& status = from["status"];
  if (is_missing) {
    into.told.dead = is_true_in(status, "considered_dead");
    into.is_lost = into.told.dead || is_true_in(status, "unresponsive");
    return true;
  }
  if (!has_object(from, "collective_counts")) return false;
  into.told.count = 0;
  for (const auto& [kind, value] : from["collective_counts"].items()) {
    const auto count = count_in(from["collective_counts"], kind.c_str(), kMostCount >> 8);
    if (!count) return false;
    into.told.count = std::min(kMostCount, into.told.count + *count);
  }
  into.told.starting = count_in(status, "init_state", kMostResult).value_or(0) != 0;
  into.told.error = count_in(status, "async_error", kMostResult).value_or(0);
  into.is_ending =
      is_true_in(status, "finalize_called") || is_true_in(status, "destroy_flag") || is_true_in(status, "abort_flag");
  return true;
}

bool read_communicator(const json& from, CommunicatorAnswer& into) {
  if (!from.is_object()) return false;
  into.name = text_in(from, "hash");
  into.key = "NCCL RAS/" + into.name + "/" + text_in(from, "secondary_hash");
  const auto size = count_in(from, "size", kMostMembers);
  if (into.name.empty() || !size || *size == 0) return false;
  into.size = static_cast<int>(*size);
  for (const bool is_missing : {false, true}) {
    const auto list = from.find(is_missing ? "missing_ranks" : "ranks");
    if (list == from.end() || !list->is_array() || list->size() > static_cast<std::size_t>(into.size)) return false;
    for (const json& one : *list) {
      if (!read_rank(one, into.size, is_missing, into.ranks.emplace_back())) return false;
    }
  }
  return true;
}

/// What at least half of the others had handed over before, of which `own` is one; `all` is sorted.
std::int64_t half_of_others(const std::vector<std::int64_t>& all, std::int64_t own) {
  const bool counts = own >= 0;
  const std::size_t others = all.size() - (counts ? 1 : 0);
  if (others == 0) return -1;
  std::size_t place = (others - 1) / 2;
  if (counts && place >= static_cast<std::size_t>(std::ranges::lower_bound(all, own) - all.begin())) ++place;
  return all[place];
}

void add_look(Communicator& communicator, const CommunicatorAnswer& answer, std::int64_t time_ns, bool compares) {
  std::vector<std::int64_t> before;
  for (const auto& [rank, member] : communicator.members) {
    if (member.handed.count >= 0) before.push_back(member.handed.count);
  }
  std::ranges::sort(before);
  std::map<int, Member> members;
  for (const RankAnswer& one : answer.ranks) {
    const auto known = communicator.members.find(one.rank);
    const HandedOver old = known == communicator.members.end() ? HandedOver{} : known->second.handed;
    HandedOver now = one.told;
    now.moved_ns = now.count == old.count && old.moved_ns >= 0 ? old.moved_ns : time_ns;
    if (compares && now.count >= 0 && now.count < half_of_others(before, old.count)) {
      now.behind_ns = old.behind_ns >= 0 ? old.behind_ns : time_ns;
      now.behind_looks = old.behind_looks + 1;
    }
    if (one.is_ending) now.ending_ns = old.ending_ns >= 0 ? old.ending_ns : time_ns;
    if (one.is_lost) now.lost_ns = old.lost_ns >= 0 ? old.lost_ns : time_ns;
    if (now.process.empty()) now.process = old.process;
    members[one.rank].handed = std::move(now);
  }
  communicator.members = std::move(members);
  ++communicator.looks;
}

}  // namespace

bool is_ras_answer(const json& answer) {
  if (!answer.is_object() || !answer.contains("nccl_version")) return false;
  const auto list = answer.find("communicators");
  return list != answer.end() && list->is_array();
}

std::string add_ras_answer(JobView& job, const json& answer, std::int64_t time_ns) {
  if (!is_ras_answer(answer)) return "is no answer of NCCL's RAS: it has no nccl_version and communicators.";
  if (time_ns < 0) time_ns = local_time_ns(text_in(answer, "timestamp"));
  if (time_ns < 0) return "has no timestamp such as \"2025-12-19 13:06:53\".";
  std::vector<CommunicatorAnswer> all;
  for (const json& one : answer["communicators"]) {
    if (!read_communicator(one, all.emplace_back())) {
      return fmt::format(
          "lacks one of hash, size, ranks and missing_ranks in communicator {}, or one of rank, status and "
          "collective_counts of a rank, or it is no number that may be there.",
          all.size());
    }
  }
  if (job.counted_ns >= 0 && time_ns < job.counted_ns + kLooksApart_ns) return {};
  // RAS asks processes one after another: who was asked first seems to be behind by what happened meanwhile.
  double took_s = 0;
  if (const auto ras = answer.find("ras"); ras != answer.end() && ras->is_object()) {
    const auto took = ras->find("collection_time_sec");
    if (took != ras->end() && took->is_number()) took_s = took->get<double>();
  }
  const bool compares = job.counted_ns >= 0 && static_cast<double>(time_ns - job.counted_ns) * 1e-9 >= 2 * took_s;
  std::map<std::string, const CommunicatorAnswer*> by_key;
  for (const CommunicatorAnswer& one : all) by_key[one.key] = &one;
  std::erase_if(job.communicators,
                [&](const auto& one) { return one.second.tells_counts && !by_key.contains(one.first); });
  for (const auto& [key, one] : by_key) {
    Communicator& communicator = job.communicators[key];
    communicator.source = "NCCL RAS";
    communicator.name = one->name;
    communicator.size = one->size;
    communicator.tells_counts = true;
    add_look(communicator, *one, time_ns, compares);
  }
  job.counted_ns = time_ns;
  return {};
}

}  // namespace fsdpbench::watch
