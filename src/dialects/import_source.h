#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/spelling.h"
#include "dialects/settings.h"

namespace fsdpbench::dialects {

/// What files of other systems say, as keys.
struct Import {
  std::vector<std::string> systems;                         ///< of each file: "DeepSpeed's JSON"
  std::vector<std::pair<std::string, config::Value>> keys;  ///< each once; fsdp.preset brings what it stands for
  std::vector<std::string> unread;                          ///< what there is no key for, a sentence each
};

/// A setting as its file has it, for a sentence.
inline std::string shown(const config::Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : config::to_toml(value);
}

/// The settings of one file; what was not asked for at the end has no key here.
class ImportSource {
 public:
  ImportSource(Settings settings, Import& into) : settings_(std::move(settings)), into_(into) {}

  bool has(std::string_view name) const { return settings_.has(name); }

  std::optional<config::Value> take(std::string_view name) {
    const auto found = settings_.values.find(std::string(name));
    if (found == settings_.values.end()) return std::nullopt;
    config::Value value = std::move(found->second);
    settings_.values.erase(found);
    return value;
  }

  std::optional<std::string> text(std::string_view name) {
    const std::optional<config::Value> value = take(name);
    return value ? std::optional(shown(*value)) : std::nullopt;
  }
  bool flag(std::string_view name) { return boolean(name).value_or(false); }
  std::optional<bool> boolean(std::string_view name) {
    const std::optional<config::Value> value = take(name);
    if (!value) return std::nullopt;
    if (const auto* yes = std::get_if<bool>(&*value)) return *yes;
    return refuse<bool>(name, *value);
  }
  std::optional<double> number(std::string_view name) {
    const std::optional<config::Value> value = take(name);
    if (!value) return std::nullopt;
    if (const auto* whole = std::get_if<std::int64_t>(&*value)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&*value)) return *real;
    return refuse<double>(name, *value);
  }
  std::optional<std::int64_t> integer(std::string_view name) {
    const std::optional<config::Value> value = take(name);
    if (!value) return std::nullopt;
    if (const auto* whole = std::get_if<std::int64_t>(&*value)) return *whole;
    if (const auto* real = std::get_if<double>(&*value);
        real != nullptr && std::abs(*real) < 1e18 && *real == std::floor(*real))
      return static_cast<std::int64_t>(*real);
    return refuse<std::int64_t>(name, *value);
  }
  /// Of several names for one thing the first that is there.
  std::optional<std::int64_t> first_integer(std::initializer_list<std::string_view> names) {
    std::optional<std::int64_t> found;
    for (const std::string_view name : names) {
      if (const auto value = integer(name); value && !found) found = value;
    }
    return found;
  }

  void put(std::string_view key, config::Value value) {
    const auto same = std::ranges::find(into_.keys, key, &std::pair<std::string, config::Value>::first);
    if (same == into_.keys.end()) {
      into_.keys.emplace_back(key, std::move(value));
    } else {
      same->second = std::move(value);
    }
  }
  void put(std::string_view key, std::string_view value) { put(key, config::Value(std::string(value))); }
  void put(std::string_view key, const std::string& value) { put(key, config::Value(value)); }
  void put(std::string_view key, const char* value) { put(key, config::Value(std::string(value))); }
  template <class T>
  void put_if(std::string_view key, const std::optional<T>& value) {
    if (value) put(key, config::Value(*value));
  }

  /// Whether this or a file before has put the key.
  bool has_key(std::string_view key) const {
    return std::ranges::find(into_.keys, key, &std::pair<std::string, config::Value>::first) != into_.keys.end();
  }

  /// Settings below `prefix` lose it, unless there is one of the same name already.
  void lift(std::string_view prefix) {
    std::vector<std::pair<std::string, config::Value>> lifted;
    for (const auto& [name, value] : settings_.values) {
      if (name.starts_with(prefix)) lifted.emplace_back(name.substr(prefix.size()), value);
    }
    std::erase_if(settings_.values, [&](const auto& setting) { return setting.first.starts_with(prefix); });
    for (auto& [name, value] : lifted) settings_.values.try_emplace(std::move(name), std::move(value));
  }

  /// The elements of a list. If the file has a single value instead of a list, this is the only element.
  std::vector<std::string> list(const std::string& name) {
    if (std::optional<std::string> single = text(name)) return {std::move(*single)};
    std::vector<std::string> found;
    while (std::optional<std::string> next = text(fmt::format("{}.{}", name, found.size()))) {
      found.push_back(std::move(*next));
    }
    return found;
  }

  /// The further words of an argument that takes several: all but the first, which is its value.
  const std::vector<std::string>& words_after(const std::string& name) const {
    static const std::vector<std::string> none;
    const auto found = settings_.more_words.find(name);
    return found == settings_.more_words.end() ? none : found->second;
  }

  void unread(std::string sentence) { into_.unread.push_back(std::move(sentence)); }
  /// What changes no step: not listed.
  void ignore(std::span<const std::string_view> names) {
    std::erase_if(settings_.values, [&](const auto& setting) {
      return std::ranges::any_of(names, [&](std::string_view name) {
        return setting.first == name || (name.ends_with('.') && setting.first.starts_with(name));
      });
    });
  }
  void list_the_rest() {
    for (const auto& [name, value] : settings_.values) unread(fmt::format("{} = {}", name, shown(value)));
  }

 private:
  template <class T>
  std::optional<T> refuse(std::string_view name, const config::Value& value) {
    unread(fmt::format("{} = {}", name, shown(value)));
    return std::nullopt;
  }

  Settings settings_;
  Import& into_;
};

/// Reads a language model's config.json of Hugging Face. `path`: for messages. Throws ConfigError if it has no layers
/// or no width.
void read_hugging_face(ImportSource& source, const std::string& path);

/// Reads the adapter_config.json of Hugging Face's peft: of LoRA the rank, its factor and the blocks.
void read_peft(ImportSource& source);

}  // namespace fsdpbench::dialects
