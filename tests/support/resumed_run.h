#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/checkpoint.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::testing {

/// The checkpoint that a training leaves in `folder` after `steps` steps.
inline std::filesystem::path checkpoint_after(std::int64_t steps, config::RunConfig c, const TemporaryFolder& folder) {
  c.train.steps = steps;
  c.checkpoint.folder = folder.path().string();
  (void)run_tiny(c);
  return engine::newest_checkpoint(folder.path()).value();
}

/// The steps that a training has left after that of `checkpoint`.
inline engine::Measurement resumed(config::RunConfig c, const std::filesystem::path& checkpoint) {
  const engine::Checkpoint from(checkpoint);
  from.check(settled(c));
  c.train.steps -= from.position().steps;
  engine::RunHooks hooks;
  hooks.resume = &from;
  return run_tiny(c, hooks);
}

}  // namespace fsdpbench::testing
