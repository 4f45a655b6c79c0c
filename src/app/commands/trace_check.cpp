#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/console/console.h"
#include "base/error.h"
#include "trace/validate.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench trace check`.
struct TraceCheckArguments {
  std::vector<std::string> files;
};

std::string report(const std::string& path, const trace::Validation& validation) {
  if (validation.ok()) return fmt::format("{}: ok, {} events\n", path, validation.events);
  std::string text;
  for (const trace::Finding& finding : validation.findings.list()) {
    text += fmt::format("{}: {}{}{}: {}\n", path, validation.is_error(finding.rule) ? "" : "note: ",
                        finding.event ? fmt::format("event {}: ", *finding.event) : "", to_string(finding.rule),
                        finding.message);
  }
  std::size_t total = 0, left_out = 0;
  std::string kinds;
  for (const trace::Rule rule : kEnumerators<trace::Rule>) {
    total += validation.findings.count(rule);
    const std::size_t more = validation.findings.left_out(rule);
    left_out += more;
    if (more > 0) kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", more, to_string(rule));
  }
  if (left_out > 0) text += fmt::format("{}: and {} more: {}\n", path, left_out, kinds);
  const std::size_t errors = validation.errors();
  return text + fmt::format("{}: {} errors and {} notes in {} events{}\n", path, errors, total - errors,
                            validation.events, errors == 0 ? ": ok" : "");
}

/// Prints what is wrong with each file, or that it is fine. Returns ExitCode::ok or ExitCode::bad_input.
int check_traces(const TraceCheckArguments& arguments) {
  bool ok = true;
  for (const std::string& path : arguments.files) {
    try {
      const trace::Validation validation = trace::validate_file(path);
      console().print(report(path, validation));
      ok = ok && validation.errors() == 0;
    } catch (const ConfigError& error) {  // the other files are still worth a look
      console().error(error.what());
      ok = false;
    }
  }
  return static_cast<int>(ok ? ExitCode::ok : ExitCode::bad_input);
}

constexpr const char* kTraceCheckHelp =
    R"(FILE is any Chrome trace, of whatever program. Checked are JSON, events, tracks, nesting of slices, pairs of
arrows and counters; and, for a rank's file, what PyTorch's tools (HTA) need: its rank, one launch for every kernel,
streams, names and the fields of collectives. src/trace/FORMAT.md lists the rules. An error is what makes Perfetto or
Python's json lose something; the rest are notes, except in files of fsdpbench itself, which keep all rules.

Examples
  fsdpbench trace check runs/*/trace.json

Exit codes: 0 no errors, 2 errors, each with its event and a sentence, or a file that cannot be read.
)";

}  // namespace

Command trace_check_command() {
  const auto check = std::make_shared<TraceCheckArguments>();
  Command command("trace check", CommandGroup::understand, "Say what is wrong with trace files", kTraceCheckHelp);
  command.argument("FILE", &check->files, "Chrome traces, .json or .json.gz");
  command.body = [check](const Call&) { return check_traces(*check); };
  return command;
}

}  // namespace fsdpbench::app
