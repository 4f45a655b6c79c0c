// Whole trainings on imagined GPUs whose steps are launched as graphs: every bit of those whose ops are launched one by
// one, in the memory that the schedule says.

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "backend/cuda/emulated_support.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/fake/nccl/fake_nccl.h"
#include "backend/cuda/training_checks.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig training(int ranks) {
  RunConfig config = tiny_training(ranks);
  config.train.warmup = 2;
  config.train.steps = 2;
  config.device.deterministic = true;
  return config;
}

Measurement train_cuda(const RunConfig& config, RunHooks hooks = {}) {
  const backend::FakeGpus gpus(8);
  fake::nccl::reset();
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  hooks.keep_parameters = true;
  Measurement result = run(*backend::make_cuda(), set_up(config), batches, hooks);
  EXPECT_EQ(fake::nccl::misuses(), "");
  return result;
}

RunConfig as_graphs(RunConfig config) {
  config.device.graphs = Graphs::step;
  return config;
}

struct Case {
  const char* name;
  int ranks;
  std::function<void(RunConfig&)> change;
};

class EmulatedGraphTraining : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedGraphTraining, LearnsTheSameBitsInTheSameMemory) {
  RunConfig config = training(GetParam().ranks);
  GetParam().change(config);
  const Measurement without = train_cuda(config);
  const std::uint64_t launches = fake::graph_launches();
  const Measurement with = train_cuda(as_graphs(config));
  const auto steps = static_cast<std::uint64_t>(config.train.warmup + config.train.steps);
  const std::uint64_t plain = set_up(config).schedules.steps.size();
  EXPECT_EQ(fake::graph_launches() - launches, (steps - plain) * static_cast<std::uint64_t>(config.mesh.ranks));
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(std::set<double>(with.losses.begin(), with.losses.end()).size(), steps) << "batches are others each step";
  EXPECT_EQ(with.parameters_digest.value(), without.parameters_digest.value());
  EXPECT_EQ(with.wire_bytes, without.wire_bytes);
  const PoolStatistics planned = set_up(as_graphs(config)).memory;
  for (const PoolStatistics& memory : with.memory) {
    EXPECT_EQ(memory.peak_occupied, planned.peak_occupied);
    EXPECT_EQ(memory.peak_occupied_total, planned.peak_occupied_total);
    EXPECT_EQ(memory.reserved, planned.reserved);
  }
  expect_whole_trace(config, with);
  for (std::size_t rank = 0; rank < with.traces.size(); ++rank) {
    EXPECT_EQ(with.traces[rank].records.size(), without.traces[rank].records.size());
    EXPECT_EQ(with.traces[rank].memory.size(), without.traces[rank].memory.size());
    EXPECT_THAT(backend::fact(with.devices[rank], "graphs"), HasSubstr("steps are launched as one graph of"));
    EXPECT_EQ(backend::fact(without.devices[rank], "graphs"), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, EmulatedGraphTraining,
    ::testing::Values(Case{"OneRank", 1, [](RunConfig&) {}}, Case{"FullShard", 2, [](RunConfig&) {}},
                      Case{"NoPoison", 2, [](RunConfig& c) { c.inject.poison_freed_memory = false; }},
                      Case{"FlatShardGradOpUnlimited", 2,
                           [](RunConfig& c) {
                             c.fsdp.strategy = Strategy::shard_grad_op;
                             c.fsdp.layout = Layout::flat;
                             c.fsdp.all_gather_limit.mode = AllGatherLimit::Mode::unlimited;
                             c.train.clip_norm = 0.1;
                           }},
                      Case{"HybridAccumulates", 4,
                           [](RunConfig& c) {
                             c.fsdp.strategy = Strategy::hybrid_shard;
                             c.mesh.shard = c.mesh.replicate = 2;
                             c.train.accumulate = 2;
                           }},
                      Case{"MixedPrecisionCastInOptimizer", 2,
                           [](RunConfig& c) {
                             c.fsdp.param_dtype = DType::bf16;
                             c.fsdp.layout = Layout::flat;
                             c.fsdp.cast_in_optimizer = true;
                             c.fsdp.separate_reduce_scatter_comm = true;
                           }},
                      Case{"QuantisedNumbersOnTheWire", 4,
                           [](RunConfig& c) {
                             c.fsdp.gather_quantization = {8, 64};
                             c.fsdp.reduce_quantization = {4, 32};
                             c.fsdp.reduce_within = 2;
                           }},
                      Case{"CheckpointingAndAGroup", 4,
                           [](RunConfig& c) {
                             c.fsdp.activation_checkpointing = true;
                             c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
                             c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
                           }},
                      Case{"SplitLayersSgd", 2,
                           [](RunConfig& c) {
                             c.model.ffn_width = 36;
                             c.model.vocab = 52;
                             c.mesh.tensor = 2;
                             c.mesh.shard = 1;
                             c.fsdp.strategy = Strategy::no_shard;
                             c.train.optimizer = Optimizer::sgd;
                           }},
                      Case{"RegisteredMemoryBlocking", 2,
                           [](RunConfig& c) {
                             c.nccl.register_buffers = NcclRegister::window;
                             c.nccl.blocking = true;
                           }}),
    [](const auto& made) { return std::string(made.param.name); });

/// What hosts put on streams in one step more.
std::uint64_t enqueued_by_a_step(RunConfig config) {
  const auto enqueued = [&](std::int64_t steps) {
    config.train.steps = steps;
    const std::uint64_t before = fake::enqueued();
    train_cuda(config);
    return fake::enqueued() - before;
  };
  const std::uint64_t three = enqueued(3);
  return enqueued(4) - three;
}

TEST(EmulatedGraphs, TheHostLaunchesAStepHoweverManyOpsItHas) {
  RunConfig small = training(1);
  small.model.layers = 1;
  RunConfig large = small;
  large.model.layers = 3;
  EXPECT_GT(enqueued_by_a_step(large), enqueued_by_a_step(small) + 50) << "one by one";
  const std::uint64_t launched = enqueued_by_a_step(as_graphs(small));
  EXPECT_EQ(enqueued_by_a_step(as_graphs(large)), launched);
  EXPECT_LT(launched, 30U) << "the graph, the loss, and the events by which the timer finds the host's clock";
}

TEST(EmulatedGraphs, OpsOfALaunchAreIssuedTogether) {
  const Measurement result = train_cuda(as_graphs(training(2)));
  for (const trace::RankTrace& trace : result.traces) {
    std::set<std::int64_t> issued;
    for (const trace::Record& record : trace.records) issued.insert(record.issued_ns);
    EXPECT_EQ(issued.size(), trace.steps.size()) << "one time a step";
  }
}

TEST(EmulatedGraphs, AGpuThatBreaksInALaunchEndsAllRanks) {
  RunHooks hooks;
  hooks.progress = [](std::int64_t steps, const std::optional<engine::StepLoss>&) {
    if (steps == 3) fake::break_device(0, cudaErrorIllegalAddress);
  };
  try {
    train_cuda(as_graphs(training(2)), hooks);
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("an illegal memory access was encountered")));
  }
  EXPECT_EQ(fake::nccl::misuses(), "");
}

}  // namespace
}  // namespace fsdpbench::engine
