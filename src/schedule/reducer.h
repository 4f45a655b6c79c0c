#pragma once

#include <deque>
#include <vector>

#include "schedule/gradient_exchange.h"
#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// Takes a unit's unsharded gradients to the fp32 gradient of this rank's shard: the gradient side of FSDP.
///
/// [Note: lanes of a reduction]
/// flat: the unsharded gradient is the reduce-scatter's input (a cast and the pre-division run on the reduce_scatter
/// lane, as in FSDP1's post-backward stream). per_param: reduce_copy_in on the compute lane lays it out rank-major in
/// the reduce dtype. Then reduce_scatter on its lane, the replicas' all_reduce on its own, and finish_gradient
/// (post-division, widening, adding up) on whichever came last. With one shard only the all-reduce is left; with nobody
/// to reduce with nothing is, and the optimizer reads what backward wrote.
///
/// fsdp.reduce_scatter_buffers = n bounds the reduce-scatter inputs alive: before the next input is made, the compute
/// lane waits for the oldest reduction and frees its input (FSDP2). 0: each input is freed on the reduce_scatter lane
/// after its reduction, nothing waits (FSDP1). fsdp.reduce_scatter_elements bounds their elements instead.
///
/// [Note: buckets of gradients]
/// fsdp.reduce_bucket: each unit's gradient is copied away when it is complete and freed, as long as it is not larger
/// than a bucket; once the next would not fit, those that wait are laid out rank-major and reduced together, and each
/// unit adds up its part. fsdp.reduce_by = all_reduce: gradients are copied into the bucket itself, which is reduced
/// whole. All of that runs on the lane that fsdp.reduce_lane names. Experts (mesh.expert) have another group to be
/// reduced over: they fill the same bucket, and what waits is reduced in one collective a group, in the order of
/// arrival.
class Reducer {
 public:
  /// `builder` must outlive it.
  explicit Reducer(StepBuilder& builder);

  /// Forgets the step before.
  void begin_step();
  /// Buffers that the next backward op of a unit writes gradients to; kNoBuffer where it has none.
  struct Gradients {
    BufferId sharded = kNoBuffer;
    BufferId replicated = kNoBuffer;
    bool fresh = false;  ///< made just now: the op must allocate them
  };
  Gradients gradients(int unit);
  /// The unit's backward is complete: reduce, or only add up (accumulate_mode). A frozen unit has nothing to reduce.
  void reduce(int unit, bool last_micro);
  /// Backward is over: what waits in a bucket is reduced. With fsdp.reductions_in_flight the host waits for it.
  void end_backward();
  /// The compute lane waits for all reductions so far; every input is freed.
  void wait_for_all();
  /// So, and no microbatch follows.
  void finish();

  /// A gradient that the optimizer can use: fp32, the mean over all ranks and microbatches.
  struct Ready {
    int unit = 0;
    bool replicated = false;
    BufferId buffer = kNoBuffer;
    std::int64_t numel = 0;
    bool on_host = false;
  };
  /// After finish(): all of them, in unit order.
  const std::vector<Ready>& ready() const { return ready_; }

 private:
  struct State {
    BufferId unsharded = kNoBuffer;    ///< this microbatch's
    BufferId accumulated = kNoBuffer;  ///< unsharded, over microbatches
    BufferId partial = kNoBuffer;      ///< reduce-scattered, over microbatches
    BufferId result = kNoBuffer;       ///< over microbatches; a unit's are finished on one lane
    EventId unfinished = kNoEvent;     ///< end of a reduction that the compute lane has not waited for
  };
  /// A gradient on its way.
  struct Flow {
    int unit = 0;
    bool replicated = false;
    BufferId buffer = kNoBuffer;
    Lane lane = Lane::compute;  ///< where it was written
    EventId ready = kNoEvent;
    std::int64_t numel = 0;
    std::vector<int> others = {};  ///< of a bucket
  };
  /// A gradient that waits in a bucket.
  struct Waiting {
    Flow flow;
    bool copied = false;
    std::int64_t offset = 0;  ///< reduce_by all_reduce: where it begins in the bucket
  };
  /// Part of a bucket that is reduced together.
  struct Bucket {
    Group group = Group::shard;
    std::vector<Waiting> waiting = {};  ///< in the order in which gradients came
    BufferId buffer = kNoBuffer;        ///< reduce_by all_reduce
  };

  State& state(int unit, bool replicated) { return states_[unit * 2 + (replicated ? 1 : 0)]; }
  const State& state(int unit, bool replicated) const { return states_[unit * 2 + (replicated ? 1 : 0)]; }
  const plan::ShardLayout& layout(int unit) const { return builder_.plan.units[unit].gradient_layout; }
  std::int64_t numel(int unit, bool replicated) const {
    return replicated ? layout(unit).replicated_numel : layout(unit).unsharded_numel;
  }
  bool takes_buckets() const;
  bool all_reduces() const { return builder_.policy.fsdp.reduce_by == config::ReduceBy::all_reduce; }
  Bucket& bucket_for(int unit);
  void put_into_bucket(Flow flow);
  void flush();
  EventId reduce_bucket(const Bucket& bucket);
  void reduce_scatter_bucket(const Bucket& bucket, Flow& flow);
  void all_reduce_bucket(const Bucket& bucket, Flow& flow);
  void finish_bucket(const Bucket& bucket, const Flow& flow);
  Group reduce_group(int unit) const;
  bool reduces_across() const;
  bool adds_partials() const;
  /// fp32, and divided.
  bool is_finished(const Flow& flow) const {
    return factors_.after == 1.0F && builder_.dtype_of(flow.buffer) == builder_.plan.state_dtype;
  }

  /// Nobody else has a part of it and the optimizer reads it as it is, since bf16 is exact in fp32: no cast, no sum.
  /// (A reduction over a group of one rank changes nothing, in whatever dtype.)
  bool needs_no_cast(const Flow& flow) const {
    const bool alone = !builder_.plan.shares_units() && builder_.plan.mesh.replicate == 1;
    if (flow.replicated || !alone || offload_.on()) return false;
    const DType reduced = builder_.plan.reduce_dtype;
    return (reduced == builder_.plan.state_dtype || reduced == builder_.dtype_of(flow.buffer)) &&
           factors_.before == 1.0F;
  }
  bool is_ready_as_it_is(const Flow& flow) const {
    return needs_no_cast(flow) && factors_.after == 1.0F && builder_.policy.accumulate == 1;
  }

  // Each takes the gradient one op further; those that return a bool: false if it goes no further in this microbatch.
  bool accumulate_unsharded(Flow& flow, bool last_micro);
  void copy_in(Flow& flow);
  void cast(Flow& flow, Lane lane);
  void reduce_scatter(Flow& flow);
  bool accumulate_partial(Flow& flow, bool last_micro);
  void all_reduce(Flow& flow, Group group, float scale);
  void finish_gradient(Flow& flow);
  void leave(const Flow& flow);

  // Buffer that they are made of.
  BufferId new_output(const Flow& flow);
  void move_to(Flow& flow, Lane lane);
  void convert(Flow& flow, BufferRole role, float factor, EventRole done);
  void add_to(BufferId& sum, Flow& flow, OpKind kind, BufferRole role, float factor, EventRole done);

  StepBuilder& builder_;
  GradientFactors factors_;
  std::vector<State> states_;
  std::vector<Ready> ready_;
  Lane lane_;  // of reductions over the shard group
  ReduceInputs inputs_;
  std::vector<Bucket> buckets_;    // one a group, in the order of their first gradients
  std::int64_t bucket_numel_ = 0;  // of all of them
  std::deque<EventId> in_flight_;  // fsdp.reductions_in_flight
  GradientOffload offload_;
};

}  // namespace fsdpbench::schedule
