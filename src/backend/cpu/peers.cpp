#include "backend/cpu/peers.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {

Peers::Peers(launch::Abort& abort, std::optional<double> stall_s, std::unique_ptr<launch::PeerGroup> group)
    : abort_(abort), stall_s_(stall_s), group_(std::move(group)) {}

void Peers::send(int to, const std::byte* source, std::int64_t bytes) {
  if (bytes > 0) sends_.push_back({to, {source, static_cast<std::size_t>(bytes)}});
}

void Peers::receive(int from, std::byte* target, std::int64_t bytes) {
  if (bytes > 0) receives_.push_back({from, {target, static_cast<std::size_t>(bytes)}});
}

void Peers::exchange(const std::function<std::string()>& missing) {
  patiently(missing, [&](const Stopped& stopped) { group_->exchange(sends_, receives_, stopped); });
  sends_.clear();
  receives_.clear();
}

void Peers::say(const std::byte* mine, std::byte* all, std::size_t bytes, const std::function<std::string()>& missing) {
  if (table_) return patiently(missing, [&](const Stopped& stopped) { table_->say(mine, all, bytes, stopped); });
  const auto said = static_cast<std::int64_t>(bytes);
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() + size() - step) % size();
    send(to, mine, said);
    receive(from, all + from * said, said);
  }
  std::copy_n(mine, bytes, all + rank() * said);
  exchange(missing);
}

void Peers::meet() {
  guarded([&] { table_->meet([this] { return aborted(); }); });
}

/// `action` may block as long as it is not stopped. It is when the run is aborted, and, with what `missing` says, once
/// it has taken CpuOptions::stall_s.
void Peers::patiently(const std::function<std::string()>& missing, const std::function<void(const Stopped&)>& action) {
  const std::optional<double> patience_s = missing ? stall_s_ : std::nullopt;
  const std::int64_t deadline_ns = patience_s ? now_ns() + whole_ns(*patience_s * 1e9) : 0;
  const auto stuck = [&] { return patience_s && now_ns() > deadline_ns; };
  guarded([&] {
    try {
      action([&] { return aborted() || stuck(); });
    } catch (const launch::Stopped&) {
      if (aborted() || !stuck()) throw;
      throw BackendError(missing());
    }
  });
}

Peers Peers::split(int color, int key) {
  std::unique_ptr<launch::PeerGroup> part;
  guarded([&] { part = group_->split(color, key, [this] { return aborted(); }); });
  return {abort_, stall_s_, std::move(part)};
}

/// A broken connection is the end of another process seen from here. The control channel knows more about it, a little
/// later: that message counts if it comes.
void Peers::guarded(const std::function<void()>& action) try { action(); } catch (const launch::Stopped&) {
  abort_.throw_if_set();
  throw;
} catch (...) {
  constexpr std::chrono::milliseconds kPause(10);
  constexpr int kPauses = 300;
  for (int pause = 0; pause < kPauses && !aborted(); ++pause) std::this_thread::sleep_for(kPause);
  abort_.throw_if_set();
  throw;
}

}  // namespace fsdpbench::backend::cpu
