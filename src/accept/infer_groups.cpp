#include "accept/infer_groups.h"

#include <algorithm>
#include <cstddef>

namespace fsdpbench::accept {
namespace {

constexpr std::size_t kFewestAlike = 3;

/// Whether two ends are slow to the same others; what they are to each other does not count, nor does a pair in ten.
bool alike(const std::vector<bool>& a, const std::vector<bool>& b, std::size_t end_a, std::size_t end_b) {
  std::size_t differ = 0, both = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i == end_a || i == end_b) continue;
    differ += a[i] != b[i] ? 1 : 0;
    both += a[i] && b[i] ? 1 : 0;
  }
  return both >= kFewestAlike && 10 * differ <= both + differ;
}

}  // namespace

std::optional<std::vector<int>> infer_groups(int ends, const std::function<bool(int a, int b)>& slow) {
  const auto count = static_cast<std::size_t>(ends);
  std::vector<std::vector<bool>> slow_to(count, std::vector<bool>(count));
  for (int a = 0; a < ends; ++a) {
    for (int b = a + 1; b < ends; ++b) {
      if (!slow(a, b)) continue;
      slow_to[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = true;
      slow_to[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = true;
    }
  }
  std::vector<int> of(count, -1);
  int groups = 0;
  for (std::size_t a = 0; a < count; ++a) {
    if (of[a] >= 0) continue;
    std::vector<std::size_t> members{a};
    for (std::size_t b = a + 1; b < count; ++b) {
      if (of[b] < 0 && alike(slow_to[a], slow_to[b], a, b)) members.push_back(b);
    }
    if (members.size() < kFewestAlike) continue;
    for (const std::size_t member : members) of[member] = groups;
    ++groups;
  }
  const bool rest = std::ranges::count(of, -1) > 0;
  if (groups + (rest ? 1 : 0) < 2) return std::nullopt;
  std::ranges::replace(of, -1, groups);
  return of;
}

}  // namespace fsdpbench::accept
