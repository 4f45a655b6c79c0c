#include "base/student.h"

#include <gtest/gtest.h>

namespace fsdpbench {
namespace {

TEST(StudentTest, IsThatOfTheTables) {
  EXPECT_NEAR(student_quantile(0.005, 1), 63.657, 1e-3);
  EXPECT_NEAR(student_quantile(0.005, 2), 9.925, 1e-3);
  EXPECT_NEAR(student_quantile(0.005, 5), 4.032, 1e-3);
  EXPECT_NEAR(student_quantile(0.025, 10), 2.228, 1e-3);
  EXPECT_NEAR(student_quantile(0.0005, 30), 3.646, 1e-3);
}

}  // namespace
}  // namespace fsdpbench
