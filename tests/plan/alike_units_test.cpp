#include "plan/alike_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdpbench::plan {
namespace {

config::RunConfig decoder(std::int64_t layers) {
  config::RunConfig c;
  c.model.layers = layers;
  c.mesh = {4, 4, 1};
  return c;
}

TEST(AlikeUnits, BlocksOfADecoderAreOneRunAndTheRootStandsAlone) {
  EXPECT_THAT(alike_units(make_plan(decoder(126))), testing::ElementsAre(AlikeUnits{0, 1}, AlikeUnits{1, 126}));
}

TEST(AlikeUnits, ALastUnitOfFewerBlocksIsAnother) {
  config::RunConfig c = decoder(7);
  c.fsdp.wrap.mode = config::Wrap::Mode::blocks;
  c.fsdp.wrap.blocks = 3;
  EXPECT_THAT(alike_units(make_plan(c)), testing::ElementsAre(AlikeUnits{0, 1}, AlikeUnits{1, 2}, AlikeUnits{3, 1}));
}

TEST(AlikeUnits, LayersOfOtherShapesAreOthers) {  // 64 -> 128 -> 128 -> 128 -> 64
  config::RunConfig c = decoder(4);
  c.model.kind = config::ModelKind::mlp;
  EXPECT_THAT(alike_units(make_plan(c)),
              testing::ElementsAre(AlikeUnits{0, 1}, AlikeUnits{1, 1}, AlikeUnits{2, 2}, AlikeUnits{4, 1}));
}

TEST(AlikeUnits, ModulesOfAnotherKindAreOthersWhateverTheirShapes) {
  Plan plan = make_plan(decoder(4));
  plan.shapes.modules[static_cast<std::size_t>(plan.units[2].members.modules[0])].kind = ModuleKind::head;
  EXPECT_THAT(alike_units(plan),
              testing::ElementsAre(AlikeUnits{0, 1}, AlikeUnits{1, 1}, AlikeUnits{2, 1}, AlikeUnits{3, 2}));
}

TEST(AlikeUnits, AreNamedByTheirSpan) {
  const auto names = [](const config::RunConfig& c) {
    const Plan plan = make_plan(c);
    std::vector<std::string> all;
    for (const AlikeUnits& units : alike_units(plan)) {
      all.push_back(unit_names(plan, units) + ": " + module_names(plan, units));
    }
    return all;
  };
  config::RunConfig c = decoder(7);
  EXPECT_THAT(names(c), testing::ElementsAre("R: embedding, head", "0-6: blocks.0-6 x 7"));
  c.fsdp.wrap.mode = config::Wrap::Mode::blocks;
  c.fsdp.wrap.blocks = 2;
  EXPECT_THAT(names(c), testing::ElementsAre("R: embedding, head", "0-2: blocks.0-1 … blocks.4-5 x 3", "3: blocks.6"));
  c.fsdp.wrap.mode = config::Wrap::Mode::model;
  EXPECT_THAT(names(c), testing::ElementsAre("R: embedding … head"));
}

TEST(AlikeUnits, TheRootIsNotFoldedWithAUnitLikeIt) {
  config::RunConfig c = decoder(1);
  c.fsdp.wrap.mode = config::Wrap::Mode::model;
  EXPECT_THAT(alike_units(make_plan(c)), testing::ElementsAre(AlikeUnits{0, 1}));
}

}  // namespace
}  // namespace fsdpbench::plan
