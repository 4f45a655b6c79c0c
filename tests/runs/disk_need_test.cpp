#include "runs/result_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/find_file.h"
#include "config/support.h"
#include "runs/cell.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  std::vector<std::string> overrides;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class DiskNeedTest : public ::testing::TestWithParam<Case> {};

TEST_P(DiskNeedTest, IsAtLeastWhatIsWrittenAndNotTwiceAsMuch) {
  std::vector<std::string> overrides{"model.layers=2",         "model.width=32", "model.ffn_width=64",
                                     "train.seq_len=16",       "train.warmup=1", "train.batch_per_rank=1",
                                     "emulate.link_gb_per_s=1"};
  overrides.insert(overrides.end(), GetParam().overrides.begin(), GetParam().overrides.end());
  const Cell cell = open_cell(load_config(config::find_profile("quickstart"), overrides, nullptr));
  const DiskNeed need = predict_disk_need(cell.setup);
  const Trial trial = run_trial(cell, {}, current_world(cell.setup.config, nullptr, {}));
  const config::TemporaryFolder folder;
  write_result(folder.path(), cell.setup, trial);
  std::int64_t written = 0, largest = 0;
  for (const auto& file : fs::recursive_directory_iterator(folder.path())) {
    if (!file.is_regular_file()) continue;
    written += static_cast<std::int64_t>(file.file_size());
    largest = std::max(largest, static_cast<std::int64_t>(file.file_size()));
  }
  EXPECT_GE(need.all, written);
  EXPECT_LE(need.all, 2 * written + (32 << 10));
  EXPECT_GE(need.largest, largest);
  EXPECT_LE(need.largest, 2 * largest + (32 << 10));
}

INSTANTIATE_TEST_SUITE_P(
    Runs, DiskNeedTest,
    ::testing::Values(
        Case{"few_steps", {"mesh.ranks=2", "train.steps=2"}},
        Case{"one_step", {"mesh.ranks=2", "train.steps=1", "train.warmup=0"}},
        Case{"one_rank_many_steps", {"mesh.ranks=1", "train.steps=60"}},
        Case{"no_emulation", {"mesh.ranks=2", "train.steps=20", "emulate.link_gb_per_s=none", "fsdp.layout=per_param"}},
        Case{"few_of_many_ranks", {"mesh.ranks=8", "train.steps=10", "trace.ranks=2", "emulate.compute_tflops=0.01"}},
        Case{"all_ranks", {"mesh.ranks=8", "train.steps=10", "trace.ranks=0", "emulate.compute_tflops=0.01"}},
        Case{"hybrid", {"mesh.ranks=4", "mesh.replicate=2", "fsdp.strategy=hybrid_shard", "train.steps=10"}},
        Case{"accumulation", {"mesh.ranks=2", "train.steps=10", "train.accumulate=4"}},
        Case{"simulated", {"device.backend=virtual", "mesh.ranks=32", "train.steps=4", "emulate.compute_tflops=0.01"}},
        Case{"few_of_many_simulated_ranks",
             {"device.backend=virtual", "mesh.ranks=512", "mesh.shard=8", "fsdp.strategy=hybrid_shard", "train.steps=4",
              "trace.ranks=3", "simulate.jitter_pct=2", "emulate.compute_tflops=0.01"}},
        Case{"many_layers", {"mesh.ranks=2", "model.layers=24", "train.steps=5"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(DiskNeed, IsSaidWithWhatIsFreeAndWhatToChange) {
  const Cell cell = open_cell(load_config(config::find_profile("quickstart"), {}, nullptr));
  try {
    check_disk("/proc/no/such/folder", cell.setup);  // nothing can be written there
    FAIL() << "nothing was thrown";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), ::testing::ContainsRegex("need up to [0-9.]+ [KM]iB of disk, and 0 B are free in .*"
                                                       "train.steps.*trace.ranks"));
  }
}

TEST(DiskNeed, GrowsWithStepsAndShownRanks) {
  const auto need = [](std::vector<std::string> overrides) {
    overrides.emplace_back("mesh.ranks=8");
    return predict_disk_need(open_cell(load_config(config::find_profile("quickstart"), overrides, nullptr)).setup);
  };
  const DiskNeed few = need({"train.steps=10"}), many = need({"train.steps=1000"});
  EXPECT_GT(many.all, 50 * few.all);
  EXPECT_LT(need({"train.steps=1000", "trace.ranks=1"}).all, many.all / 2);
  EXPECT_EQ(many.largest_name, "trace.json");
}

}  // namespace
}  // namespace fsdpbench::app
