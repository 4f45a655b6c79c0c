#include "app/commands/trace_check.h"

#include <fmt/format.h>

#include "app/console/console.h"
#include "base/error.h"
#include "trace/validate.h"

namespace fsdpbench::app {
namespace {

std::string report(const std::string& path, const trace::Validation& validation) {
  if (validation.ok()) return fmt::format("{}: ok, {} events\n", path, validation.events);
  std::string text;
  for (const trace::Finding& finding : validation.findings.list()) {
    text += fmt::format("{}: {}{}: {}\n", path, finding.event ? fmt::format("event {}: ", *finding.event) : "",
                        to_string(finding.rule), finding.message);
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
  return text + fmt::format("{}: {} findings in {} events\n", path, total, validation.events);
}

}  // namespace

int trace_check_command(const TraceCheckArguments& arguments) {
  bool ok = true;
  for (const std::string& path : arguments.files) {
    try {
      const trace::Validation validation = trace::validate_file(path);
      console().print(report(path, validation));
      ok = ok && validation.ok();
    } catch (const ConfigError& error) {  // the other files are still worth a look
      console().error(error.what());
      ok = false;
    }
  }
  return static_cast<int>(ok ? ExitCode::ok : ExitCode::bad_input);
}

}  // namespace fsdpbench::app
