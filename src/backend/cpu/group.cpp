#include "backend/cpu/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/reduce.h"
#include "backend/cpu/world.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

bool is_reduction(Collective kind) { return kind == Collective::reduce_scatter || kind == Collective::all_reduce; }

bool match(const CollectiveArguments& a, const CollectiveArguments& b) {
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.scale == b.scale && a.root == b.root;
}

std::string describe(const CollectiveArguments& call) {
  std::string text = fmt::format("{} of {} {}", to_string(call.kind), call.count, to_string(call.dtype));
  if (is_reduction(call.kind)) text += fmt::format(" scaled by {}", call.scale);
  if (call.kind == Collective::broadcast) text += fmt::format(" from {}", call.root);
  return text;
}

void copy_bytes(const std::byte* source, std::byte* target, std::int64_t bytes) {
  if (source != target && bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

}  // namespace

std::int64_t wire_bytes(const CollectiveArguments& call, int size) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::reduce_scatter: return (size - 1) * bytes;
    case Collective::all_reduce: return 2 * (size - 1) * bytes / size;
    case Collective::broadcast: return (size - 1) * bytes / size;
  }
  return 0;
}

int hops(Collective kind, int size) { return (kind == Collective::all_reduce ? 2 : 1) * (size - 1); }

Group::Group(World& world, std::vector<int> world_ranks)
    : world_(world),
      world_ranks_(std::move(world_ranks)),
      calls_(world_ranks_.size()),
      lane_barrier_(world.abort(), size()),
      host_barrier_(world.abort(), size()),
      split_requests_(world_ranks_.size()) {}

void Group::run(int rank, const CollectiveArguments& call, Stamp& stamp) {
  calls_[static_cast<std::size_t>(rank)] = call;
  meet(call);
  stamp.peers_arrived_ns = all_arrived_ns_;
  const std::shared_ptr<Transfer> transfer = transfer_;
  if (world_.moves_bytes()) {
    move(rank, call);
    lane_barrier_.arrive_and_wait();  // nobody reads this rank's memory any more
  }
  if (transfer) world_.links()->wait(*transfer);
}

void Group::meet(const CollectiveArguments& call) {
  lane_barrier_.arrive_and_wait([&] {
    all_arrived_ns_ = now_ns();
    check_match();
    if (Links* links = world_.links()) {
      transfer_ = links->begin(world_ranks_, wire_bytes(call, size()), hops(call.kind, size()), all_arrived_ns_);
    }
  });
}

/// Called by the last to arrive, before anybody trusts the others' arguments.
void Group::check_match() const {
  for (std::size_t rank = 1; rank < calls_.size(); ++rank) {
    if (match(calls_.front(), calls_[rank])) continue;
    throw BackendError(fmt::format("the ranks call different collectives: world rank {} {}, world rank {} {}",
                                   world_ranks_.front(), describe(calls_.front()), world_ranks_[rank],
                                   describe(calls_[rank])));
  }
}

void Group::move(int rank, const CollectiveArguments& call) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  switch (call.kind) {
    case Collective::all_gather: return pull_slices(rank, call);
    case Collective::reduce_scatter:
      return reduce(inputs_at(rank * bytes), call.output, call.count, call.dtype, call.scale);
    case Collective::all_reduce: return all_reduce(rank, call);
    case Collective::broadcast:
      return copy_bytes(calls_[static_cast<std::size_t>(call.root)].output, call.output, bytes);
  }
}

/// Every rank starts with its own slice, so that no two read the same memory at the same time.
void Group::pull_slices(int rank, const CollectiveArguments& call) const {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  for (int step = 0; step < size(); ++step) {
    const int from = (rank + step) % size();
    copy_bytes(calls_[static_cast<std::size_t>(from)].input, call.output + from * bytes, bytes);
  }
}

/// Every rank sums one slice of all buffers into its own buffer, which nobody else touches there; then all fetch the
/// other slices from their owners.
void Group::all_reduce(int rank, const CollectiveArguments& call) {
  constexpr std::int64_t kStep = 32;  // elements; slices then begin on cache lines if the buffers do
  const std::int64_t slice = round_up(ceil_div(call.count, size()), kStep);
  const auto begin_of = [&](int r) { return std::min(call.count, r * slice); };
  const auto count_of = [&](int r) { return begin_of(r + 1) - begin_of(r); };
  const std::int64_t element = size_of(call.dtype);

  const std::int64_t mine = begin_of(rank) * element;
  reduce(inputs_at(mine), call.output + mine, count_of(rank), call.dtype, call.scale);
  lane_barrier_.arrive_and_wait();
  for (int step = 1; step < size(); ++step) {
    const int from = (rank + step) % size();
    const std::int64_t first = begin_of(from) * element;
    copy_bytes(calls_[static_cast<std::size_t>(from)].output + first, call.output + first, count_of(from) * element);
  }
}

std::vector<const std::byte*> Group::inputs_at(std::int64_t first_byte) const {
  std::vector<const std::byte*> inputs;
  inputs.reserve(calls_.size());
  for (const CollectiveArguments& call : calls_) inputs.push_back(call.input + first_byte);
  return inputs;
}

std::shared_ptr<Group> Group::split(int rank, int color, int key, int& new_rank) {
  SplitRequest& mine = split_requests_[static_cast<std::size_t>(rank)];
  mine = {color, key, nullptr};
  host_barrier();
  std::vector<int> members;  // ranks of this group
  for (int r = 0; r < size(); ++r) {
    if (split_requests_[static_cast<std::size_t>(r)].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return split_requests_[static_cast<std::size_t>(a)].key < split_requests_[static_cast<std::size_t>(b)].key;
  });
  new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  if (new_rank == 0) {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(world_ranks_[static_cast<std::size_t>(member)]);
    mine.group = world_.make_group(std::move(ranks));
  }
  host_barrier();
  std::shared_ptr<Group> group = split_requests_[static_cast<std::size_t>(members.front())].group;
  host_barrier();  // the next split may overwrite the requests only now
  mine.group = nullptr;
  return group;
}

void Group::member_ended(int world_rank) {
  if (std::find(world_ranks_.begin(), world_ranks_.end(), world_rank) == world_ranks_.end()) return;
  lane_barrier_.member_ended();
  host_barrier_.member_ended();
}

}  // namespace fsdpbench::backend::cpu
