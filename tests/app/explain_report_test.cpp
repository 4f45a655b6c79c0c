#include "app/explain_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

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
  const std::vector<std::string> lines = lines_of(explain_text(p));
  EXPECT_LT(lines.size(), 56U);
  for (const std::string& line : lines) EXPECT_LE(columns(line), 100) << line;
  EXPECT_THAT(lines.front(), StartsWith("llama3-405b: 406 B parameters in 127 units, 64 ranks"));
  EXPECT_THAT(lines,
              ::testing::Contains(AllOf(StartsWith("0-125 "), HasSubstr("blocks.0-125 x 126"), HasSubstr("3.19 B"))));
  EXPECT_THAT(lines,
              ::testing::Contains("  AGR AG0 AG1 AG2 AG3 … AG122 AG123 AG124 AG125 | AG125* AG124* RS125 AG123* … "
                                  "AG0* RS1 RS0 RSR"));
}

TEST(ExplainText, SaysThatAnOddVocabularyIsSlow) {
  config::RunConfig c = tiny();
  c.model.vocab = 50257;
  c.fsdp.param_dtype = DType::bf16;
  const auto text = [&] {
    const engine::Setup p = prepared(c);
    return explain_text(p);
  };
  EXPECT_THAT(text(), HasSubstr("Pad the vocabulary to 50304: rows of 50257 logits"));
  c.model.vocab = 50304;
  EXPECT_THAT(text(), Not(HasSubstr("Pad the vocabulary")));
}

TEST(ExplainText, SaysTheCommonMistakeAboutBytes) {
  config::RunConfig c = tiny();
  c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always;
  const engine::Setup p = prepared(c);
  EXPECT_THAT(explain_text(p),
              HasSubstr("1.500 times the bytes of data parallel. At one dtype, full_shard moves 1.5 times (not 2)"));
}

TEST(ScheduleText, HasALineForEachOp) {
  const engine::Setup p = prepared(tiny());
  const std::string all = schedule_text(p);
  EXPECT_EQ(std::ranges::count(all, '\n'), static_cast<std::ptrdiff_t>(p.schedules.steady().ops.size()) + 4);
  EXPECT_THAT(all, AllOf(HasSubstr("forward blocks.1"), HasSubstr("all_gather 1"), HasSubstr("optimizer R")));
}

TEST(ExplainText, SaysWhichAllGathersAreWasted) {
  config::RunConfig c = tiny();
  c.fsdp.layout = config::Layout::per_param;
  c.model.trainable = {config::Trainable::Mode::blocks, 2, 2};
  const engine::Setup p = prepared(c);
  EXPECT_THAT(explain_text(p), HasSubstr("unit 1 is gathered, never used: backward prefetch goes by"));
  const nlohmann::json wasted = explain_json(p)["wasted_gathers"];
  ASSERT_EQ(wasted.size(), 1U);
  EXPECT_EQ(wasted[0]["waste"], "never_used");
  EXPECT_EQ(wasted[0]["unit"], "1");
  EXPECT_EQ(wasted[0]["bytes"], p.plan.units[2].layout.shard_numel * 4);
  c.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  const engine::Setup off = prepared(c);
  EXPECT_THAT(explain_text(off), Not(HasSubstr("never used")));
  EXPECT_TRUE(explain_json(off)["wasted_gathers"].empty());
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
  const std::string text = explain_text(p);
  EXPECT_THAT(text, HasSubstr("gathered twice in a row, once would do: a recomputation frees the experts"));
  EXPECT_THAT(text, HasSubstr("gathered, never used: a recomputation counts as a use"));
  EXPECT_THAT(text, HasSubstr("pytorch#164009"));
  c.fsdp.recompute_frees = false;
  const engine::Setup off = prepared(c);
  EXPECT_THAT(explain_text(off), ::testing::AllOf(Not(HasSubstr("never used")), Not(HasSubstr("twice"))));
}

}  // namespace
}  // namespace fsdpbench::app
