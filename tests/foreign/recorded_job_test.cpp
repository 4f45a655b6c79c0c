// Traces of PyTorch's own profiler (tests/peer/profiled.py) are recognised as what its engines say they did.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "foreign/evidence.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "foreign/recorded_jobs.h"
#include "foreign/unused_gathers.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// "AGR AG0 RS0 RSR": without stars and the "|" between phases.
std::string without_stars(std::string text) {
  std::erase(text, '*');
  return text;
}

std::string order_of(const Recognition& found, std::size_t rank, std::size_t step) {
  std::string text;
  for (const CollectiveUse& use : found.ranks[rank].uses[step]) {
    if (use.purpose == Purpose::scalars || use.unit < 0) continue;
    const char* verb = use.kind == Communication::all_gather       ? "AG"
                       : use.kind == Communication::reduce_scatter ? "RS"
                                                                   : "AR";
    const int unit = plan_unit(found.table, use.unit);
    text += (text.empty() ? "" : " ") + std::string(verb) + (unit == 0 ? "R" : std::to_string(unit - 1));
  }
  return text;
}

class RecordedJob : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    std::ifstream file(GetParam() / "truth.json");
    truth_ = nlohmann::json::parse(file);
    std::vector<std::string> traces;
    for (int rank = 0; rank < truth_["ranks"].get<int>(); ++rank) {
      traces.push_back((GetParam() / ("rank_" + std::to_string(rank) + ".json.gz")).string());
    }
    job_ = read_job(traces);
    found_ = recognise(job_);
    preset_ = truth_["preset"].get<std::string>();
    strategy_ = truth_["keys"].value("fsdp.strategy", "full_shard");
  }
  bool sharded() const { return preset_.starts_with("fsdp") && strategy_ != "no_shard"; }

  nlohmann::json truth_;
  JobTrace job_;
  Recognition found_;
  std::string preset_, strategy_;
};

TEST_P(RecordedJob, IsCalledWhatItIs) {
  if (preset_ == "none") {
    EXPECT_EQ(found_.kind, JobKind::single);
  } else if (preset_ == "ddp" || strategy_ == "no_shard") {
    EXPECT_EQ(found_.kind, JobKind::data_parallel) << found_.name;
  } else {
    EXPECT_EQ(found_.kind, JobKind::sharded);
    EXPECT_THAT(found_.name, HasSubstr(preset_ == "fsdp1" ? "FSDP1" : "FSDP2"));
    if (const Finding* checkpointing = found_.find("activation checkpointing")) {
      const bool checkpoints = truth_["keys"].value("fsdp.activation_checkpointing", false);
      EXPECT_EQ(checkpointing->value, checkpoints ? "true" : "false") << checkpointing->evidence;
    }
    ASSERT_TRUE(found_.schedule);
    const config::Fsdp& fsdp = found_.schedule->config.fsdp;
    EXPECT_EQ(fsdp.preset, preset_);
    const bool reshards = strategy_ == "full_shard" || strategy_ == "hybrid_shard";
    EXPECT_EQ(fsdp.strategy == config::Strategy::full_shard || fsdp.strategy == config::Strategy::hybrid_shard,
              reshards);
    EXPECT_EQ(fsdp.layout, preset_ == "fsdp1" ? config::Layout::flat : config::Layout::per_param);
  }
}

TEST_P(RecordedJob, EveryCollectiveHasItsUnit) {
  for (std::size_t rank = 0; rank < found_.ranks.size(); ++rank) {
    if (!sharded()) {
      EXPECT_THAT(order_of(found_, rank, 0), Not(HasSubstr("AG")));
      continue;
    }
    ASSERT_EQ(found_.ranks[rank].uses.size(), truth_["steps"].size());
    for (std::size_t step = 0; step < truth_["steps"].size(); ++step) {
      EXPECT_EQ(order_of(found_, rank, step), without_stars(truth_["steps"][step].get<std::string>()))
          << "rank " << rank << ", step " << step;
    }
  }
}

TEST_P(RecordedJob, FollowsItsScheduleOrHasNone) {
  ASSERT_EQ(found_.schedule.has_value(), sharded());
  if (!sharded()) return;
  EXPECT_TRUE(found_.schedule->exact()) << found_.schedule->deviations.size();
  using Mode = config::Prefetch::Mode;
  const config::Fsdp& fsdp = found_.schedule->config.fsdp;
  const auto& keys = truth_["keys"];
  if (keys.contains("fsdp.backward_prefetch") && keys["fsdp.backward_prefetch"] == "none") {
    EXPECT_EQ(fsdp.backward_prefetch.mode, Mode::none);
  }
  if (keys.contains("fsdp.forward_prefetch")) {
    EXPECT_EQ(fsdp.forward_prefetch.mode, Mode::explicit_);
    EXPECT_EQ(fsdp.forward_prefetch.depth, keys["fsdp.forward_prefetch"].get<int>());
  }
}

TEST_P(RecordedJob, AddsUpAndGetsNoAdviceThatIsNotForIt) {
  Explanation explained = explain(job_, found_);  // throws where sums are off by a nanosecond
  EXPECT_GT(explained.mean_step_ms, 0);
  account::advise(explained.causes, evidence_of(job_, found_, explained));
  for (const account::CauseShare& share : explained.causes) {
    if (sharded()) continue;
    EXPECT_THAT(share.advice, Not(AnyOf(HasSubstr("prefetch("), HasSubstr("limit_all_gathers"), HasSubstr("fsdp."))));
  }
}

TEST_P(RecordedJob, SaysWhichGathersNobodyUsed) {
  const UnusedGathersFound unused = find_unused_gathers(job_, found_);
  if (!truth_["keys"].value("fsdp.checkpoint_reentrant", false)) {
    EXPECT_TRUE(unused.all.empty()) << unused.all.front().why;
    return;
  }
  // "AGR AG0* AG1* AG2* AG3* AG3* AG2* RS3 AG3* AG1* RS2 AG2* AG0* RS1 AG1* RS0 RSR": of the units whose gradients are
  // reduced already.
  EXPECT_EQ(unused.unknown, "");
  ASSERT_EQ(unused.all.size(), 1U);
  const UnusedGathers& wasted = unused.all.front();
  EXPECT_EQ(wasted.waste, schedule::Waste::never_used);
  EXPECT_THAT(wasted.units, ::testing::ElementsAre("blocks.3", "blocks.2", "blocks.1"));
  EXPECT_EQ(wasted.gathers, 3);
  // Elements of a block: two norms, two products with their biases. Each of two ranks sends half of them.
  constexpr std::int64_t kWidth = 96, kElements = 2 * kWidth + 8 * kWidth * kWidth + 5 * kWidth;
  EXPECT_THAT(wasted.bytes, AnyOf(-1, 3 * kElements / 2 * 4));
  EXPECT_THAT(wasted.why, HasSubstr("reentrant"));
  EXPECT_THAT(wasted.remedy, HasSubstr("use_reentrant=False"));
  EXPECT_THAT(wasted.evidence, HasSubstr("FSDP::all_gather_copy_out"));
}

INSTANTIATE_TEST_SUITE_P(PyTorch, RecordedJob, ::testing::ValuesIn(recorded_jobs()), job_name);

}  // namespace
}  // namespace fsdpbench::foreign
