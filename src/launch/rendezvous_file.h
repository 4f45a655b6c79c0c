#pragma once

#include <string>

#include "launch/joining.h"

namespace fsdpbench::launch {

/// Joins where ranks share nothing but the folder `folder`: rank 0 says in a file there where it listens, and removes
/// the file when all have joined. A file that a job before has left is found out, because nobody answers there with
/// the file's token; rank 0 overwrites it.
Joined join_through_file(const std::string& folder, const Placement& placement, const Introduction& self,
                         Deadline deadline);
/// "<folder>/fsdpbench-<job>-rendezvous", where all that is not fit for a file name is replaced.
std::string rendezvous_path(const std::string& folder, const std::string& job);

}  // namespace fsdpbench::launch
