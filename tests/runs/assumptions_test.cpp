#include "runs/assumptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/find_file.h"
#include "config/load.h"

namespace fsdpbench::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string said_of(const std::string& profile, const std::vector<std::string>& overrides) {
  return assumptions_text(assumptions_of(config::load_profile(profile, overrides), profile, overrides));
}

TEST(Assumptions, WhatNobodySaidHasAStar) {
  const std::string text = said_of(config::find_profile("llama3-8b"), {"train.seq_len=8192", "fsdp.param_dtype=bf16"});
  EXPECT_THAT(text, HasSubstr("train.seq_len 8192,"));
  EXPECT_THAT(text, HasSubstr("fsdp.param_dtype bf16,"));
  EXPECT_THAT(text, HasSubstr("fsdp.reduce_dtype fp32*,"));
  EXPECT_THAT(text, HasSubstr("simulate.efficiency 0.8*"));
  EXPECT_THAT(text, HasSubstr("* nobody said so"));
}

TEST(Assumptions, AProfileSaysWhatItsFileNames) {
  const std::string profile = config::find_profile("quickstart");
  EXPECT_THAT(said_of(profile, {}), HasSubstr("train.seq_len 128,"));
  std::vector<std::string> all;
  for (const Assumption& a : assumptions_of(config::load_profile(profile), profile, {})) {
    all.push_back(a.key + "=" + a.value);
  }
  EXPECT_THAT(said_of(profile, all), Not(HasSubstr("*")));
}

}  // namespace
}  // namespace fsdpbench::app
