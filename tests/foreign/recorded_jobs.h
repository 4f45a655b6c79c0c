#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

// Profiles of real jobs by PyTorch's profiler, a folder each (tests/peer/profiled.py).

namespace fsdpbench::foreign {

inline std::vector<std::filesystem::path> recorded_jobs() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(FSDPBENCH_RECORDED_DIR)) {
    if (!entry.is_directory() || !entry.path().filename().string().starts_with("traces-")) continue;
    for (const auto& one : std::filesystem::directory_iterator(entry)) found.push_back(one.path());
  }
  std::ranges::sort(found);
  return found;
}

inline std::string job_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  std::string text = info.param.filename().string();
  std::ranges::replace(text, '-', '_');
  return text;
}

}  // namespace fsdpbench::foreign
