#include "trace/validate.h"

#include <fmt/format.h>

#include <algorithm>
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

SearchedText::int_type SearchedText::underflow() {
  constexpr std::size_t kPiece = 1 << 20, kLongestFind = 64;
  constexpr std::string_view kKey = "\"rank\":";
  const std::string end = piece_.substr(piece_.size() - std::min(piece_.size(), kLongestFind));
  piece_.resize(kPiece);
  piece_.resize(static_cast<std::size_t>(source_.sgetn(piece_.data(), kPiece)));
  const std::string both = end + piece_;
  for (std::size_t at = both.find(kKey); !rank_ && at != std::string::npos; at = both.find(kKey, at + 1)) {
    const std::size_t blank = at + kKey.size();
    const std::size_t digit = both.find_first_not_of(" \t", blank);
    const std::size_t behind = digit == std::string::npos ? digit : both.find_first_not_of("0123456789", digit);
    if (behind != std::string::npos && digit > blank && behind > digit) rank_ = std::stoll(both.substr(digit));
  }
  if (piece_.empty()) return traits_type::eof();
  setg(piece_.data(), piece_.data(), piece_.data() + piece_.size());
  return traits_type::to_int_type(piece_[0]);
}

Validation validate(std::istream& in, const ValidateOptions& options) {
  Validation result{Findings(options.most_findings)};
  TrackRules tracks(result.findings);
  DeviceRules devices(result.findings);
  StepRules steps(result.findings);
  const auto fault = [&](ReadFault what, std::optional<std::int64_t> event, std::string_view message) {
    constexpr EnumTable<ReadFault, Rule> kRules{Rule::json, Rule::structure, Rule::limit};
    result.findings.add(kRules[what], event, message);
  };
  SearchedText text(*in.rdbuf());
  std::istream searched(&text);
  const FileFacts file = read_events(searched, options.most_events, fault, [&](const ParsedEvent& event) {
    tracks.event(event);
    devices.event(event);
    steps.event(event);
  });
  tracks.finish();
  devices.finish(file, text.rank());
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
