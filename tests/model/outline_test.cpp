#include "model/outline.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/decoder.h"
#include "model/support.h"

namespace fsdpbench {
namespace {

using testing::small_decoder;
using testing::with_experts;
using testing::with_shared;

void expect_carved(const plan::ModuleSizes& said, const plan::ModuleSizes& carved) {
  EXPECT_EQ(said.saved_bytes, carved.saved_bytes);
  EXPECT_EQ(said.forward_workspace_bytes, carved.forward_workspace_bytes);
  EXPECT_EQ(said.backward_workspace_bytes, carved.backward_workspace_bytes);
}

TEST(Outline, KnowsTheSizesOfAModelThatRuns) {
  config::Model wide = small_decoder(3, false);
  wide.width = 128;
  wide.ffn_width = 352;
  const config::Model narrow = small_decoder(2, true);
  for (const config::Model& model : {narrow, wide}) {
    for (const model::BatchShape batch :
         {model::BatchShape{3, 10, DType::bf16}, model::BatchShape{1, 300, DType::f32}}) {
      for (const model::TensorSplit split :
           {model::TensorSplit{}, model::TensorSplit{2}, model::TensorSplit{2, true}}) {
        const config::Model part = plan::tensor_part(model, split.ranks);
        const model::Decoder decoder(part, batch, split);
        const std::vector<plan::ModuleSizes> sizes = decoder.sizes();
        const auto [block, head] = decoder.carved();
        expect_carved(sizes[1], block);
        expect_carved(sizes.back(), head);
      }
    }
  }
}

/// Beside what a plain block saves: the router's logits, of each visit which expert, where and with what weight, where
/// each expert's rows begin, and what the experts gave; gate and up are of visits instead of tokens.
TEST(Outline, AMixtureSavesWhatItsRouterAndItsVisitsNeed) {
  const config::Model plain = small_decoder(2, true), mixture = with_experts(plain);
  const model::BatchShape batch{3, 10, DType::f32};
  const auto saved = [&](const config::Model& model) { return model::Outline(model, batch).sizes()[1].saved_bytes; };
  const auto taken = [](std::int64_t values) { return round_up(values * 4, 64); };
  const std::int64_t rows = 30, visits = 2 * rows;
  EXPECT_EQ(saved(mixture) - saved(plain), taken(rows * 5) + 3 * taken(visits) + taken(5 + 1) +
                                               taken(visits * plain.width) +
                                               2 * (taken(visits * plain.ffn_width) - taken(rows * plain.ffn_width)));
  const std::int64_t shared = with_shared(mixture).shared_width();
  EXPECT_EQ(saved(with_shared(mixture)) - saved(mixture), 2 * taken(rows * shared));
}

// Bytes that tests/peer/eager_loss.py sees PyTorch allocate: of bf16 logits 10 bytes a logit in forward, of which 4
// stay, and 12 in backward; of fp32 ones, which are not copied, 8, 4 and 12.
TEST(Outline, AnEagerLossHoldsFp32CopiesOfTheLogits) {
  config::Model model = small_decoder(2, false);
  model.vocab = 512;
  model.width = 64;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const model::BatchShape batch{4, 16, dtype};
    const std::int64_t logits = batch.rows() * model.vocab;
    const plan::ModuleSizes
        own = model::Outline(model, batch).sizes().back(),
        eager = model::Outline(model, batch, {}, {}, {.loss = config::Simulate::Loss::eager}).sizes().back();
    const std::int64_t element = size_of(dtype), statistics = own.saved_bytes - logits * element;
    EXPECT_EQ(eager.saved_bytes, 4 * logits + statistics);
    EXPECT_EQ(eager.forward_workspace_bytes - own.forward_workspace_bytes, (dtype == DType::bf16 ? 6 : 4) * logits);
    EXPECT_EQ(eager.backward_workspace_bytes, 8 * logits);
    EXPECT_EQ(eager.forward_flops, own.forward_flops);
  }
  const model::BatchShape few{1, 1, DType::bf16};
  config::Model narrow_vocabulary = model;
  narrow_vocabulary.vocab = 8;
  EXPECT_EQ(model::Outline(narrow_vocabulary, few, {}, {}, {.loss = config::Simulate::Loss::eager})
                .sizes()
                .back()
                .backward_workspace_bytes,
            model::Outline(narrow_vocabulary, few).sizes().back().backward_workspace_bytes)
      << "the product's backward needs more";
}

TEST(Outline, AnEagerLossIsOfSimulationsOnly) {
  config::RunConfig config;
  config.simulate.loss = config::Simulate::Loss::eager;
  const auto saved = [&] {
    return model::make_model(config, plan::model_shapes(config.model))->sizes().back().saved_bytes;
  };
  config.fsdp.param_dtype = DType::bf16;
  const std::int64_t of_a_run = saved();
  config.device.backend = config::BackendKind::virtual_;
  EXPECT_GT(saved(), of_a_run);
  config.simulate.loss = config::Simulate::Loss::automatic;
  EXPECT_EQ(saved(), of_a_run);
  config.simulate.loss = config::Simulate::Loss::eager;
  EXPECT_EQ(model::key_without_kernels(config), "") << "[simulate] has no effect on a run";
}

// Bf16 tensors of the width per token, the block's input among them, as tests/peer/memory.py --blocks counts them.
TEST(Outline, BlocksKeepWhatAutogradKeepsWhereItComputes) {
  using Framework = config::Simulate::Framework;
  const auto kept = [](Framework framework, std::int64_t kv_heads, bool compiled, bool plain) {
    config::Model model = small_decoder(2, false);
    model.width = 512;
    model.heads = 8;
    model.kv_heads = kv_heads;
    model.ffn_width = plain ? 2048 : 1792;
    if (plain) model.feed_forward = config::FeedForward::plain, model.norm = config::Norm::layer;
    const model::BatchShape batch{4, 512, DType::bf16};
    const plan::ModuleSizes block =
        model::Outline(model, batch, {}, {}, {.framework = framework, .compiled = compiled}).sizes().at(1);
    return static_cast<double>(block.saved_bytes + block.output_bytes) / static_cast<double>(block.output_bytes);
  };
  EXPECT_NEAR(kept(Framework::own, 8, false, false), 13.04, 0.01);
  EXPECT_NEAR(kept(Framework::pytorch, 8, false, false), 22.04, 0.01);
  EXPECT_NEAR(kept(Framework::pytorch, 2, false, false), 20.54, 0.01);
  EXPECT_NEAR(kept(Framework::pytorch, 8, true, false), 18.54, 0.01);
  EXPECT_NEAR(kept(Framework::transformers, 8, false, false), 26.04, 0.01);
  EXPECT_NEAR(kept(Framework::pytorch, 8, false, true), 16.04, 0.01);
}

// On a cluster the question is about PyTorch; a calibration, or a run, is of this engine.
TEST(Outline, AClustersModulesArePyTorchs) {
  config::RunConfig config;
  config.simulate.cluster = "dgx-h100";
  EXPECT_EQ(config.framework(), config::Simulate::Framework::own) << "it runs";
  config.device.backend = config::BackendKind::virtual_;
  EXPECT_EQ(config.framework(), config::Simulate::Framework::pytorch);
  EXPECT_EQ(config.loss(), config::Simulate::Loss::eager);
  config.simulate.compiled = true;
  EXPECT_EQ(config.loss(), config::Simulate::Loss::fused);
  config.simulate.calibration = "host.toml";
  EXPECT_EQ(config.framework(), config::Simulate::Framework::own);
}

TEST(Outline, NamesTheFirstKeyThatHasNoKernels) {
  config::RunConfig config;
  EXPECT_EQ(model::key_without_kernels(config), "");
  config.model.head_dim = config.model.width / config.model.heads;
  EXPECT_EQ(model::key_without_kernels(config), "") << "the head size that there is anyway";
  config.model.head_dim = 2 * config.model.head_dim;
  EXPECT_EQ(model::key_without_kernels(config), "model.head_dim");
  config.model.norm = config::Norm::layer;
  EXPECT_EQ(model::key_without_kernels(config), "model.norm");
  config.model = {};
  config.fsdp.recompute_share = 0.5;
  EXPECT_EQ(model::key_without_kernels(config), "") << "nothing is recomputed";
  config.fsdp.activation_checkpointing = true;
  EXPECT_EQ(model::key_without_kernels(config), "fsdp.recompute_share");
  config.fsdp.recompute_share = 1;
  EXPECT_EQ(model::key_without_kernels(config), "");
  config.fsdp.checkpoint_keeps = config::CheckpointKeeps::attention;
  EXPECT_EQ(model::key_without_kernels(config), "fsdp.checkpoint_keeps");
  config = {};
  config.model = with_experts(config.model);
  EXPECT_EQ(model::key_without_kernels(config), "model.experts");
  config.model = {};
  config.model.trainable = {config::Trainable::Mode::blocks, 1, 2};
  EXPECT_EQ(model::key_without_kernels(config), "model.trainable");
  config.model.lora_rank = 4;
  EXPECT_EQ(model::key_without_kernels(config), "model.lora_rank");
}

TEST(Outline, SizesThatNoIntegerHoldsAreSaid) {
  config::Model model = small_decoder(1, false);
  model.feed_forward = config::FeedForward::plain;
  model.ffn_width = std::int64_t{1} << 22;
  const model::Outline outline(model, {std::int64_t{1} << 20, std::int64_t{1} << 22, DType::f32});
  EXPECT_THROW((void)outline.sizes(), ResourceError);
}

TEST(Outline, ServesModelsWithoutKernelsOnly) {
  config::Model model = small_decoder(2, false);
  const model::BatchShape batch{3, 10, DType::bf16};
  const auto made = [&] { return model::make_model(model, plan::model_shapes(model), batch); };
  EXPECT_EQ(dynamic_cast<model::Outline*>(made().get()), nullptr);
  const auto gated = made()->sizes()[1];
  model.feed_forward = config::FeedForward::plain;
  ASSERT_NE(dynamic_cast<model::Outline*>(made().get()), nullptr);
  EXPECT_LT(made()->sizes()[1].saved_bytes, gated.saved_bytes);  // no gate to save
  const auto plain = made()->sizes()[1];
  model.experts = 8;
  model.active_experts = 2;
  EXPECT_GT(made()->sizes()[1].saved_bytes, plain.saved_bytes);  // two experts' tensors a token
  model.feed_forward = config::FeedForward::gated;
  EXPECT_NE(dynamic_cast<model::Outline*>(made().get()), nullptr) << "experts are simulated only";
  const auto separate = made()->sizes()[1];
  model.fused_projections = true;
  const auto joined = made()->sizes()[1];
  EXPECT_NEAR(static_cast<double>(joined.saved_bytes), static_cast<double>(separate.saved_bytes), 3 * 64);
  EXPECT_DOUBLE_EQ(joined.backward_flops, separate.backward_flops);
}

}  // namespace
}  // namespace fsdpbench
