#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accept/gate/gate_report.h"
#include "config/support.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "support/trials.h"

namespace fsdpbench::app {

inline World world_of(const std::string& revision = "abc") {
  World world = fsdpbench::testing::made_up_trial({1}).world;
  world.program.git_revision = revision;
  return world;
}

/// A result.json of `run`.
inline nlohmann::json run_json(const std::vector<double>& steps_ms, const World& world = world_of()) {
  nlohmann::json j = to_json(fsdpbench::testing::made_up_trial(steps_ms));
  j["complete"] = true;
  j["steps"] = {{"slowest_rank_ms", steps_ms}};
  j["config"] = {{"fsdp", {{"layout", "flat"}}}, {"train", {{"steps", steps_ms.size()}, {"seq_len", 16}}}};
  j["world"] = to_json(world);
  return j;
}

inline nlohmann::json accept_json(double gb_per_s, const std::string& verdict = "pass",
                                  const World& world = world_of()) {
  const nlohmann::json value{
      {"median", gb_per_s}, {"ci_low", 0.99 * gb_per_s}, {"ci_high", 1.01 * gb_per_s}, {"n", 20}};
  nlohmann::json j{{"kind", "acceptance"}, {"verdict", verdict}, {"fabric", "a fabric"},
                   {"ranks", 2},           {"nodes", 1},         {"findings", nlohmann::json::array()}};
  j["judgements"] = {
      {{"rule", "floor"}, {"figure", "pairs"}, {"verdict", verdict}, {"why", "w"}, {"unit", "GB/s"}, {"value", value}},
      {{"rule", "ceiling"},
       {"figure", "pairs"},
       {"verdict", verdict},
       {"why", "w"},
       {"unit", "GB/s"},
       {"value", value}},
      {{"rule", "exposed communication"},
       {"figure", "steps"},
       {"verdict", verdict},
       {"why", "w"},
       {"unit", "of a step"},
       {"value", {{"median", 0.0}, {"ci_low", 0.0}, {"ci_high", 0.01}, {"n", 8}}}}};
  j["world"] = to_json(world);
  return j;
}

inline GatedResult stored(const nlohmann::json& content, const std::string& name = "r") {
  const config::TemporaryFolder folder;
  folder.write(name + "/result.json", result_text(content));
  return read_gated_result((folder.path() / name).string());
}

inline Baseline baseline_of(const std::vector<GatedResult>& results) { return {"some", results, {}}; }
/// As many results as show how much they scatter: not at all.
inline Baseline three_of(const nlohmann::json& content) {
  return baseline_of({stored(content), stored(content), stored(content)});
}

}  // namespace fsdpbench::app
