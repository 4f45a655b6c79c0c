#include "schedule/op.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string_view>

namespace fsdpbench::schedule {
namespace {

using Ids = std::vector<BufferId>;

Ids reads(Work work) {
  const Operands operands = Op{.work = work}.operands();
  return {operands.reads.begin(), operands.reads.end()};
}
Ids writes(Work work) {
  const Operands operands = Op{.work = work}.operands();
  return {operands.writes.begin(), operands.writes.end()};
}

TEST(Op, OperandsFollowFromTheWork) {
  const Accumulate set{.from = 1, .sum = 2, .overwrite = true}, add{.from = 1, .sum = 2, .overwrite = false};
  EXPECT_EQ(reads(set), (Ids{1}));
  EXPECT_EQ(reads(add), (Ids{1, 2}));
  EXPECT_EQ(writes(add), (Ids{2}));
  EXPECT_EQ(reads(SumOfSquares{.gradient = 1, .sum = 2, .overwrite = false}), (Ids{1, 2}));

  // An optimizer's step starts from what it replaces; SGD without clipping has two operands.
  const Update adamw{.gradient = 1, .parameters = 2, .first_moment = 3, .second_moment = 4, .clip_factor = 5};
  EXPECT_EQ(reads(adamw), (Ids{1, 5, 2, 3, 4}));
  EXPECT_EQ(writes(adamw), (Ids{2, 3, 4}));
  EXPECT_EQ(reads(Update{.gradient = 1, .parameters = 2}), (Ids{1, 2}));

  // The first backward of a step makes the stream of gradients, the others go on with it.
  EXPECT_EQ(reads(Backward{.parameters = 1, .d_stream = 7, .begins_stream = true}), (Ids{1}));
  EXPECT_EQ(reads(Backward{.parameters = 1, .d_stream = 7}), (Ids{1, 7}));
  EXPECT_EQ(writes(Backward{.d_stream = 7, .gradients = 8, .workspace = 9}), (Ids{8, 9, 7}));

  // A later part of a pass goes on with what was saved and exchanged, which is the output if it has no place of its
  // own.
  const Forward first{.input = 1, .saved = 2, .output = 3, .part = 0, .exchange = 4};
  EXPECT_EQ(reads(first), (Ids{1}));
  EXPECT_EQ(writes(first), (Ids{2, 3, 4}));
  Forward second = first;
  second.part = 1;
  EXPECT_EQ(reads(second), (Ids{1, 2, 4}));
  second.exchange = kNoBuffer;
  EXPECT_EQ(reads(second), (Ids{1, 2, 3}));
  EXPECT_EQ(reads(Backward{.saved = 1, .part = 0, .exchange = 2}), (Ids{1}));
  EXPECT_EQ(reads(Backward{.saved = 1, .part = 1, .exchange = 2}), (Ids{1, 2}));

  EXPECT_EQ(reads(Collective{.input = 1, .output = 1}), (Ids{1}));
  EXPECT_EQ(writes(Collective{.input = 1, .output = 1}), (Ids{1}));
  EXPECT_TRUE(reads(std::monostate{}).empty());
  EXPECT_TRUE(writes(std::monostate{}).empty());
}

TEST(Op, OnlyCollectivesHaveAGroupAndBytesOnTheWire) {
  const Op gather{.kind = OpKind::all_gather,
                  .work = Collective{.group = Group::shard, .count = 3, .dtype = DType::bf16}};
  EXPECT_TRUE(gather.is_collective());
  EXPECT_EQ(gather.group(), Group::shard);
  EXPECT_EQ(gather.collective()->bytes(), 6);
  const Op cast{.kind = OpKind::cast_shard, .work = Cast{.count = 3}};
  EXPECT_FALSE(cast.is_collective());
  EXPECT_EQ(cast.group(), Group::none);
  EXPECT_EQ(cast.collective(), nullptr);
}

/// Ten floats of each of 4 ranks, or 2 that split a layer, or 2 that split experts: 40 bytes to each of the others; of
/// an all-reduce there and back, a rank's part of it each time.
TEST(Op, BytesThatARankSends) {
  const plan::Groups groups({.shard = 4, .replicate = 1, .tensor = 2, .context = 1, .expert = 2});
  const auto sent = [&](OpKind kind, Group group) {
    Schedule schedule;
    schedule.ops = {{.kind = kind, .work = Collective{.group = group, .count = 10}},
                    {.kind = OpKind::forward, .work = Forward{}}};
    const plan::CommunicationVolume v = communication_volume(schedule, groups);
    return std::array{v.all_gather, v.reduce_scatter, v.all_reduce, v.all_to_all};
  };
  using Sent = std::array<double, 4>;
  EXPECT_EQ(sent(OpKind::all_gather, Group::shard), (Sent{120, 0, 0, 0}));
  EXPECT_EQ(sent(OpKind::gather_norm, Group::tensor), (Sent{40, 0, 0, 0}));
  EXPECT_EQ(sent(OpKind::reduce_scatter, Group::shard), (Sent{0, 120, 0, 0}));
  EXPECT_EQ(sent(OpKind::all_reduce, Group::shard), (Sent{0, 0, 60, 0}));
  EXPECT_EQ(sent(OpKind::tensor_all_reduce, Group::tensor), (Sent{0, 0, 40, 0}));
  EXPECT_EQ(sent(OpKind::expert_dispatch, Group::expert), (Sent{0, 0, 0, 40}));
}

TEST(Op, EveryKindHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(OpKind::host_sync); ++kind) {
    const std::string_view name = to_string(static_cast<OpKind>(kind));
    EXPECT_TRUE(name != "?" && names.insert(name).second) << kind;
  }
}

TEST(Buffer, EveryRoleHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int role = 0; role <= static_cast<int>(BufferRole::loss); ++role) {
    const std::string_view name = to_string(static_cast<BufferRole>(role));
    EXPECT_TRUE(name != "?" && names.insert(name).second) << role;
  }
}

}  // namespace
}  // namespace fsdpbench::schedule
