#include "base/dtype.h"

#include <gtest/gtest.h>

namespace fsdpbench {
namespace {

TEST(DType, NamesCanBeReadBack) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  EXPECT_EQ(to_string(DType::f32), "fp32");
  EXPECT_EQ(to_string(DType::bf16), "bf16");
}

TEST(DType, UnknownNamesAreNothing) {
  for (const char* name : {"", "f32", "FP32", "fp16", "bf16 "}) EXPECT_EQ(parse_dtype(name), std::nullopt) << name;
}

TEST(DType, Sizes) {
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::i32), 4);
}

}  // namespace
}  // namespace fsdpbench
