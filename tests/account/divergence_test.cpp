#include "account/divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace fsdpbench::account {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Divergence, FiniteLossesAndParametersHaveNone) {
  EXPECT_EQ(why_diverged({}, 0), "");
  EXPECT_EQ(why_diverged(std::vector{5.5, 1e300, -2.0}, 0), "");
}

TEST(Divergence, NamesTheFirstStepThatIsNotFinite) {
  EXPECT_THAT(why_diverged(std::vector{5.5, kInfinity, kNan}, 7), HasSubstr("the loss is infinite at step 2 of 3"));
  EXPECT_THAT(why_diverged(std::vector{-kNan}, 0), HasSubstr("the loss is NaN at step 1 of 1"));
}

TEST(Divergence, ParametersMayDivergeInTheLastStep) {
  EXPECT_THAT(why_diverged(std::vector{5.5}, 1), HasSubstr("1 elements of the final parameters"));
}

TEST(Divergence, WithoutADigestTheReasonIsTheKeyTheDeviceOrTheNumbers) {
  config::RunConfig c;
  EXPECT_EQ(why_no_digest(c, 0), "");
  EXPECT_THAT(why_no_digest(c, 3), HasSubstr("3 elements"));
  EXPECT_THAT(why_no_digest(c, 1), HasSubstr("1 elements"));
  c.device.backend = config::BackendKind::cuda;
  EXPECT_THAT(why_no_digest(c, 0), HasSubstr("device.deterministic"));
  c.train.params_digest = false;
  EXPECT_THAT(why_no_digest(c, 0), HasSubstr("train.params_digest = false"));
}

TEST(Divergence, LossesAreSpelledInWords) {
  EXPECT_EQ(loss_text(4.21861), "4.2186");
  EXPECT_EQ(loss_text(-kNan), "NaN");
  EXPECT_EQ(loss_text(-kInfinity), "infinite");
}

}  // namespace
}  // namespace fsdpbench::account
