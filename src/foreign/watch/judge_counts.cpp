#include "foreign/watch/judge_counts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/enum_table.h"

namespace fsdpbench::watch {

std::string_view to_string(Verdict verdict) {
  static constexpr EnumNames<Verdict> kVerdicts{"mismatch",          "hang",        "silent",  "late rank",
                                                "slow communicator", "GPU trouble", "unknown", "clean"};
  return kVerdicts[verdict];
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == i + 1) last = i;  // "0, 1"
    parts.push_back(last == i ? fmt::format("{}", ranks[i]) : fmt::format("{} to {}", ranks[i], ranks[last]));
    i = last + 1;
  }
  constexpr std::size_t kMost = 8;
  const std::size_t shown = std::min(parts.size(), kMost);
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(std::span(parts).first(shown), ", "),
                     parts.size() > shown ? " …" : "");
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}
namespace {

constexpr int kLeastLooks = 3;
constexpr std::int64_t kInProgress = 7;

double in_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// "(process 4711 on 10.0.0.2, GPU 3)", with a space before it, for one rank.
std::string process_of(const Communicator& communicator, const std::vector<int>& ranks) {
  if (ranks.size() != 1) return "";
  const std::string& process = communicator.members.at(ranks.front()).handed.process;
  return process.empty() ? "" : " (" + process + ")";
}

/// A communicator in which some ranks are behind the others.
struct Split {
  const Communicator* communicator = nullptr;
  std::vector<int> behind{}, ahead{};
  std::int64_t most = 0, least = 0;
};

class CountJudge {
 public:
  CountJudge(const JobView& job, const JudgeOptions& options) : job_(job), options_(options) {
    for (const auto& [key, communicator] : job.communicators) {
      if (communicator.tells_counts) all_.push_back(&communicator);
    }
  }

  CountFindings judge() {
    if (all_.empty()) return {};
    find_lost();
    const std::int64_t still_ns = job_.counted_ns - moved_ns();
    if (options_.stopped || (looks() > 1 && still_ns >= options_.hang_ns)) {
      find_hang(still_ns);
    } else {
      find_late();
    }
    note_errors();
    return std::move(found_);
  }

 private:
  int looks() const {
    int most = 0;
    for (const Communicator* one : all_) most = std::max(most, one->looks);
    return most;
  }
  std::int64_t moved_ns() const {
    std::int64_t newest = -1;
    for (const Communicator* one : all_) {
      for (const auto& [rank, member] : one->members) newest = std::max(newest, member.handed.moved_ns);
    }
    return newest;
  }
  static std::int64_t ending_ns(const Communicator& communicator) {
    std::int64_t first = -1;
    for (const auto& [rank, member] : communicator.members) {
      const std::int64_t own = member.handed.ending_ns;
      if (own >= 0 && (first < 0 || own < first)) first = own;
    }
    return first;
  }

  void find_lost() {
    for (const Communicator* one : all_) {
      const std::int64_t ends_ns = ending_ns(*one);
      std::vector<int> dead, lost, recent;
      std::int64_t since_ns = -1;
      for (const auto& [rank, member] : one->members) {
        const HandedOver& own = member.handed;
        if (own.lost_ns < 0 || (ends_ns >= 0 && ends_ns <= own.lost_ns)) continue;
        const bool is_long = options_.stopped || job_.counted_ns - own.lost_ns >= options_.hang_ns;
        (own.dead ? dead : is_long ? lost : recent).push_back(rank);
        if (!own.dead && is_long) since_ns = std::max(since_ns, own.lost_ns);
      }
      const auto accuse = [&](const std::vector<int>& ranks, const std::string& why) {
        if (ranks.empty()) return;
        found_.all.push_back(
            {.verdict = Verdict::silent,
             .ranks = ranks,
             .communicator = one->name,
             .sentence = fmt::format("{}{} of {} {} silent: {}.", capital(ranks_text(ranks)), process_of(*one, ranks),
                                     one->name, ranks.size() == 1 ? "is" : "are", why)});
      };
      accuse(dead,
             dead.size() == 1 ? "NCCL RAS considers its process dead" : "NCCL RAS considers their processes dead");
      accuse(lost, fmt::format("NCCL RAS has not reached {} for {:.0f} s", lost.size() == 1 ? "it" : "them",
                               in_seconds(job_.counted_ns - since_ns)));
      if (!recent.empty()) {
        found_.unknown.push_back(
            fmt::format("NCCL RAS does not reach {}{} of {}; further looks tell whether that lasts.",
                        ranks_text(recent), process_of(*one, recent), one->name));
      }
    }
  }

  template <typename IsBehind>
  std::vector<Split> splits(const IsBehind& is_behind) const {
    std::vector<Split> found;
    for (const Communicator* one : all_) {
      if (ending_ns(*one) >= 0) continue;
      Split split{.communicator = one};
      for (const auto& [rank, member] : one->members) split.most = std::max(split.most, member.handed.count);
      split.least = split.most;
      bool starts = false;
      for (const auto& [rank, member] : one->members) {
        if (member.handed.count < 0) continue;
        starts = starts || member.handed.starting;
        if (is_behind(member.handed, split.most)) {
          split.behind.push_back(rank);
          split.least = std::min(split.least, member.handed.count);
        } else {
          split.ahead.push_back(rank);
        }
      }
      if (!starts && !split.behind.empty()) found.push_back(std::move(split));
    }
    return found;
  }

  /// Those who are behind and do not wait for somebody in another communicator.
  static std::vector<int> to_blame(const Split& split, const std::vector<Split>& all) {
    std::set<std::string> waiting;
    for (const Split& other : all) {
      if (other.communicator == split.communicator) continue;
      for (const int rank : other.ahead) waiting.insert(other.communicator->members.at(rank).handed.process);
    }
    std::vector<int> ranks;
    for (const int rank : split.behind) {
      const std::string& process = split.communicator->members.at(rank).handed.process;
      if (process.empty() || !waiting.contains(process)) ranks.push_back(rank);
    }
    return ranks;
  }

  void find_hang(std::int64_t still_ns) {
    const std::vector<Split> all = splits([](const HandedOver& one, std::int64_t most) { return one.count < most; });
    const std::string how_long = options_.stopped
                                     ? "the job has stopped"
                                     : fmt::format("no count of the job has moved for {:.0f} s", in_seconds(still_ns));
    for (const Split& split : all) {
      const Communicator& communicator = *split.communicator;
      std::vector<int> ranks = to_blame(split, all);
      const auto& behind = ranks.empty() ? split.behind : ranks;
      const std::string less = fmt::format("{} handed over {} collectives of {}, {} {} handed over {}, and {}",
                                           behind.size() == 1 ? "it has" : "they have",
                                           split.least == split.most - 1 || behind.size() == 1
                                               ? fmt::format("{}", communicator.members.at(behind.front()).handed.count)
                                               : fmt::format("at least {}", split.least),
                                           communicator.name, ranks_text(split.ahead),
                                           split.ahead.size() == 1 ? "has" : "have", split.most, how_long);
      const std::string who = capital(ranks_text(behind)) + process_of(communicator, behind);
      found_.all.push_back(
          {.verdict = Verdict::hang,
           .ranks = ranks,
           .communicator = communicator.name,
           .sequence = split.most,
           .since_ns = moved_ns(),
           .sentence = ranks.empty()
                           ? fmt::format("{} {} behind and {} in another communicator: {}.", who,
                                         behind.size() == 1 ? "is" : "are", behind.size() == 1 ? "waits" : "wait", less)
                           : fmt::format("{} {} not come: {}.", who, behind.size() == 1 ? "has" : "have", less)});
    }
    std::ranges::stable_sort(found_.all, {}, [](const Accusation& one) { return one.ranks.empty(); });
    if (all.empty()) {
      found_.unknown.push_back(
          fmt::format("NCCL RAS does not tell whether the job hangs: {}, and all ranks of a communicator have handed "
                      "over equally many collectives. It may pause, hang inside a collective, or replay CUDA graphs, "
                      "whose collectives NCCL does not count.",
                      how_long));
    }
  }

  void find_late() {
    const std::vector<Split> all = splits([&](const HandedOver& one, std::int64_t) {
      return one.behind_ns >= 0 && one.behind_looks >= kLeastLooks &&
             job_.counted_ns - one.behind_ns >= options_.hang_ns;
    });
    for (const Split& split : all) {
      const std::vector<int> ranks = to_blame(split, all);
      if (ranks.empty()) continue;
      const Communicator& communicator = *split.communicator;
      std::int64_t since_ns = -1;
      int at_least = 0;
      for (const int rank : ranks) {
        const HandedOver& own = communicator.members.at(rank).handed;
        if (own.behind_ns >= since_ns) since_ns = own.behind_ns, at_least = own.behind_looks;
      }
      found_.all.push_back(
          {.verdict = Verdict::late_rank,
           .ranks = ranks,
           .communicator = communicator.name,
           .since_ns = since_ns,
           .sentence = fmt::format(
               "{}{} of {} {} late: at each of {} looks of {:.0f} s {} had handed over fewer collectives than half of "
               "the other ranks had at the look before.",
               capital(ranks_text(ranks)), process_of(communicator, ranks), communicator.name,
               ranks.size() == 1 ? "is" : "are", at_least, in_seconds(job_.counted_ns - since_ns),
               ranks.size() == 1 ? "it" : "they")});
    }
    found_.unknown.emplace_back(
        looks() < 2
            ? "It is not known who comes last: one look of NCCL RAS does not tell whether a rank catches up."
            : "It is not known who comes last: NCCL RAS counts the collectives that ranks have handed over, not "
              "those that have ended.");
  }

  void note_errors() {
    for (const Communicator* one : all_) {
      for (const auto& [rank, member] : one->members) {
        if (member.handed.error == 0 || member.handed.error == kInProgress) continue;
        found_.notes.push_back(fmt::format("Rank {}{} of {} reports NCCL's error {}.", rank, process_of(*one, {rank}),
                                           one->name, member.handed.error));
        if (found_.notes.size() == 8) return;
      }
    }
  }

  const JobView& job_;
  const JudgeOptions& options_;
  std::vector<const Communicator*> all_;
  CountFindings found_;
};

}  // namespace

CountFindings judge_counts(const JobView& job, const JudgeOptions& options) { return CountJudge(job, options).judge(); }

}  // namespace fsdpbench::watch
