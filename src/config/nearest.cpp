#include "config/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "config/fields.h"
#include "config/run_config.h"
#include "config/words/words.h"

namespace fsdpbench::config {
namespace {

/// Edits (insert, delete, replace, swap of neighbours) that turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

/// Longer ones are no typing errors, and comparing them letter by letter would take their length squared.
constexpr std::size_t kLongestName = 80;

std::string_view after_dot(std::string_view name) { return name.substr(name.find('.') + 1); }

/// Typing errors that a name of this length may have.
std::size_t most_errors(std::string_view name) { return std::max<std::size_t>(1, name.size() / 3); }

/// "prefetch" of "backward_prefetch". Short names are in too many others.
bool contains_other(std::string_view a, std::string_view b) {
  constexpr std::size_t kLeast = 4;
  return (b.size() >= kLeast && a.find(b) != std::string_view::npos) ||
         (a.size() >= kLeast && b.find(a) != std::string_view::npos);
}

std::vector<std::string_view> words_of_key(std::string_view key) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('_', begin), key.size());
    words.push_back(key.substr(begin, end - begin));
    begin = end + 1;
  }
  std::ranges::sort(words);
  return words;
}

/// All keys that `name` may have been meant to be, if they are as likely.
std::vector<std::string> near_fields(std::string_view name) {
  name = name.substr(0, kLongestName);
  if (const std::string_view known = key_of_other_system(name); !known.empty()) return {std::string(known)};
  const std::string_view key = after_dot(name);
  const std::vector<std::string_view> words = words_of_key(key);
  std::vector<std::string> reordered, containing;  // "global_batch", "prefetch"
  std::size_t least = most_errors(key) + 1;
  std::vector<std::string> nearest_ones;
  for (const Field& field : fields()) {
    // The right key in the wrong table is as likely a mistake as a typing error.
    const std::size_t errors = std::min(edit_distance(name, field.name()), edit_distance(key, field.key) + 1);
    if (errors < least) {
      least = errors;
      nearest_ones = {field.name()};
    }
    const std::vector<std::string_view> valid = words_of_key(field.key);
    if (!std::ranges::includes(valid, words)) continue;
    const bool same_table = key.size() == name.size() || name.starts_with(field.table + ".");
    if (valid.size() == words.size()) {
      reordered.push_back(field.name());
    } else if (same_table) {
      containing.push_back(field.name());
    }
  }
  if (!nearest_ones.empty()) return nearest_ones;
  return reordered.empty() ? containing : reordered;
}

/// Lower case, without what stands before the last dot, without dashes, underscores and spaces.
std::string squeezed(std::string_view text) {
  if (const auto dot = text.rfind('.'); dot != std::string_view::npos) text.remove_prefix(dot + 1);
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != '-' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string word_of(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? std::string() : squeezed(*text);
}

/// The words in quotation marks in what the field says it accepts.
std::vector<std::string> words_of(const Field& field) {
  std::vector<std::string> words;
  for (auto begin = field.valid.find('"'); begin != std::string::npos; begin = field.valid.find('"', begin)) {
    const auto end = field.valid.find('"', begin + 1);
    words.push_back(field.valid.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return words;
}

/// Answer to a word for `key`, after a space; empty if there is none.
std::string answer_to(std::string_view key, std::string_view word) {
  for (const dialects::Words* words : dialects::all_words()) {
    for (const dialects::Answer& known : words->answers) {
      if (known.key == key && known.word == word) return fmt::format(" {}", known.sentence);
    }
  }
  return "";
}

bool accepts(const Field& field, const Value& value) {
  RunConfig scratch;
  return field.read(scratch, value);
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> names) {
  name = name.substr(0, kLongestName);
  const std::string* best = nullptr;
  std::size_t least = 0;
  for (const std::string& other : names) {
    const std::size_t errors = edit_distance(name, other);
    if (errors > most_errors(name) && !contains_other(other, name)) continue;
    if (best != nullptr && errors >= least) continue;
    best = &other;
    least = errors;
  }
  return best == nullptr ? std::string() : *best;
}

std::string nearest_clause(std::string_view name, std::span<const std::string> names) {
  const std::string meant = nearest(name, names);
  return meant.empty() ? "" : fmt::format("; the nearest is '{}'", meant);
}

std::string unknown_key(std::string_view name) {
  constexpr std::size_t kMostSuggested = 3;
  const std::string what = fmt::format("unknown key '{}'", name);
  const std::vector<std::string> near = near_fields(name);
  if (near.size() == 1) return fmt::format("{}; the nearest valid key is '{}'.", what, near.front());
  if (!near.empty() && near.size() <= kMostSuggested) {
    return fmt::format("{}; the nearest valid keys are '{}'.", what, fmt::join(near, "', '"));
  }
  const std::string_view section = name.substr(0, name.find('.'));
  std::vector<std::string> keys;
  for (const Field& field : fields()) {
    if (field.table == section) keys.push_back(field.key);
  }
  if (keys.empty()) return fmt::format("{}; `fsdpbench help keys` lists the valid ones.", what);
  return fmt::format("{}; the keys of [{}] are {}.", what, section, fmt::join(keys, ", "));
}

std::optional<Value> meant_by(const Field& field, const Value& value) {
  const std::string word = word_of(value);
  const auto* text = std::get_if<std::string>(&value);
  if (word.empty() || text == nullptr) return std::nullopt;
  for (const std::string& valid : words_of(field)) {
    if (squeezed(valid) == word && accepts(field, Value(valid))) return Value(valid);
  }
  for (const dialects::Words* words : dialects::all_words()) {
    for (const dialects::Meaning& known : words->meanings) {
      if (known.key == field.name() && known.word == word) return Value(std::string(known.value));
    }
  }
  // Python's True, False.
  if ((word == "true" || word == "yes" || word == "on") && accepts(field, true)) return Value(true);
  if ((word == "false" || word == "no" || word == "off") && accepts(field, false)) return Value(false);
  return std::nullopt;
}

std::string right_word(const Field& field, const Value& value) {
  const std::string word = word_of(value);
  return word.empty() ? "" : answer_to(field.name(), word);
}

std::string words_for_key(std::string_view key) { return answer_to("", squeezed(key)); }

std::string_view key_of_other_system(std::string_view key) {
  const std::string word = squeezed(key);
  for (const dialects::Words* words : dialects::all_words()) {
    const auto found = std::ranges::find(words->keys, word, &dialects::KeyWord::word);
    if (found != words->keys.end()) return found->key;
  }
  return {};
}

}  // namespace fsdpbench::config
