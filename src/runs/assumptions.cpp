#include "runs/assumptions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "config/fields.h"
#include "config/load.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

constexpr std::array kKeys{"train.batch_per_rank", "train.seq_len",      "fsdp.activation_checkpointing",
                           "fsdp.param_dtype",     "fsdp.reduce_dtype",  "simulate.compiled",
                           "simulate.attention",   "simulate.efficiency"};

}  // namespace

std::vector<Assumption> assumptions_of(const config::RunConfig& config, const std::string& profile,
                                       const std::vector<std::string>& overrides) {
  const std::set<std::string, std::less<>> said = config::said_keys(profile, overrides);
  std::vector<Assumption> all;
  for (const char* key : kKeys) {
    std::string value = config::to_toml(config::find_field(key)->write(config));
    std::erase(value, '"');
    all.push_back({key, std::move(value), said.contains(key)});
  }
  return all;
}

std::string assumptions_text(const std::vector<Assumption>& assumptions) {
  std::vector<std::string> words;
  for (const Assumption& a : assumptions) words.push_back(fmt::format("{} {}{}", a.key, a.value, a.said ? "" : "*"));
  const bool all_said = std::ranges::all_of(assumptions, &Assumption::said);
  return text_line(fmt::format("assumes {}", fmt::join(words, ", "))) +
         (all_said ? "" : "* nobody said so; --set KEY=VALUE says otherwise\n");
}

template <>
Fields<Assumption> declared<Assumption>() {
  using A = Assumption;
  // clang-format off
  return {"Assumption", "A setting on which a forecast depends.", "runs/assumptions.h", {
      {"key", &A::key, "", "its key"},
      {"value", &A::value, "", "as a profile has it"},
      {"said", &A::said, "", "whether the profile's file or an option says so, not a default or a preset"}}};
  // clang-format on
}

}  // namespace fsdpbench::app
