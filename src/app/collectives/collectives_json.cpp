#include "app/collectives/collectives_json.h"

#include <nlohmann/json.hpp>

#include "base/enum_table.h"

namespace fsdpbench::app {
namespace {

using Json = nlohmann::json;

Json timing_json(const Message& message, const std::optional<Timing>& timing) {
  if (!timing) return nullptr;
  const Scatter& s = timing->scatter;
  Json j{{"time_us", timing->time_us},
         {"algbw_gb_per_s", timing->algorithm_gb_per_s(message)},
         {"busbw_gb_per_s", timing->bus_gb_per_s(message)},
         {"rank_us", timing->rank_us},
         {"per_iteration",
          {{"min_us", s.min_us},
           {"max_us", s.max_us},
           {"mean_us", s.mean_us},
           {"p50_us", s.p50_us},
           {"p95_us", s.p95_us},
           {"p99_us", s.p99_us},
           {"stdev_us", s.deviation_us},
           {"cv_pct", s.cv_pct()},
           {"times_us", timing->iterations_us}}}};
  j["wrong"] = timing->wrong ? Json(*timing->wrong) : Json();
  return j;
}

Json times_json(const BesideRow::Times& times) {
  Json j = Json::object();
  for (std::size_t k = 0; k < kNeighbours; ++k) {
    if (times[k]) j[to_string(static_cast<Neighbour>(k))] = *times[k];
  }
  return j;
}

Json beside_json(const BesideRow& row) {
  Json j{{"size", row.size},
         {"matrix", row.matrix.m},
         {"shape", {row.matrix.m, row.matrix.n, row.matrix.k}},
         {"type", type_name(row.dtype)},
         {"alone_us", times_json(row.alone_us)},
         {"together_us", times_json(row.together_us)}};
  if (row.max_ctas > 0) j["max_ctas"] = row.max_ctas;
  for (std::size_t who = 0; who < kNeighbours; ++who) {
    j["beside_us"][to_string(static_cast<Neighbour>(who))] = times_json(row.beside_us[who]);
  }
  return j;
}

}  // namespace

Json collective_row_json(const CollectiveRow& row) {
  Json j{{"size", row.message.bytes()},
         {"count", row.message.count},
         {"type", type_name(row.message.dtype)},
         {"out_of_place", timing_json(row.message, row.out_of_place)},
         {"in_place", timing_json(row.message, row.in_place)},
         {"date", row.date}};
  j["redop"] = row.reduction ? Json(to_string(*row.reduction)) : Json();
  j["root"] = row.root ? Json(*row.root) : Json();
  return j;
}

Json collectives_json(const CollectivesArguments& arguments, const World& world,
                      const std::vector<CollectivesTable>& tables, const std::vector<BesideRow>& beside) {
  Json j{{"kind", "collectives"}, {"world", to_json(world)}, {"options", Json::object()}};
  for (const auto& [name, value] : arguments.given) j["options"][name.substr(2)] = value;
  constexpr EnumNames<OverRanks> kOverRanks{"rank 0", "mean", "min", "max"};
  j["time_over_ranks"] = kOverRanks[arguments.over_ranks];
  j["operations"] = Json::array();
  for (const CollectivesTable& table : tables) {
    Json results = Json::array();
    for (const CollectiveRow& row : table.rows) results.push_back(collective_row_json(row));
    Json op{{"name", to_string(table.op)},
            {"results", results},
            {"out_of_bounds", {{"count", table.end.wrong}, {"okay", table.end.wrong == 0}}},
            {"average_bus_bandwidth", {{"gb_per_s", table.end.average_gb_per_s()}, {"okay", table.end.fast_enough()}}}};
    if (!arguments.checks) op["out_of_bounds"] = nullptr;
    j["operations"].push_back(std::move(op));
  }
  if (arguments.beside) {
    j["beside"] = Json::array();
    for (const BesideRow& row : beside) j["beside"].push_back(beside_json(row));
  }
  return j;
}

}  // namespace fsdpbench::app
