#include "backend/cuda/check.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

namespace fsdpbench::backend::cuda {
namespace {

class ModuleLoadingTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(devices_);
    for (const char* const name : {"nvidia4", "nvidia7", "nvidiactl", "nvidia-uvm", "null"}) file(name);
  }
  void TearDown() override { std::filesystem::remove_all(devices_); }

  void file(const std::string& name) { std::ofstream{devices_ / name}; }
  bool early(const std::map<std::string, std::string>& variables) const {
    return must_load_kernels_early(
        [&](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        },
        devices_);
  }

  const std::filesystem::path devices_ = std::filesystem::path(testing::TempDir()) /
                                         ("devices-" + std::to_string(testing::UnitTest::GetInstance()->random_seed()));
};

TEST_F(ModuleLoadingTest, ThreadsOfOneProcessWithSeveralGpusLoadEarly) {
  EXPECT_TRUE(early({}));
  EXPECT_TRUE(early({{"CUDA_VISIBLE_DEVICES", "4,7"}}));
}

TEST_F(ModuleLoadingTest, AProcessOfAJobDoesNot) {
  EXPECT_FALSE(early({{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "localhost"},
                      {"MASTER_PORT", "4000"}}));
}

TEST_F(ModuleLoadingTest, AProcessWithOneGpuDoesNot) {
  EXPECT_FALSE(early({{"CUDA_VISIBLE_DEVICES", "4"}}));
  std::filesystem::remove(devices_ / "nvidia7");
  EXPECT_FALSE(early({}));
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
