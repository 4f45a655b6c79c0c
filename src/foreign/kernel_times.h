#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "foreign/job_trace.h"
#include "foreign/recognise.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

/// What a row of the device is for.
enum class KernelKind : std::uint8_t {
  products,       ///< matrix products and convolutions
  attention,      ///< fused
  elementwise,    ///< with normalisation, reductions and indexing
  optimizer,      ///< all that it launches, and the norm of gradients
  copies,         ///< with fills, casts, and copies between layouts
  communication,  ///< collectives and messages
  other,
};
/// "products"
std::string_view to_string(KernelKind kind);

/// By what the row is, its name, and the part of the step that it was launched in, where that is known.
KernelKind kernel_kind(Activity activity, std::string_view name, std::optional<schedule::Phase> phase);

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

/// Of a rank's communication what is beside computation, in percent, by HolisticTraceAnalysis' own window and kinds of
/// kernels (get_comm_comp_overlap of version 0.5). Of a file with several profiled steps it leaves out what was
/// launched after the last one began, and what has no launch; its kinds are those of its patterns. None without
/// communication, and where the host computes itself: it sees no kernels there.
std::optional<double> overlap_by_hta(const JobTrace& job, const RankRows& rank);

}  // namespace fsdpbench::foreign
