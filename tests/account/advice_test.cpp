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
  EXPECT_EQ(advice_of(Cause::link_bound, evidence, gain(Cause::link_bound)), "at most 0 ms: " + evidence.absent + ".");
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

TEST(Advice, AKnobSaysWhatItBringsAndWhatItCosts) {
  Counterfactual knob = gain(Cause::copy, "fsdp.layout=flat");
  EXPECT_EQ(knob_sentence(knob), "set fsdp.layout=flat: 3.00 ms less a step.");
  knob.interval = IntervalKind::bootstrap;
  knob.ci_low = 2.5;
  knob.ci_high = 3.75;
  knob.more_bytes = 3 << 20;
  EXPECT_EQ(knob_sentence(knob, "flat=True"),
            "flat=True (fsdp.layout=flat): 3.00 ms less a step [2.50 to 3.75], 3.00 MiB more memory.");
  knob.more_bytes = -(1 << 19);
  EXPECT_EQ(knob_sentence(knob), "set fsdp.layout=flat: 3.00 ms less a step [2.50 to 3.75], 512 KiB less memory.");
  knob.more_bytes = 0;
  EXPECT_EQ(knob_sentence(knob), "set fsdp.layout=flat: 3.00 ms less a step [2.50 to 3.75], no more memory.");
  EXPECT_EQ(knob_sentence(gain(Cause::link_bound, "fsdp.reduce_dtype=bf16")),
            "set fsdp.reduce_dtype=bf16, which changes numerics: 3.00 ms less a step.");
}

TEST(Advice, WithoutACauseTheStepIsAsLongAsItsReplay) {
  Counterfactual without = gain(Cause::straggler);
  without.step_ms = 12;
  std::vector<CauseShare> causes(2);
  causes[0].cause = Cause::straggler;
  causes[1].cause = Cause::slow_link;
  for (CauseShare& cause : causes) {
    cause.late_rank = 5;
    cause.without = without;
  }
  advise(causes, {});
  EXPECT_EQ(causes[0].advice,
            "without the lateness of rank 5 the step would take 12.0 ms, 3.00 ms less a step: look at that rank.");
  EXPECT_EQ(
      causes[1].advice,
      "without the slowness of rank 5's link the step would take 12.0 ms, 3.00 ms less a step: look at that link.");
  causes[0].late_rank = -1;
  advise(causes, {});
  EXPECT_EQ(causes[0].advice, "") << "nobody is named";
  Evidence evidence;
  evidence.settings[Cause::pcie] = "batch";
  EXPECT_EQ(advice_of(Cause::pcie, evidence, without),
            "without copies between device and host memory the step would take 12.0 ms, 3.00 ms less a step: longer "
            "computation (batch), microbatches without sync or state on the device hide or spare them.");
  evidence.knobs = {{gain(Cause::copy, "fsdp.layout=flat"), "flat"}};
  evidence.knobs.front().gain.advised = false;
  EXPECT_THAT(advice_of(Cause::copy, evidence, without), HasSubstr("without copies in and out"));
  evidence.knobs.front().sayable = false;
  EXPECT_EQ(advice_of(Cause::copy, evidence, without), "");
}

TEST(Advice, OneSlowLinkLooksTheSameWhereLinksAreNotKnown) {
  Evidence evidence{.links_known = false};
  EXPECT_THAT(
      advice_of(Cause::link_bound, evidence, gain(Cause::link_bound)),
      ::testing::EndsWith("One slow link would look the same: on real links a collective ends on all its ranks at "
                          "once."));
  EXPECT_THAT(advice_of(Cause::straggler, evidence, gain(Cause::straggler)), ::testing::Not(HasSubstr("slow link")));
  EXPECT_EQ(advice_of(Cause::link_bound, evidence), "") << "of no advice nothing follows";
}

TEST(Advice, OfRowsOnlyWhatIsAPercentOrMoreIsTold) {
  Evidence evidence;
  evidence.seen[Cause::data_loading] = "";
  std::vector<CauseShare> causes(1);
  causes[0].cause = Cause::data_loading;
  causes[0].ms = 2.5;
  for (const double share : {1.0, 0.99}) {
    causes[0].share_pct = share;
    advise(causes, evidence);
    EXPECT_EQ(causes[0].advice.empty(), share < 1);
  }
  causes[0].share_pct = 1;
  advise(causes, evidence);
  EXPECT_EQ(causes[0].advice,
            "at most 2.50 ms: a data loader was running, and nothing else: let the loader work ahead.");
  for (const Cause cause : {Cause::slow_transfer, Cause::inefficient_collective}) {
    evidence.absent = "a file";
    EXPECT_EQ(advice_of(cause, evidence), "at most 0 ms: a file.");
  }
  EXPECT_EQ(advice_of(Cause::host_bound, evidence), "") << "no link, and nothing seen";
}

TEST(Advice, AGainIsToldInTheUnitOfItsInterval) {
  Counterfactual knob = gain(Cause::late_prefetch, "fsdp.a=1");
  knob.gain_ms = 0.9;
  knob.ci_low = 0.5;
  knob.ci_high = 1.25;
  knob.interval = IntervalKind::bootstrap;
  EXPECT_THAT(knob_sentence(knob), HasSubstr("0.900 ms less a step"));
}

}  // namespace
}  // namespace fsdpbench::account
