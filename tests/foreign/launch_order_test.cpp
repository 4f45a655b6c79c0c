#include "foreign/launch_order.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "support/engine_orders.h"

namespace fsdpbench::foreign {
namespace {

std::string words(const std::vector<LaunchToken>& tokens) {
  std::string text;
  for (const LaunchToken& token : tokens) {
    if (token.what != LaunchToken::What::computation) text += (text.empty() ? "" : " ") + token_name(token);
  }
  return text;
}

std::string words_of(const testing::ScheduleCase& c) { return words(launch_order(c.schedules.steady(), true, true)); }

/// As the schedule prints them, but for the marks of prefetching and of backward.
std::string collectives(const testing::ScheduleCase& c) {
  std::istringstream printed(schedule::collective_order(c.plan, c.schedules.steady()));
  std::string text, word;
  while (printed >> word) {
    if (word == "|") continue;
    if (word.back() == '*') word.pop_back();
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

TEST(LaunchOrder, OfAScheduleHasItsCollectives) {
  for (const char* preset : {"fsdp1", "fsdp2"}) {
    const testing::ScheduleCase c = testing::make_case(schedule::sized(preset, 100));
    EXPECT_EQ(words_of(c), collectives(c)) << preset;
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
