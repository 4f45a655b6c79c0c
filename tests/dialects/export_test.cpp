#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <sstream>

#include "base/error.h"
#include "config/load.h"
#include "config/presets.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "dialects/vocabulary.h"
#include "support/random_config.h"

namespace fsdpbench::dialects {
namespace {

using config::Value;
using ::testing::HasSubstr;

const std::filesystem::path kGolden = FSDPBENCH_GOLDEN_DIR;

/// Four microbatches on 2 x 4 ranks: nothing is without effect because there is only one of it.
config::RunConfig busy_config(std::string_view preset) {
  config::RunConfig config;
  for (const auto& [key, value] : config::fsdp_preset(preset)) config::find_field(key)->read(config, value);
  config.fsdp.preset = preset;
  config.mesh.ranks = 8;
  config.train.accumulate = 4;
  config.fsdp.activation_checkpointing = true;
  return config;
}

/// Another valid value of every key; after it what else must be set, also where the key is not changed yet.
const std::map<std::string, std::vector<std::pair<std::string, Value>>>& other_values() {
  using Settings = std::vector<std::pair<std::string, Value>>;
  const auto text = [](const char* value) { return Value(std::string(value)); };
  const auto number = [](std::int64_t value) { return Value(value); };
  // Whatever an engine's preset says: a model and settings that go with mesh.expert, and with reentrant checkpoints.
  const auto for_experts = [&](Settings settings) {
    const Settings others{{"model.experts", number(8)},
                          {"model.active_experts", number(2)},
                          {"fsdp.strategy", text("full_shard")},
                          {"fsdp.layout", text("per_param")},
                          {"fsdp.gradients_after_views", false},
                          {"fsdp.wrap", text("block")},
                          {"fsdp.forward_prefetch", text("implicit")},
                          {"fsdp.backward_prefetch", text("pre")},
                          {"fsdp.reduce_by", text("reduce_scatter")},
                          {"fsdp.reduce_bucket", number(0)},
                          {"fsdp.reduce_lag", number(0)},
                          {"fsdp.reduce_scatter_elements", number(0)},
                          {"fsdp.persistence_threshold", number(0)},
                          {"fsdp.shard_threshold", number(0)},
                          {"fsdp.learn_execution_order", false},
                          {"fsdp.separate_reduce_scatter_comm", false}};
    settings.insert(settings.end(), others.begin(), others.end());
    return settings;
  };
  static const std::map<std::string, Settings> kOthers{
      {"mesh.ranks", {{"mesh.ranks", number(16)}}},
      {"mesh.shard", {{"mesh.shard", number(2)}, {"fsdp.strategy", text("hybrid_shard")}, {"mesh.shard", number(4)}}},
      {"mesh.replicate",
       {{"mesh.replicate", number(2)}, {"fsdp.strategy", text("hybrid_shard")}, {"mesh.replicate", number(4)}}},
      {"train.seq_len", {{"train.seq_len", number(64)}}},
      {"train.batch_per_rank", {{"train.batch_per_rank", number(7)}}},
      {"train.batch_global", {{"train.batch_global", number(128)}}},
      {"train.accumulate", {{"train.accumulate", number(3)}}},
      {"train.accumulate_mode", {{"train.accumulate_mode", text("no_sync")}}},
      {"train.optimizer", {{"train.optimizer", text("sgd")}}},
      {"train.learning_rate", {{"train.learning_rate", 0.123}}},
      {"train.beta1", {{"train.beta1", 0.5}}},
      {"train.beta2", {{"train.beta2", 0.5}}},
      {"train.epsilon", {{"train.epsilon", 0.5}}},
      {"train.weight_decay", {{"train.weight_decay", 0.5}}},
      {"train.clip_norm", {{"train.clip_norm", 0.5}}},
      {"mesh.tensor", {{"mesh.tensor", number(2)}}},
      {"mesh.sequence_parallel", {{"mesh.sequence_parallel", true}, {"mesh.tensor", number(2)}}},
      {"mesh.context", {{"mesh.context", number(2)}}},
      {"mesh.expert", for_experts({{"mesh.expert", number(2)}})},
      {"mesh.expert_imbalance", for_experts({{"mesh.expert_imbalance", number(2)}, {"mesh.expert", number(2)}})},
      {"mesh.expert_sync", for_experts({{"mesh.expert_sync", false}, {"mesh.expert", number(2)}})},
      {"mesh.expert_rows", for_experts({{"mesh.expert_rows", text("each_rank")}, {"mesh.expert", number(2)}})},
      {"fsdp.strategy", {{"fsdp.strategy", text("no_shard")}}},
      {"fsdp.layout", {{"fsdp.layout", text("flat")}}},
      {"fsdp.reshard_after_forward", {{"fsdp.reshard_after_forward", number(2)}}},
      {"fsdp.reshard_after_backward", {{"fsdp.reshard_after_backward", false}}},
      {"fsdp.keep_unreduced",
       {{"fsdp.keep_unreduced", true},
        {"fsdp.strategy", text("shard_grad_op")},
        {"train.accumulate_mode", text("no_sync")}}},
      {"fsdp.wait_each_backward", {{"fsdp.wait_each_backward", false}}},
      {"fsdp.gradients_after_views", {{"fsdp.gradients_after_views", true}}},
      {"fsdp.forward_prefetch",
       {{"fsdp.forward_prefetch", number(3)},
        {"fsdp.forward_prefetch", text("none")},
        {"fsdp.backward_prefetch", text("none")}}},
      {"fsdp.learn_execution_order", {{"fsdp.learn_execution_order", true}}},
      {"fsdp.backward_prefetch",
       {{"fsdp.backward_prefetch", number(3)},
        {"fsdp.forward_prefetch", text("none")},
        {"fsdp.backward_prefetch", text("none")}}},
      {"fsdp.all_gather_limit", {{"fsdp.all_gather_limit", text("strict:3")}}},
      {"fsdp.reduce_scatter_buffers", {{"fsdp.reduce_scatter_buffers", number(3)}}},
      {"fsdp.separate_reduce_scatter_comm", {{"fsdp.separate_reduce_scatter_comm", true}}},
      {"fsdp.wrap", {{"fsdp.wrap", text("blocks:2")}}},
      {"fsdp.param_dtype", {{"fsdp.param_dtype", text("bf16")}}},
      {"fsdp.reduce_dtype", {{"fsdp.reduce_dtype", text("bf16")}}},
      {"fsdp.state_dtype", {{"fsdp.state_dtype", text("bf16")}}},
      {"fsdp.gradient_scaling", {{"fsdp.gradient_scaling", text("sum")}}},
      {"fsdp.activation_checkpointing", {{"fsdp.activation_checkpointing", false}}},
      {"fsdp.checkpoint_every", {{"fsdp.checkpoint_every", number(2)}}},
      {"fsdp.recompute_share", {{"fsdp.recompute_share", 0.5}}},
      {"fsdp.checkpoint_keeps", {{"fsdp.checkpoint_keeps", text("every_second_product")}}},
      {"fsdp.checkpoint_reentrant", for_experts({{"fsdp.checkpoint_reentrant", true},
                                                 {"fsdp.all_gather_limit", text("fsdp2_event")},
                                                 {"fsdp.max_reuse_distance", number(0)},
                                                 {"fsdp.keep_group_shard", false},
                                                 {"fsdp.wait_each_backward", true}})},
      {"fsdp.expert_unit", {{"fsdp.expert_unit", text("module")}}},
      {"fsdp.recompute_frees", {{"fsdp.recompute_frees", true}}},
      {"fsdp.fp8_products", {{"fsdp.fp8_products", true}}},
      {"fsdp.fp8_recipe", {{"fsdp.fp8_recipe", text("rowwise")}, {"fsdp.fp8_products", true}}},
      {"fsdp.shard_threshold", {{"fsdp.shard_threshold", number(1000)}}},
      {"fsdp.max_live_parameters", {{"fsdp.max_live_parameters", number(12345)}}},
      {"fsdp.max_reuse_distance", {{"fsdp.max_reuse_distance", number(12345)}}},
      {"fsdp.persistence_threshold", {{"fsdp.persistence_threshold", number(12345)}}},
      {"fsdp.gathers_ascend", {{"fsdp.gathers_ascend", true}}},
      {"fsdp.gathers_follow_compute", {{"fsdp.gathers_follow_compute", true}}},
      {"fsdp.root_prefetches_forward",
       {{"fsdp.root_prefetches_forward", false},
        {"fsdp.forward_prefetch", number(1)},
        {"fsdp.backward_prefetch", number(1)}}},
      {"fsdp.root_prefetches_backward", {{"fsdp.root_prefetches_backward", false}}},
      {"fsdp.free_lane", {{"fsdp.free_lane", text("all_gather")}}},
      {"fsdp.reduce_bucket", {{"fsdp.reduce_bucket", number(12345)}}},
      {"fsdp.reduce_by", {{"fsdp.reduce_by", text("all_reduce")}}},
      {"fsdp.reduce_lane", {{"fsdp.reduce_lane", text("compute")}}},
      {"fsdp.reduce_lag", {{"fsdp.reduce_lag", number(2)}}},
      {"fsdp.reductions_in_flight", {{"fsdp.reductions_in_flight", number(3)}}},
      {"fsdp.reduce_scatter_elements", {{"fsdp.reduce_scatter_elements", number(12345)}}},
      {"fsdp.gradient_copy_in", {{"fsdp.gradient_copy_in", true}}},
      {"fsdp.head_unit", {{"fsdp.head_unit", true}}},
      {"fsdp.gradient_divide_factor", {{"fsdp.gradient_divide_factor", 7.0}}},
      {"fsdp.host_sync_at_group_shard", {{"fsdp.host_sync_at_group_shard", true}}},
      {"fsdp.keep_group_shard", {{"fsdp.keep_group_shard", true}, {"fsdp.reshard_after_forward", number(2)}}},
      {"fsdp.cpu_offload", {{"fsdp.cpu_offload", text("all")}}},
      {"fsdp.cast_in_optimizer", {{"fsdp.cast_in_optimizer", true}}},
      {"fsdp.fp32_gradients", {{"fsdp.fp32_gradients", true}}},
      {"nccl.register_buffers", {{"nccl.register_buffers", text("window")}}},
      {"nccl.cta_policy", {{"nccl.cta_policy", text("efficiency")}}},
      {"nccl.blocking", {{"nccl.blocking", true}}},
      {"nccl.max_ctas", {{"nccl.max_ctas", number(9)}}},
  };
  return kOthers;
}

std::string all_text(const Export& made) {
  std::string text;
  for (const ExportFile& file : made.files) text += file.text;
  return text;
}

Export exported(const Dialect& target, config::RunConfig config) {
  config::validate(config);
  return make_export(target, config);
}

TEST(Export, EveryKeyHasARuleInEverySystem) {
  for (const Dialect& target : dialects()) {
    for (const config::Field* field : exported_fields()) {
      EXPECT_TRUE(target.has_rule(*field))
          << field->name() << " needs a rule in profiles/systems: in common.toml, or in " << target.name << ".toml";
    }
  }
}

TEST(Export, TheHeadSaysWhichParametersTheModelMustTrain) {
  config::RunConfig config;
  config.model.lora_rank = 16;
  config.model.lora_alpha = 32;
  EXPECT_NE(all_text(exported(find_export_target("pytorch-fsdp2"), config)).find("LoraConfig(r=16, lora_alpha=32"),
            std::string::npos);
}

TEST(Export, WhatNoTraceTellsIsNotToBeSet) {
  config::RunConfig config;
  config.train.accumulate = 4;
  config::validate(config);
  for (const Dialect& target : dialects()) {
    const Export traced = make_export(target, config, true);
    for (const ExportFile& file : traced.files) {
      if (file.name.ends_with(".args")) continue;  // of words alone
      EXPECT_THAT(file.text, HasSubstr(kNotTold)) << file.name;
    }
    std::set<std::string> keys;
    for (const KeyFate& key : traced.keys) {
      if (key.key.starts_with("train.")) keys.insert(key.key);
    }
    EXPECT_THAT(keys, ::testing::ElementsAre("train.accumulate", "train.accumulate_mode")) << target.name;
  }
  const auto script = [&](bool traced) {
    return all_text(make_export(find_export_target("pytorch-fsdp2"), config, traced));
  };
  EXPECT_THAT(script(false), HasSubstr("MICROBATCHES = 4  # a step, each of 2 a rank\n"));
  EXPECT_THAT(script(true), HasSubstr("MICROBATCHES = 4  # a step\n"));
}

TEST(Export, AScriptSaysWhichOutputsAreKept) {
  config::RunConfig config;
  config.fsdp.activation_checkpointing = true;
  using config::CheckpointKeeps;
  for (const char* name : {"pytorch-fsdp1", "pytorch-fsdp2"}) {
    if (name == std::string("pytorch-fsdp1")) config.fsdp.layout = config::Layout::flat;
    const auto script = [&](CheckpointKeeps keeps) {
      config.fsdp.checkpoint_keeps = keeps;
      return all_text(exported(find_export_target(name), config));
    };
    const std::string passed = "CheckpointImpl.NO_REENTRANT, context_fn=keep_outputs)";
    EXPECT_THAT(script(CheckpointKeeps::nothing), ::testing::Not(HasSubstr("keep_outputs")));
    EXPECT_THAT(script(CheckpointKeeps::attention),
                ::testing::AllOf(HasSubstr(passed), HasSubstr("kept = op in ATTENTION\n")));
    EXPECT_THAT(script(CheckpointKeeps::products),
                ::testing::AllOf(HasSubstr(passed), HasSubstr("kept = op in ATTENTION | PRODUCTS\n")));
    EXPECT_THAT(script(CheckpointKeeps::every_second_product),
                ::testing::AllOf(HasSubstr(passed), HasSubstr("% 2 == 1)\n")));
    EXPECT_THAT(script(CheckpointKeeps::all_but_attention),
                ::testing::AllOf(::testing::Not(HasSubstr("keep_outputs")), HasSubstr("is around whole blocks")));
  }
}

TEST(Export, MegatronIsToldWhichModuleIsRecomputed) {
  config::RunConfig config;
  config.fsdp.activation_checkpointing = true;
  const auto flags = [&](config::CheckpointKeeps keeps) {
    config.fsdp.checkpoint_keeps = keeps;
    return all_text(exported(find_export_target("megatron-fsdp"), config));
  };
  using config::CheckpointKeeps;
  EXPECT_THAT(flags(CheckpointKeeps::products), HasSubstr("--recompute-granularity full"));
  EXPECT_THAT(flags(CheckpointKeeps::all_but_attention),
              HasSubstr("  --recompute-granularity selective --recompute-modules core_attn\n"));
  EXPECT_THAT(flags(CheckpointKeeps::all_but_feed_forward),
              HasSubstr("  --recompute-granularity selective --recompute-modules mlp\n"));
  config.model.experts = 8, config.model.active_experts = 2;
  EXPECT_THAT(flags(CheckpointKeeps::all_but_feed_forward),
              HasSubstr("  --recompute-granularity selective --recompute-modules moe\n"));
  config.fsdp.checkpoint_every = 2;
  EXPECT_THAT(flags(CheckpointKeeps::all_but_attention),
              HasSubstr("--recompute-granularity selective is of every layer"));
}

Dialect dialect_of_text(const SystemFile& file) { return Dialect({&file}); }

/// A system's file of which only the rest is of interest.
std::string with_head(std::string_view rest) {
  return "[export]\nplace = 1\nsystem = 'new'\nwhat = 'a file'\nengine = \"'fsdp2'\"\n" + std::string(rest);
}

TEST(Export, ABrokenSystemIsRefusedWithItsLine) {
  for (const auto& [text, message] :
       {std::pair{"[rules]\n'fsdp.wrapp' = {}", "new.toml:7: there is no key 'fsdp.wrapp' that could be exported."},
        {"[rules]\n'fsdp.wrap' = {}\n'fsdp.layout fsdp.wrap' = {}", "new.toml:8: 'fsdp.wrap' has two rules."},
        {"[rules]\n'fsdp.wrap' = {if = 'true'}", "new.toml:7: a case says nothing"},
        {"[rules]\n'fsdp.wrap' = {lost = 'a', same = true}", "new.toml:7: a case says one thing."},
        {"[rules]\n'fsdp.wrap' = {wrote = 'a'}", "new.toml:7: there is no 'wrote' here."},
        {"[rules]\n'fsdp.wrap' = {written = 'a {{fsdp.warp}}'}", "new.toml:7: there is no key or word 'fsdp.warp' in"},
        {"[let]\na = \"fsdp.wrap == 'blocs'\"", "new.toml:7: fsdp.wrap is never 'blocs' in"},
        {"[let]\na = \"fsdp.wrap.mode == 'blocs'\"", "new.toml:7: fsdp.wrap is never 'blocs' in"},
        {"[let]\na = '1 +'", "new.toml:7: '' ends too early in '1 +'."},
        {"[let]\na = 'not b'\nb = 'a or true'", "new.toml:8: 'a' is made of itself."},
        {"[files]\na = '{{#if true}}b'", "new.toml:7: {{#if true}} has no {{/if}}."},
        {"[files]\na = '{{/if}}'", "new.toml:7: {{/if}} has no {{#if}}."},
        {"[files]\na = '{{> b}}'", "new.toml:7: {{> b}} is a part that there is not."}}) {
    try {
      const SystemFile file = read_system_file("new", with_head(text));
      dialect_of_text(file).engine({});
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("profiles/systems/" + std::string(message)));
    }
  }
}

TEST(Export, ATemplatePutsValuesIn) {
  const auto written = [](std::string_view text) {
    const SystemFile file = read_system_file("new", with_head("[let]\ntwo = '1 + 1'\n[parts]\npart = \"b{{two}}\\n\"\n"
                                                              "[files]\na = \"\"\"\n" +
                                                              std::string(text) + "\"\"\""));
    config::RunConfig config;
    config.fsdp.wrap = {config::Wrap::Mode::blocks, 3};
    return dialect_of_text(file).write({config, config, nullptr, {}}).front().text;
  };
  EXPECT_EQ(written("{{fsdp.wrap}} {{fsdp.wrap.mode}} {{fsdp.wrap.count}} {{two}}"), "blocks:3 blocks 3 2");
  EXPECT_EQ(written("{{7 / two}} {{max(two, 5) - 1}} {{min(two, -5)}} {{int(train.beta1)}} {{1_000 * 2}}"),
            "3 4 -5 0 2000");
  EXPECT_EQ(written("{{python(two == 2)}} {{json('a')}} {{not (1 > 2 or false) and 'x' == 'x' ? 'yes' : 'no'}}"),
            "True \"a\" yes");
  // A line with nothing but a tag is not there.
  EXPECT_EQ(
      written("a\n  {{#if fsdp.wrap == 'block'}}\n  no\n  {{#elif two > 1}}\n  yes\n  {{#else}}\n  no\n  {{/if}}\n"
              "{{> part}}\n{{#if true}}in{{/if}} line\n"),
      "a\n  yes\nb2\nin line\n");
}

/// `wanted`; where `config` has that already, a Boolean's opposite or what is built in.
Value another(const config::Field& field, const config::RunConfig& config, const Value& wanted) {
  const Value now = field.write(config);
  if (now != wanted) return wanted;
  if (const bool* flag = std::get_if<bool>(&now)) return !*flag;
  return field.write(busy_config("fsdp2"));
}

/// A configuration that is the system's own, and one in which `field` is another.
std::pair<config::RunConfig, config::RunConfig> with_another(const Dialect& target, const config::Field& field) {
  const auto& settings = other_values().at(field.name());
  config::RunConfig base = busy_config(target.engine(busy_config("fsdp2")));
  for (const auto& [key, value] : settings | std::views::drop(1)) config::find_field(key)->read(base, value);
  config::RunConfig changed = base;
  field.read(changed, another(field, base, settings.front().second));
  EXPECT_NE(base, changed) << target.name << ": " << field.name();
  return {base, changed};
}

// The files must say so of any key that is changed: in the system's words or in a note.
TEST(Export, NoChangedKeyIsDroppedSilently) {
  for (const config::Field* field : exported_fields()) {
    ASSERT_TRUE(other_values().contains(field->name())) << field->name() << " needs another value in this test";
    for (const Dialect& target : dialects()) {
      const auto [base, changed] = with_another(target, *field);
      EXPECT_NE(all_text(exported(target, base)), all_text(exported(target, changed)))
          << target.name << " says nothing of " << field->name();
    }
  }
}

/// The file in the system's own words: no comment, no docstring.
std::string without_notes(const ExportFile& file) {
  std::istringstream in(file.text);
  std::string text;
  bool docstring = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("\"\"\"")) docstring = !docstring;
    if (!docstring && !line.starts_with("#") && !line.starts_with("\"\"\"")) text += line + '\n';
  }
  return text;
}

// A key that is said to be lost is not in the system's words; one that is written is.
TEST(Export, FilesDoWhatIsSaidOfAKey) {
  const auto words = [](const Export& made) {
    std::string text;
    for (const ExportFile& file : made.files) text += without_notes(file);
    return text;
  };
  for (const Dialect& target : dialects()) {
    if (target.name == "deepspeed") continue;  // its notes are a key of the JSON
    for (const config::Field* field : exported_fields()) {
      const auto [base, changed] = with_another(target, *field);
      const Export before = exported(target, base), after = exported(target, changed);
      const auto old_fate = std::ranges::find(before.keys, field->name(), &KeyFate::key)->said.fate;
      const auto fate = std::ranges::find(after.keys, field->name(), &KeyFate::key)->said.fate;
      if (field->table == "fsdp" && fate == Fate::lost && old_fate != Fate::written && old_fate != Fate::roughly) {
        EXPECT_EQ(words(before), words(after)) << target.name << ": " << field->name() << " is said to be lost";
      }
      if (fate == Fate::written) {
        EXPECT_NE(words(before), words(after)) << target.name << ": " << field->name() << " is said to be written";
      }
    }
  }
}

TEST(Export, FilesNameWhatIsLost) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    config::RunConfig config = fsdpbench::testing::random_config(random);
    for (const Dialect& target : dialects()) {
      Export made;
      try {
        made = exported(target, config);
      } catch (const ConfigError&) {
        continue;  // keys that contradict each other
      }
      for (const KeyFate& key : made.with(Fate::lost)) {
        EXPECT_FALSE(key.said.text.empty()) << target.name << ": " << key.key;
        EXPECT_THAT(made.files.front().text, HasSubstr(key.key + " = ")) << target.name;
      }
    }
  }
}

TEST(Export, FilesOfAllSystemsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Dialect& target : dialects()) {
    for (const ExportFile& file : exported(target, {}).files) {
      EXPECT_TRUE(names.insert(file.name).second) << file.name;
      EXPECT_THAT(std::string(target.what), HasSubstr(target.name.starts_with("pytorch") ? "script" : file.name));
    }
  }
}

TEST(Export, FsdpOfItsOwnSystemLosesNothing) {
  for (const auto& [name, preset] : {std::pair{"pytorch-fsdp2", "fsdp2"},
                                     {"pytorch-fsdp1", "fsdp1"},
                                     {"maxtext", "xla"},
                                     {"maxtext", "xla-pipelined"}}) {
    const Export made = exported(find_export_target(name), busy_config(preset));
    for (const KeyFate& key : made.with(Fate::lost)) ADD_FAILURE() << name << ": " << key.key << ": " << key.said.text;
  }
}

TEST(Export, ZeroStageFollowsThePreset) {
  for (const auto& [preset, stage] : {std::pair{"deepspeed-z1", 1},
                                      {"deepspeed-z2", 2},
                                      {"deepspeed-z3", 3},
                                      {"deepspeed-z3-hpz", 3},
                                      {"fsdp2", 3}}) {
    const Export made = exported(find_export_target("deepspeed"), busy_config(preset));
    const nlohmann::json file = nlohmann::json::parse(made.files.front().text);
    EXPECT_EQ(file["zero_optimization"]["stage"], stage) << preset;
  }
}

TEST(Export, FusedProjectionsAreTheModels) {
  config::RunConfig config = busy_config("xla");
  const auto text = [&](const char* target) { return exported(find_export_target(target), config).files.front().text; };
  const std::string before = text("maxtext");
  EXPECT_THAT(before, ::testing::Not(HasSubstr("fused")));
  config.model.fused_projections = true;
  EXPECT_THAT(text("pytorch-fsdp2"), HasSubstr("width 128, fused projections;"));
  EXPECT_THAT(text("maxtext"),
              HasSubstr("\n# not fused_qkv: it wants as many key heads as query heads\nfused_mlp: true\n"));
  config.model.kv_heads = config.model.heads;
  EXPECT_THAT(text("maxtext"), HasSubstr("\nfused_qkv: true\nfused_mlp: true\n"));
}

TEST(Export, ListsOfNumbersAreShortPython) {
  EXPECT_EQ(python_runs({}), "[]");
  EXPECT_EQ(python_runs({3}), "[3]");
  EXPECT_EQ(python_runs({0, 1, 2}), "[0, 1, 2]");
  EXPECT_EQ(python_runs({1, 1, 1, 2, 0}), "[1] * 3 + [2, 0]");
  EXPECT_EQ(python_runs({4, 2, 2, 5, 5, 1}), "[4] + [2] * 2 + [5] * 2 + [1]");
}

TEST(Export, UnknownNameSuggestsTheNearest) {
  EXPECT_EQ(read_export_targets("deepspeed,maxtext,deepspeed").size(), 2U);
  EXPECT_EQ(read_export_targets("all").size(), dialects().size());
  for (const auto& [name, nearest] : {std::pair{"pytorch-fsdp", "pytorch-fsdp"},
                                      {"deepsped", "'deepspeed'"},
                                      {"accelerate,torchtitn", "'torchtitan'"}}) {
    try {
      read_export_targets(name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(nearest));
      EXPECT_THAT(error.what(), HasSubstr("known are"));
    }
  }
  EXPECT_THROW(read_export_targets("deepspeed,"), ConfigError);
}

TEST(Export, IsAsStored) {
  int compared = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kGolden)) {
    if (!folder.is_directory()) continue;
    config::RunConfig config = config::load_profile((folder.path() / "profile.toml").string());
    for (const Dialect& target : dialects()) {
      for (const ExportFile& file : exported(target, config).files) {
        std::ifstream in(folder.path() / file.name);
        const std::string stored((std::istreambuf_iterator<char>(in)), {});
        EXPECT_EQ(file.text, stored) << folder.path() / file.name
                                     << ": tests/golden/README.md says how to store it anew";
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace fsdpbench::dialects
