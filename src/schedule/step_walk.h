#pragma once

#include <vector>

#include "schedule/all_gather_limiter.h"
#include "schedule/gatherer.h"
#include "schedule/reducer.h"
#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// Walks one training step in host order (forward, backward, optimizer) and decides when units are unsharded,
/// prefetched, resharded and reduced. What each of these does is Gatherer's and Reducer's business.
class StepWalk {
 public:
  explicit StepWalk(StepBuilder& builder);
  /// Writes the next step.
  void walk();

  /// What one step leaves to the next. A step that ends as it began is repeated for ever.
  struct Carried {
    bool order_known = false;  ///< fsdp.learn_execution_order: the first step is over
    std::deque<AllGatherLimiter::Free> free_queue;
    std::array<std::vector<Wait>, kLaneCount> waits;
    bool operator==(const Carried&) const = default;
  };
  Carried carried() const { return {order_known_, limiter_.queue(), builder_.pending_waits()}; }

 private:
  using Prefetch = config::Prefetch;

  void forward();
  void forward_module(int module);
  void backward(bool last_micro);
  void backward_module(int module);
  void recompute(int module);
  void post_backward(int unit, bool last_micro);
  void optimizer();
  void clip();

  void prefetch_forward(int unit);
  void prefetch_backward(int unit);
  void prefetch_before(int unit, int depth);

  int unit_of(int module) const { return builder_.plan.unit_of_module[static_cast<std::size_t>(module)]; }
  const plan::Unit& unit(int u) const { return builder_.plan.units[static_cast<std::size_t>(u)]; }
  const plan::ModuleSizes& sizes(int module) const { return builder_.sizes[static_cast<std::size_t>(module)]; }
  int module_count() const { return static_cast<int>(builder_.plan.shapes.modules.size()); }
  bool checkpointed(int module) const;
  BufferId new_activation(BufferRole role, DType dtype, std::int64_t bytes, int module);
  static void add(std::vector<BufferId>& list, BufferId buffer);

  StepBuilder& builder_;
  AllGatherLimiter limiter_;
  Gatherer gatherer_;
  Reducer reducer_;

  bool order_known_;  // survives the step

  // Buffers of the current microbatch.
  BufferId inputs_ = kNoBuffer;
  BufferId targets_ = kNoBuffer;
  BufferId d_stream_ = kNoBuffer;
  std::vector<BufferId> saved_;     // by module
  std::vector<BufferId> boundary_;  // output of a module, by module
  EventId last_forward_ = kNoEvent;
  BufferId clip_factor_ = kNoBuffer;
};

}  // namespace fsdpbench::schedule
