// no_nvtx.cpp: a program without NVTX runs as one that no tool listens to, and says why none can.
#include <gmock/gmock.h>

#include "trace/nvtx_range.h"

namespace fsdpbench::trace {
namespace {

TEST(NoNvtx, NobodyListensAndRangesDoNothing) {
  EXPECT_FALSE(nvtx_listens());
  const NvtxName name("forward blocks.0");
  nvtx_push(name, kNvtxHostCategory, {});
  nvtx_pop();
  nvtx_pop();  // not even a surplus one
  EXPECT_THAT(nvtx_note(), testing::HasSubstr("nvidia-nvtx"));
}

}  // namespace
}  // namespace fsdpbench::trace
