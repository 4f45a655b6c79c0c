// fsdp.fp32_gradients as a schedule: reductions in fp32 find their input as backward wrote it.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::AccumulateMode;
using config::Layout;
using testing::count;

config::RunConfig bf16_training(int ranks) {
  config::RunConfig c = testing::decoder_config(3, ranks);
  c.fsdp.layout = Layout::flat;
  c.fsdp.param_dtype = DType::bf16;
  return c;
}

Schedule schedule_of(config::RunConfig c, bool fp32_gradients) {
  c.fsdp.fp32_gradients = fp32_gradients;
  return testing::make_case(c).schedules.steady();
}

std::int64_t bytes_in_role(const Schedule& schedule, BufferRole role) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : schedule.buffers) bytes += buffer.role == role ? buffer.bytes : 0;
  return bytes;
}

TEST(Fp32Gradients, AreReducedAsTheyAre) {
  for (const int ranks : {1, 4}) {
    const Schedule without = schedule_of(bf16_training(ranks), false), with = schedule_of(bf16_training(ranks), true);
    // One rank's optimizer reads bf16, so nothing is cast there anyway.
    EXPECT_EQ(count(without, OpKind::reduce_cast) > 3, ranks > 1) << ranks;
    EXPECT_EQ(count(with, OpKind::reduce_cast), 0) << ranks;
    EXPECT_EQ(bytes_in_role(with, BufferRole::gradients), 2 * bytes_in_role(without, BufferRole::gradients));
    EXPECT_EQ(bytes_in_role(with, BufferRole::unsharded), bytes_in_role(without, BufferRole::unsharded))
        << "parameters stay";
    EXPECT_EQ(bytes_in_role(with, BufferRole::reduce_input), 0);
    for (const Op& op : with.ops) {
      if (op.kind != OpKind::reduce_scatter) continue;
      EXPECT_EQ(with.buffers[static_cast<std::size_t>(op.collective()->input)].role, BufferRole::gradients);
    }
    EXPECT_EQ(count(with, OpKind::reduce_scatter), count(without, OpKind::reduce_scatter));
  }
}

TEST(Fp32Gradients, AreRoundedWhereTheyTravelInLess) {
  config::RunConfig c = bf16_training(4);
  c.fsdp.reduce_dtype = DType::bf16;
  EXPECT_EQ(count(schedule_of(c, false), OpKind::reduce_cast), 0);
  EXPECT_EQ(count(schedule_of(c, true), OpKind::reduce_cast), count(schedule_of(c, true), OpKind::reduce_scatter));
}

TEST(Fp32Gradients, OfTheFirstMicrobatchAreTheSumToWhichOthersAreAdded) {
  config::RunConfig c = bf16_training(4);
  c.train.accumulate = 3;
  c.train.accumulate_mode = AccumulateMode::no_sync;
  EXPECT_EQ(count(schedule_of(c, true), OpKind::accumulate_gradients) * 3,
            count(schedule_of(c, false), OpKind::accumulate_gradients) * 2);
}

}  // namespace
}  // namespace fsdpbench::schedule
