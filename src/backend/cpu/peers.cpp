#include "backend/cpu/peers.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "backend/cpu/team.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {

Peers::Peers(Team& team, std::unique_ptr<launch::PeerGroup> group) : team_(team), group_(std::move(group)) {}

double Peers::patience_s() const { return team_.emulation().stall_s.value_or(0); }

bool Peers::aborted() const { return team_.abort().is_set(); }

void Peers::send(int to, const std::byte* source, std::int64_t bytes) {
  if (bytes > 0) sends_.push_back({to, {source, static_cast<std::size_t>(bytes)}});
}

void Peers::receive(int from, std::byte* target, std::int64_t bytes) {
  if (bytes > 0) receives_.push_back({from, {target, static_cast<std::size_t>(bytes)}});
}

void Peers::exchange(const std::function<std::string()>& missing) {
  const std::optional<double> patience_s = missing ? team_.emulation().stall_s : std::nullopt;
  const std::int64_t deadline_ns = patience_s ? now_ns() + whole_ns(*patience_s * 1e9) : 0;
  const auto stuck = [&] { return patience_s && now_ns() > deadline_ns; };
  guarded([&] {
    try {
      group_->exchange(sends_, receives_, [&] { return aborted() || stuck(); });
    } catch (const launch::Stopped&) {
      if (aborted() || !stuck()) throw;
      throw BackendError(missing());
    }
  });
  sends_.clear();
  receives_.clear();
}

std::unique_ptr<launch::PeerGroup> Peers::split(int color, int key) {
  std::unique_ptr<launch::PeerGroup> part;
  guarded([&] { part = group_->split(color, key, [this] { return aborted(); }); });
  return part;
}

/// A broken connection is the end of another process seen from here. The control channel knows more about it, a little
/// later: that message counts if it comes.
void Peers::guarded(const std::function<void()>& action) try { action(); } catch (const launch::Stopped&) {
  team_.abort().throw_if_set();
  throw;
} catch (...) {
  constexpr std::chrono::milliseconds kPause(10);
  constexpr int kPauses = 300;
  for (int pause = 0; pause < kPauses && !aborted(); ++pause) std::this_thread::sleep_for(kPause);
  team_.abort().throw_if_set();
  throw;
}

}  // namespace fsdpbench::backend::cpu
