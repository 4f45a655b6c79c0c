#pragma once

#include <optional>

#include "foreign/finding.h"
#include "foreign/host_words.h"
#include "foreign/job_steps.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// Whether blocks' forward runs again in backward: all functions of each block's forward that backward itself does not
/// have, or, where no names tell those, all of its kernels. A checkpoint that stops early leaves out a block's last.
/// `passes`: of blocks in the forward of a step. Nothing where `step` does not tell.
std::optional<Finding> find_checkpointing(const RankRows& rank, const HostWords& words, const JobStep& step,
                                          int compute_stream, int passes);

}  // namespace fsdpbench::foreign
