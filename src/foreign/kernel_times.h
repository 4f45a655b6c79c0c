#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "foreign/job_trace.h"
#include "foreign/kineto_names.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// Rows of one kind, or of one kind and name, on all ranks and in all steps.
struct KernelSum {
  std::string name;  ///< empty: all of the kind
  KernelKind kind = KernelKind::other;
  std::size_t launches = 0;
  std::int64_t ns = 0;  ///< from begin to end of each: those that run at the same time count twice
};

struct KernelTimes {
  std::int64_t ns = 0;             ///< exactly the sum of by_kind, and of all rows that were launched in steps
  std::vector<KernelSum> by_kind;  ///< that have any, the most time first
  std::vector<KernelSum> top;      ///< the most time first; at most kMostKernels
};
inline constexpr std::size_t kMostKernels = 10;

KernelTimes find_kernel_times(const JobTrace& job, const Recognition& found);

}  // namespace fsdpbench::foreign
