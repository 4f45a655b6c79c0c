#pragma once

#include <optional>
#include <vector>

#include "schedule/all_gather_limiter.h"
#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// Unshards, waits for and reshards units: the parameter side of FSDP.
///
/// [Note: lanes of a gather]
/// flat, compute dtype fp32: all_gather reads the master shard and writes the buffer whose views are the parameters.
/// flat, lower dtype: cast_shard on the copy lane first (FSDP1 runs it in its pre-unshard stream).
/// per_param: copy_in on the copy lane writes this rank's slice of the output, the all-gather is in place, copy_out
/// on the compute lane makes contiguous parameters. Under fsdp2_event the output lives on until the next unit has
/// issued its own gather (forward) or until copied out (backward): PyTorch's two buffers. PyTorch lets its all-gather
/// stream wait for that copy-out as well as its copy-in stream; the second wait alone orders both (pytorch#177147),
/// so it is the only one here.
/// per_param with one shard: a mark where others gather, then copy_out straight from the shard, which stays.
///
/// [Note: offloaded shards]
/// fsdp.cpu_offload = all: whatever would read the master shard reads a copy of it, which host_to_device brings before
/// and which is freed once it was read. PyTorch does both in one stream (FSDP2's copy-in, FSDP1's pre-unshard stream):
/// a copy from the host therefore starts after what the copy lane was given before it, and there are no more of them
/// than gathers. = optimizer: gathers read the shards in the compute dtype that the device keeps; with one shard in
/// views those are the parameters.
///
/// [Note: shards in the compute dtype]
/// fsdp.cast_in_optimizer: the same without an offload. The update writes these shards beside the masters.
///
/// [Note: buckets]
/// Several units in one collective: each shard is copied into a rank-major bucket, which is gathered in place and
/// copied out to each unit's parameters, all on the all_gather lane. Units that stay gathered do so on the compute lane
/// after the optimizer, into persistent buffers.
///
/// [Note: the group's part]
/// reshard_after_forward = n: what a rank keeps of a unit after forward, for the gather in backward over n ranks. It is
/// freed with the unit after that backward; with fsdp.keep_group_shard it waits for the next microbatch's backward
/// (whose forward gathers over the whole shard group as ever), and is freed once no backward follows.
class Gatherer {
 public:
  /// Both must outlive it; the limiter is asked before each gather and told of each gather and free.
  Gatherer(StepBuilder& builder, AllGatherLimiter& limiter);

  /// Forgets the step before: every unit is sharded.
  void begin_step();
  /// Gathers issued from now on start only after `event` (forward_prefetch = none); kNoEvent lifts that.
  void start_after(EventId event) { start_after_ = event; }

  /// The gather of `unit` was issued, and the unit not resharded since.
  bool gathered(int unit) const { return states_[unit].issued; }
  /// A gather of `unit` would fetch something.
  bool missing(int unit) const { return !nothing_to_gather(unit) && !gathered(unit); }
  /// Issues the gather of `unit` unless it is already gathered. False if it does nothing: a prefetch that the limit
  /// refuses, a unit that was prefetched before, or one without parameters.
  bool unshard(int unit, bool prefetch);
  /// Unshards several units: what is missing of them comes in one collective.
  void unshard_together(const std::vector<int>& units, bool prefetch);
  /// Gathers the units that stay gathered on the compute lane: in one collective, with experts (mesh.expert) in two.
  void gather_those_that_stay();
  /// False if a limit forbids a prefetch of `unit` now; `beside` as AllGatherLimiter has it.
  bool allows_prefetch(int unit, const std::vector<std::int64_t>& beside) const;
  /// Elements of the units that are gathered now and will be freed.
  std::int64_t live_elements() const;
  /// The compute lane's next op may read the parameters.
  void wait_for_unshard(int unit);
  /// Frees the parameters after the compute lane's last op. `keep_group`: keep a part for the group gather.
  void reshard(int unit, bool keep_group);
  /// Frees the part kept for the group gather, whether or not that gather was issued: nobody waits for it any more.
  void reshard_group_shard(int unit);
  /// Whether its gathers have been waited for.
  bool is_whole(int unit) const { return states_[unit].waited; }
  /// Frees what was gathered and never waited for. The step's backward is over.
  void discard_unused();
  /// Frees an all-gather output that is still held when the forward ends.
  void release_held();
  /// Frees what fsdp.keep_group_shard has kept; on the compute lane, which has waited for every gather.
  void release_group_shards();
  /// Buffers that forward and backward of a unit read; kNoBuffer where it has none of them.
  struct Parameters {
    BufferId sharded = kNoBuffer;
    BufferId replicated = kNoBuffer;
  };
  Parameters parameters(int unit) const;

 private:
  struct State {
    bool issued = false;
    bool waited = false;
    bool prefetched = false;
    EventId ready = kNoEvent;
    BufferId gathered = kNoBuffer;
    BufferId unsharded = kNoBuffer;
    BufferId group_shard = kNoBuffer;
    EventId group_shard_kept = kNoEvent;
    bool grouped = false;  ///< the next gather is over the reshard group, from what was kept after forward
  };
  struct Held {
    int unit = 0;
    BufferId gathered = kNoBuffer;
    EventId copied_out = kNoEvent;
  };
  State& state(int unit) { return states_[unit]; }
  /// Whom the next gather of a unit is over.
  Group over(int unit) const { return states_[unit].grouped ? Group::reshard : unit_of(unit).group; }
  const plan::Unit& unit_of(int unit) const { return builder_.plan.units[unit]; }
  /// Forward and backward read what a rank has all the time.
  bool resident() const {
    const plan::Plan& plan = builder_.plan;
    if (builder_.policy.fsdp.cpu_offload == config::CpuOffload::all) return false;
    return plan.resident() || (builder_.keeps_device_shards() && plan.mesh.shard == 1 && !plan.copies_alone);
  }
  bool nothing_to_gather(int unit) const {
    return resident() || !unit_of(unit).has_sharded() || unit_of(unit).stays_gathered;
  }
  BufferId new_parameters(BufferRole role, int unit, std::int64_t numel);  // in the compute dtype
  /// Buffers of a unit that a gather reads. `temporary`: the same, to be freed when it was read; or kNoBuffer.
  struct Shard {
    BufferId buffer = kNoBuffer;
    BufferId temporary = kNoBuffer;
  };
  /// In place for the next op of `reader`.
  Shard shard_for(int unit, Lane reader, bool prefetch);
  /// Brings the host's master shard into a new buffer; the event is recorded.
  BufferId copy_to_device(BufferRole role, int unit, bool prefetch);
  /// Whether a unit is copied out of a shard that lives on.
  bool copies_from_resident(int unit) const {
    return unit_of(unit).copies_alone() && builder_.policy.fsdp.cpu_offload != config::CpuOffload::all;
  }
  BufferId cast_shard(BufferRole role, int unit, bool prefetch);
  void gather_views(int unit, bool prefetch);
  void gather_copied(int unit, bool prefetch);
  /// Whether gathered data are not yet the parameters.
  bool copies_out(int unit) const { return !unit_of(unit).layout.views(); }
  /// Place of a unit in each rank's part of a message, in elements; zeros: it is alone there.
  struct Place {
    std::int64_t offset = 0;
    std::int64_t stride = 0;
  };
  /// Copies this rank's shard into a message, or the part kept for the group …
  void copy_in(int unit, const At& at, BufferId message, Place place, Lifetimes lifetimes);
  /// … and the message into parameters.
  void copy_out(int unit, const At& at, BufferId message, BufferId parameters, Place place, Lifetimes lifetimes);
  struct Bucket {
    std::vector<int> units;
    Lane lane = Lane::all_gather;
    bool prefetch = false;
    bool stays = false;  ///< into the persistent buffers
  };
  void gather_bucket(const Bucket& bucket);
  EventId record_gathered(int unit);
  const plan::ShardLayout& layout_of(int unit) const;  ///< of the unit's next gather
  void all_gather(int unit, bool prefetch, BufferId input, Lifetimes lifetimes);
  void release(const Held& held);
  void order(Lane lane);

  StepBuilder& builder_;
  AllGatherLimiter& limiter_;
  std::vector<State> states_;
  std::optional<Held> held_;
  EventId start_after_ = kNoEvent;
};

}  // namespace fsdpbench::schedule
