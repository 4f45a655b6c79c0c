#include "backend/cpu/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "backend/cpu/seat.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

static_assert(std::is_trivially_copyable_v<Words> && sizeof(Words) <= Seat::kMostBytes);

std::string describe(const Words& words) {
  switch (words.purpose) {
    case Words::Purpose::collective: return std::string(to_string(words.call.kind));
    case Words::Purpose::barrier: return "barrier";
    case Words::Purpose::split: return "split";
    case Words::Purpose::end:
    case Words::Purpose::silence: break;
  }
  return "end";
}

void check_purposes(const std::vector<Words>& all, std::span<const int> world_ranks) {
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Words& words) { return words.purpose != all.front().purpose; });
  if (other == all.end()) return;
  const auto rank_of = [&](auto at) { return world_ranks[static_cast<std::size_t>(at - all.begin())]; };
  const bool first_ended = all.front().purpose == Words::Purpose::end;
  if (first_ended || other->purpose == Words::Purpose::end) {
    const auto ended = first_ended ? all.begin() : other;
    const auto waits = first_ended ? other : all.begin();
    throw BackendError(fmt::format("world rank {} has ended without calling the {} that world rank {} has called",
                                   rank_of(ended), describe(*waits), rank_of(waits)));
  }
  throw BackendError(fmt::format("the ranks call different things: world rank {} {}, world rank {} {}",
                                 world_ranks.front(), describe(all.front()), rank_of(other), describe(*other)));
}

/// "rank 2 has", "ranks 1, 3 have": who of them has said nothing.
std::string silent_ranks(const std::vector<Words>& all, std::span<const int> world_ranks) {
  std::vector<int> silent;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].purpose == Words::Purpose::silence) silent.push_back(world_ranks[i]);
  }
  return fmt::format("{} {} {}", silent.size() == 1 ? "rank" : "ranks", fmt::join(silent, ", "),
                     silent.size() == 1 ? "has" : "have");
}

}  // namespace

std::vector<Words> meet(Peers& peers, std::span<const int> world_ranks, const Words& mine) {
  Words nothing;
  nothing.purpose = Words::Purpose::silence;
  std::vector<Words> all(static_cast<std::size_t>(peers.size()), nothing);
  const auto missing = [&] {
    return fmt::format(
        "{} not come to the {} where rank {} has waited for {:g} s; alive, and doing nothing that shows "
        "(FSDPBENCH_STALL_S is for how long ranks wait)",
        silent_ranks(all, world_ranks), describe(mine), world_ranks[static_cast<std::size_t>(peers.rank())],
        peers.patience_s());
  };
  peers.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()), sizeof mine, missing);
  check_purposes(all, world_ranks);
  return all;
}

}  // namespace fsdpbench::backend::cpu
