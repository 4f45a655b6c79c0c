#include "backend/cuda/id_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace fsdpbench::backend::cuda {

ThreadExchange::ThreadExchange(launch::Abort& abort, int ranks) : abort_(abort), ranks_(ranks) { abort_.add(*this); }

ThreadExchange::~ThreadExchange() { abort_.remove(*this); }

void ThreadExchange::aborted() {
  const std::lock_guard lock(mutex_);  // so that nobody misses it between looking and sleeping
  changed_.notify_all();
}

void ThreadExchange::ended(int rank) {
  const std::lock_guard lock(mutex_);
  ended_ = rank;
  changed_.notify_all();
}

void ThreadExchange::barrier(int rank) {
  std::unique_lock lock(mutex_);
  const int round = rounds_;
  if (++arrived_ == ranks_) {
    arrived_ = 0;
    ++rounds_;
    changed_.notify_all();
    return;
  }
  changed_.wait(lock, [&] { return rounds_ != round || ended_ >= 0 || abort_.is_set(); });
  if (rounds_ != round) return;
  lock.unlock();
  abort_.throw_if_set();
  throw BackendError(fmt::format("rank {} waits for rank {}, which has ended", rank, ended_));
}

std::string ThreadExchange::from_root(int rank, std::string bytes) {
  if (rank == 0) {
    const std::lock_guard lock(mutex_);
    bytes_ = std::move(bytes);
  }
  barrier(rank);
  std::string result;
  {
    const std::lock_guard lock(mutex_);
    result = bytes_;
  }
  barrier(rank);  // before the root may bring the next
  return result;
}

}  // namespace fsdpbench::backend::cuda
