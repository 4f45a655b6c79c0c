#pragma once

#include <optional>
#include <string>

#include "foreign/host_words.h"
#include "foreign/job_steps.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// One thing that was found out, how, and how sure that is.
struct Finding {
  std::string what;         ///< "strategy"
  std::string value;        ///< "full_shard"
  std::string evidence;     ///< a sentence without its full stop
  double confidence = 0.0;  ///< from 0 to 1
};

/// Whether blocks' forward runs again in backward: all functions of each block's forward that backward itself does not
/// have, or, where no names tell those, all of its kernels. A checkpoint that stops early leaves out a block's last.
/// `passes`: of blocks in the forward of a step. Nothing where `step` does not tell.
std::optional<Finding> find_checkpointing(const RankRows& rank, const HostWords& words, const JobStep& step,
                                          int compute_stream, int passes);

}  // namespace fsdpbench::foreign
