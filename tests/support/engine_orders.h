#pragma once

#include <sstream>
#include <string>

#include "schedule/print_schedule.h"
#include "support/presets.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {

/// Units of about so many million elements, so that the engines' own defaults decide.
inline config::RunConfig sized(const std::string& preset, std::int64_t millions, int blocks = 4) {
  config::RunConfig c = testing::decoder_config(blocks, 4);
  c.model.width = 4096;
  c.model.heads = 32;
  c.model.kv_heads = 8;
  const std::int64_t attention = (2 * 4096 + 2 * 1024) * 4096 + 2 * 4096;
  c.model.ffn_width = (millions * 1'000'000 - attention) / (3 * 4096) + 1;
  return testing::with_preset(c, preset);
}

inline std::string order(const config::RunConfig& config) {
  const testing::ScheduleCase c = testing::make_case(config);
  return host_order(c.plan, c.schedules.steady());
}

inline std::int64_t unit_numel(const config::RunConfig& config) {
  return plan::make_plan(config).units[1].layout.parameter_numel();
}

/// Gathers and reductions only: no computation, no frees.
inline std::string collectives(const config::RunConfig& config) {
  std::istringstream words(order(config));
  std::string text, word;
  while (words >> word) {
    if (word[0] == 'F' || word[0] == 'B' || word[0] == 'f') continue;
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace fsdpbench::schedule
