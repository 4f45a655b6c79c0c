#include "dialects/sayable.h"

#include <gmock/gmock.h>

#include "config/fields.h"
#include "config/presets.h"
#include "config/validate.h"
#include "dialects/words/words.h"

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
  EXPECT_EQ(dialect_of_program(&pytorch_fsdp1_words())->name, "pytorch-fsdp1");
  EXPECT_EQ(dialect_of_program(&pytorch_fsdp2_words())->name, "pytorch-fsdp2");
  EXPECT_EQ(dialect_of_program(&deepspeed_words())->name, "deepspeed");
  EXPECT_EQ(dialect_of_program(&megatron_fsdp_words())->name, "megatron-fsdp");
  EXPECT_EQ(dialect_of_program(&maxtext_words()), nullptr);  // its traces tell the compiler alone
  EXPECT_EQ(dialect_of_program(&pytorch_ddp_words()), nullptr);
  EXPECT_EQ(dialect_of_program(nullptr), nullptr);
}

TEST(ProgramWords, OnlyWhatDiffersIsSaid) {
  const Dialect& target = *dialect_of_program(&pytorch_fsdp1_words());
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

TEST(ProgramWords, ASettingWithoutAWordIsToldFromOthers) {
  const Dialect& target = *dialect_of_program(&pytorch_fsdp1_words());
  EXPECT_TRUE(has_words_for(target, fsdp1(), fsdp1({{"fsdp.backward_prefetch", "post"}})));
  config::RunConfig apart = fsdp1();
  apart.fsdp.separate_reduce_scatter_comm = true;
  EXPECT_FALSE(has_words_for(target, fsdp1(), apart));
  EXPECT_TRUE(has_words_for(target, apart, apart));  // it has no word for what it does already, and need not
}

}  // namespace
}  // namespace fsdpbench::dialects
