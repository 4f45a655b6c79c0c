#include "config/words/words.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "config/fields.h"
#include "config/presets.h"
#include "config/words/system_file.h"
#include "dialects/dialect.h"
#include "dialects/make_export.h"

namespace fsdpbench::dialects {
namespace {

bool is_squeezed(std::string_view word) {
  return std::ranges::none_of(word, [](char c) { return c == '_' || c == '-' || c == ' ' || c == '.'; }) &&
         std::ranges::none_of(word, [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; });
}

TEST(Words, EachIsOfOneSystem) {
  std::set<std::pair<std::string_view, std::string_view>> values;
  std::set<std::string_view> keys;
  for (const Words* words : all_words()) {
    for (const auto& [key, word, value] : words->meanings) {
      EXPECT_TRUE(values.emplace(key, word).second) << words->name << ": " << word << " for " << key;
    }
    for (const auto& [key, word, sentence] : words->answers) {
      EXPECT_TRUE(values.emplace(key, word).second) << words->name << ": " << word << " for " << key;
    }
    for (const auto& [word, key] : words->keys) {
      EXPECT_TRUE(keys.insert(word).second) << words->name << ": " << word;
    }
  }
}

TEST(Words, AreSqueezedAndOfKeysThatThereAre) {
  for (const Words* words : all_words()) {
    for (const auto& [key, word, value] : words->meanings) {
      EXPECT_TRUE(is_squeezed(word)) << word;
      config::RunConfig config;
      ASSERT_NE(config::find_field(key), nullptr) << key;
      EXPECT_TRUE(config::find_field(key)->read(config, config::Value(std::string(value)))) << key << " = " << value;
    }
    for (const auto& [key, word, sentence] : words->answers) {
      EXPECT_TRUE(is_squeezed(word)) << word;
      EXPECT_TRUE(key.empty() || config::find_field(key) != nullptr) << key;
    }
    for (const auto& [word, key] : words->keys) {
      EXPECT_TRUE(is_squeezed(word)) << word;
      EXPECT_NE(config::find_field(key), nullptr) << word << ": " << key;
    }
  }
}

TEST(Words, PresetsBuildOnOthersAndTheirValuesAreValid) {
  for (const std::string& name : config::fsdp_preset_names()) {
    const Preset* preset = find_preset(name);
    ASSERT_NE(preset, nullptr) << name;
    EXPECT_EQ(preset->like.empty(), name == config::RunConfig().fsdp.preset) << name;
    EXPECT_TRUE(preset->like.empty() || find_preset(preset->like) != nullptr) << name;
    EXPECT_EQ(std::ranges::count(config::fsdp_preset_names(), name), 1);
    for (const auto& [key, value] : config::fsdp_preset(name)) {
      config::RunConfig config;
      EXPECT_TRUE(config::find_field(key)->read(config, value)) << name << ": " << key;
    }
  }
  EXPECT_EQ(find_preset("fsdp3"), nullptr);
  EXPECT_EQ(words_of_preset("fsdp3"), nullptr);
  EXPECT_EQ(words_of_preset("deepspeed-z3-hpz"), &words_of("deepspeed"));
}

TEST(Words, TracesMayMeanPresetsThatThereAre) {
  const auto check = [](std::span<const std::string_view> presets) {
    for (const std::string_view preset : presets) EXPECT_NE(find_preset(preset), nullptr) << preset;
  };
  for (const Words* words : words_in_traces()) {
    check(words->traces.presets);
  }
  check(likely_presets(true));
  check(likely_presets(false));
}

TEST(Words, ABrokenFileIsRefusedWithItsLine) {
  for (const auto& [text, message] :
       {std::pair{"place = 1\n[trace", "profiles/systems/new.toml:2: "},
        {"[trace]\n\npart = []", "profiles/systems/new.toml:3: there is no 'part' here."},
        {"[keys]\n'fsdp.wrap' = 'policy'", "profiles/systems/new.toml:2: expected a list."},
        {"place = 'first'", "profiles/systems/new.toml:1: expected a whole number."}}) {
    try {
      read_words(read_system_file("new", text));
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(message));
    }
  }
}

TEST(Words, EverySystemThatIsToldKeysHasSome) {
  for (const Dialect& dialect : dialects()) {
    EXPECT_TRUE(std::ranges::any_of(all_words(), [&](const Words* words) { return words->name == dialect.name; }))
        << dialect.name;
  }
}

}  // namespace
}  // namespace fsdpbench::dialects
