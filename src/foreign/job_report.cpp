#include "foreign/job_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "account/cause_report.h"
#include "account/cause_table.h"
#include "account/counterfactual.h"
#include "base/bytes.h"
#include "base/enum_table.h"
#include "foreign/evidence.h"
#include "foreign/xla_program.h"
#include "record/table.h"

namespace fsdpbench::app {

// clang-format off
template <>
Fields<foreign::UnusedGathers> declared() {
  using U = foreign::UnusedGathers;
  return {"JobWastedGathers", "All-gathers of a step that are wasted in the same way.", "foreign/unused_gathers.h", {
    {"waste", &U::waste, "", "`never_used`, `used_once` (gathered twice, used once) or `freed_early` (gathered again with nothing between)"},
    {"units", &U::units, "", "labels of the units"},
    {"gathers", &U::gathers, "", "how many a step"},
    {"bytes", &U::bytes, "B", "that a rank sends for them in a step", if_known},
    {"ms", &U::ms, "ms", "that they take in a step"},
    {"evidence", &U::evidence, "", "what tells it"},
    {"why", &U::why, "", "the rule that wastes them"},
    {"remedy", &U::remedy, "", "what spares them, in the words of the job's engine"},
  }};
}

// clang-format on
namespace {

using foreign::ExplainedCollective;
using foreign::Explanation;
using foreign::Recognition;

constexpr std::size_t kMostJobRows = 8;

std::string percent_of(double value, double of) { return of > 0 ? fmt::format("{:.1f} %", 100 * value / of) : ""; }

std::string bullets(const char* title, const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMostJobRows); ++i) text += text_line("- " + lines[i]);
  if (lines.size() > kMostJobRows) text += fmt::format("- and {} more\n", lines.size() - kMostJobRows);
  return text.empty() ? "" : fmt::format("\n{}\n{}", title, text);
}

std::string what_it_is(const ExplainedJob& e) {
  const Recognition& r = e.recognition;
  std::string text = fmt::format("This is {}", r.name);
  if (r.find("units") != nullptr) {
    text += fmt::format(": {} units{}, {} ranks{}", r.facts.units, r.facts.root ? " and the root" : "", r.facts.shard,
                        r.facts.replicate > 1 ? fmt::format(" x {} replicas", r.facts.replicate) : "");
  }
  const std::size_t files = e.job.ranks.size();
  text += fmt::format(" ({} file{}).\n", files, files == 1 ? "" : "s");
  Table table;
  table.header = {"", "is", "sure", "because"};
  for (const foreign::Finding& finding : r.findings) {
    table.rows.push_back(
        {finding.what, finding.value, fmt::format("{:.0f} %", 100 * finding.confidence), finding.evidence});
  }
  return text + headline(e) + "\n" +
         bullets("Collectives on the stream that computes", foreign::on_compute_stream(e.job.ranks.front())) + "\n" +
         format_table(table);
}

std::string short_kernel(const std::string& name) {
  constexpr std::size_t kMost = 60;
  return name.size() > kMost ? name.substr(0, kMost) + "…" : name;
}

std::string where_time_went(const ExplainedJob& e) {
  const Explanation& x = e.explanation;
  Table table;
  table.title =
      fmt::format("A step, mean over {} rank{} and their steps", x.ranks.size(), x.ranks.size() == 1 ? "" : "s");
  const auto row = [&](const char* what, double value, std::string note = {}) {
    table.rows.push_back({what, three_digits(value), "ms", percent_of(value, x.mean_step_ms), std::move(note)});
  };
  row("step", x.mean_step_ms);
  row("computation", x.computation_ms);
  row("exposed communication", x.exposed_communication_ms, fmt::format("of {} ms", three_digits(x.communication_ms)));
  row("exposed copies", x.exposed_copy_ms);
  row("idle", x.idle_ms);
  std::string text = format_table(table);
  if (x.step_ms.n > 1) {
    const bool few = x.step_ms.interval == account::IntervalKind::range;
    const std::string interval =
        few ? "" : fmt::format(" [{} to {}]", three_digits(x.step_ms.ci_low), three_digits(x.step_ms.ci_high));
    text +=
        fmt::format("slowest rank: median {} ms{}, {} to {} {} {} steps\n", three_digits(x.step_ms.median), interval,
                    three_digits(x.step_ms.min), three_digits(x.step_ms.max), few ? "in these" : "over", x.step_ms.n);
  }
  if (x.launches_known && x.host_most_ahead_ms >= x.mean_step_ms / 10) {
    text += fmt::format("the host launches {} ms ahead of the device in the median, {} ms at most\n",
                        three_digits(x.host_ahead_ms), three_digits(x.host_most_ahead_ms));
  }
  Table ranks;
  ranks.header = {"rank", "step", "computation", "exposed", "idle", "overlap"};
  for (const foreign::ExplainedRank& rank : x.ranks) {
    if (ranks.rows.size() == kMostJobRows) break;
    if (rank.steps.empty()) continue;
    account::StepBreakdown sum;
    for (const foreign::ExplainedStep& step : rank.steps) sum += step.parts;
    const auto mean = [&](std::int64_t ns) {
      return three_digits(static_cast<double>(ns) / static_cast<double>(rank.steps.size()) / 1e6);
    };
    ranks.rows.push_back({std::to_string(rank.rank), mean(sum.step), mean(sum.computation),
                          mean(sum.exposed_communication), mean(sum.idle),
                          rank.overlap_pct ? fmt::format("{:.1f} %", *rank.overlap_pct) : "-"});
  }
  if (x.ranks.size() > 1) text += "\n" + format_table(ranks);
  if (x.ranks.size() > kMostJobRows) text += fmt::format("and {} ranks more\n", x.ranks.size() - kMostJobRows);
  return text;
}

/// The number of the step that `path` is of.
std::int64_t step_of_path(const ExplainedJob& e, const account::CriticalPath& path) {
  const auto place = static_cast<std::size_t>(path.place);
  const auto& steps = e.explanation.ranks[place].steps;
  const auto& cut = e.recognition.ranks[place].cut.steps;
  const std::int64_t begin = path.step.begin - e.explanation.ranks[place].clock_offset_ns;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (cut[s].window.begin == begin) return steps[s].number;
  }
  return steps.front().number;
}

/// Kernels by kind, and those that take most.
std::string where_kernels_went(const ExplainedJob& e) {
  const Explanation& x = e.explanation;
  if (x.kernels.ns <= 0 || x.rank_steps == 0) return {};
  const auto cells = [&](const foreign::KernelSum& sum, std::vector<std::string>& row) {
    const KernelsOfJob kernels(sum, x);
    row.push_back(three_digits(kernels.a_step));
    row.push_back(three_digits(kernels.ms));
    row.push_back(fmt::format("{:.1f} %", kernels.share_pct));
  };
  Table kinds;
  kinds.title = "Kernels by kind";
  kinds.header = {"kind", "a step", "ms a step", "of kernels"};
  for (const foreign::KernelSum& sum : x.kernels.by_kind) {
    cells(sum, kinds.rows.emplace_back(std::vector<std::string>{std::string(to_string(sum.kind))}));
  }
  Table top;
  top.title = "Kernels that take most";
  top.header = {"kernel", "kind", "a step", "ms a step", "of kernels"};
  for (const foreign::KernelSum& sum : x.kernels.top) {
    if (top.rows.size() == kMostJobRows) break;
    cells(sum,
          top.rows.emplace_back(std::vector<std::string>{short_kernel(sum.name), std::string(to_string(sum.kind))}));
  }
  return "\n" + format_table(kinds) + "\n" + format_table(top);
}

/// The one list: why, what the step would be without it, and what would help.
std::string why_stalled(const ExplainedJob& e) {
  if (e.explanation.causes.empty()) return {};
  account::CauseReport report;
  report.step_ms = e.explanation.mean_step_ms;
  if (e.replay) report.typical_ms = e.replay->step_ms;
  for (const account::CauseShare& share : e.explanation.causes) {
    if (share.ms < 5e-4) continue;  // printed as nothing
    if (share.share_pct < account::kSmallSharePct && share.advice.empty()) {
      report.small_ms += share.ms;
    } else {
      report.causes.push_back(share);
    }
  }
  CauseTable how{"Why computation was not running", "", {}, "the traced step"};
  if (e.replay) how.no_typical = text_line(replay_error_sentence(*e.replay));
  if (e.recognition.is_fsdp() && !e.not_replayed_because.empty()) {
    how.no_typical += fmt::format("Settings were not tried: {}\n", e.not_replayed_because);
  }
  for (const account::ReplayedKnob& knob : e.replayed)
    if (knob.sayable) how.knobs.push_back(account::knob_sentence(knob.gain, knob.words));
  return "\n" + cause_table(report, how);
}

std::string most_exposed(const ExplainedJob& e) {
  Table table;
  table.title = "Most exposed collectives";
  table.header = {"collective", "unit", "phase", "a step", "takes", "waits", "exposed", "bus GB/s"};
  // Only beside a cluster.
  const bool has_roof =
      std::ranges::any_of(e.explanation.collectives, [](const auto& one) { return one.link_gb_s.has_value(); });
  if (has_roof) table.header.emplace_back("of link");
  table.header.emplace_back("cause");
  for (const ExplainedCollective& one : e.explanation.collectives) {
    if (table.rows.size() == kMostJobRows || one.exposed_ms <= 0) break;
    table.rows.push_back({one.kind, one.unit, one.phase, three_digits(one.times), three_digits(one.time_ms),
                          e.job.ranks.size() > 1 ? three_digits(one.waited_ms) : "–", three_digits(one.exposed_ms),
                          one.busbw_gb_s ? fmt::format("{:.1f}", *one.busbw_gb_s) : "-"});
    if (has_roof) table.rows.back().push_back(one.link_share_pct ? fmt::format("{:.1f} %", *one.link_share_pct) : "–");
    table.rows.back().emplace_back(to_string(one.worst));
  }
  if (table.rows.empty()) return {};
  return "\n" + format_table(table) + "takes, waits and exposed: ms a step\n";
}

std::string contention(const ExplainedJob& e) {
  if (e.explanation.contention.empty()) return {};
  const foreign::Contention& most = e.explanation.contention.front();
  return fmt::format(
      "\nBeside collectives {} takes {:.1f} us instead of {:.1f} (+{:.0f} %; {} and {} launches): {} ms a step.\n",
      short_kernel(most.kernel), most.beside_us, most.alone_us, 100 * (most.beside_us / most.alone_us - 1), most.beside,
      most.alone, three_digits(most.lost_ms));
}

/// All-gathers that nobody used, a line for each way.
std::vector<std::string> unused_lines(const ExplainedJob& e) {
  std::vector<std::string> lines;
  for (const foreign::UnusedGathers& one : e.unused.all) {
    const std::string sent = one.bytes >= 0 ? ", " + format_bytes(one.bytes) + " a rank" : "";
    lines.push_back(fmt::format("{}: {}; {} all-gather{} a step{}, {} ms ({}). Remedy: {}.", fmt::join(one.units, ", "),
                                fmt::format("{}: {}", schedule::words_of(one.waste), one.why), one.gathers,
                                one.gathers == 1 ? "" : "s", sent, three_digits(one.ms), one.evidence, one.remedy));
  }
  return lines;
}

}  // namespace

KernelsOfJob::KernelsOfJob(const foreign::KernelSum& of, const foreign::Explanation& x) : sum(&of) {
  const auto steps = static_cast<double>(x.rank_steps);
  total_ms = static_cast<double>(of.ns) / 1e6;
  ms = total_ms / steps;
  a_step = static_cast<double>(of.launches) / steps;
  if (x.kernels.ns > 0) share_pct = 100 * static_cast<double>(of.ns) / static_cast<double>(x.kernels.ns);
}

std::string headline(const ExplainedJob& e) {
  const foreign::Explanation& x = e.explanation;
  if (x.mean_step_ms <= 0) return "No work of a device is in the trace.";
  // Few steps accuse nobody: what is said of settings comes first then.
  const std::string sentence = x.late ? foreign::late_rank_sentence(*x.late, e.job, x) : "";
  const bool certain = x.late && x.late->certain();
  const std::string late = certain ? sentence : "", after = certain || sentence.empty() ? "" : " " + sentence;
  if (const account::ReplayedKnob* knob = account::best_knob(e.replayed)) {
    return late + (late.empty() ? "" : " ") + "What to change: " + account::knob_sentence(knob->gain, knob->words) +
           after;
  }
  if (certain) return late;
  const bool experts = e.recognition.shards && e.recognition.kind == foreign::JobKind::experts;
  const foreign::Finding* job = e.recognition.find("job");
  const bool says_sharded = job != nullptr && job->value == to_string(foreign::JobKind::sharded);
  std::string text =
      experts ? "No setting was tried: trainings whose ranks exchange rows of experts are not replayed, because "
                "products of experts and exchanges take as long as rows come, and that is up to the data."
      : !e.recognition.is_fsdp()       ? fmt::format("No setting was tried: the trace shows no {}.",
                                               says_sharded ? "gather of the job's parameters" : "sharded training")
      : e.not_replayed_because.empty() ? "No setting of the job is certain to make its step shorter."
                                       : fmt::format("No setting was tried: {}", e.not_replayed_because);
  constexpr double kMostly = 90;  // percent
  const double computes = 100 * x.computation_ms / x.mean_step_ms;
  if (computes >= kMostly) return text + fmt::format(" Computation takes {:.1f} % of the step.", computes) + after;
  if (x.causes.empty() || x.causes.front().cause == account::Cause::unknown) return text + after;
  const account::CauseShare& most = x.causes.front();
  return text +
         fmt::format(" Most of what computation waits for, {} of {} ms, is {}{}{}", three_digits(most.ms),
                     three_digits(x.mean_step_ms), to_string(most.cause), most.advice.empty() ? "." : ": ",
                     most.advice) +
         after;
}

std::optional<account::PathReport> path_of_job(const ExplainedJob& e) {
  const foreign::Explanation& x = e.explanation;
  if (x.path.empty()) return std::nullopt;
  const auto rows = [&](int place) -> const foreign::RankRows& { return e.job.ranks[place]; };
  return account::report_path(
      x.path, x.steps_ms.size(), x.median_path, step_of_path(e, x.median_path),
      [&](int place) { return rows(place).rank; },
      [&](int place, int op) {
        const foreign::DeviceRow& row = rows(place).device[op];
        return rows(place).names[row.name];
      });
}

std::string job_report(const ExplainedJob& e) {
  std::string text = what_it_is(e);
  if (e.recognition.schedule) text += bullets("Not as the schedule has it", e.recognition.schedule->deviations);
  if (e.explanation.mean_step_ms > 0) {
    const std::optional<account::PathReport> path = path_of_job(e);
    text += "\n" + where_time_went(e) + (path ? "\n" + path_table(*path) : "") + why_stalled(e) + most_exposed(e) +
            bullets("All-gathers that are wasted", unused_lines(e)) + where_kernels_went(e) + contention(e);
  }
  std::vector<std::string> unsure = e.recognition.unknown;
  if (!e.unused.unknown.empty()) unsure.push_back(e.unused.unknown);
  unsure.insert(unsure.end(), e.explanation.notes.begin(), e.explanation.notes.end());
  return text + bullets("Not known", unsure);
}

}  // namespace fsdpbench::app
