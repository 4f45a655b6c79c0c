#include "foreign/exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/intervals.h"
#include "foreign/kineto_names.h"

namespace fsdpbench::foreign {

std::optional<ExchangedRows> exchanged_rows(const JobTrace& job, const MatchedCollective& one, bool receives) {
  ExchangedRows rows;
  std::int64_t sum = 0;
  for (const MatchedCollective::Part& part : one.parts) {
    const RankRows& rank = job.ranks[part.rank];
    const std::int32_t facts = rank.device[part.row].collective;
    if (facts < 0) return std::nullopt;
    const CollectiveFacts& told = rank.collectives[facts];
    const std::int64_t size = told.group < 0 ? rank.world_size.value_or(0) : rank.groups[told.group].size;
    const std::int64_t elements = receives ? told.elements_out : told.elements_in;
    if (elements < 0 || size != static_cast<std::int64_t>(one.parts.size())) return std::nullopt;
    sum += elements;
    rows.by_part.push_back(elements);
  }
  rows.busiest = static_cast<std::size_t>(std::ranges::max_element(rows.by_part) - rows.by_part.begin());
  rows.mean = static_cast<double>(sum) / static_cast<double>(one.parts.size());
  return rows;
}
namespace {

constexpr double kClearly = 0.25, kHardly = 0.02;  // of attention, beside exchanges

/// Busiest rank of one exchange, and how much more than the mean it has.
struct Busiest {
  double ratio = 1;
  int rank = -1;  // its number
};

std::optional<Busiest> busiest_of(const JobTrace& job, const MatchedCollective& one) {
  Busiest most;
  for (const bool receives : {true, false}) {
    const auto rows = exchanged_rows(job, one, receives);
    if (!rows) return std::nullopt;
    const double ratio = rows->times_mean(rows->busiest);
    if (ratio > most.ratio) most = {ratio, job.ranks[one.parts[rows->busiest].rank].rank};
  }
  return most;
}

void find_imbalance(const JobTrace& job, const std::set<std::pair<int, std::int32_t>>& rows,
                    const MatchedCollectives& matched, Exchanges& result) {
  std::vector<double> ratios;
  std::map<int, int> busiest;
  for (const MatchedCollective& one : matched.all()) {
    if (one.parts.size() < 2 || !rows.contains({one.parts.front().rank, one.parts.front().row})) continue;
    const auto most = busiest_of(job, one);
    if (!most) continue;
    ratios.push_back(most->ratio);
    if (most->rank >= 0) ++busiest[most->rank];
  }
  if (ratios.empty()) return;
  std::ranges::sort(ratios);
  result.imbalance = ratios[ratios.size() / 2];
  const auto most = std::ranges::max_element(busiest, {}, [](const auto& entry) { return entry.second; });
  if (most != busiest.end()) result.busiest_rank = most->first;
}

}  // namespace

std::optional<Exchanges> find_exchanges(const JobTrace& job, const Recognition& found,
                                        const MatchedCollectives& matched) {
  Exchanges result;
  std::set<std::pair<int, std::int32_t>> rows;  // rank's place and device row
  std::size_t steps = 0;
  for (std::size_t r = 0; r < found.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    for (std::size_t s = 0; s < found.ranks[r].uses.size(); ++s) {
      std::vector<Interval> exchanging, attending, computing;
      for (const CollectiveUse& use : found.ranks[r].uses[s]) {
        if (use.purpose != Purpose::experts) continue;
        rows.insert({static_cast<int>(r), use.row});
        const DeviceRow& row = rank.device[use.row];
        exchanging.push_back({row.begin_ns, row.end_ns});
        ++result.times;
      }
      for (const std::int32_t index : found.ranks[r].cut.steps[s].device) {
        const DeviceRow& row = rank.device[index];
        if (row.kind != Activity::computation) continue;
        computing.push_back({row.begin_ns, row.end_ns});
        const std::string& name = rank.names[row.name];
        if (kernel_kind(row.kind, name, std::nullopt) == KernelKind::attention) attending.push_back(computing.back());
      }
      const IntervalSet exchange = unite(std::move(exchanging)), attention = unite(std::move(attending));
      result.ms += static_cast<double>(length(exchange));
      result.exposed_ms += static_cast<double>(length(subtract(exchange, unite(std::move(computing)))));
      result.attention_ms += static_cast<double>(length(attention));
      result.beside_ms += static_cast<double>(length(intersect(exchange, attention)));
      ++steps;
    }
  }
  if (rows.empty()) return std::nullopt;
  result.times /= static_cast<double>(steps);
  for (double* ns : {&result.ms, &result.exposed_ms, &result.attention_ms, &result.beside_ms}) {
    *ns /= 1e6 * static_cast<double>(steps);
  }
  if (result.attention_ms > 0) {
    const double share = result.beside_ms / result.attention_ms;
    if (share >= kClearly) result.two_halves = true;
    if (share < kHardly) result.two_halves = false;
  }
  find_imbalance(job, rows, matched, result);
  for (const HostSync& sync : found.syncs) {
    const HostRow& row = job.ranks.front().host[sync.row];
    ++result.syncs;
    result.sync_ms += static_cast<double>(row.end_ns - row.begin_ns) / 1e6;
  }
  return result;
}

std::vector<std::string> exchange_sentences(const Exchanges& x) {
  std::vector<std::string> said;
  const double hidden = x.ms > 0 ? 100 * (1 - x.exposed_ms / x.ms) : 0;
  said.push_back(
      fmt::format("{:.3g} exchanges of tokens a step (dispatch, combine and what they need) take {:.3f} ms, of which "
                  "{:.3f} ms are exposed: {:.1f} % is hidden behind computation.",
                  x.times, x.ms, x.exposed_ms, hidden));
  const std::string beside =
      fmt::format("{:.3f} of {:.3f} ms of attention run beside exchanges", x.beside_ms, x.attention_ms);
  if (!x.two_halves) {
    said.push_back(x.attention_ms > 0
                       ? fmt::format("Whether two halves of a batch take turns is not certain: {}.", beside)
                       : "Whether two halves of a batch take turns is not known: no kernel of attention tells.");
  } else if (*x.two_halves) {
    said.push_back(
        fmt::format("Two halves take turns (two-batch overlap): {}, which can only be the other half's, because each "
                    "layer's attention is over before its dispatch, and waits for the combine before it.",
                    beside));
  } else {
    said.push_back(
        fmt::format("One half at a time: {}.{}", beside,
                    x.exposed_ms > 0.05 * x.ms
                        ? " A second half of the batch, whose computation runs beside the exchanges of the first, or "
                          "shared experts hide them; so do fewer ranks of experts, all of them on one node, or "
                          "dispatch in fp8."
                        : ""));
  }
  if (!x.imbalance) {
    said.push_back(
        "How evenly tokens are spread is not known: that takes the files of all ranks, with sizes of exchanges.");
  } else if (*x.imbalance >= kUneven) {
    said.push_back(
        fmt::format("Tokens are spread unevenly: in the median exchange the busiest rank{} has {:.2f} times the mean, "
                    "and all wait for it. A larger auxiliary loss, a bias per expert or a capacity spreads them.",
                    x.busiest_rank >= 0 ? fmt::format(" (most often {})", x.busiest_rank) : "", *x.imbalance));
  } else {
    said.push_back(fmt::format("Tokens are spread evenly: the busiest rank has {:.2f} times the mean.", *x.imbalance));
  }
  if (x.syncs > 0) {
    said.push_back(
        fmt::format("The host waits for the device {} times a step within forward and backward, {:.3f} ms, as it does "
                    "to read how many tokens come: it launches nothing meanwhile, and what is prefetched implicitly "
                    "comes late. Counts that stay on the device, or a fixed capacity, spare that; explicit "
                    "prefetching bears it.",
                    x.syncs, x.sync_ms));
  }
  return said;
}

}  // namespace fsdpbench::foreign
