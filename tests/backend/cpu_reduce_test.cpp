#include "backend/cpu/collective_rules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/support.h"
#include "base/dtype.h"

namespace fsdpbench::backend {
namespace {

template <class T>
std::vector<T> reduced(int ranks, std::int64_t first, std::int64_t count, float scale) {
  std::vector<std::vector<T>> messages;
  std::vector<const std::byte*> sources;
  for (int r = 0; r < ranks; ++r) messages.push_back(values_of<T>(r, first, count));
  for (const auto& m : messages) sources.push_back(reinterpret_cast<const std::byte*>(m.data()));
  std::vector<T> target(static_cast<std::size_t>(count));
  cpu::reduce(sources, reinterpret_cast<std::byte*>(target.data()), count, dtype_of<T>(), scale);
  return target;
}

template <class T>
void check_bits_do_not_depend_on_position() {
  constexpr std::int64_t kCount = 9001;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const std::vector<T> whole = reduced<T>(ranks, 0, kCount, 0.37F);
    EXPECT_EQ(whole, sum_of<T>(first_ranks(ranks), 0, kCount, 0.37F)) << ranks << " ranks";
    for (const std::int64_t first : {1, 3, 4095, 8190, 9000}) {
      const std::vector<T> part = reduced<T>(ranks, first, kCount - first, 0.37F);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << ranks << " ranks from " << first;
    }
  }
}

TEST(Reduce, Fp32BitsDependOnTheElementAlone) { check_bits_do_not_depend_on_position<float>(); }
TEST(Reduce, Bf16BitsDependOnTheElementAlone) { check_bits_do_not_depend_on_position<std::uint16_t>(); }

TEST(Reduce, Bf16AccumulatesInFp32AndRoundsOnce) {
  // In bf16 arithmetic 256 + 1 = 256; the sum of four ones more is lost. In fp32 it is not.
  const std::vector<std::uint16_t> big{float_to_bf16(256.0F)};
  const std::vector<std::uint16_t> one{float_to_bf16(1.0F)};
  const auto* a = reinterpret_cast<const std::byte*>(big.data());
  const auto* b = reinterpret_cast<const std::byte*>(one.data());
  const std::vector<const std::byte*> sources{a, b, b, b, b};
  std::uint16_t sum = 0;
  cpu::reduce(sources, reinterpret_cast<std::byte*>(&sum), 1, DType::bf16, 1.0F);
  EXPECT_EQ(bf16_to_float(sum), 260.0F);
}

TEST(Reduce, RefusesIntegers) {
  std::int32_t value = 0;
  const std::vector<const std::byte*> sources{reinterpret_cast<const std::byte*>(&value)};
  EXPECT_THROW(cpu::reduce(sources, reinterpret_cast<std::byte*>(&value), 1, DType::i32, 1.0F), BackendError);
}

}  // namespace
}  // namespace fsdpbench::backend
