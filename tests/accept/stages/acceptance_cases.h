#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "accept/stages/acceptance_report.h"
#include "support/simulated_cluster.h"

/// A machine that was measured, a profile to hold it against, and what a report says of a rule.
namespace fsdpbench::app {

/// So long that each group carries as much as the others.
inline CollectiveRow row_of_scale(backend::Collective op, int ranks) {
  CollectiveRow row;
  row.message = {op, DType::f32, 1 << 20, ranks};
  Timing timing;
  timing.time_us = 100.0 * (ranks - 1);
  timing.iterations_us.assign(20, timing.time_us);
  timing.scatter = scatter_of(timing.iterations_us);
  row.in_place = timing;
  return row;
}

/// A node of 8 ranks that a simulated cluster answers for, with one rung of the ladder.
inline AcceptanceMeasurements measured(std::vector<accept::Fault> faults) {
  AcceptanceMeasurements m;
  m.cluster = {.nodes = 1, .gpus_per_node = 8};
  accept::SimulatedCluster simulated(m.cluster, std::move(faults), 5);
  for (int rank = 0; rank < 8; ++rank) {
    m.hosts.emplace_back("node");
    m.fingerprints.push_back({{"program", "fsdpbench 1"}, {"kernel", "6.1"}});
  }
  for (int i = 0; i < 15; ++i) {
    m.device_rates.push_back(simulated.device_rates());
    for (double& rate : m.device_rates.back()) rate *= 1e12;
  }
  m.links = accept::blame_links(m.cluster, [&](const accept::Round& round) { return simulated.pair_rates(round); });
  CollectiveRow& row = m.ladder.emplace_back();
  row.message = {backend::Collective::all_gather, DType::f32, 1 << 20, 8};
  Timing timing;
  timing.time_us = 1000;
  timing.wrong = 0;
  timing.iterations_us.assign(20, 1000);
  timing.scatter = scatter_of(timing.iterations_us);
  row.out_of_place = row.in_place = timing;  // 29.4 GB/s of bus bandwidth
  m.memory_rates = m.device_rates;
  m.transports.assign(8, "P2P/CUMEM (8 connections), NET/IB/0/GDRDMA (2 connections)");
  m.ready_s.assign(8, 0.25);
  for (const accept::Scale& scale : accept::scales_of(m.cluster)) {
    for (const backend::Collective op : {backend::Collective::all_gather, backend::Collective::reduce_scatter}) {
      CollectiveRow& rung = m.scales.emplace_back(row_of_scale(op, scale.ranks));
      rung.message.count = 1 << 20;
    }
  }
  for (int i = 0; i < 40; ++i) m.arrivals.push_back(simulated.step(10'000, 4'000));
  m.arms.assign(8, {.computation_ms = 95,
                    .communication_ms = 40,
                    .whole_ms = 100,
                    .kernels_alone_ms = 90,
                    .kernels_beside_ms = 92,
                    .transfers_alone_ms = 38,
                    .transfers_beside_ms = 39});
  return m;
}

inline config::Acceptance wanted() {
  config::Acceptance w;
  w.fabric = "a <fabric> & \"more\"";
  w.ranks = 8;
  w.exposed_pct = 10;
  w.rated_pct = 40;
  w.references = {{.figure = "gemm", .value = 1, .hop_us = 0, .ceiling = 0, .source = "a table"},
                  {.figure = "all_gather", .value = 30, .hop_us = 0, .ceiling = 100, .source = "a table"}};
  return w;
}

inline Trial trial_with_exposed(double share) {
  Trial trial;
  account::RunMetrics& metrics = trial.metrics.emplace();
  for (int rank = 0; rank < 8; ++rank) {
    account::RankMetrics& r = metrics.ranks.emplace_back();
    r.rank = rank;
    r.step_ms.median = 100;
    r.exposed_comm_ms = 100 * share;
  }
  return trial;
}

inline const accept::Judgement* judgement(const AcceptanceReport& report, const std::string& rule,
                                          accept::Verdict verdict) {
  const auto found = std::ranges::find_if(
      report.judgements, [&](const accept::Judgement& j) { return j.rule == rule && j.verdict == verdict; });
  return found == report.judgements.end() ? nullptr : &*found;
}

}  // namespace fsdpbench::app
