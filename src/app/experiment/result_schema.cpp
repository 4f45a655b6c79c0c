#include "app/experiment/result_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "accept/verdict.h"
#include "app/console/json_part.h"
#include "app/console/json_text.h"
#include "base/clean_text.h"
#include "base/digest.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestCount = 1'000'000'000;  // of ranks, nodes, samples

void check_positive(const JsonPart& j) {
  if (!(j.number() > 0)) j.refuse("a number above 0");
}

void check_not_negative(const JsonPart& j) {
  if (!(j.number() >= 0)) j.refuse("a number from 0 on");
}

/// A median within its interval, of `n` values.
void check_interval(const JsonPart& j, const char* low, const char* high) {
  const double median = j.at("median").number();
  (void)j.at("n").whole(1, kLargestCount);
  if (!(j.at(low).number() <= median && median <= j.at(high).number())) {
    j.refuse(fmt::format("a median between {} and {}", low, high));
  }
}

void check_step_time(const JsonPart& j) {
  check_interval(j, "ci_low", "ci_high");
  check_positive(j.at("ci_low"));
}

/// Times, none of which is 0.
void check_times(const JsonPart& j) {
  const std::vector<JsonPart> times = j.list();
  if (times.empty()) j.refuse("a time or more");
  for (const JsonPart& time : times) check_positive(time);
}

void check_volume(const JsonPart& j) {
  for (const char* kind : {"all_gather", "reduce_scatter", "all_reduce"}) check_not_negative(j.at(kind));
}

/// Tables of plain values, as profiles have them.
void check_config(const JsonPart& j) {
  for (const auto& [name, table] : j.members()) {
    for (const auto& [key, value] : table.members()) {
      if (value.value().is_structured()) value.refuse("a plain value");
    }
  }
}

void check_run(const JsonPart& j) {
  (void)j.at("complete").flag();
  check_config(j.at("config"));
  (void)j.at("world").members();
  if (j.has("failure")) (void)j.at("failure").at("message").text();
  if (j.has("diverged_because")) (void)j.at("diverged_because").text();
  if (j.has("not_rated_because")) (void)j.at("not_rated_because").text();
  if (!j.has("metrics")) return;
  (void)j.at("rated").flag();
  const JsonPart metrics = j.at("metrics");
  check_step_time(metrics.at("step_ms"));
  for (const char* part : {"compute_ms", "comm_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms"}) {
    check_not_negative(metrics.at(part));
  }
  check_times(j.at("steps").at("slowest_rank_ms"));
  (void)j.at("memory").at("peak_bytes").at("total").size();
  check_volume(j.at("comm").at("wire_bytes_per_rank"));
}

accept::Verdict verdict_of(const JsonPart& j) {
  using enum accept::Verdict;
  const std::string text = j.text();
  for (const accept::Verdict verdict : {pass, unrated, inconclusive, fail}) {
    if (text == to_string(verdict)) return verdict;
  }
  j.refuse("\"pass\", \"unrated\", \"inconclusive\" or \"fail\"");
}

void check_arm_rounds(const JsonPart& j) {
  const std::vector<JsonPart> rounds = j.list();
  if (!rounds.empty() && rounds.size() < kFewestArmRounds) {
    j.refuse(fmt::format("no round, or {} and more, of which there is an interval", kFewestArmRounds));
  }
  for (const JsonPart& round : rounds) {
    for (const char* arm : {"computation_ms", "communication_ms", "whole_ms"}) check_positive(round.at(arm));
  }
}

void check_acceptance(const JsonPart& j) {
  // Of these a value is a rate or a time.
  constexpr std::array<std::string_view, 4> kPositive{"floor", "ceiling", "tail", "slow-down"};
  (void)j.at("world").members();
  (void)j.at("fabric").text();
  (void)j.at("ranks").whole(1, kLargestCount);
  (void)j.at("nodes").whole(1, kLargestCount);
  std::vector<accept::Judgement> judgements;
  for (const JsonPart& one : j.at("judgements").list()) {
    accept::Judgement& judgement = judgements.emplace_back();
    judgement.rule = one.at("rule").text();
    judgement.figure = one.at("figure").text();
    judgement.verdict = verdict_of(one.at("verdict"));
    (void)one.at("why").text();
    if (!one.has("value")) continue;
    check_interval(one.at("value"), "low", "high");
    if (std::ranges::find(kPositive, judgement.rule) != kPositive.end()) check_positive(one.at("value").at("low"));
  }
  if (const accept::Verdict all = accept::overall(judgements); verdict_of(j.at("verdict")) != all) {
    j.at("verdict").refuse(fmt::format("\"{}\", as the judgements have it", to_string(all)));
  }
  if (!j.has("arms")) return;  // it was stopped before
  check_arm_rounds(j.at("arms").at("rounds"));
}

void check_sweep(const JsonPart& j) {
  (void)j.at("sweep_hash").text();
  bool all_done = true;
  std::set<std::string> ids;
  const std::vector<JsonPart> cells = j.at("cells").list();
  if (cells.empty()) j.at("cells").refuse("a cell or more");
  for (const JsonPart& cell : cells) {
    if (!ids.insert(cell.at("id").text()).second) cell.at("id").refuse("an id that no other cell has");
    const std::string status = cell.at("status").text();
    all_done = all_done && status != "incomplete";
    if (status != "ok" && !cell.has("metrics")) continue;
    (void)cell.at("rated").flag();
    check_step_time(cell.at("metrics").at("step_ms"));
    (void)cell.at("memory").at("peak_bytes").at("total").size();
  }
  if (j.at("complete").flag() && !all_done) j.at("complete").refuse("false, as a cell is incomplete");
  if (!j.has("world")) return;  // no trial was done
  (void)j.at("world").members();
  (void)j.at("mixed_worlds").flag();
}

void check_collectives(const JsonPart& j) {
  (void)j.at("world").members();
  for (const JsonPart& operation : j.at("operations").list()) {
    (void)operation.at("name").text();
    if (const JsonPart wrong = operation.at("out_of_bounds"); !wrong.value().is_null()) {  // null: nothing was checked
      if (wrong.at("okay").flag() != (wrong.at("count").size() == 0)) wrong.refuse("okay exactly if the count is 0");
    }
    for (const JsonPart& row : operation.at("results").list()) {
      (void)row.at("size").size();
      (void)row.at("type").text();
      int measured = 0;
      for (const char* half : {"out_of_place", "in_place"}) {
        const JsonPart timing = row.at(half);
        if (timing.value().is_null()) continue;
        ++measured;
        check_times(timing.at("per_iteration").at("times_us"));
      }
      if (measured == 0) row.refuse("a row that was measured out of place or in place");
    }
  }
}

}  // namespace

std::string_view to_string(ResultKind kind) {
  switch (kind) {
    case ResultKind::run: return "run";
    case ResultKind::acceptance: return "acceptance";
    case ResultKind::sweep: return "sweep";
    case ResultKind::collectives: return "collectives";
  }
  return {};
}

std::string result_text(json result) {
  result["schema_version"] = kResultSchemaVersion;
  // Bytes that are no UTF-8 become others when they are written: the digest is of what a reader will find.
  json written = parse_json(json_line(result));
  written["digest"] = json_digest(written);
  return json_text(written);
}

ResultKind kind_of_result(const json& content) {
  const json kind = content.value("kind", json());
  if (kind == "acceptance") return ResultKind::acceptance;
  if (kind == "collectives") return ResultKind::collectives;
  return content.contains("sweep_hash") ? ResultKind::sweep : ResultKind::run;
}

bool check_result(ResultKind kind, const json& content) {
  const JsonPart j(content);
  const std::int64_t version = j.at("schema_version").whole(0, INT32_MAX);
  if (version < 1 || version > kResultSchemaVersion) {
    throw ConfigError(fmt::format("schema_version is {}; this program reads 1 to {}", version, kResultSchemaVersion));
  }
  if (version >= kFirstResultWithDigest) {
    const std::string said = j.at("digest").text(), is = json_digest(content);
    if (said != is) {
      throw ConfigError(
          fmt::format("it was changed after it was written, or is damaged: its digest is {}, and its content's is {}",
                      clean_text(said, kMostOfACell), is));
    }
  }
  switch (kind) {
    case ResultKind::run: check_run(j); break;
    case ResultKind::acceptance: check_acceptance(j); break;
    case ResultKind::sweep: check_sweep(j); break;
    case ResultKind::collectives: check_collectives(j); break;
  }
  return version >= kFirstResultWithDigest;
}

}  // namespace fsdpbench::app
