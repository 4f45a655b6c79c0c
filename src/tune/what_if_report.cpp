#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/write.h"
#include "record/table.h"
#include "runs/reach.h"
#include "runs/result_fields.h"
#include "schedule/op.h"
#include "tune/what_if.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

std::string exact_ms(double value) { return fmt::format("{:.3f}", value); }

std::string interval(const account::Summary& s, double scale = 1, int digits = 3) {
  if (s.interval == account::IntervalKind::one_value) return "one step";
  return fmt::format("{} {:.{}f} to {:.{}f}", to_string(s.interval), s.ci_low * scale, digits, s.ci_high * scale,
                     digits);
}

std::string percent(double from, double to) { return from > 0 ? fmt::format("{:+.1f} %", 100 * (to / from - 1)) : "-"; }

std::string question_text(const WhatIfQuestion& question) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const std::string& set : question.overrides) add(set);
  if (question.link_scale != 1) add(fmt::format("links {} times as fast", question.link_scale));
  if (question.compute_scale != 1) add(fmt::format("computation {} times as fast", question.compute_scale));
  if (question.without_straggler) add("without its slowest rank");
  return text.empty() ? "nothing changed" : text;
}

std::string link_line(const clock::MeasuredTimes::Link& link) {
  const double rate = link.fit.ns_per_amount > 0 ? 1 / link.fit.ns_per_amount : 0;
  const std::string latency =
      link.fit.fixed_ns > 0 ? fmt::format("{:.2f} us a hop + ", link.fit.fixed_ns / 1e3) : std::string();
  return fmt::format("{} over {}: {}{}", to_string(link.kind), to_string(link.group), latency,
                     rate > 0 ? fmt::format("{:.3f} GB/s", rate) : std::string("no time for bytes"));
}

/// What the prediction rests on.
std::string basis(const FinishedRun& run, const WhatIf& answer) {
  const auto count = [&](clock::TimeOrigin origin) { return answer.origins[origin]; };
  std::string text =
      fmt::format("{}: {}\nop times: {} of a step's ops as measured", to_string(clock::least_sure(answer.reach)),
                  reach_text(answer.reach), count(clock::TimeOrigin::measured));
  if (const int n = count(clock::TimeOrigin::scaled); n > 0) {
    text += fmt::format(", {} scaled by FLOPs from the same module", n);
  }
  if (const int n = count(clock::TimeOrigin::fitted); n > 0) {
    text += fmt::format(", {} by size from others of their kind", n);
  }
  if (const int n = count(clock::TimeOrigin::borrowed); n > 0) {
    text += fmt::format(", {} of kinds that were never measured, by size from other kinds", n);
  }
  text += "\n";
  for (const clock::MeasuredTimes::Link& link : answer.links) text += link_line(link) + "\n";
  const RunDoubt& doubt = answer.doubt;
  const std::string runs =
      doubt.between_runs ? fmt::format("{:.1f} %", 100 * *doubt.between_runs) : std::string("an unknown part");
  text += fmt::format(
      "in doubt: {:.1f} % of the step because the replay misses the run, {} because runs differ, {:.1f} % because "
      "of ops that were not measured\n",
      100 * doubt.replay, runs, 100 * doubt.reach);
  if (!doubt.between_runs) text += fmt::format("{}\n", kNoInterval);
  const double error = replay_error(run, answer);
  text += fmt::format("replaying the unchanged run misses the measured step by {:+.2f} %: {}\n", 100 * error,
                      std::abs(error) < std::abs(answer.change.median)
                          ? "a smaller predicted change means nothing"
                          : "more than the predicted change, so the prediction is not usable");
  return text;
}

std::string straggler_line(const WhatIf& answer) {
  const double more = 100 * (answer.straggler.ratio - 1);
  return fmt::format("the slowest rank is {}: its computation takes {:+.1f} % against the others' median{}\n",
                     answer.straggler.rank, more, more < 1 ? "; no rank stands out" : "");
}

json run_json(const ReplayedRun& run) {
  const account::RunMetrics& m = run.metrics;
  return {{"step_ms", JsonType<account::Summary>::write(m.step_ms)},
          {"steps_ms", m.steps_ms},
          {"exposed_comm_ms", m.exposed_comm_ms},
          {"exposed_comm_by_step_ms", JsonType<account::Summary>::write(run.exposed_ms)},
          {"compute_ms", m.compute_ms},
          {"comm_ms", m.comm_ms},
          {"idle_ms", m.idle_ms},
          {"peak_bytes", run.peak_bytes}};
}

}  // namespace

std::string what_if_text(const FinishedRun& run, const WhatIfQuestion& question, const WhatIf& answer) {
  const account::RunMetrics &was = *run.trial.metrics, &base = answer.replayed.metrics, &is = answer.changed.metrics;
  Table table;
  table.title = fmt::format("{}: {}", run.folder, question_text(question));
  table.header = {"", "measured", "replayed", "what-if", "", "change", ""};
  const auto row = [&](const char* name, double measured, double replayed, double changed, const std::string& note) {
    table.rows.push_back(
        {name, exact_ms(measured), exact_ms(replayed), exact_ms(changed), "ms", percent(replayed, changed), note});
  };
  row("step time", was.step_ms.median, base.step_ms.median, is.step_ms.median, interval(is.step_ms));
  row("exposed communication", was.exposed_comm_ms, base.exposed_comm_ms, is.exposed_comm_ms,
      interval(answer.changed.exposed_ms));
  row("compute", was.compute_ms, base.compute_ms, is.compute_ms, "");
  row("communication", was.comm_ms, base.comm_ms, is.comm_ms, "");
  row("idle", was.idle_ms, base.idle_ms, is.idle_ms, "");
  const auto mib = [](std::int64_t bytes) { return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20)); };
  table.rows.push_back(
      {"peak memory", mib(run.trial.memory.peak_occupied_total), mib(answer.replayed.peak_bytes),
       mib(answer.changed.peak_bytes), "MiB",
       percent(static_cast<double>(answer.replayed.peak_bytes), static_cast<double>(answer.changed.peak_bytes)),
       "from the schedule"});
  std::string text = format_table(table) + "\n";
  const double change = 100 * answer.change.median;
  text += fmt::format(
      "a step would take {:.1f} % {} ({})\n", std::abs(change), change > 0 ? "longer" : "less",
      answer.doubt.between_runs ? interval(answer.change, 100, 1) + " %" : std::string("no interval"));
  if (question.without_straggler) text += straggler_line(answer);
  if (const std::string why = why_disturbed(run); !why.empty()) text += why + "\n";
  return text + basis(run, answer);
}

json what_if_json(const FinishedRun& run, const WhatIfQuestion& question, const WhatIf& answer) {
  const account::RunMetrics& was = *run.trial.metrics;
  json j{{"schema_version", 1},
         {"run", run.folder},
         {"set", question.overrides},
         {"link_scale", question.link_scale},
         {"compute_scale", question.compute_scale},
         {"without_straggler", question.without_straggler},
         {"measured",
          {{"step_ms", JsonType<account::Summary>::write(was.step_ms)},
           {"exposed_comm_ms", was.exposed_comm_ms},
           {"compute_ms", was.compute_ms},
           {"comm_ms", was.comm_ms},
           {"idle_ms", was.idle_ms},
           {"peak_bytes", run.trial.memory.peak_occupied_total}}},
         {"replayed", run_json(answer.replayed)},
         {"what_if", run_json(answer.changed)},
         {"replay_error", replay_error(run, answer)},
         {"doubt",
          {{"replay", answer.doubt.replay},
           {"between_runs", answer.doubt.between_runs ? json(*answer.doubt.between_runs) : json()},
           {"reach", answer.doubt.reach}}},
         {"change", JsonType<account::Summary>::write(answer.change)},
         {"notes", answer.notes},
         {"keys", json::array()},
         {"links", json::array()},
         {"op_times", json::object()},
         {"reach", to_string(clock::least_sure(answer.reach))},
         {"ops", JsonType<clock::ReachCounts>::write(answer.reach)}};
  if (std::string why = why_disturbed(run); !why.empty()) j["disturbed_because"] = std::move(why);
  for (const DifferingKey& key : answer.keys) j["keys"].push_back({{"key", key.key}, {"was", key.a}, {"is", key.b}});
  for (const clock::MeasuredTimes::Link& link : answer.links) {
    j["links"].push_back({{"kind", to_string(link.kind)},
                          {"group", to_string(link.group)},
                          {"hop_us", link.fit.fixed_ns / 1e3},
                          {"ns_per_byte", link.fit.ns_per_amount},
                          {"samples", link.fit.samples}});
  }
  for (const clock::TimeOrigin origin : kEnumerators<clock::TimeOrigin>) {
    j["op_times"][std::string(to_string(origin))] = answer.origins[origin];
  }
  if (answer.straggler.rank >= 0) {
    j["slowest_rank"] = {{"rank", answer.straggler.rank}, {"compute_ratio", answer.straggler.ratio}};
  }
  return j;
}

}  // namespace fsdpbench::app
