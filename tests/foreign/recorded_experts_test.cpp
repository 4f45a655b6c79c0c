// FSDP2 jobs of PyTorch's own whose experts are split over fewer ranks than the rest of their blocks
// (tests/peer/profiled.py): units and schedule are those that the engine tells itself.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/fields.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::HasSubstr;

class RecordedExperts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = std::filesystem::path(FSDPBENCH_RECORDED_DIR) / "experts-2.15.0" / GetParam();
    std::ifstream file(folder / "truth.json");
    truth_ = nlohmann::json::parse(file);
    std::vector<std::string> traces;
    for (int rank = 0; rank < truth_["ranks"].get<int>(); ++rank) {
      traces.push_back((folder / ("rank_" + std::to_string(rank) + ".json.gz")).string());
    }
    job_ = read_job(traces);
    found_ = recognise(job_);
    preset_ = truth_["preset"].get<std::string>();
  }

  /// "AGR AG0 AGE0 …"; a unit of norm and head is T.
  std::string order_of(std::size_t rank, std::size_t step) const {
    const int modules = found_.facts.units + 1;
    const bool head = truth_["keys"].value("fsdp.head_unit", false);
    std::string text;
    for (const CollectiveUse& use : found_.ranks[rank].uses[step]) {
      if (use.purpose != Purpose::parameters && use.purpose != Purpose::gradients) continue;
      LaunchToken token{use.purpose == Purpose::parameters ? LaunchToken::What::gather : LaunchToken::What::reduce,
                        plan_unit(found_.table, use.unit)};
      std::string name = token_name(token, modules);
      if (head && token.unit == modules - 1) name = name.substr(0, 2) + "T";
      text += (text.empty() ? "" : " ") + name;
    }
    return text;
  }

  nlohmann::json truth_;
  JobTrace job_;
  Recognition found_;
  std::string preset_;
};

TEST_P(RecordedExperts, EveryCollectiveHasItsUnit) {
  for (std::size_t rank = 0; rank < found_.ranks.size(); ++rank) {
    ASSERT_EQ(found_.ranks[rank].uses.size(), truth_["steps"].size());
    for (std::size_t step = 0; step < truth_["steps"].size(); ++step) {
      std::string told = truth_["steps"][step].get<std::string>();
      std::erase(told, '*');
      EXPECT_EQ(order_of(rank, step), told) << "rank " << rank << ", step " << step;
    }
  }
}

TEST_P(RecordedExperts, FollowsItsSchedule) {
  EXPECT_EQ(found_.kind, JobKind::experts);
  EXPECT_TRUE(found_.shards);
  EXPECT_EQ(found_.facts.expert, truth_["keys"]["mesh.expert"].get<int>());
  ASSERT_TRUE(found_.schedule) << ::testing::PrintToString(found_.unknown);
  const config::RunConfig& config = found_.schedule->config;
  EXPECT_EQ(config.fsdp.preset, preset_);
  EXPECT_EQ(found_.schedule->collectives_off, 0);
  for (const char* key : {"fsdp.forward_prefetch", "fsdp.root_prefetches_forward", "fsdp.expert_unit"}) {
    if (!truth_["keys"].contains(key)) continue;
    const nlohmann::json& told = truth_["keys"][key];
    const std::string value = config::to_toml(config::find_field(key)->write(config));
    EXPECT_THAT(value, HasSubstr(told.is_string() ? told.get<std::string>() : told.dump())) << key;
  }
  EXPECT_EQ(config.mesh.expert, truth_["keys"]["mesh.expert"].get<int>());
  EXPECT_THAT(found_.find("schedule")->evidence, HasSubstr("follows " + preset_ + "'s order"));
}

TEST_P(RecordedExperts, AddsUpAndSpreadsRowsEvenly) {
  const Explanation explained = explain(job_, found_);  // throws where sums are off by a nanosecond
  EXPECT_EQ(explained.causes_ms[account::Cause::expert_imbalance], 0);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, RecordedExperts,
                         ::testing::Values("experts-torchtitan", "experts-modules", "experts-two-ahead"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace fsdpbench::foreign
