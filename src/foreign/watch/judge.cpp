#include "foreign/watch/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "account/late_ranks.h"
#include "account/statistics.h"
#include "foreign/watch/judge_counts.h"
#include "foreign/watch/judge_gpus.h"

namespace fsdpbench::watch {
namespace {

constexpr std::int64_t kSecond_ns = 1'000'000'000;
constexpr std::int64_t kLeastSpan_ns = 5 * kSecond_ns;
constexpr std::array<std::int64_t, 3> kWindows_ns{15 * kSecond_ns, 60 * kSecond_ns, 240 * kSecond_ns};
constexpr std::size_t kBlocks = 24;
constexpr std::size_t kMostTrials = 2'000;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::vector<int> ranks_in(const Communicator& communicator) {
  if (!communicator.ranks.empty()) return communicator.ranks;
  std::vector<int> ranks;
  for (const auto& [rank, member] : communicator.members) ranks.push_back(rank);
  return ranks;
}

const Operation* find(const Member& member, std::int64_t sequence) {
  const auto place = std::ranges::lower_bound(member.operations, sequence, {}, &Operation::sequence);
  return place != member.operations.end() && place->sequence == sequence ? &*place : nullptr;
}

/// An operation that somebody is in.
struct Waiting {
  const Communicator* communicator = nullptr;
  const Operation* operation = nullptr;  ///< of one who waits
  std::vector<int> waiting, missing;
  std::int64_t since_ns = -1;  ///< the last who came
  std::int64_t age_ns = 0;     ///< by the records of those who wait
  bool timed_out = false;
  bool has_clock = false;  ///< somebody tells as of when
  std::string what() const {
    return fmt::format("{} {} of {}", operation->name, operation->sequence, communicator->name);
  }
};

std::optional<Waiting> find_waiting(const JobView& job, const Communicator& communicator) {
  Waiting found;
  found.communicator = &communicator;
  for (const auto& [rank, member] : communicator.members) {
    const auto first = std::ranges::find_if(member.operations, [](const Operation& one) { return !one.done; });
    if (first == member.operations.end()) continue;
    if (found.operation == nullptr || first->sequence < found.operation->sequence) found.operation = &*first;
  }
  if (found.operation == nullptr) return std::nullopt;
  for (const int rank : ranks_in(communicator)) {
    const auto at = communicator.members.find(rank);
    if (at == communicator.members.end() || at->second.operations.empty() ||
        at->second.operations.back().sequence < found.operation->sequence) {
      found.missing.push_back(rank);
      continue;
    }
    const Operation* own = find(at->second, found.operation->sequence);
    if (own == nullptr || own->done) continue;
    found.waiting.push_back(rank);
    found.since_ns = std::max(found.since_ns, own->came_ns);
    if (own->came_ns >= 0) found.age_ns = std::max(found.age_ns, at->second.heard.newest_ns() - own->came_ns);
    found.timed_out = found.timed_out || own->timed_out;
    const auto view = job.ranks.find(rank);
    found.has_clock = found.has_clock || (view != job.ranks.end() && view->second.heard.newest_ns() >= 0);
  }
  // Counted from the last who came: before that the others only waited for it.
  if (found.since_ns >= 0 && found.missing.empty()) {
    std::int64_t heard_ns = -1;
    for (const int rank : found.waiting) {
      heard_ns = std::max(heard_ns, communicator.members.at(rank).heard.newest_ns());
    }
    found.age_ns = std::max<std::int64_t>(0, heard_ns - found.since_ns);
  }
  return found;
}

std::vector<int> silent_ranks(const JobView& job, std::int64_t hang_ns) {
  std::vector<int> silent;
  for (int rank = 0; rank < std::max(job.world, job.ranks.empty() ? 0 : job.ranks.rbegin()->first + 1); ++rank) {
    const auto own = job.ranks.find(rank);
    const std::int64_t last_ns = own == job.ranks.end() ? -1 : own->second.heard.newest_ns();
    if (own == job.ranks.end() ? job.world == 0 : last_ns < 0 || own->second.ended) continue;
    const bool others_active = std::ranges::any_of(job.ranks, [&](const auto& other) {
      return other.first != rank && other.second.heard.active_after_ns(last_ns) >= hang_ns;
    });
    if (others_active) silent.push_back(rank);
  }
  return silent;
}

std::vector<int> both(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> common;
  std::ranges::set_intersection(a, b, std::back_inserter(common));
  return common;
}

class Judge {
 public:
  Judge(const JobView& job, std::int64_t now_ns, const JudgeOptions& options)
      : job_(job), now_ns_(now_ns), options_(options), silent_(silent_ranks(job, options.hang_ns)) {}

  Judgement all() {
    find_mismatches();
    find_hangs();
    find_silent();
    add_counts();
    find_late_ranks();
    find_slow_communicators();
    add_gpus();
    std::ranges::stable_sort(found_.all, {}, &Accusation::verdict);
    sum_up();
    return std::move(found_);
  }

 private:
  void accuse(Accusation accusation) { found_.all.push_back(std::move(accusation)); }

  void find_mismatches() {
    for (const auto& [key, communicator] : job_.communicators) {
      if (!communicator.tells_pending || communicator.members.size() < 2) continue;
      const Member& first = communicator.members.begin()->second;
      for (const Operation& one : first.operations) {
        std::map<std::string, std::vector<int>> kinds;
        bool differ_in_name = false;
        for (const auto& [rank, member] : communicator.members) {
          const Operation* own = find(member, one.sequence);
          if (own == nullptr) continue;
          differ_in_name = differ_in_name || own->name != one.name;
          kinds[own->shape.empty() ? own->name : fmt::format("{} {}", own->name, own->shape)].push_back(rank);
        }
        if (kinds.size() < 2) continue;
        std::vector<std::string> sides;
        const auto most = std::ranges::max_element(kinds, {}, [](const auto& kind) { return kind.second.size(); });
        const bool has_majority = std::ranges::count_if(kinds, [&](const auto& kind) {
                                    return kind.second.size() == most->second.size();
                                  }) == 1;
        Accusation found{.verdict = Verdict::mismatch, .communicator = communicator.name, .sequence = one.sequence};
        for (const auto& [kind, ranks] : kinds) {
          sides.push_back(fmt::format("{} {} {}", ranks_text(ranks), ranks.size() == 1 ? "calls" : "call", kind));
          if (has_majority && kind != most->first) found.ranks.insert(found.ranks.end(), ranks.begin(), ranks.end());
        }
        std::ranges::sort(found.ranks);
        found.since_ns = one.came_ns;
        found.sentence = fmt::format("Collective {} of {} is not the same on all ranks: {}.", one.sequence,
                                     communicator.name, fmt::join(sides, "; "));
        accuse(std::move(found));
        break;  // what follows it is a consequence
      }
    }
  }

  void find_hangs() {
    std::vector<Waiting> hanging;
    for (const auto& [key, communicator] : job_.communicators) {
      if (!communicator.tells_pending) continue;
      const auto waiting = find_waiting(job_, communicator);
      if (!waiting) continue;
      if (waiting->timed_out || options_.stopped || waiting->age_ns >= options_.hang_ns) {
        hanging.push_back(*waiting);
      } else if (!waiting->has_clock) {
        unknown_ = true;
        found_.notes.push_back(fmt::format(
            "{} {} in {}{}; the dumps do not tell for how long. If the job goes on no more, --stopped says so.",
            capital(ranks_text(waiting->waiting)), waiting->waiting.size() == 1 ? "is" : "are", waiting->what(),
            waiting->missing.empty() ? std::string()
                                     : fmt::format(", to which {} {} not come", ranks_text(waiting->missing),
                                                   waiting->missing.size() == 1 ? "has" : "have")));
      }
    }
    std::set<int> waits;
    for (const Waiting& one : hanging) waits.insert(one.waiting.begin(), one.waiting.end());
    for (const Waiting& one : hanging) {
      Accusation found{.verdict = Verdict::hang,
                       .communicator = one.communicator->name,
                       .sequence = one.operation->sequence,
                       .since_ns = one.since_ns};
      for (const int rank : one.missing) {
        if (!waits.contains(rank)) found.ranks.push_back(rank);
      }
      const std::string how_long = one.timed_out      ? "until its timeout"
                                   : options_.stopped ? "since the job stopped"
                                                      : fmt::format("for {:.0f} s", seconds(one.age_ns));
      const std::string wait = fmt::format("{} {} in {} {}", ranks_text(one.waiting),
                                           one.waiting.size() == 1 ? "waits" : "wait", one.what(), how_long);
      if (!found.ranks.empty()) {
        const std::vector<int> silent = both(found.ranks, silent_);
        found.sentence = fmt::format("{} {} not come: {}.{}", capital(ranks_text(found.ranks)),
                                     found.ranks.size() == 1 ? "has" : "have", wait,
                                     silent.empty() ? std::string() : " " + silence(silent));
      } else if (!one.missing.empty()) {
        found.sentence = fmt::format(
            "{}; {}, which {} not come to it, {} in another collective: the ranks wait for one another, or for a rank "
            "named above.",
            capital(wait), ranks_text(one.missing), one.missing.size() == 1 ? "has" : "have",
            one.missing.size() == 1 ? "waits" : "wait");
      } else if (found.ranks = both(one.waiting, silent_); !found.ranks.empty()) {
        found.sentence =
            fmt::format("{} {} It is in {}, as all others are, which has not ended {}.",
                        capital(ranks_text(found.ranks)) + " has stopped inside a collective:", silence(found.ranks),
                        one.what(), how_long);
      } else {
        found.sentence =
            fmt::format("All {} ranks have come to {} and none has left it {}: no rank is to blame by that.",
                        one.waiting.size(), one.what(), how_long);
      }
      accuse(std::move(found));
    }
    // Those who wait for a rank that is named are no accusation of their own.
    std::ranges::stable_sort(found_.all, {}, [](const Accusation& one) { return one.ranks.empty(); });
  }

  std::string silence(const std::vector<int>& ranks) const {
    std::int64_t last_ns = -1;
    for (const int rank : ranks) {
      const auto view = job_.ranks.find(rank);
      if (view != job_.ranks.end()) last_ns = std::max(last_ns, view->second.heard.newest_ns());
    }
    if (last_ns < 0) return "Nothing was ever heard of it.";
    return fmt::format("Nothing has been heard of {} for {:.0f} s, while others go on.",
                       ranks.size() == 1 ? "it" : "them", seconds(now_ns_ - last_ns));
  }

  void find_silent() {
    std::set<int> named;
    for (const Accusation& one : found_.all) named.insert(one.ranks.begin(), one.ranks.end());
    std::vector<int> ranks;
    for (const int rank : silent_) {
      if (!named.contains(rank)) ranks.push_back(rank);
    }
    if (!ranks.empty()) {
      accuse({.verdict = Verdict::silent,
              .ranks = ranks,
              .sentence = fmt::format("{} {} silent. {}", capital(ranks_text(ranks)), ranks.size() == 1 ? "is" : "are",
                                      silence(ranks))});
    }
    for (const auto& [key, communicator] : job_.communicators) {
      if (communicator.tells_pending || communicator.tells_counts) continue;
      find_silent_members(communicator);
    }
  }

  /// A source that only tells what has ended: whoever does not write while the others do.
  void find_silent_members(const Communicator& communicator) {
    std::vector<int> ranks;
    std::int64_t last_ns = -1, newest = -1;
    for (const auto& [rank, member] : communicator.members) {
      const bool others_active = std::ranges::any_of(communicator.members, [&, self = rank](const auto& other) {
        return other.first != self &&
               other.second.heard.active_after_ns(communicator.members.at(self).heard.newest_ns()) >= options_.hang_ns;
      });
      if (!others_active) continue;
      ranks.push_back(rank);
      last_ns = std::max(last_ns, member.heard.newest_ns());
      if (!member.operations.empty()) newest = std::max(newest, member.operations.back().sequence);
    }
    if (ranks.empty()) return;
    accuse({.verdict = Verdict::silent,
            .ranks = ranks,
            .communicator = communicator.name,
            .sequence = newest,
            .since_ns = last_ns,
            .sentence =
                fmt::format("{} of {} {} silent: nothing was written for {:.0f} s, since collective {}, while others "
                            "of it go on.",
                            capital(ranks_text(ranks)), communicator.name, ranks.size() == 1 ? "is" : "are",
                            seconds(now_ns_ - last_ns), newest)});
  }

  void add_counts() {
    CountFindings counts = judge_counts(job_, options_);
    for (Accusation& one : counts.all) accuse(std::move(one));
    found_.notes.insert(found_.notes.end(), counts.notes.begin(), counts.notes.end());
    late_unknown_.insert(counts.unknown.begin(), counts.unknown.end());
  }

  /// Host of a rank that is named; empty: its source does not tell global ranks, or no source tells the host.
  std::string host_of(const Accusation& one, int rank) const {
    const bool is_global =
        one.communicator.empty() || std::ranges::any_of(job_.communicators, [&](const auto& communicator) {
          return communicator.second.name == one.communicator && communicator.second.source == "flight recorder";
        });
    const auto view = job_.ranks.find(rank);
    return is_global && view != job_.ranks.end() ? view->second.host : std::string();
  }

  void add_gpus() {
    GpuFindings gpus = judge_gpus(job_, options_);
    found_.notes.insert(found_.notes.end(), gpus.notes.begin(), gpus.notes.end());
    if (job_.communicators.empty() && job_.ranks.empty() && !gpus.unknown.empty()) late_unknown_.insert(gpus.unknown);
    constexpr int kMostOfAHost = 2;
    const std::size_t others = found_.all.size();
    std::vector<std::string> also(gpus.all.size());
    for (std::size_t i = 0; i < others; ++i) {
      Accusation& one = found_.all[i];
      int told = 0;
      for (std::size_t g = 0; g < gpus.all.size() && told < kMostOfAHost; ++g) {
        const auto rank =
            std::ranges::find_if(one.ranks, [&](int own) { return is_same_host(host_of(one, own), gpus.all[g].host); });
        if (rank == one.ranks.end()) continue;
        ++told;
        one.sentence += fmt::format(" On the host of rank {}: {}", *rank, gpus.all[g].sentence);
        if (also[g].empty()) also[g] = fmt::format(" Rank {} ({}) runs on this host.", *rank, to_string(one.verdict));
      }
    }
    for (std::size_t g = 0; g < gpus.all.size(); ++g) {
      std::vector<int> there;
      for (const auto& [rank, view] : job_.ranks) {
        if (is_same_host(view.host, gpus.all[g].host)) there.push_back(rank);
      }
      if (also[g].empty() && !there.empty()) {
        also[g] = fmt::format(" {} {} on this host.", capital(ranks_text(there)), there.size() == 1 ? "runs" : "run");
      }
      gpus.all[g].sentence += also[g];
      accuse(std::move(gpus.all[g]));
    }
  }

  /// How late each rank of a communicator came to one collective.
  struct Trial {
    std::int64_t time_ns = 0;
    std::vector<std::int64_t> late_ns;
  };

  bool share_clock(const Communicator& communicator) const {
    std::set<std::string> hosts;
    for (const auto& [rank, member] : communicator.members) {
      const auto view = job_.ranks.find(rank);
      hosts.insert(view == job_.ranks.end() ? "" : view->second.host);
    }
    return hosts.size() == 1 && !hosts.begin()->empty();
  }

  std::vector<Trial> trials_of(const Communicator& communicator) const {
    std::vector<Trial> trials;
    const bool by_arrival = communicator.lateness == Lateness::arrivals;
    for (const Operation& one : communicator.members.begin()->second.operations) {
      std::vector<std::int64_t> values;
      std::int64_t time_ns = -1;
      for (const auto& [rank, member] : communicator.members) {
        const Operation* own = find(member, one.sequence);
        if (own == nullptr || !own->done || own->name != one.name || own->shape != one.shape) break;
        const std::int64_t value = by_arrival ? own->came_ns : own->took_ns;
        if (value < 0) break;
        values.push_back(value);
        time_ns = std::max(time_ns, own->came_ns >= 0 ? own->came_ns : own->told_ns);
      }
      if (values.size() != communicator.members.size()) continue;
      const auto [least, most] = std::ranges::minmax(values);
      for (std::int64_t& value : values) value = by_arrival ? value - least : most - value;
      trials.push_back({time_ns, std::move(values)});
    }
    std::ranges::stable_sort(trials, {}, &Trial::time_ns);
    if (by_arrival && !share_clock(communicator)) take_clocks_out(trials);
    return trials;
  }

  /// What a rank is late by in the middle may be its clock: only what is beyond it counts.
  static void take_clocks_out(std::vector<Trial>& trials) {
    if (trials.empty()) return;
    const std::size_t ranks = trials.front().late_ns.size();
    std::vector<std::vector<double>> beside(ranks);
    for (const Trial& trial : trials) {
      const double middle = account::median({trial.late_ns.begin(), trial.late_ns.end()});
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        beside[rank].push_back(static_cast<double>(trial.late_ns[rank]) - middle);
      }
    }
    std::vector<std::int64_t> clock;
    for (auto& one : beside) clock.push_back(static_cast<std::int64_t>(account::median(std::move(one))));
    for (Trial& trial : trials) {
      for (std::size_t rank = 0; rank < ranks; ++rank) trial.late_ns[rank] -= clock[rank];
      const std::int64_t least = std::ranges::min(trial.late_ns);
      for (std::int64_t& late : trial.late_ns) late -= least;
    }
  }

  struct Late {
    std::size_t place = 0;
    account::Lateness lateness;
    double share = 0;
    std::int64_t first_ns = 0, span_ns = 0;
  };

  /// The trials of one window in blocks of equal count; `summed`: a block is one trial, else each of its collectives.
  static std::optional<Late> test_window(std::span<const Trial> trials, bool summed) {
    const std::int64_t span_ns = trials.back().time_ns - trials.front().time_ns;
    account::RankTimes times;
    const std::size_t ranks = trials.front().late_ns.size();
    for (std::size_t block = 0; block < kBlocks; ++block) {
      const std::size_t first = block * trials.size() / kBlocks, end = (block + 1) * trials.size() / kBlocks;
      std::vector<std::vector<std::int64_t>> step(ranks);
      for (std::size_t i = first; i < end; ++i) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          if (summed && i > first) {
            step[rank].front() += trials[i].late_ns[rank];
          } else {
            step[rank].push_back(trials[i].late_ns[rank]);
          }
        }
      }
      times.push_back(std::move(step));
    }
    const double block_ms = static_cast<double>(span_ns) * 1e-6 / static_cast<double>(kBlocks);
    const auto all = account::find_late_ranks(times, kLeastShare * block_ms);
    std::optional<Late> latest;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (!all[rank].significant || all[rank].by_chance > kChance / static_cast<double>(ranks)) continue;
      if (latest && all[rank].excess_ms.median <= latest->lateness.excess_ms.median) continue;
      latest = Late{rank, all[rank], all[rank].excess_ms.median / block_ms, trials.front().time_ns, span_ns};
    }
    return latest;
  }

  /// None where nobody is late; `enough` is false where there is too little to say so.
  std::optional<Late> test_late(const std::vector<Trial>& trials, bool& enough) const {
    enough = false;
    if (trials.empty()) return std::nullopt;
    const std::int64_t end_ns = trials.back().time_ns;
    std::size_t tested = 0;
    for (const std::int64_t window_ns : kWindows_ns) {
      const auto first = std::ranges::lower_bound(trials, end_ns - window_ns, {}, &Trial::time_ns);
      auto window = std::span<const Trial>(first, trials.end());
      if (window.size() > kMostTrials) window = window.last(kMostTrials);
      if (window.size() < kBlocks || window.size() == tested) continue;
      if (window.back().time_ns - window.front().time_ns < kLeastSpan_ns) continue;
      tested = window.size();
      enough = true;
      for (const bool summed : {false, true}) {
        auto late = test_window(window, summed);
        if (late && is_late_still(window, *late)) return late;
      }
    }
    return std::nullopt;
  }

  /// The newest quarter alone must say it, too: who has caught up is no longer late.
  static bool is_late_still(std::span<const Trial> window, const Late& late) {
    const auto newest = window.last(window.size() / 4);
    double own = 0;
    std::vector<double> others(newest.front().late_ns.size(), 0.0);
    for (const Trial& trial : newest) {
      for (std::size_t rank = 0; rank < others.size(); ++rank) others[rank] += static_cast<double>(trial.late_ns[rank]);
    }
    own = others[late.place];
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(late.place));
    const auto span_ns = static_cast<double>(newest.back().time_ns - newest.front().time_ns);
    return own - account::median(std::move(others)) > kLeastShare * span_ns;
  }

  void accuse_late(const Late& late, int rank, const std::string& where, const std::string& of_what) {
    const double block_ms = static_cast<double>(late.span_ns) * 1e-6 / static_cast<double>(kBlocks);
    const double low = late.lateness.excess_ms.ci_low / block_ms, high = late.lateness.excess_ms.ci_high / block_ms;
    accuse({.verdict = Verdict::late_rank,
            .ranks = {rank},
            .communicator = where,
            .since_ns = late.first_ns,
            .share = late.share,
            .share_low = low,
            .share_high = high,
            .sentence = fmt::format("Rank {}{} is late: the others wait for it {:.0f} % [{:.0f} to {:.0f}] of the "
                                    "time; it was among the later "
                                    "half in {} of {} {} of the last {:.0f} s.",
                                    rank, where.empty() ? "" : " of " + where, 100 * late.share, 100 * low, 100 * high,
                                    late.lateness.late, late.lateness.trials, of_what, seconds(late.span_ns))});
  }

  void find_late_ranks() {
    for (const auto& [key, communicator] : job_.communicators) {
      if (communicator.lateness == Lateness::none) {
        if (communicator.tells_pending) {
          late_unknown_.insert(
              "It is not known who comes last: the dumps have no duration_ms, which TORCH_NCCL_ENABLE_TIMING=1 adds.");
        }
        continue;
      }
      if (communicator.members.size() < 2) {
        if (communicator.size != 1) {
          late_unknown_.insert("It is not known who comes last: only one rank of a communicator has written anything.");
        }
        continue;
      }
      bool enough = false;
      if (const auto late = test_late(trials_of(communicator), enough)) {
        auto member = communicator.members.begin();
        std::advance(member, static_cast<std::ptrdiff_t>(late->place));
        accuse_late(*late, member->first, communicator.name, "groups or single collectives");
      }
      judged_ = judged_ || enough;
      if (!enough) {
        late_unknown_.insert(
            fmt::format("It is not known who comes last: there are fewer than {} collectives that all ranks have "
                        "ended, or they cover less than {:.0f} s.",
                        kBlocks, seconds(kLeastSpan_ns)));
      }
    }
    find_late_by_steps();
  }

  void find_late_by_steps() {
    std::vector<const RankView*> views;
    std::vector<int> ranks;
    for (const auto& [rank, view] : job_.ranks) {
      if (view.steps.empty()) continue;
      views.push_back(&view);
      ranks.push_back(rank);
    }
    if (views.size() < 2) return;
    std::vector<Trial> trials;
    for (const Step& one : views.front()->steps) {
      std::vector<std::int64_t> waits;
      std::int64_t ended_ns = -1;
      for (const RankView* view : views) {
        const auto own = std::ranges::lower_bound(view->steps, one.number, {}, &Step::number);
        if (own == view->steps.end() || own->number != one.number || own->waits_ms < 0) break;
        waits.push_back(static_cast<std::int64_t>(own->waits_ms * 1e6));
        ended_ns = std::max(ended_ns, own->ended_ns);
      }
      if (waits.size() != views.size()) continue;
      const std::int64_t most = std::ranges::max(waits);
      for (std::int64_t& wait : waits) wait = most - wait;
      trials.push_back({ended_ns, std::move(waits)});
    }
    bool enough = false;
    if (const auto late = test_late(trials, enough))
      accuse_late(*late, ranks[late->place], "", "groups or single steps");
    judged_ = judged_ || enough;
    if (!enough) {
      late_unknown_.insert(
          fmt::format("It is not known who is late by its steps: there are fewer than {} steps that all ranks have "
                      "written with their waits, or they cover less than {:.0f} s.",
                      kBlocks, seconds(kLeastSpan_ns)));
    }
  }

  /// What the last rank of each collective saw, which waits for nobody, by kind of collective and communicator.
  void find_slow_communicators() {
    using Kind = std::tuple<std::string, std::int64_t, int, int>;
    std::map<Kind, std::map<const Communicator*, std::vector<double>>> kinds;
    for (const auto& [key, communicator] : job_.communicators) {
      if (communicator.lateness != Lateness::waits || communicator.members.empty()) continue;
      if (static_cast<int>(communicator.members.size()) != communicator.size) continue;
      for (const Operation& one : communicator.members.begin()->second.operations) {
        if (one.told_ns < now_ns_ - kWindows_ns[0] || one.bytes < 0) continue;
        std::int64_t least_ns = -1;
        bool whole = true;
        for (const auto& [rank, member] : communicator.members) {
          const Operation* own = find(member, one.sequence);
          whole = own != nullptr && own->took_ns > 0 && own->bytes == one.bytes && own->name == one.name;
          if (!whole) break;
          least_ns = least_ns < 0 ? own->took_ns : std::min(least_ns, own->took_ns);
        }
        if (!whole) continue;
        kinds[{one.name, one.bytes, communicator.size, communicator.nodes}][&communicator].push_back(
            static_cast<double>(least_ns));
      }
    }
    constexpr std::size_t kLeastSiblings = 4;
    for (auto& [kind, all] : kinds) {
      std::erase_if(all, [](const auto& one) { return one.second.size() < kBlocks; });
      if (all.size() < kLeastSiblings) continue;
      for (const auto& [communicator, own] : all) {
        std::vector<double> others;
        for (const auto& [other, values] : all) {
          if (other != communicator) others.push_back(account::median(values));
        }
        const double slowest = std::ranges::max(others), usual = account::median(std::move(others));
        if (account::median(own) < 1.1 * slowest) continue;
        const auto recent = std::span(own).last(own.size() / 3);
        if (account::median({recent.begin(), recent.end()}) < kLeastSlowness * usual) continue;
        const account::Summary took = account::summarize(own);
        if (took.ci_low < kLeastSlowness * usual) continue;
        accuse({.verdict = Verdict::slow_communicator,
                .communicator = communicator->name,
                .since_ns = now_ns_ - kWindows_ns[0],
                .sentence = fmt::format(
                    "Communicator {} is slow: {} of {} bytes takes {:.2f} times [{:.2f} to {:.2f}] what it "
                    "takes in {} others of {} ranks, by {} collectives.",
                    communicator->name, std::get<0>(kind), std::get<1>(kind), took.median / usual, took.ci_low / usual,
                    took.ci_high / usual, all.size() - 1, std::get<2>(kind), own.size())});
      }
    }
  }

  void sum_up() {
    if (!found_.all.empty()) {
      found_.verdict = found_.all.front().verdict;
      found_.sentence = found_.all.front().sentence;
    } else if (job_.communicators.empty() && job_.ranks.empty() && job_.gpus.empty()) {
      found_.sentence = "Nothing was read yet.";
    } else if (unknown_) {
      found_.sentence = found_.notes.front();
    } else if (!judged_) {
      found_.sentence = late_unknown_.empty() ? "There is not enough to say anything." : *late_unknown_.begin();
    } else {
      found_.verdict = Verdict::clean;
      found_.sentence = job_.gpus.empty()
                            ? "No rank is late, no communicator is slow and nothing hangs."
                            : "No rank is late, no communicator is slow, nothing hangs and no GPU has trouble.";
    }
    for (const std::string& note : late_unknown_) {
      if (note != found_.sentence) found_.notes.push_back(note);
    }
  }

  const JobView& job_;
  std::int64_t now_ns_;
  const JudgeOptions& options_;
  std::vector<int> silent_;
  bool unknown_ = false, judged_ = false;
  std::set<std::string> late_unknown_;
  Judgement found_;
};

}  // namespace

Judgement judge(const JobView& job, std::int64_t now_ns, const JudgeOptions& options) {
  return Judge(job, now_ns, options).all();
}

}  // namespace fsdpbench::watch
