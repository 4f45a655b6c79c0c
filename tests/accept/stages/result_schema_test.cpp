// The one list of what a result must have: what is missing or impossible is refused, whoever reads it.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "accept/stages/acceptance_files.h"
#include "base/digest.h"
#include "config/support.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using nlohmann::json;
using ::testing::HasSubstr;

json sealed(const json& result) { return json::parse(result_text(result)); }
void check(ResultKind kind, const json& result) { check_result(kind, result, check_acceptance); }

json run_result() {
  json j = to_json(fsdpbench::testing::made_up_trial({10, 11, 12}));
  j["complete"] = true;
  j["steps"] = {{"slowest_rank_ms", {10, 11, 12}}};
  j["config"] = {{"train", {{"steps", 3}}}};
  return j;
}

json acceptance_result() {
  const json value{{"median", 40}, {"ci_low", 39}, {"ci_high", 41}, {"n", 20}};
  const json round{{"compute_ms", 5},         {"comm_ms", 3},           {"step_ms", 6},
                   {"kernels_alone_ms", 4},   {"kernels_beside_ms", 4}, {"transfers_alone_ms", 2},
                   {"transfers_beside_ms", 2}};
  return {{"kind", "acceptance"},
          {"verdict", "pass"},
          {"fabric", "a fabric"},
          {"ranks", 2},
          {"nodes", 1},
          {"world", json::object()},
          {"judgements",
           {{{"rule", "floor"}, {"figure", "pairs"}, {"verdict", "pass"}, {"why", "w"}, {"value", value}},
            {{"rule", "peers"}, {"figure", "ranks"}, {"verdict", "unrated"}, {"why", "w"}}}},
          {"arms", {{"rounds", json::array({round, round, round, round, round, round})}}}};
}

json sweep_result() {
  const json step{{"median", 10}, {"ci_low", 9}, {"ci_high", 11}, {"n", 3}};
  const json cell{{"id", "a"},
                  {"status", "ok"},
                  {"rated", true},
                  {"metrics", {{"step_ms", step}}},
                  {"memory", {{"peak_bytes", {{"total", 8}}}}}};
  return {{"sweep_hash", "abc"},
          {"complete", true},
          {"mixed_worlds", false},
          {"world", json::object()},
          {"cells", json::array({cell})}};
}

json collectives_result() {
  const json timing{{"per_iteration", {{"times_us", {10, 11}}}}, {"wrong", 0}};
  return {{"kind", "collectives"},
          {"world", json::object()},
          {"operations",
           {{{"name", "all_gather"},
             {"results", {{{"size", 8}, {"type", "float"}, {"out_of_place", timing}, {"in_place", nullptr}}}},
             {"out_of_bounds", {{"count", 0}, {"okay", true}}}}}}};
}

const std::vector<std::pair<ResultKind, json>>& results() {
  static const std::vector<std::pair<ResultKind, json>> kAll{{ResultKind::run, run_result()},
                                                             {ResultKind::acceptance, acceptance_result()},
                                                             {ResultKind::sweep, sweep_result()},
                                                             {ResultKind::collectives, collectives_result()}};
  return kAll;
}

TEST(ResultSchema, Sha256IsWhatSha256sumPrints) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1000, 'x')), "44f8354494a5ba03ba1792a8d3e9c534c47a9181980fde7a3f44b06ef2ae7c7f");
}

TEST(ResultSchema, WholeResultsAreOfTheirKindAndPass) {
  for (const auto& [kind, result] : results()) {
    EXPECT_EQ(kind_of_result(result), kind) << to_string(kind);
    EXPECT_NO_THROW(check(kind, sealed(result))) << to_string(kind);
  }
}

TEST(ResultSchema, AnyChangeBreaksTheDigestAndNoLayoutDoes) {
  for (const auto& [kind, result] : results()) {
    json j = sealed(result);
    EXPECT_NO_THROW(check(kind, json::parse(j.dump(7))));
    j["world"]["cpu"] = "another";
    EXPECT_THAT(config_error([&, kind = kind] { check(kind, j); }), HasSubstr("it was changed after it was written"));
    j = sealed(result);
    j.erase("digest");
    EXPECT_THAT(config_error([&, kind = kind] { check(kind, j); }), HasSubstr("digest is missing"));
  }
}

TEST(ResultSchema, AnotherVersionIsRefused) {
  for (const auto& [kind, result] : results()) {
    for (const int version : {1, kResultSchemaVersion - 1, kResultSchemaVersion + 1}) {
      json j = sealed(result);
      j["schema_version"] = version;
      j["digest"] = json_digest(j);
      EXPECT_THAT(config_error([&, kind = kind] { check(kind, j); }),
                  HasSubstr(fmt::format("schema_version is {}; this program reads 3", version)));
    }
  }
}

TEST(ResultSchema, EveryKeyThatDecidesIsAskedFor) {
  // Without any of these something was passed, or said in a library's words.
  const std::vector<std::pair<ResultKind, std::vector<const char*>>> needed{
      {ResultKind::run,
       {"/complete", "/rated", "/config", "/world", "/steps", "/metrics/step_ms/n", "/metrics/step_ms/median",
        "/metrics/compute_ms", "/memory/peak_bytes/total", "/comm/wire_bytes_per_rank/all_gather"}},
      {ResultKind::acceptance,
       {"/verdict", "/fabric", "/ranks", "/nodes", "/world", "/judgements", "/judgements/0/rule",
        "/judgements/0/verdict", "/judgements/0/value/n", "/arms/rounds/3/step_ms"}},
      {ResultKind::sweep,
       {"/complete", "/mixed_worlds", "/cells", "/cells/0/id", "/cells/0/status", "/cells/0/rated", "/cells/0/metrics",
        "/cells/0/memory"}},
      {ResultKind::collectives,
       {"/operations", "/operations/0/out_of_bounds", "/operations/0/results/0/size",
        "/operations/0/results/0/in_place"}}};
  for (const auto& [kind, keys] : needed) {
    const json whole = std::ranges::find(results(), kind, &std::pair<ResultKind, json>::first)->second;
    for (const char* key : keys) {
      const json::json_pointer at(key);
      json j = whole;
      j[at.parent_pointer()].erase(at.back());
      EXPECT_THAT(config_error([&, kind = kind] { check(kind, sealed(j)); }), HasSubstr(at.back() + " is missing"))
          << key;
      j = whole;
      j[at] = "wrong";
      if (at.back() == "fabric" || at.back() == "rule" || at.back() == "status" || at.back() == "id") j[at] = 7;
      EXPECT_THAT(config_error([&, kind = kind] { check(kind, sealed(j)); }), HasSubstr(": expected ")) << key;
    }
  }
}

struct Impossible {
  ResultKind kind;
  const char* key;
  json value;
};

TEST(ResultSchema, WhatNothingMeasuresIsRefused) {
  const std::vector<Impossible> all{
      {ResultKind::run, "/steps/slowest_rank_ms/1", 0},
      {ResultKind::run, "/steps/slowest_rank_ms/1", -3},
      {ResultKind::run, "/steps/slowest_rank_ms", json::array()},
      {ResultKind::run, "/metrics/step_ms/ci_low", 0},
      {ResultKind::run, "/metrics/step_ms/median", 86},
      {ResultKind::run, "/metrics/step_ms/n", 0},
      {ResultKind::run, "/metrics/exposed_comm_ms", -1},
      {ResultKind::run, "/comm/wire_bytes_per_rank/all_gather", -1},
      {ResultKind::run, "/config/train", 3},
      {ResultKind::run, "/config/train/steps", json::array()},
      {ResultKind::run, "/config", json::array()},
      {ResultKind::acceptance, "/verdict", "fail"},
      {ResultKind::acceptance, "/judgements/0/verdict", "fail"},
      {ResultKind::acceptance, "/judgements/0/verdict", "inconclusive"},
      {ResultKind::acceptance, "/judgements", json::array()},
      {ResultKind::acceptance, "/judgements/0/value/ci_low", 0},
      {ResultKind::acceptance, "/judgements/0/value/ci_high", 30},
      {ResultKind::acceptance, "/judgements/0/value/n", 0},
      {ResultKind::acceptance, "/arms/rounds", json::array({acceptance_result()["arms"]["rounds"][0]})},
      {ResultKind::acceptance, "/arms/rounds/2/comm_ms", 0},
      {ResultKind::sweep, "/cells", json::array()},
      {ResultKind::sweep, "/cells/0/metrics/step_ms/median", 86},
      {ResultKind::sweep, "/cells/0/status", "incomplete"},
      {ResultKind::sweep, "/cells/1", sweep_result()["cells"][0]},
      {ResultKind::collectives, "/operations/0/out_of_bounds/count", 3},
      {ResultKind::collectives, "/operations/0/results/0/out_of_place", nullptr},
      {ResultKind::collectives, "/operations/0/results/0/out_of_place/per_iteration/times_us/0", 0}};
  for (const Impossible& one : all) {
    json j = std::ranges::find(results(), one.kind, &std::pair<ResultKind, json>::first)->second;
    j[json::json_pointer(one.key)] = one.value;
    EXPECT_THAT(config_error([&] { check(one.kind, sealed(j)); }), HasSubstr("expected "))
        << one.key << " " << one.value;
  }
}

TEST(ResultSchema, CollectivesThatWereNotCheckedAreRead) {
  json j = collectives_result();
  j["operations"][0]["out_of_bounds"] = nullptr;
  EXPECT_NO_THROW(check(ResultKind::collectives, sealed(j)));
}

}  // namespace
}  // namespace fsdpbench::app
