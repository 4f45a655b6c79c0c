#include "runs/job_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/find_file.h"
#include "config/support.h"
#include "runs/result_file.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Cell tiny_cell() {
  return open_cell(load_config(
      config::find_profile("quickstart"),
      {"model.layers=2", "model.width=32", "model.ffn_width=64", "train.seq_len=16", "train.batch_per_rank=1",
       "mesh.ranks=3", "train.warmup=1", "train.steps=20", "emulate.link_gb_per_s=none"},
      nullptr));
}

/// Fails after `steps` steps on some rank's thread.
engine::RunHooks failing_after(std::int64_t steps, std::atomic<std::int64_t>& asked) {
  engine::RunHooks hooks;
  hooks.stop = [&asked, steps]() -> bool {
    if (asked++ == steps) throw ResourceError("the machine is tired");
    return false;
  };
  return hooks;
}

TEST(ThreadRun, KeepsTheStepsDoneWhenARankThrows) {
  const config::TemporaryFolder folder;
  const Cell cell = tiny_cell();
  std::atomic<std::int64_t> asked = 0;
  const Train train = train_on_kept_threads(folder.path(), current_world(cell.setup.config, nullptr, {}));
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(train(cell, failing_after(5, asked)), ResourceError);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("steps that rank 0 had done are in"));
  const ResultFile result = read_result(folder.path().string());
  EXPECT_EQ(result.content["complete"], false);
  EXPECT_EQ(result.content["failure"]["message"], "the machine is tired");
  EXPECT_EQ(result.content["failure"]["died"], false);
  const std::int64_t done = result.content["train"]["steps_done"];
  EXPECT_GE(done, 4);  // the rank that asked for step 5 was one step ahead of the slowest at most
  EXPECT_LE(done, 5);
  EXPECT_EQ(result.content["steps"]["rank_ms"].size(), static_cast<std::size_t>(done - 1));
  for (const char* name : {"rank_0", "rank_1", "rank_2"}) {
    EXPECT_TRUE(fs::exists(folder.path() / "trace" / (std::string(name) + ".json.gz"))) << name;
  }
  EXPECT_THAT(why_unfinished(result), HasSubstr("the machine is tired"));
}

TEST(ThreadRun, LeavesNothingIfNothingWasMeasured) {
  const config::TemporaryFolder folder;
  const Cell cell = tiny_cell();
  std::atomic<std::int64_t> asked = 0;
  const Train train = train_on_kept_threads(folder.path(), current_world(cell.setup.config, nullptr, {}));
  EXPECT_THROW(train(cell, failing_after(1, asked)), ResourceError);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace fsdpbench::app
