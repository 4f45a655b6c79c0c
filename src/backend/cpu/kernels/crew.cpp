#include "backend/cpu/kernels/crew.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace fsdpbench::backend::cpu {
namespace {

/// What one core does in some 20 us: less is not worth waking another.
constexpr std::int64_t kLeastPart = 16 * Crew::kGrain;

}  // namespace

Crew::Crew(int threads) {
  for (int member = 1; member < threads; ++member) members_.emplace_back([this, member] { run(member); });
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& member : members_) member.join();
}

void Crew::share(std::int64_t count, const Work& work) {
  const auto threads = static_cast<std::int64_t>(members_.size()) + 1;
  const std::int64_t part = std::max(kLeastPart, round_up(ceil_div(count, threads), kGrain));
  if (count <= part) return work(0, count);
  {
    const std::lock_guard lock(mutex_);
    count_ = count;
    part_ = part;
    work_ = &work;
    busy_ = static_cast<int>(members_.size());
    ++round_;
  }
  changed_.notify_all();
  perform(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Crew::perform(int part) noexcept {
  const std::int64_t begin = std::min(count_, part * part_), end = std::min(count_, begin + part_);
  if (begin == end) return;
  try {
    (*work_)(begin, end);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void Crew::run(int member) {
  for (std::int64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || round_ != seen; });
      if (closing_) return;
      seen = round_;
    }
    perform(member);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace fsdpbench::backend::cpu
