#include "app/commands/ask_ras.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

/// As src/ras/client_support.cc of NCCL prints a rank; -1: it is missing. `comma`: before its status.
std::string rank_text(int rank, int count, const std::string& comma) {
  const std::string head =
      fmt::format("{{\n\"rank\": {},\n\"host\": \"10.0.0.2\",\n\"pid\": {},\n\"cuda_dev\": {},\n\"nvml_dev\": {}", rank,
                  4700 + rank, rank, rank);
  if (count < 0) {
    return head + comma + "\n\"status\": {\n\"unresponsive\": true,\n\"considered_dead\": false\n}\n}";
  }
  return head + fmt::format(
                    ",\n\"status\": {{\n\"init_state\": 0,\n\"destroy_flag\": false\n}},\n"
                    "\"collective_counts\": {{\n\"AllGather\": {}\n}}\n}}",
                    count);
}

std::string communicator_text(const std::string& name, const std::vector<int>& counts, const std::string& comma = ",") {
  std::string here, gone;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::string& list = counts[i] < 0 ? gone : here;
    list += (list.empty() ? "" : ",\n") + rank_text(static_cast<int>(i), counts[i], comma);
  }
  return fmt::format("{{\n\"hash\": \"{}\",\n\"ranks\": [\n{}\n],\n\"missing_ranks\": [\n{}\n]\n}}", name, here, gone);
}

std::string answer(const std::string& communicators) {
  return "{\n\"nccl_version\": \"2.28.9\",\n\"communicators\": [\n" + communicators + "\n]\n}\n";
}

TEST(AskRas, NamesWhoIsBehindAndNotWhoWaitsElsewhere) {
  EXPECT_EQ(judge_ras_answer(answer(communicator_text("0xa", {8, 7, 8}))),
            (std::vector<std::string>{"Rank 1 (process 4701 on 10.0.0.2, GPU 1) has not come: 7 collectives of 0xa are "
                                      "handed over there, elsewhere 8."}));
  EXPECT_TRUE(judge_ras_answer(answer(communicator_text("0xa", {8, 8}))).empty());
  // Each waits for the other.
  EXPECT_TRUE(
      judge_ras_answer(answer(communicator_text("0xa", {8, 7}) + ",\n" + communicator_text("0xb", {4, 5}))).empty());
}

TEST(AskRas, ReadsAnAnswerWithoutTheCommaBeforeAMissingRank) {
  for (const std::string comma : {"", ","}) {
    EXPECT_EQ(judge_ras_answer(answer(communicator_text("0xa", {8, -1}, comma))),
              (std::vector<std::string>{"Rank 1 (process 4701 on 10.0.0.2, GPU 1) has fallen silent in 0xa: NCCL RAS "
                                        "does not reach it."}));
  }
}

TEST(AskRas, RefusesWhatIsNone) {
  for (const std::string text : {"", "{}", "[]", "{\"communicators\": 3}", "{\"communicators\": [{}]}"}) {
    EXPECT_THROW(judge_ras_answer(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace fsdpbench::app
