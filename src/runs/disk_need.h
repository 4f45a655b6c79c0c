#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/setup.h"

namespace fsdpbench::app {

/// What the results of one run will need of a disk, in bytes: an upper bound, made before it runs.
struct DiskNeed {
  std::int64_t all = 0;
  std::int64_t largest = 0;  ///< file
  std::string largest_name;
};
DiskNeed predict_disk_need(const engine::Setup& setup);

/// Throws ResourceError, in one sentence with `advice`, if `folder` (which may not be there yet) has less than `bytes`
/// free; `what` needs them: "the results of this run".
void check_space(const std::filesystem::path& folder, std::int64_t bytes, const char* what, const char* advice);

/// Throws ResourceError, in one sentence, if `folder` (which may not be there yet) has less space free than that or a
/// file may not become so large here (`ulimit -f`); also of the checkpoints, in their folder.
void check_disk(const std::filesystem::path& folder, const engine::Setup& setup);

}  // namespace fsdpbench::app
