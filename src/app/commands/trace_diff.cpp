#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "base/file_lock.h"
#include "foreign/diff_jobs.h"
#include "foreign/evidence.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "record/console.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench trace diff`.
struct TraceDiffArguments {
  std::string a, b;  ///< a file, a folder of traces, or the result folder of a run
  std::string out;   ///< empty: nothing is written
  bool overwrite = false;
  bool json = false;
};

constexpr std::size_t kMostChanges = 12;

/// A job read and explained.
struct DiffedJob {
  explicit DiffedJob(const std::string& path)
      : job(foreign::read_job({traces_at(path)})),
        found(foreign::recognise(job)),
        explained(foreign::explain(job, found)) {}
  static std::string traces_at(const std::string& path) {
    const std::filesystem::path own = std::filesystem::path(path) / "trace";
    return path_exists(own) ? own.string() : path;
  }
  foreign::ReadJob read() const { return {job, found, explained}; }

  foreign::JobTrace job;
  foreign::Recognition found;
  foreign::Explanation explained;
};

double change_ms(const foreign::PartChange& change) { return static_cast<double>(change.change_ns) * 1e-6; }

std::string interval_text(const foreign::PartChange& change) {
  return change.low_ms ? fmt::format(" [{:+.3f} to {:+.3f}]", *change.low_ms, *change.high_ms) : "";
}

std::string part_name(const foreign::PartChange& change) {
  return change.op.empty() ? change.cause : fmt::format("{}: {}", change.cause, change.op);
}

/// The rank that has become late, or is no longer; empty: neither.
std::string late_rank_change(const DiffedJob& a, const DiffedJob& b) {
  const auto number = [](const DiffedJob& side) {
    return side.explained.late ? side.job.ranks[side.explained.late->place].rank : -1;
  };
  if (number(a) == number(b)) return {};
  if (number(b) >= 0) return "In B: " + foreign::late_rank_sentence(*b.explained.late, b.job, b.explained);
  return fmt::format("Rank {}, which is late in A, is not in B.", number(a));
}

std::string diff_headline(const foreign::JobDiff& diff, const std::string& late) {
  const foreign::PartChange& step = diff.step;
  const double percent = step.a_ms > 0 ? 100 * change_ms(step) / step.a_ms : 0;
  const bool leaves_zero_out = step.low_ms && (*step.low_ms > 0 || *step.high_ms < 0);
  std::string text = step.found ? fmt::format("B's step takes {:.3f} ms {} than A's ({:.3f} ms): {:+.1f} %{}.",
                                              std::abs(change_ms(step)), step.change_ns > 0 ? "more" : "less",
                                              step.a_ms, percent, interval_text(step))
                                : fmt::format("{}: {:+.3f} ms{} of {:.3f} ms.",
                                              leaves_zero_out ? "It is not certain whether the steps differ"
                                                              : "No difference found between the steps",
                                              change_ms(step), interval_text(step), step.a_ms);
  const auto most = std::ranges::find_if(diff.causes, &foreign::PartChange::found);
  if (most != diff.causes.end()) {
    const auto op = std::ranges::find_if(
        diff.ops, [&](const foreign::PartChange& one) { return one.found && one.cause == most->cause; });
    text += fmt::format(" {}{}, {:+.3f} ms", step.found ? "Most of it is " : "Yet there is a change of ", most->cause,
                        change_ms(*most));
    text += op == diff.ops.end() ? "." : fmt::format(", most at {} ({:+.3f} ms).", op->op, change_ms(*op));
  }
  return text + (late.empty() ? "" : " " + late);
}

std::string changes_table(const char* title, const std::vector<foreign::PartChange>& changes,
                          const foreign::PartChange& whole) {
  constexpr std::size_t kMostName = 70;
  Table table;
  table.title = title;
  double most = 0;
  for (const foreign::PartChange& change : changes) most = std::max({most, change.a_ms, change.b_ms});
  const Shown time("ms", most);
  table.header = {"part", "A, " + time.unit(), "B", "change", "95 % interval", "of the change", ""};
  double rest = 0;
  std::size_t left = 0;
  for (const foreign::PartChange& change : changes) {
    if (table.rows.size() >= kMostChanges) {
      rest += change_ms(change);
      ++left;
      continue;
    }
    std::string name = part_name(change);
    if (name.size() > kMostName) name = name.substr(0, kMostName) + "…";
    table.rows.push_back({name, time.number(change.a_ms), time.number(change.b_ms), time.change(change_ms(change)),
                          change.low_ms ? time.change(*change.low_ms) + " to " + time.change(*change.high_ms) : "-",
                          whole.found && whole.change_ns != 0
                              ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(change.change_ns) /
                                                            static_cast<double>(whole.change_ns))
                              : "-",
                          change.found ? "found" : ""});
  }
  std::string text = "\n" + format_table(table);
  if (left > 0) text += fmt::format("and {} parts more, together {} {}\n", left, time.change(rest), time.unit());
  return text;
}

std::string diff_text(const foreign::JobDiff& diff, const std::string& late) {
  std::string text = text_line(diff_headline(diff, late));
  text += text_line(fmt::format("A has {} steps, B {}; collectives are aligned by {}.", diff.steps_a, diff.steps_b,
                                diff.by_units ? "the units of the schedule" : "name"));
  text += changes_table("What a step is made of, mean over ranks and steps", diff.causes, diff.step);
  text += changes_table("By op", diff.ops, diff.step);
  text +=
      "Changes add up to the step's. Found: by chance less often than once in a hundred such comparisons, and at "
      "least 0.5 % of A's step.\n";
  for (const std::string& note : diff.notes) text += text_line("- " + note);
  return text;
}

struct DiffFile {
  const foreign::JobDiff* diff;
  std::string late;
};

}  // namespace

// clang-format off
template <>
Fields<foreign::PartChange> declared() {
  using C = foreign::PartChange;
  return {"PartChange", "Difference in one part of a step between two jobs, means over ranks and steps.", "foreign/diff_jobs.h", {
    {"part", &C::cause, "", "`computation`, or why nothing was computed; `step` for the whole"},
    {"op", &C::op, "", "the kernel, collective or copy; absent: all", if_any},
    {"a_ms", &C::a_ms, "ms", "time in A's step"},
    {"b_ms", &C::b_ms, "ms", "time in B's step"},
    {"change_ns", as<SignedWhole>(&C::change_ns), "ns", "B minus A; those of all parts add up to the step's"},
    {"ci_low_ms", &C::low_ms, "ms", "lower end of the 95 % interval of the change; absent for single steps"},
    {"ci_high_ms", &C::high_ms, "ms", "upper end of that interval"},
    {"found", &C::found, "", "whether the change matters, and is not by chance"},
  }};
}

template <>
Fields<DiffFile> declared() {
  using F = DiffFile;
  using D = foreign::JobDiff;
  return {"TraceDiff", "diff.json of `trace diff` ([trace-diff.md](trace-diff.md)).", "foreign/diff_jobs.h", {
    {"kind", [](const F&) { return "trace_diff"; }, "", "`trace_diff`"},
    {"schema_version", [](const F&) { return 1; }, "", "version of this file's format"},
    {"headline", [](const F& f) { return diff_headline(*f.diff, f.late); }, "", "what differs, and most of why"},
    {"steps_a", via(&F::diff, &D::steps_a), "", "steps of A that all ranks have"},
    {"steps_b", via(&F::diff, &D::steps_b), "", "steps of B that all ranks have"},
    {"aligned_by", [](const F& f) { return f.diff->by_units ? "units" : "names"; }, "", "how collectives of both were found to be the same: by `units` of the schedule, or `names`"},
    {"step", via(&F::diff, &D::step), "", "the whole step"},
    {"causes", via(&F::diff, &D::causes), "", "computation and why nothing was computed, the largest change first"},
    {"ops", via(&F::diff, &D::ops), "", "the same by op"},
    {"notes", via(&F::diff, &D::notes), "", "sentences to read before any number"},
  }};
}
// clang-format on

namespace {

/// Says what made B's step longer or shorter than A's. Returns ExitCode::ok; throws ConfigError for files that are no
/// traces.
int diff_traces(const TraceDiffArguments& arguments) {
  const DiffedJob a(arguments.a), b(arguments.b);
  const foreign::JobDiff diff = foreign::diff_jobs(a.read(), b.read());
  const std::string late = late_rank_change(a, b);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("diff", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse,
                   std::vector<std::string>{arguments.a, arguments.b});
  }
  const nlohmann::json content = fields<DiffFile>().write({&diff, late});
  console().print(arguments.json ? json_text(content) : diff_text(diff, late));
  if (folder) {
    const std::string path = (folder->path() / "diff.json").string();
    write_file(path, json_text(content));
    if (!arguments.json) console().print(fmt::format("\ndiff  {}\n", path));
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kTraceDiffHelp =
    R"(A and B are two recorded jobs: before and after a change, two versions, two machines. Each is a folder with one trace
file per rank (what `trace explain` reads), one such file, or the result folder of a run of this program. The change of
the step is divided among what computes and why nothing does (docs/explain.md has the causes), and among ops; the parts
add up to it, to the nanosecond. Each has its interval, and only a change that is not by chance is called found.

Files in DIR
  diff.json  all numbers

Examples
  fsdpbench trace diff before/ after/
  fsdpbench trace diff runs/one runs/two --json
Steps of one recording share its luck: what another recording of A would give is not in the intervals.

Exit codes: 0 compared, 2 a file that cannot be read or is no trace, 6 times that do not add up.
)";

}  // namespace

const ObjectFacts& trace_diff_file_facts() { return fields<DiffFile>().facts(); }

Command trace_diff_command() {
  const auto diff_it = std::make_shared<TraceDiffArguments>();
  Command command("trace diff", CommandGroup::understand, "Say what made one recorded job slower than another",
                  kTraceDiffHelp);
  command.argument("A", &diff_it->a, "Traces of the job to compare with: a folder, a file, or a run's result folder");
  command.argument("B", &diff_it->b, "Traces of the other job");
  command.flag("--json", diff_it->json, "Print the content of diff.json instead of the tables");
  command.out(diff_it->out, diff_it->overwrite, "Folder for diff.json; default: nothing is written");
  command.body = [diff_it](const Call&) { return diff_traces(*diff_it); };
  return command;
}

}  // namespace fsdpbench::app
