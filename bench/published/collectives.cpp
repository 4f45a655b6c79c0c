#include <fmt/format.h>

#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "clock/collective_cost.h"
#include "config/published.h"
#include "published/prediction.h"

namespace fsdpbench::bench {
namespace {

using clock::Algorithm;
using clock::Collective;
using config::CsvRow;
using config::read_csv;

/// Below, latencies of one software version decide; the goal speaks of sizes from here on.
constexpr double kDomainBytes = 32 * 1024.0 * 1024.0;

Collective collective_of(const CsvRow& row) {
  for (const auto c : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
    if (to_string(c) == row.text("op")) return c;
  }
  throw ConfigError(fmt::format("{}: op = {} is not valid; expected all_gather, reduce_scatter or all_reduce.",
                                row.place, row.text("op")));
}

Algorithm algorithm_of(const CsvRow& row) {
  const std::string& name = row.text("algorithm");
  if (name.empty()) return Algorithm::automatic;
  for (int a = 0; a < clock::kAlgorithmCount; ++a) {
    if (to_string(static_cast<Algorithm>(a)) == name) return static_cast<Algorithm>(a);
  }
  for (const Algorithm a : {Algorithm::symmetric, Algorithm::copy_engine}) {
    if (to_string(a) == name) return a;
  }
  throw ConfigError(
      fmt::format("{}: algorithm = {} is not valid; expected one of docs/published.md or nothing.", row.place, name));
}

const char* short_name(Collective collective) {
  return collective == Collective::all_gather ? "AG" : collective == Collective::reduce_scatter ? "RS" : "AR";
}

Prediction predict(const CsvRow& row) {
  const config::Cluster plain = config::load_cluster(row.text("cluster"));
  const std::string site = row.text_if_any("site");
  const config::Cluster cluster = site.empty() ? plain : config::load_cluster(row.text("cluster") + ":" + site);
  const Collective collective = collective_of(row);
  const int ranks = row.integer("ranks"), nodes = row.integer("nodes");
  const clock::GroupShape shape{ranks, nodes, static_cast<int>(ceil_div(ranks, nodes))};
  const std::optional<std::int64_t> bytes = parse_bytes(row.text("size"));
  if (!bytes) {
    throw ConfigError(
        fmt::format("{}: size = {} is not valid; expected bytes, as 64MiB.", row.place, row.text("size")));
  }
  const double size = static_cast<double>(*bytes);
  if (shape.per_node > cluster.gpus_per_node) {
    throw ConfigError(
        fmt::format("{}: ranks = {} on nodes = {} are {} a node; expected at most {}, which a node of {} has.",
                    row.place, ranks, nodes, shape.per_node, cluster.gpus_per_node, cluster.name));
  }
  const Algorithm algorithm = algorithm_of(row);
  if (!can_run(algorithm, collective, cluster, shape)) {
    throw ConfigError(fmt::format(
        "{}: algorithm = {} cannot do an {} of {} ranks on {} node{} of {}; expected another, or "
        "nothing: then as NCCL chooses.",
        row.place, to_string(algorithm), to_string(collective), ranks, nodes, nodes == 1 ? "" : "s", cluster.name));
  }
  const auto cost_on = [&](const config::Cluster& on) {
    return collective_cost(on, collective, size, shape, algorithm);
  };
  const clock::CollectiveCost cost = cost_on(cluster), plain_cost = site.empty() ? cost : cost_on(plain);
  // nccl-tests: bytes on the wire of a ring over time, whatever the algorithm.
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  const double wire = passes * size * (shape.ranks - 1) / shape.ranks;
  return {.id = row.text("id"),
          .group = fmt::format("{}, {}", cluster.name, shape.nodes == 1 ? "one node" : "several nodes"),
          .what = fmt::format("{} {:>6} {} {}x{} {}", short_name(collective), row.text("size"), row.text("gpu"),
                              shape.nodes, shape.per_node, site.empty() ? cluster.name : cluster.name + ":" + site),
          .cluster = cluster.name,
          .ranks = ranks,
          .bytes = size,
          .published = row.number("gb_per_s"),
          .predicted = wire / cost.seconds() / 1e9,
          .site = site,
          .plain = wire / plain_cost.seconds() / 1e9,
          .nodes = nodes,
          .how = fmt::format("{} {}, {}", to_string(cost.algorithm), to_string(cost.protocol), to_string(cost.fabric)),
          .calibrates = row.text("calibrates"),
          .assumed = row.text("assumed"),
          .in_domain = size >= kDomainBytes,
          .symmetric = cost.algorithm == Algorithm::symmetric || cost.algorithm == Algorithm::copy_engine,
          .not_predicted = {},
          .source = row.text("source"),
          .note = row.text("note")};
}

}  // namespace

Predictions predict_collectives(const std::string& path) {
  Predictions predictions;
  for (const CsvRow& row : read_csv(path)) predictions.push_back(predict(row));
  return predictions;
}

}  // namespace fsdpbench::bench
