#include "config/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "config/run_config.h"
#include "config/words/words.h"

namespace fsdpbench::config {
namespace {

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
