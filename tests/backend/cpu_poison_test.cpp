// Freed memory is filled with NaN, and filling never hurts who got the block next.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/copy_backend.h"
#include "backend/support.h"

namespace fsdpbench::backend {
namespace {

void run_poisoned(bool poison, const Body& body) {
  BackendOptions options;
  options.poison_freed_memory = poison;
  make_copy_backend()->run(options, body);
}

std::vector<float> after_free(bool poison) {
  std::vector<float> seen;
  run_poisoned(poison, [&](RankContext& rank) {
    std::byte* block = put(rank.device, std::vector<float>{1.0F, 2.0F});
    rank.device.free(block, Lane::compute);
    seen = get<float>(rank.device, block, 2);  // a use after free, on purpose
  });
  return seen;
}

TEST(Poison, FillsFreedMemoryWithNaN) {
  for (const float value : after_free(true)) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(after_free(false), (std::vector<float>{1.0F, 2.0F}));
}

TEST(Poison, ALaneThatWaitedForAnEventBeforeTheFillMayReuseTheBlock) {
  run_poisoned(true, [](RankContext& rank) {
    constexpr std::int64_t kBytes = 64 << 20;  // filling takes milliseconds, writing the last element does not
    Device& device = rank.device;
    std::byte* block = device.allocate(kBytes, MemoryCategory::gradients, Lane::compute);
    delay(device, Lane::compute, 0);
    device.record(0, Lane::compute);
    device.free(block, Lane::compute);
    device.wait(Lane::all_gather, 0);
    std::byte* again = device.allocate(kBytes, MemoryCategory::gradients, Lane::all_gather);
    ASSERT_EQ(again, block) << "the pool's choice must not depend on poisoning";
    const std::vector<float> mine{42.0F};
    upload(device, Lane::all_gather, mine, again + kBytes - 4);
    EXPECT_EQ(get<float>(device, again + kBytes - 4, 1), mine);
  });
}

}  // namespace
}  // namespace fsdpbench::backend
