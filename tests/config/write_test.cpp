#include "config/write.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <tuple>

#include "config/fields.h"
#include "config/load.h"
#include "config/presets.h"
#include "config/support.h"
#include "config/validate.h"

namespace fsdpbench::config {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

RunConfig round_trip(const RunConfig& config) {
  const TemporaryFolder folder;
  return load_profile(folder.write("config.toml", to_toml(config)));
}

TEST(Write, DefaultsSurviveTheRoundTrip) { EXPECT_EQ(round_trip(RunConfig()), RunConfig()); }

/// Values that differ from the defaults, for every key: a key that is not written, or not read, shows.
TEST(Write, EveryKeySurvivesTheRoundTrip) {
  const std::vector<Value> candidates{true,
                                      false,
                                      std::int64_t{1},
                                      std::int64_t{3},
                                      std::int64_t{2},
                                      std::int64_t{0},
                                      0.125,
                                      3.0000000000000004,
                                      std::string("bf16"),
                                      std::string("sgd"),
                                      std::string("mlp"),
                                      std::string("plain"),
                                      std::string("sigmoid"),
                                      std::string("position"),
                                      std::string("layer"),
                                      std::string("flat"),
                                      std::string("fsdp1"),
                                      std::string("gpt2-124m"),
                                      std::string("no_sync"),
                                      std::string("attention"),
                                      std::string("rowwise"),
                                      std::string("each_rank"),
                                      std::string("combine"),
                                      std::string("sum"),
                                      std::string("no_shard"),
                                      std::string("copy"),
                                      std::string("cuda"),
                                      std::string("events"),
                                      std::string("fastest"),
                                      std::string("spread"),
                                      std::string("step"),
                                      std::string("pool"),
                                      std::string("ring"),
                                      std::string("flash1"),
                                      std::string("pytorch"),
                                      std::string("chunked"),
                                      std::string("own"),
                                      std::string("window"),
                                      std::string("zero"),
                                      std::string("optimizer"),
                                      std::string("numa"),
                                      std::string("all_reduce"),
                                      std::string("module"),
                                      std::string("all_gather"),
                                      std::string("bytes:12345"),
                                      std::string("buffers:3"),
                                      std::string("fetched:3"),
                                      std::string("window:5"),
                                      std::string("rate:5"),
                                      std::string("ahead:3"),
                                      std::string("explicit:3"),
                                      std::string("blocks:3"),
                                      std::string("blocks:1-2"),
                                      std::string("int8:96"),
                                      std::string("int4:2048"),
                                      std::string("fp8:128"),
                                      std::string("a \"quoted\" \\ path\twith #")};
  for (const Field& field : fields()) {
    bool changed = false;
    for (const Value& value : candidates) {
      RunConfig config;
      if (field.name() == "model.preset" && value != Value(std::string("gpt2-124m"))) continue;
      if (!field.read(config, value) || config == RunConfig()) continue;
      changed = true;
      EXPECT_EQ(round_trip(config), config) << field.name() << " = " << to_toml(value);
    }
    EXPECT_TRUE(changed) << field.name() << " has no candidate value in this test";
  }
}

TEST(Write, EveryProfileLoadsValidatesAndSurvives) {
  int profiles = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(FSDPBENCH_SOURCE_DIR) / "profiles/runs")) {
    RunConfig config = load_profile(file.path().string());
    EXPECT_THAT(validate(config), testing::IsEmpty()) << file.path();
    EXPECT_EQ(round_trip(config), config) << file.path();
    ++profiles;
  }
  EXPECT_GE(profiles, 5);
}

TEST(Write, ModelsHaveTheirTrueSizes) {
  for (const auto& [name, layers, width, ffn] : {std::tuple{"llama3-8b", 32, 4096, 14336},
                                                 {"llama3-70b", 80, 8192, 28672},
                                                 {"llama3-405b", 126, 16384, 53248}}) {
    const TemporaryFolder folder;
    const Model model = load_profile(folder.write("run.toml", ""), {std::string("model.preset=") + name}).model;
    EXPECT_EQ(model.layers, layers);
    EXPECT_EQ(model.width, width);
    EXPECT_EQ(model.ffn_width, ffn);
    EXPECT_EQ(model.width / model.heads, 128);
    EXPECT_EQ(model.kv_heads, 8);
    EXPECT_EQ(model.vocab, 128256);
    EXPECT_EQ(model.rope_theta, 500000.0);
  }
}

TEST(Write, TomlNamesEveryKeyWithItsMeaning) {
  const std::string text = to_toml(RunConfig());
  for (const Field& field : fields()) {
    EXPECT_THAT(text, testing::HasSubstr("\n" + field.key + " = "));
    EXPECT_THAT(text, testing::HasSubstr("# " + field.meaning));
  }
}

TEST(Write, Json) {
  RunConfig config;
  config.emulate.link_gb_per_s = 12.5;
  const nlohmann::json json = to_json(config);
  EXPECT_EQ(json["mesh"]["ranks"], 4);
  EXPECT_EQ(json["fsdp"]["strategy"], "full_shard");
  EXPECT_EQ(json["fsdp"]["activation_checkpointing"], false);
  EXPECT_EQ(json["emulate"]["link_gb_per_s"], 12.5);
  EXPECT_TRUE(json["emulate"]["compute_tflops"].is_null());
}

TEST(Fields, NamesAreUniqueAndDefaultsAreValid) {
  std::set<std::string> names;
  for (const Field& field : fields()) {
    EXPECT_TRUE(names.insert(field.name()).second) << field.name();
    RunConfig config;
    EXPECT_TRUE(field.read(config, field.write(RunConfig()))) << field.name();
    EXPECT_EQ(config, RunConfig());
    EXPECT_FALSE(field.meaning.empty());
    EXPECT_FALSE(field.valid.empty());
  }
}

/// The table of all keys for profiles/README.md.
std::string key_reference() {
  std::string out = "| key | built-in default | valid | meaning |\n|---|---|---|---|\n";
  const RunConfig defaults;
  for (const Field& field : fields()) {
    out += fmt::format("| `{}` | `{}` | {} | {} |\n", field.name(), to_toml(field.write(defaults)), field.valid,
                       field.meaning);
  }
  return out;
}

TEST(Fields, TheReferenceInProfilesReadmeIsCurrent) {
  const std::string readme = text_of(std::filesystem::path(FSDPBENCH_SOURCE_DIR) / "profiles/README.md");
  const bool current = readme.find(key_reference()) != std::string::npos;
  EXPECT_TRUE(current) << "profiles/README.md does not hold the table of keys as src/config/fields.cpp has them. "
                          "Replace its table by this one:\n\n"
                       << key_reference();
}

TEST(Presets, TheTableInTheDocsIsCurrent) {
  const std::string docs = text_of(std::filesystem::path(FSDPBENCH_SOURCE_DIR) / "docs/engines.md");
  const RunConfig defaults;
  for (const std::string& name : fsdp_preset_names()) {
    std::string row = "| `" + name + "` |";
    for (const auto& [key, value] : fsdp_preset(name)) {
      if (find_field(key)->write(defaults) != value) {
        row += (row.back() == '|' ? " `" : ", `") + key.substr(key.starts_with("fsdp.") ? 5 : 0) + " = " +
               to_toml(value) + "`";
      }
    }
    row += row.back() == '|' ? " the built-in defaults |" : " |";
    EXPECT_TRUE(docs.find(row) != std::string::npos) << "docs/engines.md does not hold this row:\n" << row;
  }
}

TEST(Presets, AreReadBackAsTheyAreWritten) {
  for (const std::string& name : fsdp_preset_names()) {
    const TemporaryFolder folder;
    const RunConfig config = load_profile(folder.write("run.toml", "[fsdp]\npreset = '" + name + "'"));
    EXPECT_EQ(config.fsdp.preset, name);
    EXPECT_EQ(round_trip(config), config) << name;
    EXPECT_TRUE(changed_to_json(config, presets_of(config)).empty()) << name;
  }
}

TEST(Write, NamesTheKeysThatAreNotAsThePresetsHaveThem) {
  const TemporaryFolder folder;
  const RunConfig config =
      load_profile(folder.write("run.toml", "[model]\npreset = 'llama3-8b'\n[fsdp]\npreset = 'fsdp1'\nwrap = 'model'"),
                   {"train.steps=77", "fsdp.backward_prefetch=pre"});
  std::map<std::string, std::pair<nlohmann::json, nlohmann::json>> changed;
  for (const auto& entry : changed_to_json(config, presets_of(config))) {
    changed[entry["key"]] = {entry["value"], entry["default"]};
  }
  const decltype(changed) expected{{"train.steps", {77, RunConfig().train.steps}}, {"fsdp.wrap", {"model", "block"}}};
  EXPECT_EQ(changed, expected);
}

TEST(Write, AModelFileThatHasGoneCountsAsBuiltIn) {
  RunConfig config;
  config.model.preset = "/nowhere/at/all.toml";
  EXPECT_EQ(presets_of(config).model.layers, RunConfig().model.layers);
}

}  // namespace
}  // namespace fsdpbench::config
