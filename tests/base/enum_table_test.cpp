#include "base/enum_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

namespace fsdpbench {
namespace {

enum class Colour : std::uint8_t { red, green, blue };
struct Outer {
  enum class Kind { one };
};

static_assert(kEnumCount<Colour> == 3);
static_assert(kEnumCount<Outer::Kind> == 1);
static_assert(kEnumerators<Colour>[2] == Colour::blue);

using Names = EnumNames<Colour>;
static_assert(std::is_constructible_v<Names, const char*, const char*, const char*>);
static_assert(!std::is_constructible_v<Names, const char*, const char*>, "one is missing");
static_assert(!std::is_constructible_v<Names, const char*, const char*, const char*, const char*>, "one too many");

TEST(EnumTable, HasALineForEachEnumerator) {
  constexpr EnumNames<Colour> kNames{"red", "green", "blue"};
  static_assert(kNames[Colour::green] == "green");
  EnumTable<Colour, int> counts;
  ++counts[Colour::blue];
  int sum = 0;
  for (const Colour colour : kEnumerators<Colour>) sum = 10 * sum + counts[colour];
  EXPECT_EQ(sum, 1);
  EXPECT_EQ(counts.size(), 3U);
}

}  // namespace
}  // namespace fsdpbench
