#include "schedule/op.h"

#include <gtest/gtest.h>

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
