#include "app/acceptance/acceptance_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using accept::Finding;
using accept::Judgement;
using accept::Verdict;

std::optional<accept::Reference> reference_of(const config::Acceptance& wanted, const std::string& figure) {
  const config::AcceptanceReference* r = wanted.find(figure);
  if (r == nullptr) return std::nullopt;
  return accept::Reference{r->value, r->source};
}

Judgement plain(std::string rule, std::string figure, Verdict verdict, std::string sentence) {
  Judgement j;
  j.rule = std::move(rule);
  j.figure = std::move(figure);
  j.verdict = verdict;
  j.sentence = std::move(sentence);
  return j;
}

/// Every fact is to be what most ranks say; each rank that differs is named with what it has instead.
void judge_inventory(const AcceptanceMeasurements& m, std::vector<Judgement>& out) {
  std::map<std::string, std::map<std::string, std::vector<std::size_t>>> ranks_by_fact;
  for (std::size_t rank = 0; rank < m.fingerprints.size(); ++rank) {
    for (const auto& [name, value] : m.fingerprints[rank]) ranks_by_fact[name][value].push_back(rank);
  }
  bool all_alike = !m.fingerprints.empty();
  for (const auto& [name, values] : ranks_by_fact) {
    const auto usual = std::ranges::max_element(values, {}, [](const auto& v) { return v.second.size(); });
    for (const auto& [value, ranks] : values) {
      if (value == usual->first) continue;
      all_alike = false;
      out.push_back(plain(
          "inventory", fmt::format("{} of rank {}", name, ranks.front()), Verdict::fail,
          fmt::format("rank {} on {}{} has {} = '{}', and {} of {} ranks have '{}'", ranks.front(),
                      m.hosts.at(ranks.front()), ranks.size() > 1 ? fmt::format(" and {} more", ranks.size() - 1) : "",
                      name, value, usual->second.size(), m.fingerprints.size(), usual->first)));
    }
  }
  if (m.fingerprints.empty()) {
    out.push_back(plain("inventory", "all ranks", Verdict::inconclusive, "no rank said what it is"));
  } else if (all_alike) {
    out.push_back(
        plain("inventory", "all ranks", Verdict::pass,
              fmt::format("{} ranks have the same program, processor, kernel and libraries", m.hosts.size())));
  }
}

void judge_rendezvous(const config::Acceptance& wanted, const AcceptanceMeasurements& m, std::vector<Judgement>& out) {
  const auto seen = static_cast<int>(m.hosts.size());
  if (wanted.ranks == 0) {
    out.push_back(plain("rendezvous", "ranks", Verdict::unrated,
                        fmt::format("{} ranks came; the profile does not say how many there should be", seen)));
    return;
  }
  out.push_back(plain("rendezvous", "ranks", seen == wanted.ranks ? Verdict::pass : Verdict::fail,
                      fmt::format("{} ranks came, and {} are expected", seen, wanted.ranks)));
}

void judge_devices(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  std::vector<double> tflops;
  for (const std::vector<double>& round : m.device_rates) {
    for (const double rate : round) {
      if (rate > 0) tflops.push_back(rate * 1e-12);
    }
  }
  report.judgements.push_back(accept::judge_floor("matrix products of a rank", "TFLOP/s", tflops,
                                                  reference_of(wanted, "gemm"), wanted.tolerance_pct / 100));
  const std::vector<Finding> findings = accept::blame_devices(m.cluster, m.device_rates);
  report.findings.insert(report.findings.end(), findings.begin(), findings.end());
  if (report.ranks < accept::kFewestPeers) {
    report.judgements.push_back(
        plain("peers", "ranks among each other", Verdict::unrated,
              fmt::format("{} ranks are too few to compare: {} are needed", report.ranks, accept::kFewestPeers)));
  }
}

void judge_pairs(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  if (m.cluster.ends() < 2) return;
  report.judgements.push_back(accept::judge_floor("pairs, one way", "GB/s", m.links.one_way,
                                                  reference_of(wanted, "pair"), wanted.tolerance_pct / 100));
  report.findings.insert(report.findings.end(), m.links.findings.begin(), m.links.findings.end());
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

void judge_ladder(const config::Acceptance& wanted, const AcceptanceMeasurements& m, AcceptanceReport& report) {
  for (const CollectiveRow& row : m.ladder) {
    const std::string name(to_string(row.message.op));
    const config::AcceptanceReference* const reference = wanted.find(name);
    for (const bool in_place : {false, true}) {
      const std::optional<Timing>& timing = in_place ? row.in_place : row.out_of_place;
      if (!timing) continue;
      const std::string figure = fmt::format("{} of {} on {} ranks{}", name, format_bytes(row.message.bytes()),
                                             row.message.ranks, in_place ? ", in place" : "");
      if (timing->wrong.value_or(0) > 0) {
        report.wrong_data = true;
        report.judgements.push_back(
            plain("data", figure, Verdict::fail, fmt::format("{} elements of the result are wrong", *timing->wrong)));
        continue;
      }
      if (m.cluster.ranks() < 2) continue;  // nobody to communicate with
      const std::vector<double> rates = bus_rates(row.message, *timing);
      report.judgements.push_back(accept::judge_floor(figure, "GB/s", rates, ring_reference(reference, row.message),
                                                      wanted.tolerance_pct / 100));
      if (reference != nullptr && reference->ceiling > 0) {
        report.judgements.push_back(accept::judge_ceiling(figure, "GB/s", rates, reference->ceiling));
      }
      constexpr std::int64_t kTailFrom_bytes = 1 << 20;
      if (timing->iterations_us.size() >= 100 && row.message.bytes() >= kTailFrom_bytes) {
        report.judgements.push_back(accept::judge_tail(figure, timing->iterations_us));
      }
    }
  }
  if (m.ladder.empty()) {
    report.judgements.push_back(plain("floor", "collectives", Verdict::inconclusive, "no collective was measured"));
  }
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
    report.judgements.push_back(plain(
        "lateness", kFigure, Verdict::unrated,
        fmt::format("of {} ranks one is always last: {} are needed", m.cluster.ranks(), accept::kFewestToBeLate)));
    return;
  }
  const accept::LatenessReport& lateness = report.lateness.emplace(accept::blame_lateness(m.cluster, m.arrivals));
  const Verdict verdict = m.arrivals.empty() ? Verdict::inconclusive : lateness.late ? Verdict::fail : Verdict::pass;
  Judgement j = plain("lateness", kFigure, verdict, lateness.sentence);
  j.value = lateness.waiting_us;
  j.unit = "us of waiting for the last rank";
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
  report.judgements.insert(report.judgements.end(), all.begin(), all.end());
}

void judge_step(const config::Acceptance& wanted, const Trial* trial, AcceptanceReport& report) {
  std::vector<double> shares;
  if (trial != nullptr && trial->metrics) {
    for (const metrics::RankMetrics& rank : trial->metrics->ranks) {
      if (rank.step_ms.median > 0) shares.push_back(rank.exposed_comm_ms / rank.step_ms.median);
    }
  }
  report.judgements.push_back(
      accept::judge_exposed("training steps, by rank", std::move(shares), wanted.exposed_pct / 100));
}

}  // namespace

int AcceptanceReport::exit_code() const {
  if (wrong_data) return static_cast<int>(ExitCode::wrong_data);
  switch (verdict) {
    case Verdict::pass: return static_cast<int>(ExitCode::ok);
    case Verdict::fail: return static_cast<int>(ExitCode::below_floor);
    case Verdict::unrated:
    case Verdict::inconclusive: break;
  }
  return static_cast<int>(ExitCode::inconclusive);
}

AcceptanceReport judge_acceptance(const config::Acceptance& wanted, const AcceptanceMeasurements& measured,
                                  const Trial* trial) {
  AcceptanceReport report;
  report.fabric = wanted.fabric;
  report.ranks = static_cast<int>(measured.hosts.size());
  report.cluster = measured.cluster;
  judge_inventory(measured, report.judgements);
  judge_rendezvous(wanted, measured, report.judgements);
  judge_devices(wanted, measured, report);
  judge_pairs(wanted, measured, report);
  judge_ladder(wanted, measured, report);
  judge_shapes(wanted, measured, report);
  judge_step(wanted, trial, report);
  judge_parts_of_a_step(wanted, measured, report);
  judge_lateness(measured, report);
  for (const Finding& finding : report.findings) {
    if (!finding.accuses()) continue;
    Judgement j = plain("peers", accept::name_of(finding.element, measured.cluster), Verdict::fail, finding.evidence);
    j.value = finding.relative;
    j.unit = "of its peers' median";
    report.judgements.push_back(std::move(j));
  }
  if (report.lateness && report.lateness->late) report.findings.push_back(*report.lateness->late);
  report.verdict = accept::overall(report.judgements);
  return report;
}

}  // namespace fsdpbench::app
