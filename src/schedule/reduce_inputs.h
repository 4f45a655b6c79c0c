#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// Inputs of reductions that are alive, oldest first: fsdp.reduce_scatter_buffers and reduce_scatter_elements.
class ReduceInputs {
 public:
  /// `builder` must outlive it.
  explicit ReduceInputs(StepBuilder& builder);

  /// Forgets the step before.
  void begin_step() { inputs_.clear(); }
  /// True: the compute lane frees inputs, once they were added here; false: whoever reads an input frees it.
  bool compute_frees() const;
  /// The compute lane will free `buffer` after `read`.
  void add(BufferId buffer, EventId read, int unit, std::int64_t numel);
  /// Waits for the oldest until the limit allows another, which is made now if `fresh`.
  void make_room(bool fresh);
  /// Waits for all of them.
  void release_all() { release_down_to(0); }

 private:
  struct Input {
    BufferId buffer = kNoBuffer;
    EventId read = kNoEvent;
    int unit = 0;
    std::int64_t numel = 0;
  };
  void release_down_to(std::size_t count);

  StepBuilder& builder_;
  std::int64_t most_elements_;  // fsdp.reduce_scatter_elements, two mean units at least
  std::deque<Input> inputs_;
};

}  // namespace fsdpbench::schedule
