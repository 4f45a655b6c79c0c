#include "dialects/sayable.h"

#include <algorithm>

#include "base/error.h"
#include "dialects/make_export.h"

namespace fsdpbench::dialects {

const Dialect* dialect_of_program(const Words* engine) {
  // Whoever finds a compiler's names knows the compiler, not who wrote what it compiled.
  if (engine == nullptr || !engine->traces.of_one_program) return nullptr;
  const auto found = std::ranges::find(export_targets(), engine->name, &Dialect::name);
  return found == export_targets().end() ? nullptr : &*found;
}

std::string in_words(const Said& said) {
  if (said.fate == Fate::lost) return "it has no word for that: " + said.text;
  return said.text.empty() ? "its default: leave it unset" : said.text;
}

std::vector<KeyChange> changes_in_words(const Dialect& target, const config::RunConfig& was,
                                        const config::RunConfig& is) {
  std::vector<KeyChange> changes;
  const Export before = make_export(target, was), after = make_export(target, is);
  for (std::size_t i = 0; i < after.keys.size(); ++i) {
    const KeyFate& key = after.keys[i];
    if (key.value != before.keys[i].value) changes.push_back({key.key, before.keys[i].value, key.value, key.said});
  }
  return changes;
}

bool has_words_for(const Dialect& target, const config::RunConfig& was, const config::RunConfig& is) {
  try {
    const std::vector<KeyChange> changes = changes_in_words(target, was, is);
    return std::ranges::none_of(changes, [](const KeyChange& change) { return change.said.fate == Fate::lost; });
  } catch (const ConfigError&) {  // no engine of that system does so
    return false;
  }
}

}  // namespace fsdpbench::dialects
