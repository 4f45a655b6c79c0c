#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
#include <string>

#include "support/temporary_folder.h"
#include "trace/facts.h"
#include "trace/validate.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// Decompressed if it is gzipped.
inline std::string read_text(const std::string& path) {
  InputFile file(path);
  return {std::istreambuf_iterator<char>(&file), {}};
}

inline Validation validate_text(const std::string& text) {
  std::istringstream in(text);
  return validate(in);
}

/// Findings, one a line; "" if there are none.
inline std::string findings_text(const Validation& validation) {
  std::string text;
  for (const Finding& finding : validation.findings.list()) {
    text += std::string(to_string(finding.rule)) + " " + std::to_string(finding.event.value_or(-1)) + ": " +
            finding.message + "\n";
  }
  return text;
}

/// The worked example of FORMAT.md.
struct Example {
  RankTrace trace;
  std::vector<OpLabel> labels;
  RankFacts facts{0, 2, "cpu", {{"0", "none", {}}, {"1", "shard", {0, 1}}}};
  TimeBase time{1'000'000, 0};

  Example() {
    OpLabel gather;
    gather.name = "all_gather 0";
    gather.category = OpCategory::communication;
    gather.unit = "0";
    gather.lane = Lane::all_gather;
    gather.bytes = 4000;
    gather.parameters = true;
    gather.collective = {CollectiveKind::all_gather, 1, 1000, DType::f32};
    OpLabel forward;
    forward.name = "forward blocks.0";
    forward.unit = "0";
    labels = {gather, forward};
    trace.rank = 0;
    trace.steps = {{1'000'000, 1'300'000, 1'045'000}};
    trace.records = {{0, 0, 1'010'000, 1'150'000, 1'250'000, 1'200'000}, {0, 1, 1'030'000, 1'260'000, 1'300'000, 0}};
  }
  LabelOf label() const {
    return [this](std::int32_t, std::int32_t op) -> const OpLabel& { return labels.at(static_cast<std::size_t>(op)); };
  }
};

}  // namespace fsdpbench::trace
