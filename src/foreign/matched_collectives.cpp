#include "foreign/matched_collectives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/student.h"

namespace fsdpbench::foreign {
namespace {

/// Group, kind, number.
using OneOnAll = std::tuple<std::string, Communication, std::int64_t>;

std::string group_key(const Group& group) {
  std::string key = group.name;
  for (int rank : group.ranks) key.append(",").append(std::to_string(rank));
  return key;
}

}  // namespace

MatchedCollectives::MatchedCollectives(const JobTrace& job) : job_(job), offsets_(job.ranks.size(), 0) {
  std::map<OneOnAll, std::size_t> known;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    of_row_.emplace_back(rank.device.size(), -1);
    std::map<std::pair<std::string, Communication>, std::int64_t> seen;
    // Numbers that the profiler gives count only if they are unique: one kernel may do several operations.
    for (std::size_t row = 0; row < rank.device.size(); ++row) {
      if (rank.device[row].collective < 0) continue;
      const CollectiveFacts& facts = rank.collectives[rank.device[row].collective];
      const std::string group = facts.group < 0 ? "?" : group_key(rank.groups[facts.group]);
      const std::int64_t count = seen[{group, facts.kind}]++;
      const OneOnAll key{group, facts.kind, facts.sequence >= 0 ? facts.sequence : count};
      auto [place, fresh] = known.try_emplace(key, all_.size());
      if (!fresh && all_[place->second].parts.back().rank == static_cast<int>(r)) continue;
      if (fresh) all_.emplace_back();
      all_[place->second].parts.push_back({static_cast<int>(r), static_cast<std::int32_t>(row)});
      of_row_[r][row] = static_cast<std::int32_t>(place->second);
    }
  }
  const auto end_of = [&](const MatchedCollective::Part& part) { return job.ranks[part.rank].device[part.row].end_ns; };
  std::vector<bool> placed(job.ranks.size(), job.shared_clock);
  if (!placed.empty()) placed[0] = true;
  for (bool more = !job.shared_clock; more;) {
    more = false;
    std::vector<std::vector<std::int64_t>> differences(job.ranks.size());
    for (const MatchedCollective& one : all_) {
      const auto known_part =
          std::ranges::find_if(one.parts, [&](const MatchedCollective::Part& p) { return placed[p.rank]; });
      if (known_part == one.parts.end()) continue;
      const std::int64_t end = end_of(*known_part) + offset_ns(known_part->rank);
      for (const MatchedCollective::Part& part : one.parts) {
        if (!placed[part.rank]) differences[part.rank].push_back(end - end_of(part));
      }
    }
    for (std::size_t r = 0; r < differences.size(); ++r) {
      if (differences[r].empty()) continue;
      offsets_[r] = upper_median(differences[r]);
      placed[r] = more = true;
    }
  }
  std::vector<std::vector<std::int64_t>> off(job.ranks.size());
  for (const MatchedCollective& one : all_) {
    const std::int64_t end = end_of(one.parts.front()) + offset_ns(one.parts.front().rank);
    for (const MatchedCollective::Part& part : one.parts) {
      off[part.rank].push_back(std::abs(end_of(part) + offset_ns(part.rank) - end));
    }
  }
  for (auto& values : off) {
    if (!values.empty()) residual_ = std::max(residual_, upper_median(std::move(values)));
  }
}

int MatchedCollectives::of_row(int rank, std::int32_t row) const { return of_row_[rank][row]; }

std::int64_t MatchedCollectives::last_end_ns(int rank, std::int32_t row) const {
  std::int64_t end = job_.ranks[rank].device[row].end_ns;
  const int place = of_row(rank, row);
  if (place < 0 || !job_.shared_clock) return end;
  for (const MatchedCollective::Part& part : all_[place].parts) {
    const RankRows& other = job_.ranks[part.rank];
    end = std::max(end, other.device[part.row].end_ns);
  }
  return end;
}

MatchedCollectives::Arrival MatchedCollectives::last_arrival(int rank, std::int32_t row) const {
  const DeviceRow& own = job_.ranks[rank].device[row];
  Arrival arrival{own.begin_ns, -1};
  const int place = of_row(rank, row);
  if (place < 0) return arrival;
  std::int64_t shortest = own.end_ns - own.begin_ns;
  for (const MatchedCollective::Part& part : all_[place].parts) {
    const DeviceRow& other = job_.ranks[part.rank].device[part.row];
    shortest = std::min(shortest, other.end_ns - other.begin_ns);
    const std::int64_t begin = other.begin_ns + offset_ns(part.rank) - offset_ns(rank);
    if (begin > arrival.at_ns) arrival = {std::min(begin, own.end_ns), part.rank};
  }
  // Whoever begins late by its clock, and ends as late, did not keep this rank waiting.
  if (arrival.at_ns > own.end_ns - shortest) arrival.at_ns = std::max(own.begin_ns, own.end_ns - shortest);
  if (arrival.at_ns == own.begin_ns) arrival.late_rank = -1;
  return arrival;
}

std::vector<double> exchanged_rows(const JobTrace& job, const MatchedCollective& one, bool receives) {
  std::vector<double> rows;
  double sum = 0;
  for (const MatchedCollective::Part& part : one.parts) {
    const RankRows& rank = job.ranks[part.rank];
    const std::int32_t facts = rank.device[part.row].collective;
    if (facts < 0) return {};
    const CollectiveFacts& told = rank.collectives[facts];
    const std::int64_t size = told.group < 0 ? rank.world_size.value_or(0) : rank.groups[told.group].size;
    const std::int64_t elements = receives ? told.elements_out : told.elements_in;
    if (elements < 0 || size != static_cast<std::int64_t>(one.parts.size())) return {};
    rows.push_back(static_cast<double>(elements));
    sum += rows.back();
  }
  const double mean = sum / static_cast<double>(rows.size());
  for (double& row : rows) row = mean > 0 ? row / mean : 1;
  return rows;
}

}  // namespace fsdpbench::foreign
