#include "app/experiment/old_names.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr RenamedField kRenamed[] = {
    {"run", "jitter", "computation_ms", "compute_ms"},
    {"run", "collectives[]", "algbw_gb_s", "algbw_gb_per_s"},
    {"run", "collectives[]", "busbw_gb_s", "busbw_gb_per_s"},
    {"trial", "jitter", "computation_ms", "compute_ms"},
    {"acceptance", "judgements[].value", "low", "ci_low"},
    {"acceptance", "judgements[].value", "high", "ci_high"},
    {"acceptance", "findings[].relative", "low", "ci_low"},
    {"acceptance", "findings[].relative", "high", "ci_high"},
    {"acceptance", "lateness.waiting_us", "low", "ci_low"},
    {"acceptance", "lateness.waiting_us", "high", "ci_high"},
    {"acceptance", "lateness.transfer_us", "low", "ci_low"},
    {"acceptance", "lateness.transfer_us", "high", "ci_high"},
    {"acceptance", "arms.rounds[]", "computation_ms", "compute_ms"},
    {"acceptance", "arms.rounds[]", "communication_ms", "comm_ms"},
    {"acceptance", "arms.rounds[]", "whole_ms", "step_ms"},
    {"acceptance", "arms.soak[]", "computation_ms", "compute_ms"},
    {"acceptance", "arms.soak[]", "communication_ms", "comm_ms"},
    {"acceptance", "arms.soak[]", "whole_ms", "step_ms"},
    {"acceptance", "scales[]", "collective", "kind"},
    {"acceptance", "scales[]", "ranks", "group_size"},
    {"acceptance", "collectives[]", "op", "kind"},
    {"acceptance", "collectives[]", "ranks", "group_size"},
    {"baseline", "results[].figures[].value", "low", "ci_low"},
    {"baseline", "results[].figures[].value", "high", "ci_high"},
    {"gate", "changes[].before", "low", "ci_low"},
    {"gate", "changes[].before", "high", "ci_high"},
    {"gate", "changes[].now", "low", "ci_low"},
    {"gate", "changes[].now", "high", "ci_high"},
    {"explain", "step", "computation_ms", "compute_ms"},
    {"explain", "step", "communication_ms", "comm_ms"},
    {"explain", "step", "exposed_communication_ms", "exposed_comm_ms"},
    {"explain", "step.slowest_rank", "median_ms", "median"},
    {"explain", "step.slowest_rank", "low_ms", "ci_low"},
    {"explain", "step.slowest_rank", "high_ms", "ci_high"},
    {"explain", "step.slowest_rank", "min_ms", "min"},
    {"explain", "step.slowest_rank", "max_ms", "max"},
    {"explain", "step.slowest_rank", "steps", "n"},
    {"explain", "collectives[]", "waited_ms", "wait_ms"},
    {"explain", "collectives[]", "ranks", "group_size"},
    {"explain", "collectives[]", "busbw_gb_s", "busbw_gb_per_s"},
    {"explain", "ranks[].mean", "computation_ms", "compute_ms"},
    {"explain", "ranks[].mean", "communication_ms", "comm_ms"},
    {"explain", "ranks[].mean", "exposed_communication_ms", "exposed_comm_ms"},
    {"explain", "ranks[].steps[]", "computation_ms", "compute_ms"},
    {"explain", "ranks[].steps[]", "communication_ms", "comm_ms"},
    {"explain", "ranks[].steps[]", "exposed_communication_ms", "exposed_comm_ms"},
    {"explain", "", "replayed", "knobs"},
    {"explain", "knobs[]", "low_ms", "ci_low"},
    {"explain", "knobs[]", "high_ms", "ci_high"},
};

/// `object`: what is left of the way to the field.
void rename_field(json& at, std::string_view object, const RenamedField& field) {
  if (!at.is_object()) return;
  if (object.empty()) {
    const auto old = at.find(field.was);
    if (old == at.end() || at.contains(field.is)) return;
    json value = std::move(*old);
    at.erase(old);
    at[std::string(field.is)] = std::move(value);
    return;
  }
  const std::size_t dot = object.find('.');
  std::string_view name = object.substr(0, dot);
  const std::string_view rest = dot == std::string_view::npos ? std::string_view() : object.substr(dot + 1);
  const bool each = name.ends_with("[]");
  if (each) name.remove_suffix(2);
  const auto inner = at.find(name);
  if (inner == at.end()) return;
  if (!each) {
    rename_field(*inner, rest, field);
  } else if (inner->is_array()) {
    for (json& one : *inner) rename_field(one, rest, field);
  }
}

}  // namespace

std::span<const RenamedField> renamed_fields() { return kRenamed; }

int renamed_in(std::string_view file) {
  if (file == "trial") return 4;
  return file == "gate" ? 2 : 3;
}

void use_new_names(std::string_view file, std::int64_t version, json& content) {
  if (version >= renamed_in(file)) return;
  for (const RenamedField& field : kRenamed) {
    if (field.file == file) rename_field(content, field.object, field);
  }
  if (file != "baseline" || !content.is_object() || !content.value("results", json()).is_array()) return;
  for (json& result : content["results"]) {
    if (!result.is_object() || !result.value("figures", json()).is_array()) continue;
    for (json& figure : result["figures"]) {
      if (figure.is_object() && figure.value("name", json()) == "exposed_comm")
        figure["name"] = "exposed communication";
    }
  }
}

}  // namespace fsdpbench::app
