#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace fsdpbench::app {

/// Several files of one result. Each is tried: one that does not fit on the disk keeps no smaller one out, and each
/// that is missing is named. For one thread.
class AllFiles {
 public:
  /// Calls `file`, which writes one. What it throws is kept for finish(), whatever it is: a mistake in one writer must
  /// not cost the files of the others.
  void write(const std::function<void()>& file) {
    try {
      file();
    } catch (const OutputError& error) {
      if (failures_.size() < kMostNamed) failures_.emplace_back(error.what());
      ++failed_;
    } catch (const std::exception&) {
      if (!other_) other_ = std::current_exception();
    }
  }

  /// Throws one OutputError that names the files that could not be written: all, or the first kMostNamed and how many
  /// more; or else the first exception of another kind. To be called once, after the last.
  void finish() const {
    if (failed_ == 0 && other_) std::rethrow_exception(other_);
    if (failed_ == 0) return;
    std::string message = failures_.front();
    for (std::size_t i = 1; i < failures_.size(); ++i) message += "; " + failures_[i];
    if (failed_ > kMostNamed) message += "; and " + std::to_string(failed_ - kMostNamed) + " files more";
    throw OutputError(message);
  }

 private:
  static constexpr std::size_t kMostNamed = 20;
  std::vector<std::string> failures_;
  std::size_t failed_ = 0;
  std::exception_ptr other_;
};

}  // namespace fsdpbench::app
