#include "account/cause.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace fsdpbench::account {
namespace {

TEST(Cause, EachHasANameOfItsOwnAndAllThatIsSaidAboutIt) {
  std::set<std::string_view> names;
  for (const CauseFacts& facts : kCauses) {
    EXPECT_TRUE(names.insert(facts.name).second) << facts.name;
    for (const std::string_view text : {facts.meaning, facts.without, facts.advice}) EXPECT_FALSE(text.empty());
    EXPECT_EQ(facts.advice.find("fsdp."), std::string_view::npos) << "settings are told apart: " << facts.name;
  }
}

TEST(Cause, DocumentationHasThisTable) {
  std::ifstream in(FSDPBENCH_DOCS_DIR "/causes.md");
  std::stringstream text;
  text << in.rdbuf();
  for (const CauseFacts& facts : kCauses) {
    const std::string row = "| `" + std::string(facts.name) + "` | " + std::string(facts.meaning);
    EXPECT_NE(text.str().find(row), std::string::npos) << row;
  }
}

TEST(Cause, IsReadByItsName) {
  for (const Cause cause : kEnumerators<Cause>) EXPECT_EQ(cause_named(to_string(cause)), cause);
  EXPECT_EQ(cause_named("jitter"), std::nullopt);
}

TEST(Cause, AdviceNamesSettingsWhereThereAreAny) {
  EXPECT_EQ(advice_with(Cause::step_boundary, "no_sync()"), "more work a step (no_sync()) makes them a smaller share");
  EXPECT_EQ(advice_with(Cause::step_boundary, ""), "more work a step makes them a smaller share");
  EXPECT_EQ(advice_with(Cause::straggler, "x"), "look at that rank");
}

}  // namespace
}  // namespace fsdpbench::account
