#include "dialects/sayable.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "config/fields.h"
#include "config/presets.h"
#include "config/validate.h"
#include "dialects/make_export.h"

namespace fsdpbench::dialects {
namespace {

const Dialect* find_dialect(const Words& words) {
  const auto found = std::ranges::find(dialects(), words.name, &Dialect::name);
  return found == dialects().end() ? nullptr : &*found;
}

}  // namespace

const Dialect* dialect_of_program(const Words* engine) {
  // Whoever finds a compiler's names knows the compiler, not who wrote what it compiled.
  if (engine == nullptr || !engine->traces.of_one_program) return nullptr;
  return find_dialect(*engine);
}

const Dialect* dialect_of(const config::RunConfig& config) {
  const Words* words = words_of_preset(config.fsdp.preset);
  return words == nullptr ? nullptr : find_dialect(*words);
}

std::string in_words(const Said& said) {
  if (said.fate == Fate::lost) return "it has no word for that: " + said.text;
  return said.text.empty() ? "its default: leave it unset" : said.text;
}

std::vector<KeyChange> changes_in_words(const Dialect& target, const config::RunConfig& was,
                                        const config::RunConfig& is) {
  std::vector<const config::Field*> changed;
  std::ranges::copy_if(exported_fields(), std::back_inserter(changed),
                       [&](const config::Field* field) { return field->write(was) != field->write(is); });
  std::vector<KeyChange> changes;
  for (KeyFate& key : key_fates(target, is, changed)) {
    std::string before = config::to_toml(config::find_field(key.key)->write(was));
    changes.push_back({std::move(key.key), std::move(before), std::move(key.value), std::move(key.said)});
  }
  return changes;
}

Sayable::Sayable(const Dialect& dialect, config::RunConfig in_force, Fit fit)
    : dialect_(dialect), in_force_(std::move(in_force)), fit_(fit) {
  for (KeyFate& key : key_fates(dialect_, in_force_, exported_fields())) {
    if (!fits(key.said.fate)) unsaid_.insert(std::move(key.key));
  }
}

bool Sayable::says(const config::RunConfig& other, Own own) const {
  try {
    return std::ranges::none_of(key_fates(dialect_, other, exported_fields()), [&](const KeyFate& key) {
      if (fits(key.said.fate)) return false;
      if (!unsaid_.contains(key.key)) return true;
      const config::Field* field = config::find_field(key.key);
      return own == Own::stays && field->write(in_force_) != field->write(other);
    });
  } catch (const ConfigError&) {  // no engine of that system does so
    return false;
  }
}

bool Sayable::says(std::string_view key, const config::Value& value) const {
  const config::Field* field = config::find_field(key);
  config::RunConfig other = in_force_;
  if (field == nullptr || !field->read(other, value)) return false;
  if (key == "fsdp.preset") {
    if (dialect_of(other) != &dialect_) return false;
    // Defaults without the preset in force.
    const config::RunConfig defaults;
    for (const auto& [name, setting] : config::fsdp_preset(in_force_.fsdp.preset)) {
      const config::Field* brought = config::find_field(name);
      if (brought->write(in_force_) == setting) brought->read(other, brought->write(defaults));
    }
    for (const auto& [name, setting] : config::fsdp_preset(other.fsdp.preset)) {
      config::find_field(name)->read(other, setting);
    }
  }
  try {
    config::validate(other);
  } catch (const ConfigError&) {
    return false;
  }
  return says(other);
}

std::vector<config::Value> Sayable::sayable(std::string_view key, std::span<const config::Value> values) const {
  std::vector<config::Value> found;
  std::ranges::copy_if(values, std::back_inserter(found), [&](const config::Value& value) { return says(key, value); });
  return found;
}

}  // namespace fsdpbench::dialects
