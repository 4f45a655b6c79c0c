#include "accept/stages/acceptance_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "accept/regression.h"
#include "accept/stages/gpu_watch.h"
#include "accept/stages/judgement_files.h"
#include "base/bytes.h"
#include "base/error.h"
#include "hardware/other_work.h"

namespace fsdpbench::app {
namespace {

using accept::Finding;
using accept::Judgement;
using accept::Verdict;

/// Direction in which more time would change what a rule judges.
enum class Sense : std::uint8_t {
  rises,     ///< the figure may have been higher: it is a rate, or a share of one
  falls,     ///< it may have been lower: it is a time
  scatters,  ///< nothing certain can be said: it compares times among each other
};
struct TimedRule {
  std::string_view rule;
  Sense sense;
};
constexpr std::array kTimedRules{TimedRule{"floor", Sense::rises},
                                 TimedRule{"scale", Sense::rises},
                                 TimedRule{"exposed communication", Sense::falls},
                                 TimedRule{"slow-down", Sense::falls},
                                 TimedRule{"drift", Sense::falls},
                                 TimedRule{"latency", Sense::falls},
                                 TimedRule{"tail", Sense::scatters},
                                 TimedRule{"shape", Sense::scatters}};

bool still_fails(const Judgement& j, Sense sense, double faster) {
  if (sense == Sense::scatters || !j.bound) return false;
  return sense == Sense::rises ? j.value.high * faster < *j.bound : j.value.low / faster > *j.bound;
}

constexpr const char *kPeers = "peers", *kPairs = "pairs among each other";

/// An acceptance that is being judged.
struct Judging {
  const config::Acceptance& wanted;
  const AcceptanceMeasurements& m;
  const Trial* trial;
  AcceptanceReport report;

  void add(Judgement j) { report.judgements.push_back(std::move(j)); }
  void add(std::vector<Judgement> all) { std::ranges::move(all, std::back_inserter(report.judgements)); }
  void add(const char* rule, std::string figure, Verdict verdict, std::string sentence) {
    add(accept::judged(rule, std::move(figure), verdict, std::move(sentence)));
  }

  /// Compares peers by `figure`: nobody is slow, or these are. They are judgements once it is known what is certain.
  void compared(const std::string& figure, std::vector<Finding> findings, bool on_cores) {
    if (findings.empty()) add(kPeers, figure, Verdict::pass, "none is slower than its peers");
    for (Finding& finding : findings) {
      finding.on_cores = on_cores;
      finding.figure = figure;
      report.findings.push_back(std::move(finding));
    }
  }

  std::optional<accept::Reference> reference(const std::string& of) const {
    const config::AcceptanceReference* const known = wanted.find(of);
    return known == nullptr ? std::nullopt : std::optional(accept::Reference{known->value, known->source});
  }

  /// The least value that `reference` demands of a figure, and the highest possible one, where the profile knows it.
  void bounds(const std::string& of, const std::string& figure, const std::string& unit,
              const std::vector<double>& samples, const std::optional<accept::Reference>& least) {
    add(accept::judge_floor(figure, unit, samples, least, wanted.tolerance_pct / 100));
    const config::AcceptanceReference* const known = wanted.find(of);
    if (known != nullptr && known->ceiling > 0) add(accept::judge_ceiling(figure, unit, samples, known->ceiling));
  }
};

/// Ranks that share fewer cores wait for one now and then: one that was slow for a while is no finding
/// about it there. One that stays slow is.
void compare_devices(Judging& judging, const accept::DeviceRounds& rounds, std::string_view at) {
  const AcceptanceMeasurements& m = judging.m;
  const std::string figure = fmt::format("ranks among each other, in {}", at);
  const int ranks = judging.report.ranks;
  if (ranks < accept::kFewestPeers) {
    return judging.add(kPeers, figure, Verdict::unrated,
                       fmt::format("{} ranks are too few to compare: {} are needed", ranks, accept::kFewestPeers));
  }
  if (rounds.empty()) return;  // its stage says why
  std::vector<Finding> findings = accept::blame_devices(m.cluster, rounds, at);
  name_throttling(findings, m.gpus);
  const auto transient = std::ranges::count_if(findings, [](const Finding& f) { return !f.accuses(); });
  if (m.shares_cores && transient > 0) {
    std::erase_if(findings, [](const Finding& f) { return !f.accuses(); });
    judging.add(kPeers, figure, Verdict::unrated,
                fmt::format("{} of {} ranks were slow for a while: they share fewer cores, and waited for one",
                            transient, ranks));
    if (findings.empty()) return;
  }
  judging.compared(figure, std::move(findings), m.on_processors && m.computes);
}

void judge_devices(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  const auto all = [](const accept::DeviceRounds& rounds, double scale) {
    std::vector<double> rates;
    for (const std::vector<double>& round : rounds) {
      for (const double rate : round) {
        if (rate > 0) rates.push_back(rate * scale);
      }
    }
    return rates;
  };
  judging.bounds("gemm", "matrix products of a rank", "TFLOP/s", all(m.device_rates, 1e-12), judging.reference("gemm"));
  compare_devices(judging, m.device_rates, "matrix products");
  constexpr const char* kMemory = "memory of a rank, read and written";
  if (!m.computes) {
    return judging.add("floor", kMemory, Verdict::unrated, "computation is emulated: nothing moves in memory");
  }
  judging.bounds("memory", kMemory, "GB/s", all(m.memory_rates, 1e-9), judging.reference("memory"));
  compare_devices(judging, m.memory_rates, "copies in its memory");
}

/// Each rank by itself, because one bad host of sixty is no matter for their median: those that do not pass are named;
/// if none passes, or all do, one judgement is of all.
void judge_launches(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  constexpr const char* kFigure = "launch and end of a kernel";
  const std::optional<accept::Reference> reference = judging.reference("launch");
  if (m.launch_us.empty()) {
    if (reference)
      judging.add("latency", kFigure, Verdict::inconclusive, "no launch of a kernel on a GPU was measured");
    return;
  }
  const auto judged = [&](std::vector<double> us) {
    Judgement j = accept::judge_latency(kFigure, "us", std::move(us), reference, judging.wanted.tolerance_pct / 100);
    j.on_host = true;
    return j;
  };
  std::vector<double> all;
  std::vector<Judgement> bad;
  for (std::size_t rank = 0; rank < m.hosts.size(); ++rank) {
    std::vector<double> us;
    for (const std::vector<double>& round : m.launch_us) us.push_back(round.at(rank));
    all.insert(all.end(), us.begin(), us.end());
    Judgement j = judged(std::move(us));
    if (j.verdict != Verdict::fail && j.verdict != Verdict::inconclusive) continue;
    j.part = fmt::format("rank {} on {}", rank, m.hosts[rank]);
    j.sentence = fmt::format("{}: {}", j.part, j.sentence);
    j.ranks = {static_cast<int>(rank)};
    bad.push_back(std::move(j));
  }
  Judgement whole = judged(std::move(all));
  if (bad.empty() || (whole.verdict == Verdict::fail && bad.size() > 1 && bad.size() == m.hosts.size())) {
    bad = {std::move(whole)};
  }
  judging.add(std::move(bad));
}

void judge_pairs(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  if (m.cluster.ends() < 2) return;
  judging.bounds("pair", "pairs, one way", "GB/s", m.links.one_way, judging.reference("pair"));
  if (m.shares_cores && m.cores_move_bytes) {
    return judging.add(kPeers, kPairs, Verdict::unrated,
                       fmt::format("{} ranks share fewer cores, which also move their bytes: pairs show who got a core",
                                   m.cluster.gpus_per_node));
  }
  if (m.links.compared) judging.compared(kPairs, m.links.findings, m.on_processors && m.cores_move_bytes);
  if (!m.links.remainder) return;
  Judgement j = accept::judged(kPeers, kRemainderFigure, Verdict::inconclusive, m.links.remainder->sentence);
  j.value = m.links.remainder->relative;
  j.unit = "of what the parts to blame leave";
  judging.add(std::move(j));
}

/// A reference is of large messages: a message of these bytes also pays for the steps of its ring.
std::optional<accept::Reference> ring_reference(const config::AcceptanceReference* r, const Message& message) {
  if (r == nullptr) return std::nullopt;
  return accept::Reference{r->at(static_cast<double>(message.bytes()), message.ranks), r->source};
}

/// GB/s of bus bandwidth, an iteration each.
std::vector<double> bus_rates(const Message& message, const Timing& timing) {
  std::vector<double> rates;
  for (const double us : timing.iterations_us) {
    if (us > 0) rates.push_back(static_cast<double>(message.bytes()) * message.bus_factor() / us * 1e-3);
  }
  return rates;
}

/// "rank 3 (node7) has 12 wrong elements", for up to a few ranks.
std::string wrong_data_text(const AcceptanceMeasurements& m, const Timing& timing, const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    const std::size_t rank = ranks[i];
    text += fmt::format("{}rank {} ({}) has {} wrong elements", i == 0 ? "" : ", ", rank, m.hosts.at(rank),
                        timing.rank_wrong[rank]);
  }
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more ranks", ranks.size() - kMostNamed);
  return text.empty() ? fmt::format("{} elements of the result are wrong", *timing.wrong) : text;
}

/// Each timing of the ladder, out of place and in place.
void for_each_timing(const AcceptanceMeasurements& m,
                     const std::function<void(const Message&, const Timing&, bool in_place)>& visit) {
  for (const CollectiveRow& row : m.ladder) {
    if (row.out_of_place) visit(row.message, *row.out_of_place, false);
    if (row.in_place) visit(row.message, *row.in_place, true);
  }
}

void judge_ladder(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  const bool alone = m.cluster.ranks() < 2;  // nobody to communicate with
  for_each_timing(m, [&](const Message& message, const Timing& timing, bool in_place) {
    const std::string name(to_string(message.op)), figure = ladder_figure(message, in_place);
    if (timing.has_wrong_data()) {
      judging.report.wrong_data = true;
      std::vector<int> ranks;
      for (std::size_t rank = 0; rank < timing.rank_wrong.size(); ++rank) {
        if (timing.rank_wrong[rank] > 0) ranks.push_back(static_cast<int>(rank));
      }
      judging.add("data", figure, Verdict::fail, wrong_data_text(m, timing, ranks));
      // If most have wrong elements, whoever sent them is to blame, and nobody knows who that is.
      if (2 * ranks.size() <= timing.rank_wrong.size()) judging.report.judgements.back().ranks = ranks;
      return;
    }
    if (alone) return;
    judging.bounds(name, figure, "GB/s", bus_rates(message, timing),
                   ring_reference(judging.wanted.find(name), message));
    constexpr std::int64_t kTailFrom_bytes = 1 << 20;
    if (m.rates_tails && message.bytes() >= kTailFrom_bytes) {
      judging.add(accept::judge_tail(figure, timing.iterations_us));
    }
  });
  if (!alone && !m.ladder.empty()) return;
  judging.add("floor", "collectives", Verdict::inconclusive,
              alone
                  ? "no collective was measured, as one rank has nobody to communicate with: start a process per rank "
                    "by mpirun, torchrun or srun, or let this one have threads for ranks with --set mesh.ranks"
                  : "no collective was measured");
}

void judge_shapes(Judging& judging) {
  if (judging.m.cluster.ranks() < 2) return;
  std::map<std::string, std::vector<accept::SizeRate>> shapes;
  for_each_timing(judging.m, [&](const Message& message, const Timing& timing, bool in_place) {
    if (timing.has_wrong_data()) return;
    shapes[fmt::format("{} by size{}", to_string(message.op), in_place ? ", in place" : "")].push_back(
        {message.bytes(), accept::median_interval(bus_rates(message, timing))});
  });
  for (auto& [figure, sizes] : shapes) {
    judging.add(accept::judge_shape(figure, std::move(sizes), judging.wanted.cliff_pct / 100));
  }
}

void judge_scales(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  if (m.cluster.ranks() < 2) return;
  for (const backend::Collective op : {backend::Collective::all_gather, backend::Collective::reduce_scatter}) {
    std::vector<accept::Rung> rungs;
    std::int64_t bytes = 0;
    for (const accept::Scale& scale : accept::scales_of(m.cluster)) {
      accept::Rung& rung = rungs.emplace_back(accept::Rung{scale, {}});
      for (const CollectiveRow& row : m.scales) {
        if (row.message.op != op || row.message.ranks != scale.ranks) continue;
        rung.gb_per_s = bus_rates(row.message, row.timing());
        bytes = row.message.part_bytes();
      }
    }
    const std::string size = bytes > 0 ? fmt::format(" of {} per rank", format_bytes(bytes)) : "";
    judging.add(accept::judge_scale(fmt::format("{}{}, by ranks of a group", to_string(op), size), rungs,
                                    judging.wanted.scale_pct / 100));
  }
}

void judge_step(Judging& judging) {
  std::vector<double> shares;
  if (judging.trial != nullptr && judging.trial->metrics) {
    for (const account::RankMetrics& rank : judging.trial->metrics->ranks) {
      if (rank.step_ms.median > 0) shares.push_back(rank.exposed_comm_ms / rank.step_ms.median);
    }
  }
  judging.add(accept::judge_exposed("training steps, by rank", std::move(shares), judging.wanted.exposed_pct / 100));
}

void judge_parts_of_a_step(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  if (m.cluster.ranks() < 2) return;  // nobody to communicate with
  accept::ArmBounds bounds;
  bounds.exposed = judging.wanted.exposed_pct / 100;
  bounds.slowdown = judging.wanted.slowdown;
  judging.add(accept::judge_arms(m.arms, bounds, "the arms of a step were not measured"));
  if (!m.soak.empty()) judging.add(accept::judge_drift(m.soak));
}

void judge_lateness(Judging& judging) {
  const AcceptanceMeasurements& m = judging.m;
  constexpr const char *kRule = "lateness", *kFigure = "ranks at the reductions of the training steps";
  if (m.cluster.ranks() < accept::kFewestToBeLate) {
    return judging.add(
        kRule, kFigure, Verdict::unrated,
        fmt::format("of {} ranks one is always last: {} are needed", m.cluster.ranks(), accept::kFewestToBeLate));
  }
  const accept::LatenessReport& lateness =
      judging.report.lateness.emplace(accept::blame_lateness(m.cluster, m.arrivals));
  const Verdict verdict = m.arrivals.empty() ? Verdict::inconclusive : lateness.late ? Verdict::fail : Verdict::pass;
  Judgement j = accept::judged(kRule, kFigure, verdict, lateness.sentence);
  j.value = lateness.waiting_us;
  j.unit = "us of waiting for the last rank";
  if (lateness.late) j.place = accept::place_of(lateness.late->element, m.cluster);
  judging.add(std::move(j));
}

/// A process that did not run for a while, whatever was measured then: what came of it cannot be passed.
void judge_standstills(Judging& judging) {
  constexpr double kLongest_s = 1;  // a crowded machine keeps a process waiting, too, but not for so long
  const std::vector<double>& standstill_s = judging.m.standstill_s;
  std::vector<Finding> findings;
  for (std::size_t rank = 0; rank < standstill_s.size(); ++rank) {
    if (standstill_s[rank] <= kLongest_s) continue;
    Finding& finding = findings.emplace_back();
    finding.element = {accept::Element::Kind::gpu, static_cast<int>(rank), 0};
    finding.kind = Finding::Kind::transient;
    finding.shortfall = 1;
    finding.evidence = fmt::format("the process of {} did not run at all for {:.1f} s",
                                   accept::name_of(finding.element, judging.m.cluster), standstill_s[rank]);
    finding.check =
        "who stops processes there: signals, debuggers, swapping, limits of its container, a paused machine";
  }
  if (2 * findings.size() > standstill_s.size()) {
    return judging.add(
        "standstill", "all ranks", Verdict::inconclusive,
        fmt::format("{} of {} processes did not run at all for more than {} s: their machine was paused, "
                    "or has far too much to do",
                    findings.size(), standstill_s.size(), kLongest_s));
  }
  if (!standstill_s.empty()) judging.compared("processes that run all the time", std::move(findings), false);
}

/// Adds what findings say about their parts, once it is known what is certain.
void judge_findings(Judging& judging) {
  soften(judging.m, judging.report.judgements, judging.report.findings);
  for (const Finding& finding : judging.report.findings) {
    Judgement j = accept::judged(kPeers, finding.figure, finding.accuses() ? Verdict::fail : Verdict::inconclusive,
                                 finding.evidence);
    j.part = accept::name_of(finding.element, judging.m.cluster);
    j.value = finding.relative;
    j.unit = "of its peers' median";
    j.place = accept::place_of(finding.element, judging.report.cluster);
    j.place.direction = finding.direction;
    judging.add(std::move(j));
  }
  // Whoever waits for a slow part comes late: it explains that, and blames nobody else.
  const bool explained = std::ranges::any_of(judging.report.findings, &Finding::accuses);
  const auto& lateness = judging.report.lateness;
  if (lateness && lateness->late && !explained) judging.report.findings.push_back(*lateness->late);
  std::ranges::stable_partition(judging.report.findings, &Finding::accuses);
}

/// A pass that rests on few rated rules says little: a profile or its user asks for a share of them.
void judge_share(Judging& judging) {
  const double least = judging.wanted.rated_pct / 100;
  if (least <= 0) return;
  const auto all = static_cast<double>(judging.report.judgements.size());
  const double share = static_cast<double>(rated_rules(judging.report)) / all;
  Judgement j = accept::of_samples(kRatedRule, "rules that could be rated", "of all", {share});
  j.bound = least;
  j.verdict = share < least ? Verdict::inconclusive : Verdict::pass;
  j.sentence = fmt::format("{} of {:.0f} rules could be rated, and {:.0f} % are asked for (rated_pct, --least-rated)",
                           rated_rules(judging.report), all, 100 * least);
  judging.add(std::move(j));
}

/// A judge, in the order of the report, and the stages that it rests on, by how their names begin.
struct Judges {
  void (*judge)(Judging& judging);
  std::vector<std::string_view> stages;
};

const std::vector<Judges>& all_judges() {
  static const std::vector<Judges> kAll{
      {[](Judging& j) { j.add(judge_gpus(j.m.gpus, j.m.hosts)); }, {}},
      {judge_devices, {"matrix products", "copies in memory of all"}},
      {judge_launches, {"launches"}},
      {judge_pairs, {"pairs of"}},
      {judge_ladder, {"all_gather of", "reduce_scatter of"}},
      {judge_shapes, {}},
      {judge_scales, {"collectives in groups"}},
      {judge_step, {"training steps"}},
      {judge_parts_of_a_step, {"computation alone", "soak"}},
      {judge_lateness, {}},
      {judge_standstills, {}},
      {judge_findings, {}},
      {judge_share, {}},
  };
  return kAll;
}

}  // namespace

double host_may_be_faster(const AcceptanceMeasurements& measured) {
  constexpr double kMostShare = 0.99;
  if (measured.others_share < kQuietShare) return 1;
  return 1 / (1 - std::min(measured.others_share, kMostShare));
}

double may_be_faster(const AcceptanceMeasurements& measured) {
  if (!measured.on_processors || measured.others_share < kQuietShare) return 1;
  return accept::most_slowed(measured.others_share);
}

void soften(const AcceptanceMeasurements& measured, std::vector<Judgement>& judgements,
            std::vector<Finding>& findings) {
  const double faster = may_be_faster(measured), host_faster = host_may_be_faster(measured);
  if (host_faster <= 1) return;
  const std::string why = fmt::format("; {}, so it is not certain", taken_text(measured.others_share));
  for (Judgement& j : judgements) {
    const auto* const timed = std::ranges::find(kTimedRules, j.rule, &TimedRule::rule);
    if (j.verdict != Verdict::fail || timed == kTimedRules.end()) continue;
    const double by = j.on_host ? host_faster : faster;
    if (by <= 1 || still_fails(j, timed->sense, by)) continue;
    j.verdict = Verdict::inconclusive;
    j.sentence += why;
  }
  for (Finding& f : findings) {
    if (f.kind != Finding::Kind::slow && f.kind != Finding::Kind::half_duplex) continue;
    if (!f.on_cores || f.relative.high * faster < 1 - accept::kLeastShortfall) continue;
    f.kind = Finding::Kind::transient;
    f.evidence += why;
  }
}

std::int64_t rated_rules(const AcceptanceReport& report) {
  return std::ranges::count_if(report.judgements, [](const Judgement& j) { return j.verdict != Verdict::unrated; });
}

std::string ladder_figure(const Message& message, bool in_place) {
  return fmt::format("{} of {} on {} ranks{}", to_string(message.op), format_bytes(message.bytes()), message.ranks,
                     in_place ? ", in place" : "");
}

int AcceptanceReport::exit_code() const {
  if (wrong_data) return static_cast<int>(ExitCode::wrong_data);
  const auto open = [](const Judgement& j) { return j.verdict == Verdict::inconclusive && j.rule != kRatedRule; };
  const bool only_too_few = verdict == Verdict::inconclusive && !judgements.empty() &&
                            judgements.back().rule == kRatedRule && std::ranges::none_of(judgements, open);
  return only_too_few ? static_cast<int>(ExitCode::few_rated) : accept::exit_code(verdict, ExitCode::below_floor);
}

void tell_places(AcceptanceReport& report) {
  for (Judgement& j : report.judgements) {
    if (j.place.host.empty()) j.place = accept::place_of(j.ranks, report.cluster);
  }
}

AcceptanceReport judge_acceptance(const config::Acceptance& wanted, const AcceptanceMeasurements& measured,
                                  const Trial* trial) {
  Judging judging{wanted, measured, trial, {}};
  AcceptanceReport& report = judging.report;
  report.fabric = wanted.fabric;
  report.ranks = static_cast<int>(measured.hosts.size());
  report.cluster = measured.cluster;
  report.hosts = measured.hosts;
  report.emulated = !measured.computes || (measured.on_processors && !measured.cores_move_bytes);
  report.judgements = judge_facts(wanted, measured);
  for (const Stage& stage : measured.stages) {
    report.took_s += stage.took_s;
    if (stage.skipped) {
      judging.add("stages", stage.name, Verdict::inconclusive, fmt::format("it was not measured: {}", stage.note));
    }
  }
  if (!measured.stopped_because.empty()) {
    judging.add("stages", "all after the rendezvous", Verdict::inconclusive,
                fmt::format("they were not measured, because {}", measured.stopped_because));
  }
  for (const Judges& row : all_judges()) {
    if (!measured.stopped_because.empty()) break;
    const std::size_t first = report.judgements.size();
    row.judge(judging);
    double took_s = 0;
    for (const Stage& stage : measured.stages) {
      const auto rests = [&](std::string_view name) { return stage.name.starts_with(name); };
      if (std::ranges::any_of(row.stages, rests)) took_s += stage.took_s;
    }
    const std::span added = std::span(report.judgements).subspan(first);
    for (Judgement& j : added) j.took_s = took_s / static_cast<double>(added.size());
  }
  tell_places(report);
  report.verdict = accept::overall(report.judgements);
  return std::move(judging.report);
}

}  // namespace fsdpbench::app
