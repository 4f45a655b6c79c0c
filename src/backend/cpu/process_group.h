#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/collective_rules.h"
#include "backend/cpu/link.h"
#include "backend/cpu/peers.h"
#include "base/lane.h"

namespace fsdpbench::backend::cpu {

/// Message of a process to the others of its group before they do something together. Sent as bytes: all processes are
/// the same program.
struct Words {
  enum class Purpose : std::int32_t { collective, barrier, split, end, silence };  ///< silence: it has said nothing yet

  Purpose purpose = Purpose::end;
  CollectiveCall call;        ///< of a collective, without addresses
  std::int64_t input_at = 0;  ///< its buffers in the caller's device memory; -1: they lie elsewhere
  std::int64_t output_at = 0;
  std::int64_t now_ns = 0;                  ///< when it came
  std::int32_t flow_count = 0;              ///< of `flows`
  std::array<FlowState, kLaneCount> flows;  ///< on its emulated link: each lane can have one transfer under way
};

/// Says `mine` to all peers and returns what all have said, by rank, once the last has come. Collective. Throws
/// BackendError, on all members alike, if they came for different purposes, and one that names who is missing if they
/// do not all come within CpuOptions::stall_s; `world_ranks` are their names.
std::vector<Words> meet(Peers& peers, std::span<const int> world_ranks, const Words& mine);

class Team;

/// A group of processes, one rank each. Every call begins with a meeting: each member tells all others what it calls
/// and when it has come. So calls that do not fit together are an error everywhere, and all agree on when the last one
/// came. Where all see each other's memory (mapped_memory.h), they meet at seats in it and move bytes as threads do;
/// else by messages, each member straight to each other one, and sums are taken in rank order by who needs them. Either
/// way an element has the same bits as between threads.
///
/// Emulated links: each process models the links of all ranks for itself, from what it hears at the meetings, with the
/// same starts as the others, for all are on one host. As exact as between threads is what the groups of this rank put
/// on any link. What a member's other groups put on that member's link is known from the next meeting with it on; a
/// transfer that they begin after it is not, and an end may then come out too early.
class ProcessGroup : public Group {
 public:
  /// All ranks of the team's session. Collective. The group becomes known to `team`.
  static std::shared_ptr<ProcessGroup> make(Team& team);

  int size() const override { return lanes_.size(); }
  int rank() const { return lanes_.rank(); }
  void run(int rank, const CollectiveCall& call, Stamp& stamp) override;
  void host_barrier() override;
  std::shared_ptr<Group> split(int rank, int color, int key, int& new_rank) override;
  void member_ended(int world_rank) override;
  void wait_ended() override;

 private:
  static std::shared_ptr<ProcessGroup> make(Team& team, Peers lanes, Peers hosts, std::uint64_t id);
  ProcessGroup(Team& team, Peers lanes, Peers hosts, std::uint64_t id);
  void get_acquainted();
  std::vector<Words> meet_lanes(const CollectiveCall& call, Stamp& stamp);
  std::shared_ptr<Transfer> begin_transfer(const CollectiveCall& call, const std::vector<Words>& all,
                                           std::int64_t start_ns);
  void say_end(Peers& peers);
  void move(const CollectiveCall& call, const std::vector<Words>& all);
  void move_by_messages(const CollectiveCall& call);
  void pass_on(const CollectiveCall& call);
  void broadcast(const CollectiveCall& call);
  void exchange_slices(const CollectiveCall& call);
  void reduce_slices(const CollectiveCall& call, const Slices& slices, std::byte* output);
  void gather_slices(std::byte* buffer, const Slices& slices, std::int64_t element_bytes);

  Team& team_;
  const std::uint64_t id_;  ///< the same on all members; no other group of any member has it
  Peers lanes_;             ///< for lanes' threads, one at a time
  Peers hosts_;             ///< for the host's thread
  std::vector<int> world_ranks_;
  bool one_clock_ = false;  ///< all members' times can be compared
  std::shared_ptr<Transfer> transfer_;
  std::uint64_t transfers_ = 0;
  std::uint64_t splits_ = 0;
  std::vector<std::byte> addends_;  ///< a block of each other rank's; kept from call to call
  std::vector<std::future<void>> endings_;
};

}  // namespace fsdpbench::backend::cpu
