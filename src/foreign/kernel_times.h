#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Matrix products of one dtype whose shapes are in the files, on all ranks and in all steps.
struct ProductSum {
  std::string dtype;  ///< as in the file: "c10::BFloat16"
  std::size_t products = 0;
  std::int64_t ns = 0;  ///< of all kernels that were launched for them
  double flops = 0;
  std::optional<double> peak_tflops, share_pct;  ///< of the cluster that was named, 1e12 FLOP/s; no share above 100
  double tflop_per_s() const { return ns > 0 ? flops / static_cast<double>(ns) / 1e3 : 0; }
};

struct KernelTimes {
  std::int64_t ns = 0;               ///< exactly the sum of by_kind, and of all rows that were launched in steps
  std::vector<KernelSum> by_kind;    ///< that have any, the most time first
  std::vector<KernelSum> top;        ///< the most time first; at most kMostKernels
  std::vector<ProductSum> products;  ///< the most time first
};
inline constexpr std::size_t kMostKernels = 10;

KernelTimes find_kernel_times(const JobTrace& job, const Recognition& found);

}  // namespace fsdpbench::foreign
