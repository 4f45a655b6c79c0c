#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "foreign/job_trace.h"
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

}  // namespace fsdpbench::foreign
