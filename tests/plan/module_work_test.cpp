#include "plan/module_work.h"

#include <gtest/gtest.h>

namespace fsdpbench::plan {
namespace {

/// Pairs of a token and one it attends to, counted one by one.
double counted_pairs(std::int64_t seq_len, std::int64_t window) {
  double pairs = 0;
  for (std::int64_t query = 0; query < seq_len; ++query) {
    for (std::int64_t key = 0; key <= query; ++key) pairs += window == 0 || query - key < window ? 1 : 0;
  }
  return pairs;
}

TEST(ModuleWork, AttentionCountsThePairsThatAreThere) {
  for (const std::int64_t window : {0, 1, 50, 300, 511, 512, 4096}) {
    const AttentionWork work{512, 512, 1, 1, window};
    // Integrals instead of sums: half a token a row is the difference at the diagonal.
    EXPECT_NEAR(work.mean_span() * 512, counted_pairs(512, window), 0.5 * 512 + 1) << window;
  }
}

TEST(ModuleWork, EveryTokenVisitsItsExpertsAndNoOthers) {
  config::Model model;
  model.experts = 16;
  model.active_experts = 4;
  const auto flops = [](const config::Model& m) { return module_work(m, 2, 64)[1].forward_flops(); };
  config::Model dense = model;
  dense.experts = dense.active_experts = 0;
  dense.ffn_width = 4 * model.ffn_width;
  const double router = 2.0 * 128 * 16 * static_cast<double>(model.width);
  EXPECT_DOUBLE_EQ(flops(model), flops(dense) + router);
  model.experts = 64;
  EXPECT_DOUBLE_EQ(flops(model), flops(dense) + 4 * router);
  dense.ffn_width = 7 * model.ffn_width;
  model.shared_experts = 3;
  EXPECT_DOUBLE_EQ(flops(model), flops(dense) + 4 * router);
}

/// Forward F, input gradients F, weight gradients F: what is frozen saves the last, and what lies below all that trains
/// has no backward. The first block with adapters does not want the gradient of its input.
TEST(ModuleWork, FrozenProductsHaveNoWeightGradients) {
  config::Model whole, frozen;
  frozen.trainable = {config::Trainable::Mode::blocks, 1, 1};
  frozen.layers = whole.layers = 3;
  const auto all = module_work(whole, 2, 64), some = module_work(frozen, 2, 64);
  const double attention = all[1].attention.flops(), products = all[1].forward_flops() - attention;
  EXPECT_DOUBLE_EQ(some[1].backward_flops(), 0);
  EXPECT_DOUBLE_EQ(some[2].backward_flops(), all[2].backward_flops());
  EXPECT_DOUBLE_EQ(some[3].backward_flops(), products + 2.5 * attention);
  EXPECT_DOUBLE_EQ(some[4].backward_flops(), all[4].backward_flops() / 2);
  frozen.lora_rank = 4;
  const auto adapted = module_work(frozen, 2, 64);
  const auto w = static_cast<double>(frozen.width), f = static_cast<double>(frozen.ffn_width);
  const auto k = static_cast<double>(frozen.kv_heads * frozen.head_size());
  const double adapters = 2.0 * 128 * 4 * (2 * 2 * w + 2 * (w + k) + 3 * (w + f));
  EXPECT_DOUBLE_EQ(adapted[1].forward_flops(), all[1].forward_flops());
  EXPECT_DOUBLE_EQ(adapted[2].forward_flops(), all[2].forward_flops() + adapters);
  EXPECT_DOUBLE_EQ(adapted[2].recompute_flops(), all[2].recompute_flops() + adapters - 2.0 * 128 * 4 * w);
  const double to_input = 2.0 * 128 * (w * (w + 2 * k) + 3 * 4 * w);  // of the projections and of their adapters
  EXPECT_DOUBLE_EQ(adapted[2].backward_flops(), products + 2.5 * attention + 2 * adapters - to_input);
  EXPECT_LT(adapted[3].backward_flops(), all[3].backward_flops());
}

TEST(ModuleWork, APlainFeedForwardHasTwoMatricesOfThree) {
  config::Model gated, plain;
  plain.feed_forward = config::FeedForward::plain;
  const double matrix = 2.0 * 128 * static_cast<double>(gated.width * gated.ffn_width);
  const ModuleWork three = module_work(gated, 1, 128)[1], two = module_work(plain, 1, 128)[1];
  EXPECT_DOUBLE_EQ(three.forward_flops() - two.forward_flops(), matrix);
  EXPECT_DOUBLE_EQ(three.backward_flops() - two.backward_flops(), 2 * matrix);
  EXPECT_GT(three.forward.eager, two.forward.eager);
}

/// Llama 3 8B's block on 8192 tokens, of which torchtitan's selective "op" keeps the outputs of the products to queries
/// (1st) and values (3rd), to the gate (5th) and back (7th), and attention's.
TEST(ModuleWork, EverySecondProductIsKeptAndTheOthersAreRecomputed) {
  using config::CheckpointKeeps;
  config::RunConfig c;
  c.model.layers = 1;
  c.model.width = 4096;
  c.model.heads = 32;
  c.model.kv_heads = 8;
  c.model.ffn_width = 14336;
  c.train.batch_per_rank = 1;
  c.train.seq_len = 8192;
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.activation_checkpointing = true;
  const auto sizes_of = [&](CheckpointKeeps keeps) {
    c.fsdp.checkpoint_keeps = keeps;
    std::vector<ModuleSizes> sizes(3);
    set_kept_outputs(c, sizes);
    return sizes[1];
  };
  const std::int64_t wide = 8192 * 14336 * 2, full = 8192 * 4096 * 2, narrow = 8192 * 1024 * 2, sums = 8192 * 32 * 4;
  const double product = 2.0 * 8192 * 4096;
  EXPECT_EQ(sizes_of(CheckpointKeeps::nothing).kept_output_bytes, 0);
  EXPECT_EQ(sizes_of(CheckpointKeeps::attention).kept_output_bytes, full + sums);
  const ModuleSizes second = sizes_of(CheckpointKeeps::every_second_product);
  EXPECT_EQ(second.kept_output_bytes, full + sums + full + narrow + wide + full);
  EXPECT_EQ(second.kept_saved_bytes, second.kept_output_bytes - full) << "what returns is added to the stream at once";
  EXPECT_DOUBLE_EQ(second.recompute_flops, product * (1024 + 4096 + 14336)) << "keys, after attention, the second wide";
  const ModuleSizes products = sizes_of(CheckpointKeeps::products);
  EXPECT_EQ(products.kept_output_bytes, full + sums + full + 2 * narrow + full + 2 * wide + full);
  EXPECT_EQ(products.kept_saved_bytes, products.kept_output_bytes - 2 * full);
  EXPECT_EQ(products.recompute_flops, 0);
  c.model.experts = 4;
  c.model.active_experts = 2;
  EXPECT_EQ(sizes_of(CheckpointKeeps::products).kept_output_bytes, full + sums + full + 2 * narrow + full)
      << "neither the router nor the experts";
}

/// Megatron's recompute modules: what is outside of the module is saved, and nothing of it is computed again.
TEST(ModuleWork, AModuleAloneIsRecomputed) {
  using config::CheckpointKeeps;
  const auto sizes_of = [](config::RunConfig c, CheckpointKeeps keeps) {
    c.fsdp.activation_checkpointing = true;
    c.fsdp.checkpoint_keeps = keeps;
    std::vector<ModuleSizes> sizes(2 + static_cast<std::size_t>(c.model.layers));
    sizes[1].saved_bytes = 1 << 30;
    sizes[1].feed_forward_saved_bytes = 1000;
    sizes[1].recompute_parts.resize(3);
    set_kept_outputs(c, sizes);
    return sizes[1];
  };
  const auto work_of = [](const config::RunConfig& c, CheckpointKeeps keeps) {
    return module_work(c.model, c.train.batch_per_rank, c.train.seq_len, 1, expert_split(c), keeps)[1];
  };
  config::RunConfig dense;
  dense.model.layers = 1;
  dense.train.seq_len = 128;
  config::RunConfig routed = dense;
  routed.model.experts = 8;
  routed.model.active_experts = 2;
  config::RunConfig split = routed;
  split.mesh.expert = 4;
  for (const config::RunConfig& c : {dense, routed, split}) {
    const std::int64_t rows = c.train.batch_per_rank * c.train.seq_len;
    const ModuleSizes feeds = sizes_of(c, CheckpointKeeps::all_but_feed_forward),
                      attends = sizes_of(c, CheckpointKeeps::all_but_attention);
    EXPECT_EQ(feeds.kept_output_bytes, (1 << 30) - 1000);
    EXPECT_EQ(feeds.kept_saved_bytes, feeds.kept_output_bytes);
    EXPECT_EQ(attends.kept_saved_bytes, (1 << 30) - rows * c.model.heads * 4) << "sums of exponentials alone";
    EXPECT_EQ(feeds.recompute_parts.size(), 3);
    EXPECT_TRUE(attends.recompute_parts.empty());
    const ModuleWork whole = work_of(c, CheckpointKeeps::nothing),
                     one = work_of(c, CheckpointKeeps::all_but_feed_forward),
                     other = work_of(c, CheckpointKeeps::all_but_attention);
    const BlockFlops flops = whole.block_flops(ModuleWork::Pass::recompute);
    EXPECT_DOUBLE_EQ(attends.recompute_flops, whole.attention.flops());
    EXPECT_DOUBLE_EQ(feeds.recompute_flops, flops.total() - flops.projections - flops.attention);
    EXPECT_EQ(other.recompute.eager + other.recompute.fused, 0);
    EXPECT_EQ(other.recompute.eager_kernels + other.recompute.fused_kernels, 0);
    EXPECT_LT(one.recompute.eager, whole.recompute.eager);
    EXPECT_LT(one.recompute.fused, whole.recompute.fused);
    EXPECT_GT(one.recompute.eager, one.recompute.fused);
    EXPECT_GE(one.recompute.fused_kernels, 2) << "the norm before it, and what stands between its products";
    EXPECT_DOUBLE_EQ(one.forward_flops(), whole.forward_flops());
  }
  config::RunConfig adapted = dense;
  adapted.model.lora_rank = 8;
  const auto added = [&](CheckpointKeeps keeps) {
    return work_of(adapted, keeps).recompute_flops() - work_of(dense, keeps).recompute_flops();
  };
  EXPECT_EQ(added(CheckpointKeeps::all_but_attention), 0);
  EXPECT_GT(added(CheckpointKeeps::all_but_feed_forward), 0);
  EXPECT_LT(added(CheckpointKeeps::all_but_feed_forward), added(CheckpointKeeps::nothing));
}

/// Also where the shared expert's products are all kept, and what is beside an exchange then computes nothing.
TEST(ModuleWork, EveryPassOfSplitExpertsHasThePartsOfItsOverlap) {
  config::RunConfig c;
  c.mesh.expert = 2;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.model.shared_experts = 1;
  c.mesh.expert_overlap = config::ExpertOverlap::both;
  c.fsdp.activation_checkpointing = true;
  for (const auto keeps : {config::CheckpointKeeps::nothing, config::CheckpointKeeps::attention,
                           config::CheckpointKeeps::every_second_product, config::CheckpointKeeps::products,
                           config::CheckpointKeeps::all_but_feed_forward}) {
    const ModuleWork work = module_work(c.model, 1, 128, 1, expert_split(c), keeps)[1];
    for (const auto pass : {ModuleWork::Pass::forward, ModuleWork::Pass::recompute, ModuleWork::Pass::backward}) {
      ASSERT_EQ(work.expert_parts(pass).size(), 5);
      double all = 0;
      for (int part = 0; part < 5; ++part) all += work.share(pass, part);
      EXPECT_DOUBLE_EQ(all, 1);
    }
  }
  std::vector<ModuleSizes> sizes(2 + static_cast<std::size_t>(c.model.layers));
  sizes[1].recompute_parts.resize(5);
  c.fsdp.checkpoint_keeps = config::CheckpointKeeps::products;
  set_kept_outputs(c, sizes);
  EXPECT_EQ(sizes[1].recompute_parts[1].flops, 0);
  EXPECT_GT(sizes[1].recompute_parts[2].flops, 0) << "grouped products are no operators of the list";
}

TEST(ModuleWork, JoinedProjectionsAreFewerProductsOfAsManyFlops) {
  config::Model separate;
  for (const bool experts : {false, true}) {
    if (experts) separate.experts = 8, separate.active_experts = 2;
    config::Model fused = separate;
    fused.fused_projections = true;
    const auto launches = [](const ModuleWork& work) {
      std::int64_t all = 0;
      for (const Product& product : work.products) all += product.launches;
      return all;
    };
    const ModuleWork apart = module_work(separate, 2, 64)[1], joined = module_work(fused, 2, 64)[1];
    EXPECT_EQ(launches(apart) - launches(joined), 3);
    EXPECT_EQ(joined.products[0].n, separate.width * (separate.heads + 2 * separate.kv_heads) / separate.heads);
    EXPECT_DOUBLE_EQ(joined.forward_flops(), apart.forward_flops());
    EXPECT_DOUBLE_EQ(joined.recompute_flops(), apart.recompute_flops());
    EXPECT_DOUBLE_EQ(joined.backward_flops(), apart.backward_flops());
    for (const auto pass : {ModuleWork::Pass::forward, ModuleWork::Pass::recompute, ModuleWork::Pass::backward}) {
      const BlockFlops a = apart.block_flops(pass), j = joined.block_flops(pass);
      EXPECT_DOUBLE_EQ(j.projections, a.projections);
      EXPECT_DOUBLE_EQ(j.attention, a.attention);
      EXPECT_DOUBLE_EQ(j.expanding, a.expanding);
      EXPECT_DOUBLE_EQ(j.contracting, a.contracting);
    }
    EXPECT_LT(joined.backward.fused, apart.backward.fused);  // fewer gradients meet
  }
}

TEST(ModuleWork, AWindowCostsBlocksThatHaveIt) {
  config::Model model;
  model.attention_window = 16;
  model.full_attention_every = 2;
  const auto work = module_work(model, 1, 128);
  EXPECT_EQ(work[1].attention.window, 16);
  EXPECT_EQ(work[2].attention.window, 0);
  EXPECT_LT(work[1].forward_flops(), work[2].forward_flops());
}

TEST(ModuleWork, ACompilerReadsNothingTwice) {
  for (const bool plain : {false, true}) {
    config::Model model;
    if (plain) model.feed_forward = config::FeedForward::plain;
    for (const ModuleWork& work : module_work(model, 1, 128)) {
      EXPECT_LE(work.forward.fused, work.forward.eager);
      EXPECT_LE(work.backward.fused, work.backward.eager);
      EXPECT_LE(work.forward.fused_kernels, work.forward.eager_kernels);
    }
  }
}

/// The parts that ranks who split layers run passes in (docs/tensor.md) do together what the pass does.
TEST(ModuleWork, PartsShareTheArithmetic) {
  using Pass = ModuleWork::Pass;
  const config::Model model;
  for (const int token_ranks : {1, 2}) {
    const bool tokens = token_ranks > 1;
    for (const ModuleWork& work : module_work(tensor_part(model, 2), 1, 128, token_ranks)) {
      const bool block = work.kind == ModuleKind::block;
      const auto all = [&](Pass pass, int parts) {
        double sum = 0;
        for (int part = 0; part < parts; ++part) sum += work.share(pass, part);
        return sum;
      };
      EXPECT_DOUBLE_EQ(all(Pass::forward, block && tokens ? 5 : 3), 1);
      EXPECT_DOUBLE_EQ(all(Pass::backward, block && tokens ? 8 : 3), 1);
      if (block) {
        EXPECT_DOUBLE_EQ(all(Pass::recompute, tokens ? 4 : 2), 1);
      }
      EXPECT_DOUBLE_EQ(work.share(Pass::forward, -1), 1) << "not in parts";
    }
  }
}

/// Of a block's norms and residual sums each rank has its tokens'; rotations and SwiGLU stay, for all tokens.
TEST(ModuleWork, RanksThatSplitTokensShareNorms) {
  const config::Model model;
  const ModuleWork rows = module_work(model, 1, 128)[1], tokens = module_work(model, 1, 128, 2)[1];
  const double stream = 128.0 * static_cast<double>(model.width) / 2;
  EXPECT_DOUBLE_EQ(rows.forward.fused - tokens.forward.fused, 8 * stream);
  EXPECT_DOUBLE_EQ(rows.backward.fused - tokens.backward.fused, 10 * stream);
  EXPECT_DOUBLE_EQ(rows.forward_flops(), tokens.forward_flops());
}

}  // namespace
}  // namespace fsdpbench::plan
