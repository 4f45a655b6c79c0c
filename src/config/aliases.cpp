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

/// "Llama-3.2-1B": {"llama", "3", "2", "1b"}.
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      if (!parts.back().empty()) parts.emplace_back();
    } else {
      parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

/// Each part of `word`, in order, begins a part of `name`; what begins with a digit is a size and must be all of it.
bool abbreviates(const std::vector<std::string>& word, const std::vector<std::string>& name) {
  auto at = name.begin();
  for (const std::string& part : word) {
    const bool size = std::isdigit(static_cast<unsigned char>(part.front())) != 0;
    at = std::find_if(at, name.end(), [&](const std::string& other) {
      return size ? other == part : part.size() > 1 && other.starts_with(part);
    });
    if (at == name.end()) return false;
    ++at;
  }
  return !word.empty();
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

std::string preset_meant_by(std::string_view word, std::span<const std::string> names) {
  if (const auto slash = word.rfind('/'); slash != std::string_view::npos) word.remove_prefix(slash + 1);
  std::vector<std::string> parts = parts_of(word);
  std::erase(parts, "meta");
  std::vector<std::string> meant;
  for (const std::string& name : names) {
    const std::vector<std::string> other = parts_of(name);
    if (joined(other) == joined(parts)) return name;
    if (abbreviates(parts, other)) meant.push_back(name);
  }
  // A bare size is one of the models that are trained here, though others of that size can be simulated.
  if (meant.size() > 1) {
    std::erase_if(meant,
                  [](const std::string& name) { return !name.starts_with("llama3") && !name.starts_with("gpt2"); });
  }
  if (meant.size() == 1) return meant.front();
  // Llama 3.1 has the sizes of Llama 3.
  std::string all = joined(parts);
  if (!all.starts_with("llama31")) return "";
  all.erase(6, 1);
  const auto same = std::ranges::find_if(names, [&](const std::string& name) { return joined(parts_of(name)) == all; });
  return same == names.end() ? std::string() : *same;
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
