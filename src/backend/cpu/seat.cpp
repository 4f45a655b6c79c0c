#include "backend/cpu/seat.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/cpu/collective_rules.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "processes share it");

/// As often a core is given away before a member sleeps: a peer on a crowded core often needs just that to arrive.
constexpr int kYieldsAtTable = 64;
constexpr long kLongestSleep_ns = 10'000'000;

/// Returns when woken, when `word` no longer is `seen`, or after a while.
void sleep_at(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec longest{0, kLongestSleep_ns};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

using Calls = std::span<const CollectiveCall>;

const CollectiveCall& call_of(Calls calls, int rank) { return calls[rank]; }

/// Slice r of the output is that of rank r's input which begins at `first_byte`. Every rank starts with its own, so
/// that no two read the same memory at the same time.
void pull_slices(int rank, Calls calls, std::int64_t first_byte) {
  const CollectiveCall& mine = call_of(calls, rank);
  const int size = static_cast<int>(calls.size());
  const std::int64_t bytes = mine.count * size_of(mine.dtype);
  for (int step = 0; step < size; ++step) {
    const int from = (rank + step) % size;
    copy_bytes(call_of(calls, from).input + first_byte, mine.output + from * bytes, bytes);
  }
}

std::vector<const std::byte*> inputs_at(Calls calls, std::int64_t first_byte) {
  std::vector<const std::byte*> inputs;
  inputs.reserve(calls.size());
  for (const CollectiveCall& call : calls) inputs.push_back(call.input + first_byte);
  return inputs;
}

/// Every rank sums one slice of all buffers into its own buffer, which nobody else touches there; then all fetch the
/// other slices from their owners.
void all_reduce(int rank, Calls calls, const std::function<void()>& meet) {
  const CollectiveCall& mine = call_of(calls, rank);
  const int size = static_cast<int>(calls.size());
  const Slices slices = Slices::divide(mine.count, size);
  const std::int64_t element = size_of(mine.dtype);
  const std::int64_t own = slices.begin(rank) * element;
  reduce(inputs_at(calls, own), mine.output + own, slices.count(rank), mine.dtype, mine.scale);
  meet();
  for (int step = 1; step < size; ++step) {
    const int from = (rank + step) % size;
    const std::int64_t first = slices.begin(from) * element;
    copy_bytes(call_of(calls, from).output + first, mine.output + first, slices.count(from) * element);
  }
}

}  // namespace

RoundTable::RoundTable(std::vector<Seat*> seats, int rank) : seats_(std::move(seats)), rank_(rank) {
  constexpr int kLooks = 2000;  // a microsecond
  if (seats_.size() <= std::thread::hardware_concurrency()) looks_ = kLooks;
}

void RoundTable::say(const std::byte* mine, std::byte* all, std::size_t bytes, const std::function<bool()>& stopped) {
  Seat& own = *seats_[rank_];
  std::memcpy(own.words[said_ % 2].data(), mine, bytes);
  own.said.store(++said_);
  try {
    meet(stopped);
  } catch (const launch::Stopped&) {
    hear(all, bytes);
    throw;
  }
  hear(all, bytes);
}

void RoundTable::hear(std::byte* all, std::size_t bytes) const {
  for (const Seat* seat : seats_) {
    // One that has said more waits for this member at the next meeting: it has not said the next but one.
    if (seat->said.load() >= said_) std::memcpy(all, seat->words[(said_ - 1) % 2].data(), bytes);
    all += bytes;
  }
}

void RoundTable::meet(const std::function<bool()>& stopped) {
  Seat& table = *seats_.front();
  const std::uint32_t phase = table.phase.load();
  if (table.here.fetch_add(1) + 1 == static_cast<std::int32_t>(seats_.size())) {
    table.here.store(0);
    table.phase.store(phase + 1);
    if (table.sleepers.load() > 0) syscall(SYS_futex, &table.phase, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  for (int looks = 0; looks < looks_; ++looks) {
    if (table.phase.load() != phase) return;
  }
  for (int yields = 0; yields < kYieldsAtTable; ++yields) {
    if (table.phase.load() != phase) return;
    sched_yield();
  }
  table.sleepers.fetch_add(1);  // one who is killed here stays counted: then others are woken in vain
  while (table.phase.load() == phase && !stopped()) sleep_at(table.phase, phase);
  table.sleepers.fetch_sub(1);
  if (table.phase.load() == phase) throw launch::Stopped("the others have not come");
}

void move_directly(int rank, Calls calls, const std::function<void()>& meet) {
  const CollectiveCall& mine = call_of(calls, rank);
  const std::int64_t bytes = mine.count * size_of(mine.dtype);
  const int size = static_cast<int>(calls.size());
  switch (mine.kind) {
    case Collective::all_gather: return pull_slices(rank, calls, 0);
    case Collective::reduce_scatter:
      return reduce(inputs_at(calls, rank * bytes), mine.output, mine.count, mine.dtype, mine.scale);
    case Collective::all_reduce: return all_reduce(rank, calls, meet);
    case Collective::broadcast: return copy_bytes(call_of(calls, mine.root).input, mine.output, bytes);
    case Collective::all_to_all: return pull_slices(rank, calls, rank * bytes);
    case Collective::send_recv: return copy_bytes(call_of(calls, (rank + size - 1) % size).input, mine.output, bytes);
  }
}

}  // namespace fsdpbench::backend::cpu
