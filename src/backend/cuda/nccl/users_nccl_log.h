#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace fsdpbench::backend::cuda {

/// What the user wants to see of NCCL's log, by NCCL's variables as they were when this was made, and where. For one
/// thread at a time.
class UsersNcclLog {
 public:
  UsersNcclLog();
  ~UsersNcclLog();
  UsersNcclLog(const UsersNcclLog&) = delete;
  UsersNcclLog& operator=(const UsersNcclLog&) = delete;

  /// Writes a line of a log at level INFO or above if NCCL would have written it.
  void show(std::string_view line);

  /// What NCCL_DEBUG must be, so that the log has the user's lines and those of level INFO.
  std::string level() const;
  /// What NCCL_DEBUG_SUBSYS must be, so that it has the user's and those that tell transports and algorithms.
  std::string subsystems() const;

 private:
  bool wants(std::string_view line) const;

  std::string level_;       ///< upper case; empty: no log
  std::string subsystems_;  ///< empty: NCCL's own choice
  std::FILE* file_ = nullptr;
};

/// A name as NCCL_DEBUG_FILE has it, with %h and %p in it, for this host and process.
std::string expand_log_name(std::string_view name);

}  // namespace fsdpbench::backend::cuda
