// Effects of ops on their operands, one op at a time.
#include "engine/op_runner.h"

#include <gtest/gtest.h>

#include "backend/cpu/backend.h"
#include "base/dtype.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using schedule::BufferRole;
using schedule::Op;
using schedule::OpKind;

/// One rank's runner and buffers of a tiny model, and a way to run a single op between them.
class OneOp {
 public:
  OneOp(backend::RankContext& context, const schedule::Schedule& schedule)
      : config_(testing::settled(testing::tiny_decoder())),
        plan_(plan::make_plan(config_)),
        model_(model::make_model(config_.model, plan_.shapes, {2, config_.train.seq_len, DType::f32})),
        batches_(53),
        runner_(config_, plan_, *model_, batches_, context.rank),
        device_(context.device),
        buffers_(context.device, schedule) {}

  template <class T>
  void set(schedule::BufferId id, const std::vector<T>& values) {
    device_.enqueue(
        Lane::compute, "set",
        [&](backend::Kernels& k) {
          k.upload(values.data(), buffers_.at(id), static_cast<std::int64_t>(values.size() * sizeof(T)));
        },
        nullptr);
    device_.synchronize();
  }
  template <class T>
  std::vector<T> get(schedule::BufferId id, std::size_t count) {
    std::vector<T> values(count);
    device_.enqueue(
        Lane::compute, "get",
        [&](backend::Kernels& k) {
          k.download(buffers_.at(id), values.data(), static_cast<std::int64_t>(count * sizeof(T)));
        },
        nullptr);
    device_.synchronize();
    return values;
  }
  void run(const Op& op) {
    OpSlot slot;
    runner_.resolve(op, buffers_, 0, &slot);
    device_.enqueue(
        Lane::compute, "op", [&](backend::Kernels& k) { runner_.run(op, slot, k); }, nullptr);
    device_.synchronize();
  }

 private:
  config::RunConfig config_;
  plan::Plan plan_;
  std::unique_ptr<model::Model> model_;
  testing::HashedBatches batches_;
  OpRunner runner_;
  backend::Device& device_;
  BufferTable buffers_;
};

TEST(OpRunner, EveryMicrobatchIsScaledInFp32AndOnlyOnce) {
  // A third of a bf16 number is no bf16 number: scaling it in place would round it twice, and change what another
  // op may still read.
  constexpr float kThird = 1.0F / 3.0F;
  const std::vector<float> numbers{1.0F, -2.5F, 1000.0F, 0.0078125F};
  std::vector<std::uint16_t> reduced;
  for (float x : numbers) reduced.push_back(float_to_bf16(x));
  schedule::Schedule schedule;
  schedule.buffers = {
      {BufferRole::reduce_output, MemoryCategory::communication_buffers, DType::bf16, 1, -1, 0, 8, true},
      {BufferRole::gradient_shard, MemoryCategory::gradients, DType::f32, 1, -1, 0, 16, true}};
  Op op;
  op.kind = OpKind::finish_gradient;
  op.unit = 1;

  backend::cpu::make_cpu_backend()->run({}, [&](backend::RankContext& context) {
    OneOp one(context, schedule);
    one.set(0, reduced);
    std::vector<float> expected(numbers.size(), 0.0F);
    for (bool first : {true, false, false}) {
      op.work = schedule::Accumulate{.from = 0, .sum = 1, .count = 4, .factor = kThird, .overwrite = first};
      one.run(op);
      for (std::size_t i = 0; i < numbers.size(); ++i) expected[i] += kThird * numbers[i];
      EXPECT_EQ(one.get<float>(1, numbers.size()), expected);
      EXPECT_EQ(one.get<std::uint16_t>(0, numbers.size()), reduced);
    }
  });
}

}  // namespace
}  // namespace fsdpbench::engine
