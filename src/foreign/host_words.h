#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/job_trace.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

/// Facts from a rank's host rows on the work they launched: annotations of FSDP and of others, the
/// autograd engine's rows and threads, nothing else. Refers to the rows: they must live on.
class HostWords {
 public:
  explicit HostWords(const RankRows& rank);

  /// The part of a step that host row `row` is in; none: no name says. What is called within backward is backward, a
  /// recomputed forward too. `row` -1: none.
  std::optional<schedule::Phase> phase(std::int32_t row) const;
  /// The unit that FSDP's own annotation around `row` names: "layers.0", "" for the root's. None: no annotation.
  std::optional<std::string> unit(std::int32_t row) const;
  /// Whether the autograd engine's rows are in the trace: then what is launched within none of them is not backward.
  bool has_autograd() const { return has_autograd_; }
  /// Whether an annotation around `row` says that something is gathered before it is needed.
  bool prefetches(std::int32_t row) const;
  /// The innermost of the rows around `row`, itself included, whose name contains `text`; -1: none.
  std::int32_t around(std::int32_t row, std::string_view text) const;

 private:
  const RankRows& rank_;
  std::vector<std::int8_t> phases_;  // by host row: -1, or a Phase
  bool has_autograd_ = false;
};

/// Whether a kernel of this name copies between sharded and gathered layouts.
bool is_layout_copy(std::string_view name);
/// A matrix product, by the names of cuBLAS, CUTLASS, rocBLAS, Triton and oneDNN's callers.
bool is_matrix_product(std::string_view name);

}  // namespace fsdpbench::foreign
