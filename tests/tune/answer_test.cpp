#include "tune/answer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/emulated_machine.h"
#include "tune/tune_report.h"

namespace fsdpbench::tune {
namespace {

using config::RunConfig;
using ::fsdpbench::testing::all_but;
using ::fsdpbench::testing::EmulatedMachine;
using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Answered {
  Answered(const RunConfig& config, const std::vector<std::string>& turned)
      : space(valid(config), {.fixed = all_but(turned)}),
        result(search(space, machine, options)),
        answer(make_answer(space, machine, options, result, 0.01)) {}

  EmulatedMachine machine;
  SearchOptions options;
  Space space;
  SearchResult result;
  Answer answer;
};

RunConfig badly_set() {
  RunConfig config = tunable_config();
  config.fsdp.forward_prefetch.mode = config::Prefetch::Mode::none;
  config.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  return config;
}

TEST(Answer, WhatATurnedKnobGainsIsWhatTheStepsDiffer) {
  const Answered a(badly_set(), {"fsdp.forward_prefetch", "fsdp.backward_prefetch"});
  ASSERT_EQ(a.answer.turned.size(), 2U);
  EXPECT_FALSE(a.answer.keep);
  const Tried& best = a.result.tried[*a.result.best];
  for (const TurnedKnob& knob : a.answer.turned) {
    Point alone = a.space.origin(), without = best.point;
    alone[knob.axis] = best.point[knob.axis];
    without[knob.axis] = 0;
    const auto step = [&](const Point& point) { return evaluate(*a.space.config_at(point), a.machine, {}).step_ns; };
    EXPECT_DOUBLE_EQ(*knob.alone, 1 - step(alone) / a.result.start().step_ns);
    EXPECT_DOUBLE_EQ(*knob.last_in, 1 - best.step_ns / step(without));
    EXPECT_GT(*knob.last_in, 0);
  }
  EXPECT_DOUBLE_EQ(a.answer.gain, 1 - best.step_ns / a.result.start().step_ns);
}

TEST(Answer, KeepsWhatIsAsGoodAsAnything) {
  RunConfig config = tunable_config();
  config.emulate.link_gb_per_s = 1000;
  config.emulate.link_latency_us = 0;
  const Answered a(config, {"fsdp.backward_prefetch", "fsdp.reduce_scatter_buffers", "fsdp.all_gather_limit"});
  EXPECT_TRUE(a.answer.keep);
  EXPECT_LT(a.answer.gain, 0.01);
  for (const LeftKnob& knob : a.answer.left) EXPECT_FALSE(knob.matters) << knob.key;
}

TEST(Answer, AKnobThatIsLeftMattersIfTurningItWouldHurt) {
  const Answered a(tunable_config(), {"fsdp.forward_prefetch"});
  ASSERT_TRUE(a.answer.keep);
  ASSERT_EQ(a.answer.left.size(), 1U);
  EXPECT_TRUE(a.answer.left.front().matters);
  EXPECT_GT(a.answer.left.front().most, 0.01);
}

TEST(Answer, AKnobThatCannotBeTurnedIsNoneThatIsLeft) {
  RunConfig config = tunable_config();
  const auto knobs = [&] {
    const Answered a(config, {"fsdp.head_unit"});
    return a.answer.turned.size() + a.answer.left.size();
  };
  EXPECT_EQ(knobs(), 1U);
  config.model.tied_head = true;
  EXPECT_EQ(knobs(), 0U);
}

TEST(Verdict, TellsOfHowManyItSpeaksWhereMuchMayBeLeft) {
  const Answered a(tunable_config(), {"fsdp.forward_prefetch"});
  ASSERT_TRUE(a.answer.keep);
  SearchResult result = a.result;
  const app::Tuning tuning{a.space, a.options, result, a.answer, "it", "rates"};
  EXPECT_THAT(app::tune_text(tuning), AllOf(HasSubstr("Keep what you have: the best of all would take 0.0 % less step "
                                                      "time, which is below what counts.\n"),
                                            Not(HasSubstr("too few"))));
  result.tried.push_back(result.start());
  result.tried.back().fits = false;
  result.bound = result.start().step_ns / 2;
  const std::size_t all = result.tried.size();
  const std::string known = fmt::format(
      "Keep what you have: of the {} policies tried, of which {} fit, the best would take 0.0 % less step time, which "
      "is "
      "below what counts; ",
      all, all - 1);
  EXPECT_THAT(app::tune_text(tuning), HasSubstr(known + "--evaluations was too few to know of the others.\n"));
  result.stopped = true;
  EXPECT_THAT(app::tune_text(tuning), HasSubstr(known + "it was interrupted before the others were known.\n"));
  result.bound = result.start().step_ns * 0.995;
  EXPECT_THAT(app::tune_text(tuning), HasSubstr("below what counts.\n"));
}

TEST(NothingFits, DoesNotCallTheLeastWhatFits) {
  const Space space(valid(tunable_config()), {.fixed = all_but({"fsdp.forward_prefetch"})});
  SearchResult least;
  least.tried.emplace_back().point = space.origin();
  least.tried.front().predicted_bytes = 900;
  least.tried.front().margin_bytes = 100;
  least.best = 0;
  EXPECT_THAT(app::nothing_fits(space, {.bytes = 999}, least), HasSubstr("--memory 999 B: nothing fits. The least"));
  EXPECT_THAT(app::nothing_fits(space, {.bytes = 899}, least, 950), HasSubstr("as it is, 950 B would do where"));
  EXPECT_THAT(app::nothing_fits(space, {.bytes = 899}, least, 1000), Not(HasSubstr("would do")));
  EXPECT_THAT(app::nothing_fits(space, {.bytes = 1000}, least),
              AllOf(HasSubstr("nothing that was tried fits"), HasSubstr("1000 B"), HasSubstr("--evaluations"),
                    Not(HasSubstr("nothing fits")), Not(HasSubstr("made-up"))));
  for (const int bytes : {999, 1000}) {
    EXPECT_THAT(app::nothing_fits(space, {.bytes = bytes, .made_up = true}, least),
                HasSubstr(". No trace tells memory: --memory was compared with that of a made-up job."));
  }
}

TEST(ParetoFront, HasWhatNothingBeatsInBoth) {
  const auto tried = [](double step, std::int64_t bytes) {
    Tried t;
    t.step_ns = step;
    t.predicted_bytes = bytes;
    return t;
  };
  EXPECT_THAT(pareto_front({tried(10, 50), tried(8, 60), tried(9, 60), tried(8, 70), tried(12, 40), tried(7, 90)}),
              ElementsAre(4, 0, 1, 5));
}

}  // namespace
}  // namespace fsdpbench::tune
