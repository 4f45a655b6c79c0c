#include "accept/stages/acceptance_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "accept/regression.h"
#include "accept/stages/gpu_watch.h"
#include "accept/stages/judgement_files.h"
#include "accept/stages/topology.h"
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
constexpr std::array kTimedRules{TimedRule{"floor", Sense::rises},     TimedRule{"scale", Sense::rises},
                                 TimedRule{"explained", Sense::rises}, TimedRule{"exposed communication", Sense::falls},
                                 TimedRule{"slow-down", Sense::falls}, TimedRule{"drift", Sense::falls},
                                 TimedRule{"latency", Sense::falls},   TimedRule{"tail", Sense::scatters},
                                 TimedRule{"shape", Sense::scatters}};

bool still_fails(const Judgement& j, Sense sense, double faster) {
  if (sense == Sense::scatters || !j.bound) return false;
  return sense == Sense::rises ? j.value.high * faster < *j.bound : j.value.low / faster > *j.bound;
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
namespace {

using accept::Finding;
using accept::Judgement;
using accept::Verdict;

/// The least value that `reference` demands of a figure, and the highest possible one, where the profile knows it.
void judge_bounds(const config::Acceptance& wanted, const std::string& of, const std::string& figure,
                  const std::string& unit, const std::vector<double>& samples,
                  const std::optional<accept::Reference>& reference, AcceptanceReport& report) {
  report.judgements.push_back(accept::judge_floor(figure, unit, samples, reference, wanted.tolerance_pct / 100));
  const config::AcceptanceReference* const known = wanted.find(of);
  if (known != nullptr && known->ceiling > 0) {
    report.judgements.push_back(accept::judge_ceiling(figure, unit, samples, known->ceiling));
  }
}

void judge_bounds(const config::Acceptance& wanted, const std::string& of, const std::string& figure,
                  const std::string& unit, const std::vector<double>& samples, AcceptanceReport& report) {
  const config::AcceptanceReference* const known = wanted.find(of);
  judge_bounds(wanted, of, figure, unit, samples,
               known == nullptr ? std::nullopt : std::optional(accept::Reference{known->value, known->source}), report);
}

void add_findings(std::vector<Finding> findings, bool on_cores, AcceptanceReport& report) {
  for (Finding& finding : findings) finding.on_cores = on_cores;
  std::ranges::move(findings, std::back_inserter(report.findings));
}

/// Ranks that share fewer cores wait for one now and then: one that was slow for a while is no finding
/// about it there. One that stays slow is.
void add_device_findings(const AcceptanceMeasurements& m, const accept::DeviceRounds& rounds, std::string_view at,
                         AcceptanceReport& report) {
  std::vector<Finding> findings = accept::blame_devices(m.cluster, rounds, at);
  name_throttling(findings, m.gpus);
  const auto transient = std::ranges::count_if(findings, [](const Finding& f) { return !f.accuses(); });
  if (m.shares_cores && transient > 0) {
    std::erase_if(findings, [](const Finding& f) { return !f.accuses(); });
    report.judgements.push_back(
        accept::judged("peers", fmt::format("ranks among each other, in {}", at), Verdict::unrated,
                       fmt::format("{} of {} ranks were slow for a while: they share fewer cores, and waited for one",
                                   transient, report.ranks)));
  }
  add_findings(std::move(findings), m.on_processors && m.computes, report);
}

void judge_devices(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  std::vector<double> tflops;
  for (const std::vector<double>& round : m.device_rates) {
    for (const double rate : round) {
      if (rate > 0) tflops.push_back(rate * 1e-12);
    }
  }
  judge_bounds(wanted, "gemm", "matrix products of a rank", "TFLOP/s", tflops, report);
  add_device_findings(m, m.device_rates, "matrix products", report);
  std::vector<double> gb_per_s;
  for (const std::vector<double>& round : m.memory_rates) {
    for (const double rate : round) gb_per_s.push_back(rate * 1e-9);
  }
  if (m.computes) {
    judge_bounds(wanted, "memory", "memory of a rank, read and written", "GB/s", gb_per_s, report);
    add_device_findings(m, m.memory_rates, "copies in its memory", report);
  } else {
    report.judgements.push_back(accept::judged("floor", "memory of a rank, read and written", Verdict::unrated,
                                               "computation is emulated: nothing moves in memory"));
  }
  if (report.ranks < accept::kFewestPeers) {
    report.judgements.push_back(accept::judged(
        "peers", "ranks among each other", Verdict::unrated,
        fmt::format("{} ranks are too few to compare: {} are needed", report.ranks, accept::kFewestPeers)));
  }
}

void judge_pairs(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  if (m.cluster.ends() < 2) return;
  judge_bounds(wanted, "pair", "pairs, one way", "GB/s", m.links.one_way, report);
  if (m.shares_cores && m.cores_move_bytes) {
    report.judgements.push_back(
        accept::judged("peers", "pairs among each other", Verdict::unrated,
                       fmt::format("{} ranks share fewer cores, which also move their bytes: pairs show "
                                   "who got a core",
                                   m.cluster.gpus_per_node)));
    return;
  }
  add_findings(m.links.findings, m.on_processors && m.cores_move_bytes, report);
  if (!m.links.remainder) return;
  Judgement j = accept::judged("peers", kRemainderFigure, Verdict::inconclusive, m.links.remainder->sentence);
  j.value = m.links.remainder->relative;
  j.unit = "of what the parts to blame leave";
  report.judgements.push_back(std::move(j));
}

/// A reference is of large messages: a message of these bytes also pays for the steps of its ring.
std::optional<accept::Reference> ring_reference(const config::AcceptanceReference* r, const Message& message) {
  if (r == nullptr) return std::nullopt;
  const double others = message.ranks - 1;
  const double moved = static_cast<double>(message.bytes()) * others / message.ranks;
  const double us = r->hop_us * others + moved / r->value * 1e-3;
  return accept::Reference{us > 0 ? moved / us * 1e-3 : 0, r->source};
}

/// GB/s of bus bandwidth, an iteration each.
std::vector<double> bus_rates(const Message& message, const Timing& timing) {
  std::vector<double> rates;
  for (const double us : timing.iterations_us) {
    if (us > 0) rates.push_back(static_cast<double>(message.bytes()) * message.bus_factor() / us * 1e-3);
  }
  return rates;
}

std::vector<int> ranks_with_wrong_data(const Timing& timing) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < timing.rank_wrong.size(); ++rank) {
    if (timing.rank_wrong[rank] > 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// "rank 3 (node7) has 12 wrong elements", for up to a few ranks.
std::string wrong_data_text(const AcceptanceMeasurements& m, const Timing& timing, const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    const std::size_t rank = ranks[i];
    text += fmt::format("{}rank {} ({}) has {} wrong elements", i == 0 ? "" : ", ", rank,
                        rank < m.hosts.size() ? m.hosts[rank] : "", timing.rank_wrong[rank]);
  }
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more ranks", ranks.size() - kMostNamed);
  return text.empty() ? fmt::format("{} elements of the result are wrong", *timing.wrong) : text;
}

void judge_ladder(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  for (const CollectiveRow& row : m.ladder) {
    const std::string name(to_string(row.message.op));
    for (const bool in_place : {false, true}) {
      const std::optional<Timing>& timing = in_place ? row.in_place : row.out_of_place;
      if (!timing) continue;
      const std::string figure = ladder_figure(row.message, in_place);
      if (timing->wrong.value_or(0) > 0) {
        report.wrong_data = true;
        const std::vector<int> ranks = ranks_with_wrong_data(*timing);
        report.judgements.push_back(accept::judged("data", figure, Verdict::fail, wrong_data_text(m, *timing, ranks)));
        // If most have wrong elements, whoever sent them is to blame, and nobody knows who that is.
        if (2 * ranks.size() <= timing->rank_wrong.size()) report.judgements.back().ranks = ranks;
        continue;
      }
      if (m.cluster.ranks() < 2) continue;  // nobody to communicate with
      const std::vector<double> rates = bus_rates(row.message, *timing);
      judge_bounds(wanted, name, figure, "GB/s", rates, ring_reference(wanted.find(name), row.message), report);
      constexpr std::int64_t kTailFrom_bytes = 1 << 20;
      if (m.rates_tails && row.message.bytes() >= kTailFrom_bytes) {
        report.judgements.push_back(accept::judge_tail(figure, timing->iterations_us));
      }
    }
  }
  if (m.cluster.ranks() < 2) {
    report.judgements.push_back(accept::judged(
        "floor", "collectives", Verdict::inconclusive,
        "no collective was measured, as one rank has nobody to communicate with: start a process per rank by mpirun, "
        "torchrun or srun, or let this one have threads for ranks with --set mesh.ranks"));
  } else if (m.ladder.empty()) {
    report.judgements.push_back(
        accept::judged("floor", "collectives", Verdict::inconclusive, "no collective was measured"));
  }
}

void judge_scales(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  if (m.cluster.ranks() < 2) return;
  for (const backend::Collective op : {backend::Collective::all_gather, backend::Collective::reduce_scatter}) {
    std::vector<accept::Rung> rungs;
    std::int64_t bytes = 0;
    for (const accept::Scale& scale : accept::scales_of(m.cluster)) {
      accept::Rung& rung = rungs.emplace_back(accept::Rung{scale, {}});
      for (const CollectiveRow& row : m.scales.rows) {
        if (row.message.op != op || row.message.ranks != scale.ranks) continue;
        rung.gb_per_s = bus_rates(row.message, row.in_place ? *row.in_place : *row.out_of_place);
        bytes = row.message.part_bytes();
      }
    }
    const std::string size = bytes > 0 ? fmt::format(" of {} per rank", format_bytes(bytes)) : "";
    report.judgements.push_back(accept::judge_scale(fmt::format("{}{}, by ranks of a group", to_string(op), size),
                                                    rungs, wanted.scale_pct / 100));
  }
  if (m.scales.shard == 0) return;
  std::vector<double> ratios;
  const double alone = accept::median_interval(m.scales.reduce_alone_us).median;
  for (const double us : m.scales.reduce_beside_us) {
    if (alone > 0) ratios.push_back(us / alone);
  }
  report.judgements.push_back(
      accept::judge_slowdown(fmt::format("reduce-scatter in groups of {} beside all-reduce across {} replicas",
                                         m.scales.shard, m.scales.replicate),
                             std::move(ratios), std::nullopt));
}

void judge_shapes(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  if (m.cluster.ranks() < 2) return;
  std::map<std::string, std::vector<accept::SizeRate>> shapes;
  for (const CollectiveRow& row : m.ladder) {
    for (const bool in_place : {false, true}) {
      const std::optional<Timing>& timing = in_place ? row.in_place : row.out_of_place;
      if (!timing || timing->wrong.value_or(0) > 0) continue;
      shapes[fmt::format("{} by size{}", to_string(row.message.op), in_place ? ", in place" : "")].push_back(
          {row.message.bytes(), accept::median_interval(bus_rates(row.message, *timing))});
    }
  }
  for (auto& [figure, sizes] : shapes) {
    report.judgements.push_back(accept::judge_shape(figure, std::move(sizes), wanted.cliff_pct / 100));
  }
}

void judge_lateness(const AcceptanceMeasurements& m, AcceptanceReport& report) {
  constexpr const char* kFigure = "ranks at the reductions of the training steps";
  if (m.cluster.ranks() < accept::kFewestToBeLate) {
    report.judgements.push_back(accept::judged(
        "lateness", kFigure, Verdict::unrated,
        fmt::format("of {} ranks one is always last: {} are needed", m.cluster.ranks(), accept::kFewestToBeLate)));
    return;
  }
  const accept::LatenessReport& lateness = report.lateness.emplace(accept::blame_lateness(m.cluster, m.arrivals));
  const Verdict verdict = m.arrivals.empty() ? Verdict::inconclusive : lateness.late ? Verdict::fail : Verdict::pass;
  Judgement j = accept::judged("lateness", kFigure, verdict, lateness.sentence);
  j.value = lateness.waiting_us;
  j.unit = "us of waiting for the last rank";
  if (lateness.late) j.place = accept::place_of(lateness.late->element, m.cluster);
  report.judgements.push_back(std::move(j));
}

void judge_parts_of_a_step(const config::Acceptance& wanted, const AcceptanceMeasurements& m,
                           AcceptanceReport& report) {
  if (m.cluster.ranks() < 2) return;  // nobody to communicate with
  accept::ArmBounds bounds;
  bounds.exposed = wanted.exposed_pct / 100;
  bounds.slowdown = wanted.slowdown;
  if (wanted.explained_pct) bounds.explained = *wanted.explained_pct / 100;
  const std::string why_none = "the arms of a step were not measured";
  std::vector<Judgement> all = accept::judge_arms(m.arms, bounds, why_none);
  all.push_back(
      accept::judge_explained(m.arms, m.predicted.ms, bounds, m.arms.empty() ? why_none : m.predicted.why_none));
  if (!m.soak.empty()) {
    const std::vector<Judgement> drifts = accept::judge_drift(m.soak);
    all.insert(all.end(), drifts.begin(), drifts.end());
  }
  report.judgements.insert(report.judgements.end(), all.begin(), all.end());
}

void judge_step(const config::Acceptance& wanted, const Trial* trial, AcceptanceReport& report) {
  std::vector<double> shares;
  if (trial != nullptr && trial->metrics) {
    for (const account::RankMetrics& rank : trial->metrics->ranks) {
      if (rank.step_ms.median > 0) shares.push_back(rank.exposed_comm_ms / rank.step_ms.median);
    }
  }
  report.judgements.push_back(
      accept::judge_exposed("training steps, by rank", std::move(shares), wanted.exposed_pct / 100));
}

/// A process that did not run for a while, whatever was measured then: what came of it cannot be passed.
void judge_standstills(const AcceptanceMeasurements& m, AcceptanceReport& report) {
  constexpr double kLongest_s = 1;  // a crowded machine keeps a process waiting, too, but not for so long
  std::vector<std::size_t> stood;
  for (std::size_t rank = 0; rank < m.standstill_s.size(); ++rank) {
    if (m.standstill_s[rank] > kLongest_s) stood.push_back(rank);
  }
  if (2 * stood.size() > m.standstill_s.size()) {
    report.judgements.push_back(
        accept::judged("standstill", "all ranks", Verdict::inconclusive,
                       fmt::format("{} of {} processes did not run at all for more than {} s: their "
                                   "machine was paused, or has far too much to do",
                                   stood.size(), m.standstill_s.size(), kLongest_s)));
    return;
  }
  for (const std::size_t rank : stood) {
    Finding finding;
    finding.element = {accept::Element::Kind::gpu, static_cast<int>(rank), 0};
    finding.kind = Finding::Kind::transient;
    finding.shortfall = 1;
    finding.evidence = fmt::format("the process of {} did not run at all for {:.1f} s",
                                   accept::name_of(finding.element, m.cluster), m.standstill_s[rank]);
    finding.check =
        "who stops processes there: signals, debuggers, swapping, limits of its container, a paused machine";
    report.findings.push_back(std::move(finding));
  }
}

}  // namespace

std::string ladder_figure(const Message& message, bool in_place) {
  return fmt::format("{} of {} on {} ranks{}", to_string(message.op), format_bytes(message.bytes()), message.ranks,
                     in_place ? ", in place" : "");
}

int AcceptanceReport::exit_code() const {
  if (wrong_data) return static_cast<int>(ExitCode::wrong_data);
  return accept::exit_code(verdict, ExitCode::below_floor);
}

void tell_places(AcceptanceReport& report) {
  for (Judgement& j : report.judgements) {
    if (j.place.host.empty()) j.place = accept::place_of(j.ranks, report.cluster);
  }
}

AcceptanceReport judge_acceptance(const config::Acceptance& wanted, const AcceptanceMeasurements& measured,
                                  const Trial* trial) {
  AcceptanceReport report;
  report.fabric = wanted.fabric;
  report.ranks = static_cast<int>(measured.hosts.size());
  report.cluster = measured.cluster;
  report.hosts = measured.hosts;
  report.emulated = !measured.computes || (measured.on_processors && !measured.cores_move_bytes);
  report.judgements = judge_facts(wanted, measured);
  if (!measured.stopped_because.empty()) {
    report.judgements.push_back(
        accept::judged("stages", "all after the rendezvous", Verdict::inconclusive,
                       fmt::format("they were not measured, because {}", measured.stopped_because)));
    report.verdict = accept::overall(report.judgements);
    tell_places(report);
    return report;
  }
  for (const Stage& stage : measured.stages) {
    if (!stage.skipped) continue;
    report.judgements.push_back(accept::judged("stages", stage.name, Verdict::inconclusive,
                                               fmt::format("it was not measured: {}", stage.note)));
  }
  for (Judgement& judgement : judge_gpus(measured.gpus, measured.hosts)) {
    report.judgements.push_back(std::move(judgement));
  }
  judge_devices(wanted, measured, report);
  for (Judgement& judgement : judge_node_rates(wanted, measured.node, measured.hosts)) {
    report.judgements.push_back(std::move(judgement));
  }
  judge_pairs(wanted, measured, report);
  judge_ladder(wanted, measured, report);
  judge_shapes(wanted, measured, report);
  judge_scales(wanted, measured, report);
  judge_step(wanted, trial, report);
  judge_parts_of_a_step(wanted, measured, report);
  judge_lateness(measured, report);
  judge_standstills(measured, report);
  soften(measured, report.judgements, report.findings);
  for (const Finding& finding : report.findings) {
    Judgement j = accept::judged("peers", accept::name_of(finding.element, measured.cluster),
                                 finding.accuses() ? Verdict::fail : Verdict::inconclusive, finding.evidence);
    j.value = finding.relative;
    j.unit = "of its peers' median";
    j.place = accept::place_of(finding.element, report.cluster);
    j.place.direction = finding.direction;
    report.judgements.push_back(std::move(j));
  }
  // Whoever waits for a slow part comes late: it explains that, and blames nobody else.
  const bool explained = std::ranges::any_of(report.findings, &Finding::accuses);
  if (report.lateness && report.lateness->late && !explained) report.findings.push_back(*report.lateness->late);
  std::ranges::stable_partition(report.findings, &Finding::accuses);
  tell_places(report);
  report.verdict = accept::overall(report.judgements);
  return report;
}

}  // namespace fsdpbench::app
