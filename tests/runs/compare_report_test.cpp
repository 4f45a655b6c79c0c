#include "runs/compare_report.h"

#include "config/support.h"
#include "runs/result_fields.h"
#include "runs/result_json.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

json result(std::vector<double> steps, const char* prefetch, const char* cpu) {
  Trial trial;
  trial.world.cpu = cpu;
  trial.metrics.emplace().step_ms = account::summarize(steps);
  trial.metrics->steps_ms = std::move(steps);
  trial.causes.emplace();
  json j = to_json(trial);
  j["config"] = {{"fsdp", {{"backward_prefetch", prefetch}, {"layout", "flat"}}}};
  return j;
}

TEST(DifferingKeys, AreNamedWithBothValues) {
  const json a = {{"fsdp", {{"strategy", "full_shard"}, {"layout", "flat"}}}, {"emulate", {{"link", nullptr}}}};
  const json b = {{"fsdp", {{"strategy", "no_shard"}, {"layout", "flat"}}}, {"emulate", {{"link", 0.5}}}};
  EXPECT_THAT(differing_keys(a, b), ElementsAre(DifferingKey{"emulate.link", nullptr, 0.5},
                                                DifferingKey{"fsdp.strategy", "full_shard", "no_shard"}));
  EXPECT_THAT(differing_keys(a, a), IsEmpty());
}

TEST(DifferingKeys, AKeyThatOnlyOneHasDiffers) {
  const json a = {{"fsdp", {{"old", 1}}}}, b = {{"fsdp", {{"new", 2}}}};
  EXPECT_THAT(differing_keys(a, b),
              ElementsAre(DifferingKey{"fsdp.old", 1, nullptr}, DifferingKey{"fsdp.new", nullptr, 2}));
}

TEST(StoredComparison, SaysThatTheRunsDidNotTakeTurns) {
  const ComparedSide a = stored_side("a", {"a/result.json", result({100, 100, 101}, "pre", "X")});
  const ComparedSide b = stored_side("b", {"b/result.json", result({120, 121, 120}, "none", "Y")});
  const Comparison c = compare_sides(a, b, Evidence::stored);
  const std::string table = compare_table(c);
  EXPECT_THAT(table,
              AllOf(HasSubstr("B's run takes 20.0 % more step time than A's run"), HasSubstr("did not take turns"),
                    HasSubstr("--rerun"), HasSubstr("different programs or machines: cpu: X / Y."),
                    HasSubstr("fsdp.backward_prefetch"), Not(HasSubstr("fsdp.layout"))));
  const json j = compare_json(c);
  EXPECT_EQ(j["interleaved"], false);
  EXPECT_EQ(j["verdict"], "slower");
  EXPECT_EQ(j["differing_keys"], json::parse(R"([{"key": "fsdp.backward_prefetch", "a": "pre", "b": "none"}])"));
}

TEST(SimulatedComparison, IsExact) {
  const ComparedSide a = stored_side("a", {"a/result.json", result({100, 100}, "pre", "X")});
  const ComparedSide b = stored_side("b", {"b/result.json", result({120, 120}, "none", "Y")});
  const Comparison c = compare_sides(a, b, Evidence::simulated);
  EXPECT_EQ(verdict_sentence(c), "B takes 20.0 % more step time than A, simulated.");
  EXPECT_EQ(verdict_sentence(compare_sides(a, a, Evidence::simulated)),
            "No difference: A and B take the same time, simulated.");
  const std::string table = compare_table(c);
  EXPECT_THAT(table, AllOf(HasSubstr("Simulated once each"), Not(HasSubstr("A/A")), Not(HasSubstr("take turns")),
                           Not(HasSubstr("X / Y"))))
      << "the machine that computed it does not matter";
}

TEST(SimulatedComparison, TwoSingleStepsAreExactAndTwoOfARunAreNot) {
  const ComparedSide a = stored_side("a", {"a/result.json", result({100}, "pre", "X")});
  const ComparedSide b = stored_side("b", {"b/result.json", result({120}, "pre", "X")});
  EXPECT_EQ(compare_sides(a, b, Evidence::simulated).difference.verdict, account::Verdict::slower);
  EXPECT_EQ(compare_sides(a, b, Evidence::stored).difference.verdict, account::Verdict::inconclusive);
}

TEST(VerdictSentence, SaysWhichOfTheFourAnswersItIs) {
  Comparison c;
  c.evidence = Evidence::interleaved;
  c.difference = {.ratio = 1.052, .low = 1.041, .high = 1.063, .verdict = account::Verdict::slower};
  EXPECT_EQ(verdict_sentence(c), "B takes 5.2 % more step time than A (99 % interval of B / A: 1.041 to 1.063).");
  c.difference = {.ratio = 1.002, .low = 0.999, .high = 1.004, .verdict = account::Verdict::no_difference};
  EXPECT_EQ(verdict_sentence(c),
            "No relevant difference: B takes 0.2 % more step time (threshold 1.0 %; 99 % interval of B / A: 0.999 to "
            "1.004).");
  c.difference = {.ratio = 1.002, .low = 0.98, .high = 1.024, .verdict = account::Verdict::inconclusive};
  EXPECT_EQ(verdict_sentence(c),
            "No difference found (99 % interval of B / A: 0.980 to 1.024); it could still be up to 2.4 %.");
  c.difference = {.ratio = 1.004, .low = 1.001, .high = 1.012, .verdict = account::Verdict::inconclusive};
  EXPECT_EQ(
      verdict_sentence(c),
      "Inconclusive: B takes 0.4 % more step time (99 % interval of B / A: 1.001 to 1.012); whether it is 1.0 % is not "
      "known.");
}

TEST(StoredComparison, DamagedResultsAreSaidToBe) {
  for (const char* part : {"config", "steps_ms", "metrics", "memory", "world"}) {
    ResultFile file{"a/result.json", result({100, 100, 100}, "pre", "X")};
    file.content.erase(part);
    EXPECT_THAT(config_error([&] { stored_side("a", file); }), HasSubstr("a/result.json: is damaged")) << part;
    file.content[part] = "text";
    EXPECT_THAT(config_error([&] { stored_side("a", file); }), HasSubstr("a/result.json: is damaged")) << part;
  }
  const ResultFile negative{"a/result.json", result({100, -1, 100}, "pre", "X")};
  EXPECT_THAT(config_error([&] { stored_side("a", negative); }), HasSubstr("is damaged"));
}

}  // namespace
}  // namespace fsdpbench::app
