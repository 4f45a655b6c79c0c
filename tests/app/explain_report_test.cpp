#include "app/explain_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/parameters_report.h"
#include "base/error.h"
#include "config/validate.h"

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

engine::Setup prepared(config::RunConfig config) {
  config::validate(config);
  return engine::set_up(config);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::ptrdiff_t columns(const std::string& line) {
  return std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

config::RunConfig llama_405b() {
  config::RunConfig c;
  c.model.preset = "llama3-405b";
  c.model.layers = 126;
  c.model.width = 16384;
  c.model.heads = 128;
  c.model.kv_heads = 8;
  c.model.ffn_width = 53248;
  c.model.vocab = 128256;
  c.mesh.ranks = 64;
  c.train.seq_len = 8192;
  c.fsdp.param_dtype = DType::bf16;
  c.emulate = {100.0, 5.0, 400.0};
  return c;
}

/// Three blocks of width 8, two shards: every number below can be checked by hand.
config::RunConfig tiny() {
  config::RunConfig c;
  c.model.layers = 3;
  c.model.width = 8;
  c.model.heads = 2;
  c.model.kv_heads = 1;
  c.model.ffn_width = 12;
  c.mesh.ranks = 2;
  return c;
}

TEST(ExplainText, FoldsAlikeUnitsAndFitsATerminal) {
  const engine::Setup p = prepared(llama_405b());
  const std::vector<std::string> lines = lines_of(explain_text(p, predict(p, {})));
  EXPECT_LT(lines.size(), 56U);
  for (const std::string& line : lines) EXPECT_LE(columns(line), 100) << line;
  EXPECT_THAT(lines.front(), StartsWith("llama3-405b: 406 B parameters in 127 units, 64 ranks"));
  EXPECT_THAT(lines,
              ::testing::Contains(AllOf(StartsWith("0-125 "), HasSubstr("blocks.0-125 x 126"), HasSubstr("3.19 B"))));
  EXPECT_THAT(lines,
              ::testing::Contains("  AGR AG0 AG1 AG2 AG3 … AG122 AG123 AG124 AG125 | AG125* AG124* RS125 AG123* … "
                                  "AG0* RS1 RS0 RSR"));
}

TEST(ExplainText, TheSummaryIsOneScreen) {
  const engine::Setup p = prepared(llama_405b());
  const std::vector<std::string> lines = lines_of(explain_summary(p, predict(p, {})));
  EXPECT_LE(lines.size(), 24U);
  for (const std::string& line : lines) EXPECT_LE(columns(line), 100) << line;
}

TEST(ExplainText, SaysThatAnOddVocabularyIsSlow) {
  config::RunConfig c = tiny();
  c.model.vocab = 50257;
  c.fsdp.param_dtype = DType::bf16;
  const auto text = [&] {
    const engine::Setup p = prepared(c);
    return explain_text(p, predict(p, {}));
  };
  EXPECT_THAT(text(), HasSubstr("Pad the vocabulary to 50304: rows of 50257 logits"));
  c.model.vocab = 50304;
  EXPECT_THAT(text(), Not(HasSubstr("Pad the vocabulary")));
}

TEST(ExplainText, SaysTheCommonMistakeAboutBytes) {
  config::RunConfig c = tiny();
  c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always;
  const engine::Setup p = prepared(c);
  EXPECT_THAT(explain_text(p, predict(p, {})),
              HasSubstr("1.500 times the bytes of data parallel. At one dtype, full_shard moves 1.5 times (not 2)"));
}

TEST(ScheduleText, IsOnlyTheOpsOfALayer) {
  const engine::Setup p = prepared(tiny());
  const std::string all = schedule_text(p);
  EXPECT_EQ(std::ranges::count(all, '\n'), static_cast<std::ptrdiff_t>(p.schedules.steady().ops.size()) + 6);
  const std::string layer = schedule_text(p, "blocks.1");
  EXPECT_THAT(layer, HasSubstr("forward blocks.1"));
  EXPECT_THAT(layer, HasSubstr("all_gather 1"));
  EXPECT_THAT(layer, Not(HasSubstr("forward blocks.0 ")));
  EXPECT_THAT(layer, Not(HasSubstr("\n    0  ")));
  const std::string root = schedule_text(p, "R");
  EXPECT_THAT(root, AllOf(HasSubstr("forward embedding"), HasSubstr("forward head"), HasSubstr("optimizer R")));
  EXPECT_THAT(schedule_text(p, "head"), AllOf(HasSubstr("forward head"), Not(HasSubstr("forward embedding"))));
}

TEST(ScheduleText, RefusesALayerThatIsNotThere) {
  const engine::Setup p = prepared(tiny());
  try {
    schedule_text(p, "block.2");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--schedule=block.2: there is no such unit or layer; units are R and 0 to 2, the layer with the "
                 "nearest name is blocks.2");
  }
}

TEST(Prediction, SaysWhyThereIsNone) {
  config::RunConfig c = tiny();
  const engine::Setup p = prepared(c);
  EXPECT_THAT(prediction_text(predict(p, {})), HasSubstr("--tflops"));
  EXPECT_THAT(prediction_text(predict(p, {.tflops = 1.0, .link_gb_per_s = {}, .link_latency_us = {}})),
              HasSubstr("--link-gb-per-s"));
  EXPECT_TRUE(fields<Prediction>().write(predict(p, {})).contains("reason"));
  EXPECT_THAT(prediction_text(predict(p, {.tflops = 1e-6, .link_gb_per_s = 1.0, .link_latency_us = 1e9})),
              Not(HasSubstr("none")));
  c.mesh.ranks = 1 << 19;
  EXPECT_THAT(prediction_text(predict(prepared(c), {.tflops = 1.0, .link_gb_per_s = 1.0, .link_latency_us = 1e9})),
              HasSubstr("none, because at these rates its ops would take over 104 days"));
  for (const double none : {-1.0, 0.0, 1e-300, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(predict(p, {.tflops = none, .link_gb_per_s = {}, .link_latency_us = {}}), ConfigError);
  }
}

TEST(Prediction, TakesGivenRatesBeforeThoseOfTheProfile) {
  config::RunConfig c = tiny();
  c.emulate = {1.0, 0.0, 1e-3};
  const engine::Setup p = prepared(c);
  const Prediction emulated = predict(p, {});
  const Prediction given = predict(p, {.tflops = 2e-3, .link_gb_per_s = 2.0, .link_latency_us = {}});
  EXPECT_NEAR(given.step->step_ms.value, 0.5 * emulated.step->step_ms.value, 1e-4);
  EXPECT_EQ(fields<Prediction>().write(given)["tflops"], 2e-3);
}

TEST(ParametersText, SaysWhoHoldsWhichRowsOfEachParameter) {
  config::RunConfig c = tiny();
  c.mesh.ranks = 4;
  c.model.ffn_width = 10;  // 3 + 3 + 3 + 1 rows
  EXPECT_THAT(parameters_text(prepared(c).plan), HasSubstr(R"(
unit 0-2  blocks.0-2 x 3, each: 448 parameters in shards of 480 B, padding 128 B in all
parameter          shape    ranks         rows  bytes each  padding
-----------------  -------  -----  -----------  ----------  -------
blocks.0-2.norm1   [8]        0-3  0-7, 2 each         8 B      0 B
blocks.0-2.wq      [8, 8]     0-3  0-7, 2 each        64 B      0 B
blocks.0-2.wk      [4, 8]     0-3  0-3, 1 each        32 B      0 B
blocks.0-2.wv      [4, 8]     0-3  0-3, 1 each        32 B      0 B
blocks.0-2.wo      [8, 8]     0-3  0-7, 2 each        64 B      0 B
blocks.0-2.norm2   [8]        0-3  0-7, 2 each         8 B      0 B
blocks.0-2.w_gate  [10, 8]    0-2  0-8, 3 each        96 B     64 B
                                3            9        32 B
)"));
}

TEST(ParametersText, DrawsBoxesAsWideAsWhatTheyHold) {
  config::RunConfig c = tiny();
  c.mesh.ranks = 4;
  c.mesh.shard = 2;
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.model.ffn_width = 3;
  const std::string text = parameters_text(prepared(c).plan);
  EXPECT_THAT(text, HasSubstr("2 replicas: shard 0 is on ranks 0, 2, and so on\n"));
  EXPECT_THAT(text, HasSubstr(R"(
  blocks.0-2.w_gate [3, 8]
  blocks.0-2.w_up [3, 8]
  ┌──────────────────────────────────────────┬─────────────────────┐
  │                   0,2                    │         1,3         │ ranks
  │                   0-1                    │          2          │ rows
  └──────────────────────────────────────────┴─────────────────────┘
)"));
}

TEST(ParametersText, AFlatUnitIsCutWhereverTheCutFalls) {
  config::RunConfig c = tiny();
  c.fsdp.preset = "fsdp1";
  c.fsdp.layout = config::Layout::flat;
  // A block: 8 + 64 + 32 + 32 + 64 + 8 + 3 x 96 = 496 elements; the cut at 248 falls into w_gate, which begins at 208.
  const std::string text = parameters_text(prepared(c).plan);
  EXPECT_THAT(text, HasSubstr(R"(
blocks.0-2.w_gate  [12, 8]      0      0-39       160 B
                                1     40-95       224 B
)"));
  EXPECT_THAT(text, HasSubstr("elements\n  └"));
}

TEST(ParametersText, SmallParametersAreWholeOnEveryRank) {
  config::RunConfig c = tiny();
  c.fsdp.shard_threshold = 10;
  EXPECT_THAT(parameters_text(prepared(c).plan), ::testing::ContainsRegex("norm1 +\\[8\\] +all +whole +32 B"));
}

TEST(ParametersText, OfManyShardsIsATableOnly) {
  EXPECT_THAT(parameters_text(prepared(llama_405b()).plan), Not(HasSubstr("┌")));
}

TEST(ParametersJson, PiecesCoverEveryElementOnce) {
  for (const config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
    config::RunConfig c = tiny();
    c.mesh.ranks = 3;
    c.fsdp.layout = layout;
    c.fsdp.shard_threshold = 10;
    const engine::Setup p = prepared(c);
    const nlohmann::json all = explain_json(p, predict(p, {}), true)["parameters"];
    ASSERT_EQ(all.size(), p.plan.shapes.parameters.size());
    std::int64_t bytes = 0;
    for (const nlohmann::json& parameter : all) {
      std::int64_t next = 0;
      for (const nlohmann::json& piece : parameter["pieces"]) {
        EXPECT_EQ(piece["offset"], next) << parameter;
        next += piece["count"].get<std::int64_t>();
        EXPECT_THAT(piece["ranks"], ElementsAre(piece["shard"]));
      }
      EXPECT_EQ(4 * next, parameter["replicated"] ? 0 : parameter["bytes"].get<std::int64_t>()) << parameter;
      bytes += parameter["bytes"].get<std::int64_t>();
    }
    EXPECT_EQ(bytes, 4 * p.plan.shapes.parameter_count());
  }
}

// Of experts over more ranks than there are experts each shard has some rows of every expert.
TEST(ParametersJson, PiecesOfExpertsCoverEveryElementOnce) {
  config::RunConfig c = tiny();
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.ranks = 8;
  c.mesh.expert = 2;
  c.fsdp.layout = config::Layout::per_param;
  const engine::Setup p = prepared(c);
  int split = 0;
  const nlohmann::json all = explain_json(p, predict(p, {}), true)["parameters"];
  for (const nlohmann::json& parameter : all) {
    if (!parameter["unit"].get<std::string>().starts_with("E")) continue;
    ++split;
    const auto numel = parameter["bytes"].get<std::size_t>() / 4;
    std::vector<int> times(numel);
    std::map<int, std::int64_t> next;  // in each shard: runs of a parameter follow each other
    const std::int64_t rows = parameter["shape"][1], columns = parameter["shape"][2], mine = rows / 4;
    for (const nlohmann::json& piece : parameter["pieces"]) {
      const std::int64_t offset = piece["offset"], count = piece["count"];
      EXPECT_EQ(count, mine * columns);
      for (std::int64_t i = offset; i < offset + count; ++i) ++times.at(static_cast<std::size_t>(i));
      EXPECT_EQ(offset / columns % rows / mine, piece["shard"]) << "rows of the second dimension: " << piece;
      EXPECT_THAT(piece["ranks"], ElementsAre(2 * piece["shard"].get<int>()));
      const auto [at, first] = next.try_emplace(piece["shard"].get<int>(), piece["shard_offset"].get<std::int64_t>());
      EXPECT_EQ(piece["shard_offset"], at->second);
      at->second += count;
    }
    EXPECT_THAT(times, ::testing::Each(1)) << parameter;
  }
  EXPECT_EQ(split, 3 * 3);
  const std::string text = parameters_text(p.plan);
  EXPECT_THAT(text, HasSubstr("rows (dim 1)"));
  EXPECT_THAT(text, HasSubstr("2 ranks split the experts: below are the first ones, in shards on ranks 0, 2, 4, 6"));
}

TEST(ExplainText, SaysWhichAllGathersAreWasted) {
  config::RunConfig c = tiny();
  c.fsdp.layout = config::Layout::per_param;
  c.model.trainable = {config::Trainable::Mode::blocks, 2, 2};
  const engine::Setup p = prepared(c);
  EXPECT_THAT(explain_text(p, predict(p, {})), HasSubstr("unit 1 is gathered, never used: backward prefetch goes by"));
  const nlohmann::json wasted = explain_json(p, predict(p, {}), false)["wasted_gathers"];
  ASSERT_EQ(wasted.size(), 1U);
  EXPECT_EQ(wasted[0]["waste"], "never_used");
  EXPECT_EQ(wasted[0]["unit"], "1");
  EXPECT_EQ(wasted[0]["bytes"], p.plan.units[2].layout.shard_numel * 4);
  c.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  const engine::Setup off = prepared(c);
  EXPECT_THAT(explain_text(off, predict(off, {})), Not(HasSubstr("never used")));
  EXPECT_TRUE(explain_json(off, predict(off, {}), false)["wasted_gathers"].empty());
}

TEST(ExplainText, NamesTheRuleThatGathersExpertsTwice) {
  config::RunConfig c = tiny();
  c.fsdp.layout = config::Layout::per_param;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.ranks = c.mesh.shard = 4;
  c.mesh.expert = 2;
  c.fsdp.expert_unit = config::ExpertUnit::module;
  c.fsdp.activation_checkpointing = c.fsdp.recompute_frees = true;
  const engine::Setup p = prepared(c);
  const std::string text = explain_text(p, predict(p, {}));
  EXPECT_THAT(text, HasSubstr("gathered twice in a row, once would do: a recomputation frees the experts"));
  EXPECT_THAT(text, HasSubstr("gathered, never used: a recomputation counts as a use"));
  EXPECT_THAT(text, HasSubstr("pytorch#164009"));
  c.fsdp.recompute_frees = false;
  const engine::Setup off = prepared(c);
  EXPECT_THAT(explain_text(off, predict(off, {})),
              ::testing::AllOf(Not(HasSubstr("never used")), Not(HasSubstr("twice"))));
}

TEST(ExplainJson, HasParametersOnlyIfAskedFor) {
  const engine::Setup p = prepared(tiny());
  EXPECT_FALSE(explain_json(p, predict(p, {}), false).contains("parameters"));
}

}  // namespace
}  // namespace fsdpbench::app
