#include "dialects/sayable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/fields.h"
#include "config/presets.h"
#include "config/validate.h"
#include "config/words/words.h"
#include "dialects/dialect.h"
#include "dialects/make_export.h"
#include "support/presets.h"

namespace fsdpbench::dialects {
namespace {

using ::testing::HasSubstr;

config::RunConfig fsdp1(const std::vector<std::pair<std::string, std::string>>& keys = {}) {
  config::RunConfig config;
  for (const auto& [key, value] : config::fsdp_preset("fsdp1")) config::find_field(key)->read(config, value);
  config.fsdp.preset = "fsdp1";
  config.mesh.ranks = 4;
  for (const auto& [key, value] : keys) config::find_field(key)->read(config, value);
  config::validate(config);
  return config;
}

TEST(ProgramWords, ATracedProgramIsSetInItsSystemsWords) {
  EXPECT_EQ(dialect_of_program(&words_of("pytorch-fsdp1"))->name, "pytorch-fsdp1");
  EXPECT_EQ(dialect_of_program(&words_of("pytorch-fsdp2"))->name, "pytorch-fsdp2");
  EXPECT_EQ(dialect_of_program(&words_of("deepspeed"))->name, "deepspeed");
  EXPECT_EQ(dialect_of_program(&words_of("megatron-fsdp"))->name, "megatron-fsdp");
  EXPECT_EQ(dialect_of_program(&words_of("maxtext")), nullptr);  // its traces tell the compiler alone
  EXPECT_EQ(dialect_of_program(&words_of("pytorch-ddp")), nullptr);
  EXPECT_EQ(dialect_of_program(nullptr), nullptr);
}

TEST(ProgramWords, OnlyWhatDiffersIsSaid) {
  const Dialect& target = *dialect_of_program(&words_of("pytorch-fsdp1"));
  EXPECT_TRUE(changes_in_words(target, fsdp1(), fsdp1()).empty());
  const auto changes = changes_in_words(target, fsdp1({{"fsdp.backward_prefetch", "none"}}),
                                        fsdp1({{"fsdp.strategy", "shard_grad_op"}}));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].key, "fsdp.strategy");
  EXPECT_THAT(changes[0].said.text, HasSubstr("SHARD_GRAD_OP"));
  EXPECT_EQ(changes[1].key, "fsdp.backward_prefetch");
  EXPECT_EQ(changes[1].said.fate, Fate::same);  // back to its default
}

TEST(ProgramWords, TheyAreSaidInOneWay) {
  EXPECT_EQ(in_words({Fate::written, "sharding_strategy=SHARD_GRAD_OP"}), "sharding_strategy=SHARD_GRAD_OP");
  EXPECT_EQ(in_words({Fate::same, ""}), "its default: leave it unset");
  EXPECT_EQ(in_words({Fate::lost, "it gathers as before"}), "it has no word for that: it gathers as before");
}

TEST(Sayable, ASettingWithoutAWordIsToldFromOthers) {
  const Dialect& target = *dialect_of_program(&words_of("pytorch-fsdp1"));
  EXPECT_TRUE(Sayable(target, fsdp1()).says(fsdp1({{"fsdp.backward_prefetch", "post"}})));
  config::RunConfig apart = fsdp1();
  apart.fsdp.separate_reduce_scatter_comm = true;
  EXPECT_FALSE(Sayable(target, fsdp1()).says(apart));
  EXPECT_TRUE(Sayable(target, apart).says(apart));  // it has no word for what it does already, and need not
}

config::RunConfig with_preset(const std::string& preset) {
  config::RunConfig config = fsdpbench::testing::with_preset({}, preset);
  config.mesh.ranks = 16;
  config.train.accumulate = 2;
  config::validate(config);
  return config;
}

/// Values that a tuner would try, key by key.
const std::vector<std::pair<std::string, std::vector<std::string>>>& tries() {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> kTries{
      {"fsdp.preset",
       {"fsdp1", "fsdp2", "deepspeed-z1", "deepspeed-z2", "deepspeed-z3", "megatron-v1", "megatron-v2", "simplefsdp",
        "xla", "xla-pipelined"}},
      {"fsdp.strategy", {"full_shard", "shard_grad_op"}},
      {"fsdp.layout", {"flat", "per_param"}},
      {"fsdp.forward_prefetch", {"none", "implicit", "explicit:1", "explicit:3"}},
      {"fsdp.backward_prefetch", {"none", "post", "pre", "explicit:1", "explicit:3"}},
      {"fsdp.all_gather_limit", {"unlimited", "fsdp2_event", "fsdp1_queue:3", "buffers:2"}},
      {"fsdp.wrap", {"block", "blocks:2"}},
      {"fsdp.cpu_offload", {"none", "optimizer", "all"}},
  };
  return kTries;
}

std::string sayable_line(const Sayable& sayable, const std::string& key, const std::vector<std::string>& texts) {
  std::vector<config::Value> values(texts.begin(), texts.end());
  std::string line = key + ":";
  for (const config::Value& value : sayable.sayable(key, values)) line += " " + std::get<std::string>(value);
  return line;
}

// A change of this table is a change of what `tune` may propose to users of that engine.
TEST(Sayable, OfEachEngineWhatItCanBeTold) {
  struct Case {
    std::string preset, dialect;
    std::vector<std::string> lines;  ///< one a key of tries()
  };
  const std::vector<Case> cases{
      {"fsdp1",
       "pytorch-fsdp1",
       {"fsdp.preset: fsdp1", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: flat",
        "fsdp.forward_prefetch: implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none post pre explicit:1 explicit:3", "fsdp.all_gather_limit: unlimited fsdp1_queue:3",
        "fsdp.wrap: block blocks:2", "fsdp.cpu_offload: none optimizer all"}},
      {"fsdp2",
       "pytorch-fsdp2",
       {"fsdp.preset: fsdp2", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: per_param",
        "fsdp.forward_prefetch: implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none pre explicit:1 explicit:3", "fsdp.all_gather_limit: fsdp2_event",
        "fsdp.wrap: block blocks:2", "fsdp.cpu_offload: none optimizer all"}},
      {"deepspeed-z1",
       "deepspeed",
       {"fsdp.preset: deepspeed-z1 deepspeed-z2 deepspeed-z3", "fsdp.strategy: full_shard shard_grad_op",
        "fsdp.layout: flat", "fsdp.forward_prefetch: none implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none post pre explicit:1 explicit:3", "fsdp.all_gather_limit: fsdp2_event",
        "fsdp.wrap: block", "fsdp.cpu_offload: none optimizer all"}},
      {"deepspeed-z2",
       "deepspeed",
       {"fsdp.preset: deepspeed-z1 deepspeed-z2 deepspeed-z3", "fsdp.strategy: full_shard shard_grad_op",
        "fsdp.layout: flat", "fsdp.forward_prefetch: none implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none post pre explicit:1 explicit:3", "fsdp.all_gather_limit: fsdp2_event",
        "fsdp.wrap: block", "fsdp.cpu_offload: none optimizer all"}},
      {"deepspeed-z3",
       "deepspeed",
       {"fsdp.preset: deepspeed-z1 deepspeed-z2 deepspeed-z3", "fsdp.strategy: full_shard", "fsdp.layout: flat",
        "fsdp.forward_prefetch:", "fsdp.backward_prefetch:", "fsdp.all_gather_limit:", "fsdp.wrap: block",
        "fsdp.cpu_offload: none optimizer all"}},
      {"deepspeed-z3-hpz",
       "deepspeed",
       {"fsdp.preset: deepspeed-z1 deepspeed-z2 deepspeed-z3", "fsdp.strategy: full_shard", "fsdp.layout: flat",
        "fsdp.forward_prefetch:", "fsdp.backward_prefetch:", "fsdp.all_gather_limit:", "fsdp.wrap: block",
        "fsdp.cpu_offload: none optimizer all"}},
      // Without expert parallelism as their kin.
      {"deepspeed-moe",
       "deepspeed",
       {"fsdp.preset: deepspeed-z1 deepspeed-z2 deepspeed-z3", "fsdp.strategy: full_shard shard_grad_op",
        "fsdp.layout: flat", "fsdp.forward_prefetch: none implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none post pre explicit:1 explicit:3", "fsdp.all_gather_limit: fsdp2_event",
        "fsdp.wrap: block", "fsdp.cpu_offload: none optimizer all"}},
      {"megatron-moe",
       "megatron-fsdp",
       {"fsdp.preset: megatron-v1 megatron-v2", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: flat",
        "fsdp.forward_prefetch: none implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none post pre explicit:1 explicit:3", "fsdp.all_gather_limit: unlimited buffers:2",
        "fsdp.wrap: block", "fsdp.cpu_offload: none"}},
      {"megatron-v2-moe",
       "megatron-fsdp",
       {"fsdp.preset: megatron-v1 megatron-v2", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: flat",
        "fsdp.forward_prefetch: explicit:1", "fsdp.backward_prefetch: explicit:1",
        "fsdp.all_gather_limit: unlimited buffers:2", "fsdp.wrap: block", "fsdp.cpu_offload: none"}},
      {"megatron-v1",
       "megatron-fsdp",
       {"fsdp.preset: megatron-v1 megatron-v2", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: flat",
        "fsdp.forward_prefetch: none implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: none post pre explicit:1 explicit:3", "fsdp.all_gather_limit: unlimited buffers:2",
        "fsdp.wrap: block", "fsdp.cpu_offload: none"}},
      {"megatron-v2",
       "megatron-fsdp",
       {"fsdp.preset: megatron-v1 megatron-v2", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: flat",
        "fsdp.forward_prefetch: explicit:1", "fsdp.backward_prefetch: explicit:1",
        "fsdp.all_gather_limit: unlimited buffers:2", "fsdp.wrap: block", "fsdp.cpu_offload: none"}},
      // Without expert parallelism torchtitan does as fsdp2.
      {"torchtitan-moe",
       "torchtitan",
       {"fsdp.preset:", "fsdp.strategy: full_shard shard_grad_op", "fsdp.layout: per_param",
        "fsdp.forward_prefetch: implicit explicit:1", "fsdp.backward_prefetch: pre explicit:1",
        "fsdp.all_gather_limit: fsdp2_event", "fsdp.wrap: block", "fsdp.cpu_offload: none optimizer all"}},
      {"xla",
       "maxtext",
       {"fsdp.preset: xla xla-pipelined", "fsdp.strategy: full_shard", "fsdp.layout: flat",
        "fsdp.forward_prefetch: none", "fsdp.backward_prefetch: none", "fsdp.all_gather_limit: unlimited",
        "fsdp.wrap: block blocks:2", "fsdp.cpu_offload: none"}},
      {"xla-pipelined",
       "maxtext",
       {"fsdp.preset: xla xla-pipelined", "fsdp.strategy: full_shard", "fsdp.layout: flat",
        "fsdp.forward_prefetch: implicit explicit:1 explicit:3",
        "fsdp.backward_prefetch: post pre explicit:1 explicit:3", "fsdp.all_gather_limit: unlimited",
        "fsdp.wrap: block blocks:2", "fsdp.cpu_offload: none"}},
  };
  std::vector<std::string> without_words;
  for (const std::string& preset : config::fsdp_preset_names()) {
    const auto known = std::ranges::find(cases, preset, &Case::preset);
    const config::RunConfig config = with_preset(preset);
    const Dialect* dialect = dialect_of(config);
    if (dialect == nullptr) {
      without_words.push_back(preset);
      continue;
    }
    const Sayable sayable(*dialect, config);
    std::vector<std::string> lines;
    for (const auto& [key, values] : tries()) lines.push_back(sayable_line(sayable, key, values));
    if (known == cases.end() || dialect->name != known->dialect || lines != known->lines) {
      ADD_FAILURE() << fmt::format("{{\"{}\", \"{}\", {{\"{}\"}}}},", preset, dialect->name,
                                   fmt::join(lines, "\", \""));
    }
  }
  EXPECT_THAT(without_words, ::testing::ElementsAre("simplefsdp", "nanotron"));
}

TEST(Sayable, WhatFollowsFromAChangeMustBeSayableToo) {
  // One flag of XLA's turns prefetching in forward and in backward.
  const config::RunConfig config = with_preset("xla");
  const Sayable sayable(*dialect_of(config), config);
  EXPECT_FALSE(sayable.says("fsdp.forward_prefetch", std::string("explicit:1")));
  EXPECT_TRUE(sayable.says("fsdp.preset", std::string("xla-pipelined")));
  EXPECT_FALSE(sayable.says("fsdp.no_such_key", true));
  EXPECT_FALSE(sayable.says("fsdp.wrap", true));
}

TEST(Sayable, ExactlyIsLessThanNearly) {
  const auto deeper = [](Fit fit, const std::string& preset) {
    const config::RunConfig config = with_preset(preset);
    return Sayable(*dialect_of(config), config, fit).says("fsdp.forward_prefetch", std::string("explicit:3"));
  };
  EXPECT_TRUE(deeper(Fit::near, "fsdp1"));
  EXPECT_FALSE(deeper(Fit::exact, "fsdp1"));  // forward_prefetch=True is one unit ahead
  EXPECT_TRUE(deeper(Fit::exact, "fsdp2"));
}

TEST(Sayable, SeveralKeysAreOneChange) {
  const config::RunConfig config = with_preset("deepspeed-z3");
  config::RunConfig other = config;
  other.fsdp.forward_prefetch.elements = other.fsdp.backward_prefetch.elements = 100'000'000;
  EXPECT_TRUE(Sayable(*dialect_of(config), config, Fit::exact).says(other));
  other.fsdp.backward_prefetch = {config::Prefetch::Mode::explicit_, 2};
  EXPECT_FALSE(Sayable(*dialect_of(config), config, Fit::exact).says(other));
}

}  // namespace
}  // namespace fsdpbench::dialects
