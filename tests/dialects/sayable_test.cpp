#include "dialects/sayable.h"

#include <gmock/gmock.h>

#include "config/fields.h"
#include "config/presets.h"
#include "config/validate.h"

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
  EXPECT_EQ(system_of_program("PyTorch FSDP1 (FullyShardedDataParallel)")->name, "pytorch-fsdp1");
  EXPECT_EQ(system_of_program("PyTorch FSDP2 (fully_shard)")->name, "pytorch-fsdp2");
  EXPECT_EQ(system_of_program("DeepSpeed ZeRO-3")->name, "deepspeed");
  EXPECT_EQ(system_of_program("fully sharded data parallel training"), nullptr);
}

TEST(ProgramWords, OnlyWhatDiffersIsSaid) {
  const Dialect& target = *system_of_program("PyTorch FSDP1");
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
  const Dialect& target = *system_of_program("PyTorch FSDP1");
  EXPECT_TRUE(has_words_for(target, fsdp1(), fsdp1({{"fsdp.backward_prefetch", "post"}})));
  config::RunConfig apart = fsdp1();
  apart.fsdp.separate_reduce_scatter_comm = true;
  EXPECT_FALSE(has_words_for(target, fsdp1(), apart));
  EXPECT_TRUE(has_words_for(target, apart, apart));  // it has no word for what it does already, and need not
}

}  // namespace
}  // namespace fsdpbench::dialects
