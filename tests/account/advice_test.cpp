#include "account/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdpbench::account {
namespace {

using ::testing::HasSubstr;

Counterfactual gain(Cause cause, const std::string& set = {}) {
  Counterfactual gain;
  gain.cause = cause;
  gain.set = set;
  gain.gain_ms = 3;
  gain.advised = true;
  return gain;
}

std::string advice_of(Cause cause, const Evidence& evidence, std::optional<Counterfactual> without = {}) {
  std::vector<CauseShare> causes(1);
  causes.front().cause = cause;
  causes.front().share_pct = 20;
  causes.front().without = without;
  advise(causes, evidence);
  return causes.front().advice;
}

TEST(Advice, IsASettingThatTheProgramCanBeTold) {
  const Cause late = Cause::late_prefetch;
  Evidence evidence{.knobs = {{gain(late, "fsdp.a=1"), "a=True"}}};
  EXPECT_EQ(advice_of(late, evidence), "a=True (fsdp.a=1): 3.00 ms less a step.");
  EXPECT_EQ(advice_of(Cause::straggler, evidence), "") << "it is meant for another cause";
  evidence.knobs.front().sayable = false;
  EXPECT_EQ(advice_of(late, evidence), "") << "the program has no word for it";
  evidence.knobs.front().words.clear();
  EXPECT_EQ(advice_of(late, evidence), "let them be prefetched: 3.00 ms less a step.") << "nobody knows its words";
  evidence.knobs.front().gain.advised = false;
  EXPECT_EQ(advice_of(late, evidence), "");
}

TEST(Advice, BlamesNoLinkWhileFilesAreAbsent) {
  Evidence evidence;
  EXPECT_THAT(advice_of(Cause::link_bound, evidence, gain(Cause::link_bound)),
              HasSubstr("without the time that bytes"));
  evidence.absent = "the link, or a rank whose file is not here";
  EXPECT_EQ(advice_of(Cause::link_bound, evidence, gain(Cause::link_bound)),
            "at most 0.000 ms: " + evidence.absent + ".");
}

TEST(Advice, RestsOnAReplayOrOnWhatRowsShow) {
  Evidence evidence;
  EXPECT_EQ(advice_of(Cause::straggler, evidence), "");
  evidence.seen[Cause::straggler] = " (rank 3)";
  EXPECT_THAT(advice_of(Cause::straggler, evidence), HasSubstr(": look at that rank (rank 3)."));
  Counterfactual uncertain = gain(Cause::straggler);
  uncertain.advised = false;
  EXPECT_EQ(advice_of(Cause::straggler, evidence, uncertain), "") << "nothing is certain to be gained";
  EXPECT_EQ(advice_of(Cause::copy, evidence, gain(Cause::copy)), "") << "the program cannot have the flat layout";
}

}  // namespace
}  // namespace fsdpbench::account
