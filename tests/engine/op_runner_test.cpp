// Effects of ops on their operands, one op at a time.
#include "engine/op_runner.h"

#include <gtest/gtest.h>

#include <cstring>

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
  OneOp(backend::RankContext& context, const schedule::Schedule& schedule,
        const config::RunConfig& config = testing::tiny_decoder())
      : config_(testing::settled(config)),
        plan_(plan::make_plan(config_)),
        model_(model::make_model(config_, plan_.shapes)),
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
  void resolve(const Op& op, std::int64_t step, OpSlot& slot) const { runner_.resolve(op, buffers_, step, &slot); }
  std::byte* at(schedule::BufferId id, int element) const { return buffers_.at(id) + element * sizeof(float); }
  void run(const Op& op) {
    OpSlot slot;
    resolve(op, 0, slot);
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

/// Two matrices of 25 elements over two ranks, the second from 28 on, 54 in all; the biases are whole, the second from
/// 16 on.
TEST(OpRunner, ABackwardFindsItsGradientsAndClearsWhatIsBetweenThem) {
  config::RunConfig c;
  c.model.kind = config::ModelKind::mlp;
  c.model.layers = 2;
  c.model.in_features = c.model.width = c.model.out_features = 5;
  c.mesh.ranks = 2;
  c.fsdp.layout = config::Layout::flat;
  c.fsdp.wrap.mode = config::Wrap::Mode::model;
  c.fsdp.shard_threshold = 10;
  c.train.accumulate = 4;
  schedule::Schedule schedule;
  schedule.buffers = {
      {BufferRole::gradients, MemoryCategory::gradients, DType::f32, 0, -1, 0, 54 * 4, true},
      {BufferRole::gradients_replicated, MemoryCategory::gradients, DType::f32, 0, -1, 0, 21 * 4, true}};
  Op op{.kind = OpKind::backward, .unit = 0, .module = 1};
  backend::cpu::make_cpu_backend()->run({}, [&](backend::RankContext& context) {
    const OneOp one(context, schedule, c);
    OpSlot slot;
    using Ranges = decltype(slot.zero);
    for (const bool begins : {true, false}) {
      op.work = schedule::Backward{.gradients = 0, .gradients_replicated = 1, .begins_gradients = begins};
      one.resolve(op, 0, slot);
      EXPECT_EQ(slot.gradients, (std::vector{one.at(0, 28), one.at(1, 16)}));
      EXPECT_EQ(slot.call.loss_scale, 0.25F);
      EXPECT_EQ(slot.zero,
                begins ? (Ranges{{one.at(0, 25), 3 * 4}, {one.at(0, 53), 4}, {one.at(1, 5), 11 * 4}}) : Ranges());
    }
  });
}

/// Rank 0 of 4 begins the second microbatch of step 3 with sample ((3 * 2 + 1) * 4) * 2.
TEST(OpRunner, TargetsAreTheTokensThatFollow) {
  config::RunConfig c = testing::tiny_decoder();
  c.train.accumulate = 2;
  constexpr std::size_t kSeq = 12;
  schedule::Schedule schedule;
  for (const BufferRole role : {BufferRole::batch_inputs, BufferRole::batch_targets}) {
    schedule.buffers.push_back({role, MemoryCategory::activations, DType::i32, -1, -1, 0, 2 * kSeq * 4, true});
  }
  backend::cpu::make_cpu_backend()->run({}, [&](backend::RankContext& context) {
    const OneOp one(context, schedule, c);
    OpSlot slot;
    one.resolve({.kind = OpKind::load_batch, .micro = 1, .work = schedule::LoadBatch{.inputs = 0, .targets = 1}}, 3,
                slot);
    for (std::size_t row = 0; row < 2; ++row) {
      std::vector<std::int32_t> tokens(kSeq + 1);
      testing::HashedBatches(53).tokens(56 + static_cast<std::int64_t>(row), tokens);
      EXPECT_EQ(std::memcmp(slot.host_inputs.data() + row * kSeq * 4, tokens.data(), kSeq * 4), 0);
      EXPECT_EQ(std::memcmp(slot.host_targets.data() + row * kSeq * 4, tokens.data() + 1, kSeq * 4), 0);
    }
  });
}

}  // namespace
}  // namespace fsdpbench::engine
