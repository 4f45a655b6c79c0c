// The toolkit's own CUPTI, as far as it works without a GPU.
#include <gtest/gtest.h>

#include <iostream>

#include "backend/cuda/cupti/cupti_generation.h"
#include "backend/cuda/op_timer.h"

namespace fsdpbench::backend::cuda {
namespace {

TEST(CuptiLibrary, HasEveryFunctionAndTheVersionOfItsHeaders) {
  std::string why_not;
  const std::optional<CuptiApi> api = load_cupti(&why_not);
  ASSERT_TRUE(api) << why_not;
  std::uint32_t version = 0;
  ASSERT_EQ(api->get_version(&version), CUPTI_SUCCESS);
  EXPECT_TRUE(reads_records_of({version})) << version;
}

TEST(CuptiLibrary, GivesATimerOrSaysWhyNot) {
  std::string why_not;
  const std::unique_ptr<OpTimer> timer = make_cupti_timer(&why_not);
  EXPECT_EQ(timer == nullptr, !why_not.empty());
  EXPECT_TRUE(why_not.empty() || why_not.ends_with(".")) << why_not;
  std::cout << why_not << "\n";
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
