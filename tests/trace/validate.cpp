#include "trace/validate.h"

#include <fmt/format.h>

#include <istream>
#include <optional>
#include <string_view>

#include "base/enum_table.h"
#include "trace/device_rules.h"
#include "trace/event_reader.h"
#include "trace/step_rules.h"
#include "trace/track_rules.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {

Validation validate(std::istream& in, const ValidateOptions& options) {
  Validation result{Findings(options.most_findings)};
  TrackRules tracks(result.findings);
  DeviceRules devices(result.findings);
  StepRules steps(result.findings);
  const auto fault = [&](ReadFault what, std::optional<std::int64_t> event, std::string_view message) {
    constexpr EnumTable<ReadFault, Rule> kRules{Rule::json, Rule::structure, Rule::limit};
    result.findings.add(kRules[what], event, message);
  };
  const FileFacts file = read_events(in, options.most_events, fault, [&](const ParsedEvent& event) {
    tracks.event(event);
    devices.event(event);
    steps.event(event);
  });
  tracks.finish();
  devices.finish(file);
  steps.finish(file);
  constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;
  if (file.bytes > kMostBytes) {
    result.findings.add(Rule::limit, std::nullopt,
                        "The file has more than 4 GiB of JSON, which Perfetto does not open.");
  }
  result.events = file.events;
  return result;
}

Validation validate_file(const std::string& path, const ValidateOptions& options) {
  InputFile file(path);
  std::istream in(&file);
  Validation result = validate(in, options);
  if (!file.error().empty()) {
    result.findings.add(Rule::json, std::nullopt, fmt::format("The file cannot be read to its end: {}.", file.error()));
  }
  return result;
}

}  // namespace fsdpbench::trace
