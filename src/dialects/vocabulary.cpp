#include "dialects/vocabulary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

namespace fsdpbench::dialects {
namespace {

using config::Prefetch;
using config::Value;

std::int64_t units(const ExportSource& s) { return static_cast<std::int64_t>(s.plan->units.size()); }

/// Blocks (mlp: linear layers) of each unit, in forward order; empty if the whole model is one unit.
std::vector<int> blocks_of_units(const ExportSource& s) {
  std::vector<int> counts;
  for (std::size_t u = 1; u < s.plan->units.size(); ++u) {
    const plan::Unit& unit = s.plan->units[u];
    if (unit.label() != "T") counts.push_back(static_cast<int>(unit.members.modules.size()));
  }
  return counts;
}

/// Elements of the largest unit beside the root; of the root if there is no other.
std::int64_t largest_unit(const ExportSource& s) {
  std::int64_t largest = 0;
  for (std::size_t u = s.plan->units.size() > 1 ? 1 : 0; u < s.plan->units.size(); ++u) {
    std::int64_t elements = 0;
    for (const int p : s.plan->units[u].members.parameters) {
      elements += s.plan->shapes.parameters[static_cast<std::size_t>(p)].numel();
    }
    largest = std::max(largest, elements);
  }
  return largest;
}

/// Units that a prefetch in forward fetches ahead, by the size of the largest unit where it counts elements; 0: none
/// are named.
std::int64_t units_ahead(const ExportSource& s) {
  const Prefetch& prefetch = s.config.fsdp.forward_prefetch;
  switch (prefetch.mode) {
    case Prefetch::Mode::explicit_:
    case Prefetch::Mode::ahead: return prefetch.depth;
    case Prefetch::Mode::window:
    case Prefetch::Mode::rate: {
      const std::int64_t unit = std::max<std::int64_t>(1, largest_unit(s));
      return std::min((prefetch.elements + unit - 1) / unit, units(s));
    }
    case Prefetch::Mode::none:
    case Prefetch::Mode::implicit:
    case Prefetch::Mode::post:
    case Prefetch::Mode::pre: break;
  }
  return 0;
}

/// Units that each hook gathers ahead, if hooks have lists: the root's first, then each unit's.
std::vector<int> depths(const ExportSource& s, const Prefetch& prefetch, bool forward) {
  const int last = static_cast<int>(s.plan->units.size()) - 1;
  std::vector<int> result(static_cast<std::size_t>(last) + 1, prefetch.depth);
  result.front() = 1;
  if (prefetch.mode == Prefetch::Mode::none) std::ranges::fill(result, 0);
  if (prefetch.mode == Prefetch::Mode::window || prefetch.mode == Prefetch::Mode::rate) {
    for (int u = 0; u <= last; ++u) {
      int ahead = 0;
      std::int64_t elements = 0;
      const int step = forward ? 1 : -1;
      for (int next = (u == 0 && !forward ? last + 1 : u) + step; next > 0 && next <= last; next += step) {
        if (elements >= prefetch.elements) break;
        elements += s.plan->units[static_cast<std::size_t>(next)].layout.parameter_numel();
        ++ahead;
      }
      result[static_cast<std::size_t>(u)] = ahead;
    }
  }
  const config::Fsdp& fsdp = s.config.fsdp;
  if (!(forward ? fsdp.root_prefetches_forward : fsdp.root_prefetches_backward)) result.front() = 0;
  return result;
}
std::vector<int> depths_backward(const ExportSource& s) { return depths(s, s.config.fsdp.backward_prefetch, false); }

/// Each line of the notes after `mark`; an empty one is the mark alone.
std::string notes_after(const ExportSource& s, std::string_view mark) {
  std::vector<std::string> lines;
  for (const std::string& note : s.notes)
    lines.push_back(note.empty() ? std::string(mark) : fmt::format("{} {}", mark, note));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

constexpr std::array kTables{"mesh", "train", "fsdp", "nccl"};
/// Keys of those tables that say how to measure, not how to train; and fsdp.preset, which stands for other keys.
constexpr std::array kOfTheMeasurement{"train.steps",         "train.warmup",   "train.seed",
                                       "train.params_digest", "nccl.timeout_s", "fsdp.preset"};

struct Word {
  std::string_view name;
  Value (*of)(const ExportSource&);
};

// clang-format off
constexpr Word kWords[] = {
    {"units", [](const ExportSource& s) -> Value { return units(s); }},
    {"largest_unit", [](const ExportSource& s) -> Value { return largest_unit(s); }},
    {"root_elements", [](const ExportSource& s) -> Value { return s.plan->units.front().layout.parameter_numel(); }},
    {"blocks_of_units", [](const ExportSource& s) -> Value { return python_runs(blocks_of_units(s)); }},
    {"groups_blocks", [](const ExportSource& s) -> Value {
       return std::ranges::any_of(blocks_of_units(s), [](int count) { return count > 1; });
     }},
    {"units_ahead", [](const ExportSource& s) -> Value { return units_ahead(s); }},
    {"depths_forward", [](const ExportSource& s) -> Value {
       return python_runs(depths(s, s.config.fsdp.forward_prefetch, true));
     }},
    {"depths_backward", [](const ExportSource& s) -> Value {  // without the root's
       std::vector<int> all = depths_backward(s);
       all.erase(all.begin());
       return python_runs(all);
     }},
    {"root_depth_backward", [](const ExportSource& s) -> Value { return std::int64_t{depths_backward(s).front()}; }},
    {"head_size", [](const ExportSource& s) -> Value { return s.config.model.head_size(); }},
    {"traced", [](const ExportSource& s) -> Value { return s.traced; }},
    {"notes", [](const ExportSource& s) -> Value { return fmt::format("{}", fmt::join(s.notes, "\n")); }},
    {"comment", [](const ExportSource& s) -> Value { return notes_after(s, "#"); }},
    {"notes_in_json", [](const ExportSource& s) -> Value {
       std::vector<std::string> lines;
       for (const std::string& note : s.notes) lines.push_back(nlohmann::json(note).dump());
       return fmt::format("{}", fmt::join(lines, ",\n    "));
     }},
};
// clang-format on

std::string mode_of(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? "number" : text->substr(0, text->find(':'));
}

Value count_of(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return value;
  const auto colon = std::min(text->find(':'), text->size() - 1);
  std::int64_t count = 0;
  std::from_chars(text->data() + colon + 1, text->data() + text->size(), count);
  return count;
}

}  // namespace

std::span<const config::Field* const> exported_fields() {
  static const std::vector<const config::Field*> kFields = [] {
    std::vector<const config::Field*> fields;
    for (const config::Field& field : config::fields()) {
      if (std::ranges::count(kTables, field.table) == 0 || std::ranges::count(kOfTheMeasurement, field.name()) > 0)
        continue;
      fields.push_back(&field);
    }
    return fields;
  }();
  return kFields;
}

Expression find_word(std::string_view name) {
  const auto found = std::ranges::find(kWords, name, &Word::name);
  if (found != std::end(kWords)) return found->of;
  const bool theirs = name.starts_with("theirs.");
  if (theirs) name.remove_prefix(std::string_view("theirs.").size());
  const bool mode = name.ends_with(".mode"), count = name.ends_with(".count");
  if (mode || count) name = name.substr(0, name.rfind('.'));
  const config::Field* field = config::find_field(name);
  if (field == nullptr) return {};
  return [=](const ExportSource& s) {
    Value value = field->write(theirs ? s.reference : s.config);
    return mode ? Value(mode_of(value)) : count ? count_of(value) : value;
  };
}

std::string python_runs(const std::vector<int>& counts) {
  std::vector<std::string> terms;
  std::vector<int> singles;  // those since the last run of equal ones
  const auto close = [&] {
    if (!singles.empty()) terms.push_back(fmt::format("[{}]", fmt::join(singles, ", ")));
    singles.clear();
  };
  for (auto begin = counts.begin(); begin != counts.end();) {
    const auto end = std::find_if(begin, counts.end(), [&](int count) { return count != *begin; });
    if (end - begin == 1) {
      singles.push_back(*begin);
    } else {
      close();
      terms.push_back(fmt::format("[{}] * {}", *begin, end - begin));
    }
    begin = end;
  }
  close();
  return terms.empty() ? "[]" : fmt::format("{}", fmt::join(terms, " + "));
}

}  // namespace fsdpbench::dialects
