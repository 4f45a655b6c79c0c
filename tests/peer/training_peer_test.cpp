// Eight steps of training against what FSDP2, FSDP1 and DDP of PyTorch made of the same parameters and tokens
// (train.py), FSDP of JAX on eight devices and on two processes (train_xla.py), and FSDP2 on ranks that split layers
// (train_tensor.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "support/golden_tokens.h"
#include "support/presets.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

constexpr double kLossTolerance = 5e-7;       // relative; fp32 against float64 is as far off: tests/golden/README.md
constexpr double kParameterTolerance = 1e-6;  // distance of all parameters, of their norm
// Absolute. Adam divides by the gradient's own size: an element whose gradient is near 0 keeps its relative error.
constexpr double kElementTolerance = 5e-5;

RunConfig as(const std::string& engine) {
  RunConfig c;
  if (engine == "fsdp2") return c;
  c.fsdp.layout = Layout::flat;
  c.fsdp.gradient_scaling = GradientScaling::pre_post_divide;
  c.fsdp.reduce_scatter_buffers = 0;
  if (engine == "ddp") c.fsdp.strategy = Strategy::no_shard;
  if (engine == "xla") c = testing::with_preset(c, "xla");
  return c;
}

/// `c`: how `engine`, as the recording calls it, trains on sequences of `seq_len`.
void expect_equal_training(const testing::GoldenFile& recorded, const std::string& engine, std::int64_t seq_len,
                           RunConfig c) {
  const testing::GoldenDecoder golden(false);
  c.model = golden.model();
  if (recorded.facts().contains("vocab")) c.model.vocab = recorded.facts().at("vocab");
  c.train = golden.train();
  c.train.steps = recorded.facts().at("steps");
  c.train.warmup = 0;
  c.train.seq_len = seq_len;
  c.train.batch_per_rank = recorded.facts().at("batch").get<std::int64_t>() / c.mesh.data_ranks();
  const plan::Plan plan = set_up(testing::settled(c)).plan;
  const Measurement result = testing::run_tiny(c, testing::golden_hooks(golden, plan));
  const std::vector<float> losses = recorded.floats(engine + "/losses");
  ASSERT_EQ(result.losses.size(), losses.size());
  double worst_loss = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    worst_loss = std::max(worst_loss, std::abs(result.losses[i] / static_cast<double>(losses[i]) - 1));
  }
  double worst_element = 0, distance = 0, norm = 0;
  for (std::size_t i = 0; i < plan.shapes.parameters.size(); ++i) {
    const std::vector<float> expected = recorded.floats(engine + "/" + plan.shapes.parameters[i].name);
    ASSERT_EQ(result.parameters[i].size(), expected.size());
    for (std::size_t e = 0; e < expected.size(); ++e) {
      const auto theirs = static_cast<double>(expected[e]);
      const double error = std::abs(static_cast<double>(result.parameters[i][e]) - theirs);
      worst_element = std::max(worst_element, error);
      distance += error * error;
      norm += theirs * theirs;
    }
  }
  distance = std::sqrt(distance / norm);
  std::cout << engine << ": losses within " << worst_loss << ", parameters within " << distance
            << " of their norm, each within " << worst_element << '\n';
  EXPECT_LT(worst_loss, kLossTolerance) << engine;
  EXPECT_LT(distance, kParameterTolerance) << engine;
  EXPECT_LT(worst_element, kElementTolerance) << engine;
}

/// Calls use(file) with each recording of this name, whatever its version.
template <class Use>
void for_each_recording(const std::string& name, Use use) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(FSDPBENCH_PEER_DIR "/recorded")) {
    const std::string stem = file.path().stem().string();
    if (!stem.starts_with(name) || file.path().extension() != ".json") continue;
    ++files;
    use(testing::GoldenFile("../peer/recorded/" + stem));
  }
  EXPECT_GT(files, 0) << "nothing was recorded";
}

TEST(Peer, EightStepsTrainAsUnderPyTorch) {
  for_each_recording("training-", [](const testing::GoldenFile& recorded) {
    for (const std::string engine : recorded.facts().at("engines")) {
      RunConfig c = as(engine);
      c.mesh.ranks = recorded.facts().at("ranks");
      expect_equal_training(recorded, engine, recorded.facts().at("seq_len"), c);
    }
  });
}

TEST(Peer, RanksThatSplitLayersTrainAsUnderPyTorch) {
  for_each_recording("tensor-", [](const testing::GoldenFile& recorded) {
    for (const auto& [name, mesh] : recorded.facts().at("meshes").items()) {
      RunConfig c;
      c.mesh.tensor = mesh.at("tensor");
      c.mesh.sequence_parallel = mesh.at("sequence_parallel");
      c.mesh.ranks = mesh.at("shard").get<std::int64_t>() * c.mesh.tensor;
      expect_equal_training(recorded, name, mesh.at("seq_len"), c);
    }
  });
}

}  // namespace
}  // namespace fsdpbench::engine
