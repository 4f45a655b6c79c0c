#include "backend/cpu/seat.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <thread>

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

}  // namespace

RoundTable::RoundTable(std::vector<Seat*> seats, int rank) : seats_(std::move(seats)), rank_(rank) {
  constexpr int kLooks = 2000;  // a microsecond
  if (seats_.size() <= std::thread::hardware_concurrency()) looks_ = kLooks;
}

void RoundTable::say(const std::byte* mine, std::byte* all, std::size_t bytes, const std::function<bool()>& stopped) {
  Seat& own = *seats_[static_cast<std::size_t>(rank_)];
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

}  // namespace fsdpbench::backend::cpu
