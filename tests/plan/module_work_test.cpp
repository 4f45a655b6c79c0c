#include "plan/module_work.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

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
  for (const auto& [keeps, attending] :
       {std::pair{CheckpointKeeps::nothing, true}, {CheckpointKeeps::attention, false}}) {
    const ModuleWork work = module_work(c.model, 1, 8192, 1, {}, keeps)[1];
    EXPECT_DOUBLE_EQ(work.block_flops(ModuleWork::Pass::recompute).attention,
                     product * 4096 + (attending ? work.attention.flops() : 0));
  }
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
    for (const auto pass : {ModuleWork::Pass::forward, ModuleWork::Pass::backward}) {
      EXPECT_EQ(one.block_flops(pass).attention, whole.block_flops(pass).attention)
          << "kept for the recomputation alone";
    }
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

TEST(ModuleWork, EveryPassOfSplitExpertsHasItsParts) {
  config::RunConfig c;
  c.mesh.expert = 2;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.model.shared_experts = 1;
  c.fsdp.activation_checkpointing = true;
  for (const auto keeps : {config::CheckpointKeeps::nothing, config::CheckpointKeeps::attention,
                           config::CheckpointKeeps::every_second_product, config::CheckpointKeeps::products,
                           config::CheckpointKeeps::all_but_feed_forward}) {
    const ModuleWork work = module_work(c.model, 1, 128, 1, expert_split(c), keeps)[1];
    for (const auto pass : {ModuleWork::Pass::forward, ModuleWork::Pass::recompute, ModuleWork::Pass::backward}) {
      ASSERT_EQ(work.expert_parts(pass).size(), 3);
      double all = 0;
      for (int part = 0; part < 3; ++part) all += work.share(pass, part);
      EXPECT_DOUBLE_EQ(all, 1);
    }
  }
  std::vector<ModuleSizes> sizes(2 + static_cast<std::size_t>(c.model.layers));
  sizes[1].recompute_parts.resize(3);
  c.fsdp.checkpoint_keeps = config::CheckpointKeeps::products;
  set_kept_outputs(c, sizes);
  EXPECT_GT(sizes[1].recompute_parts[1].flops, 0) << "grouped products are no operators of the list";
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
      const int first = work.kind != ModuleKind::embedding && tokens ? 1 : 0;  // that computes in forward
      double share = 1;
      if (block) {
        const BlockFlops flops = work.block_flops(Pass::forward);
        share = (flops.projections + flops.attention) / flops.total();
      } else {
        EXPECT_EQ(work.share(Pass::backward, tokens ? 1 : 0), 1);
      }
      EXPECT_DOUBLE_EQ(work.share(Pass::forward, first), share);
    }
  }
}

/// Each rank computes its tokens' part of a block's norms and residual sums; rotations and SwiGLU stay, for all tokens.
TEST(ModuleWork, RanksThatSplitTokensShareNorms) {
  const config::Model model;
  const ModuleWork rows = module_work(model, 1, 128)[1], tokens = module_work(model, 1, 128, 2)[1];
  const double stream = 128.0 * static_cast<double>(model.width) / 2;
  EXPECT_DOUBLE_EQ(rows.forward.fused - tokens.forward.fused, 8 * stream);
  EXPECT_DOUBLE_EQ(rows.backward.fused - tokens.backward.fused, 10 * stream);
  EXPECT_DOUBLE_EQ(rows.forward_flops(), tokens.forward_flops());
}

/// Elements a row and kernels of a block of width 8 with 8 query, 4 key columns and feed-forwards of 16, added up by
/// hand from what each kernel reads and writes. Eager: a norm 18 (backward 33) of RMS and 2 (4) of LayerNorm, a
/// residual sum 3, a rotation 10 a column, a norm of heads 2, SwiGLU 5 (8), a plain activation 2 (3).
struct PassesCase {
  const char* name;
  void (*change)(config::Model&);
  ExpertSplit split;
  Passes forward, backward;
};

const PassesCase kPasses[] = {
    {"Llama", [](config::Model&) {}, {}, {536, 136, 24, 5}, {896, 220, 48, 10}},
    {"GPT",
     [](config::Model& m) {
       m.norm = config::Norm::layer;
       m.feed_forward = config::FeedForward::plain;
       m.bias = true;
       m.learned_positions = 16;
     },
     {},
     {112, 96, 5, 3},
     {256, 200, 16, 12}},
    {"Llama with biases", [](config::Model& m) { m.bias = true; }, {}, {536, 136, 24, 5}, {960, 284, 54, 16}},
    {"norms of heads", [](config::Model& m) { m.qk_norm = true; }, {}, {560, 160, 26, 7}, {944, 268, 52, 14}},
    {"experts",
     [](config::Model& m) { m.experts = 4, m.active_experts = 2; },
     {},
     {704, 272, 36, 13},
     {1200, 476, 72, 26}},
    {"a shared expert",
     [](config::Model& m) { m.experts = 4, m.active_experts = 2, m.shared_experts = 1; },
     {},
     {808, 344, 39, 14},
     {1424, 628, 78, 28}},
    {"a plain shared expert",
     [](config::Model& m) {
       m.experts = 4, m.active_experts = 2, m.shared_experts = 1;
       m.feed_forward = config::FeedForward::plain;
     },
     {},
     {664, 296, 38, 14},
     {1136, 508, 76, 28}},
    {"joined projections",
     [](config::Model& m) { m.fused_projections = true; },
     {},
     {536, 136, 24, 5},
     {920, 184, 48, 10}},
    {"joined projections and a shared expert",
     [](config::Model& m) { m.experts = 4, m.active_experts = 2, m.shared_experts = 1, m.fused_projections = true; },
     {},
     {808, 344, 39, 14},
     {1552, 580, 78, 28}},
    {"experts of two ranks, of which one has half as many rows again",
     [](config::Model& m) { m.experts = 4, m.active_experts = 2; },
     {.ranks = 2, .imbalance = 1.5},
     {880, 416, 36, 13},
     {1520, 748, 72, 26}},
    {"rows sent once for a rank",
     [](config::Model& m) { m.experts = 4, m.active_experts = 2; },
     {.ranks = 2, .imbalance = 1.5, .rows = config::ExpertRows::one_rank},
     {768, 304, 36, 13},
     {1224, 452, 72, 26}},
    {"rows sent to 5/3 of two ranks",
     [](config::Model& m) { m.experts = 4, m.active_experts = 2; },
     {.ranks = 2, .imbalance = 1.5, .rows = config::ExpertRows::each_rank},
     {784, 320, 36, 13},
     {1240, 468, 72, 26}},
    {"adapters", [](config::Model& m) { m.lora_rank = 2; }, {}, {856, 328, 38, 12}, {1144, 468, 62, 24}},
};

config::Model counted_by_hand() {
  config::Model m;
  m.layers = 1;
  m.width = 8;
  m.heads = 2;
  m.kv_heads = 1;
  m.ffn_width = 16;
  m.vocab = 32;
  return m;
}

void expect_passes(const Passes& said, const Passes& by_hand, double rows, const std::string& where) {
  EXPECT_DOUBLE_EQ(said.eager, rows * by_hand.eager) << where;
  EXPECT_DOUBLE_EQ(said.fused, rows * by_hand.fused) << where;
  EXPECT_EQ(said.eager_kernels, by_hand.eager_kernels) << where;
  EXPECT_EQ(said.fused_kernels, by_hand.fused_kernels) << where;
}

TEST(ModuleWork, PassesAreTheSumsOfTheirKernels) {
  for (const PassesCase& one : kPasses) {
    config::Model m = counted_by_hand();
    one.change(m);
    const ModuleWork block = module_work(m, 2, 4, 1, one.split)[1];
    expect_passes(block.forward, one.forward, 8, std::string(one.name) + ", forward");
    expect_passes(block.recompute, one.forward, 8, std::string(one.name) + ", recomputation");
    expect_passes(block.backward, one.backward, 8, std::string(one.name) + ", backward");
    EXPECT_EQ(block.by_experts, one.split.ranks > 1) << one.name;
  }
}

TEST(ModuleWork, AMixtureOfOneExpertRoutesAsOthersDo) {
  config::Model one = counted_by_hand(), two = one;
  one.active_experts = two.active_experts = 1;
  one.experts = 1;
  two.experts = 2;
  const ModuleWork of_one = module_work(one, 2, 4)[1], of_two = module_work(two, 2, 4)[1];
  EXPECT_LT(module_work(counted_by_hand(), 2, 4)[1].forward.eager, of_one.forward.eager);
  EXPECT_NEAR(of_one.forward.eager, of_two.forward.eager, 8 * 8) << "but for the router's numbers";
  EXPECT_EQ(of_one.backward.eager_kernels, of_two.backward.eager_kernels);
  EXPECT_EQ(of_one.products.size(), of_two.products.size());
}

TEST(ModuleWork, ARecomputedFeedForwardBeginsAtItsNorm) {
  const auto recompute = [](const config::Model& m) {
    return module_work(m, 1, 4, 1, {}, config::CheckpointKeeps::all_but_feed_forward)[1].recompute;
  };
  config::Model m = counted_by_hand();
  expect_passes(recompute(m), {18 * 8 + 5 * 16, 2 * 8 + 3 * 16, 9, 2}, 4, "Llama");
  m.qk_norm = true;
  expect_passes(recompute(m), {18 * 8 + 5 * 16, 2 * 8 + 3 * 16, 9, 2}, 4, "norms of heads");
  m.experts = 4, m.active_experts = 2;
  expect_passes(recompute(m), {18 * 8 + 5 * 32 + 88, 2 * 8 + 3 * 32 + 88, 21, 10}, 4, "experts");
  config::Model gpt = counted_by_hand();
  gpt.norm = config::Norm::layer;
  gpt.feed_forward = config::FeedForward::plain;
  gpt.learned_positions = 16;
  expect_passes(recompute(gpt), {2 * 8 + 2 * 16, 2 * 8 + 2 * 16, 2, 2}, 4, "GPT");
}

TEST(ModuleWork, EmbeddingsAndHeadsAreTheSumsOfTheirKernels) {
  config::Model m = counted_by_hand();
  const auto work = module_work(m, 1, 4);
  expect_passes(work.front().forward, {2 * 8, 2 * 8, 2, 1}, 4, "embedding");
  expect_passes(work.front().backward, {2 * 8, 2 * 8, 3, 3}, 4, "embedding");
  EXPECT_DOUBLE_EQ(work.front().table_elements, 32 * 8);
  expect_passes(work.back().forward, {2 * 8 + 7 * 32, 2 * 8 + 3 * 32, 5, 3}, 4, "head");
  expect_passes(work.back().backward, {4 * 8 + 11 * 32, 4 * 8 + 3 * 32, 6, 3}, 4, "head");
  EXPECT_TRUE(work.front().has_backward);
  EXPECT_TRUE(work.back().products.front().trains);
  m.learned_positions = 16;
  const ModuleWork learned = module_work(m, 1, 4).front();
  expect_passes(learned.forward, {5 * 8, 3 * 8, 2, 1}, 4, "positions");
  expect_passes(learned.backward, {3 * 8, 3 * 8, 3, 3}, 4, "positions");
  EXPECT_DOUBLE_EQ(learned.table_elements, (32 + 16) * 8);
  m.lora_rank = 2;
  EXPECT_FALSE(module_work(m, 1, 4).front().has_backward);
  EXPECT_FALSE(module_work(m, 1, 4).back().products.front().trains);
  // ReLU reads and writes its input, half as much again in backward; the bias its output.
  config::Model mlp;
  mlp.kind = config::ModelKind::mlp;
  mlp.layers = 2;
  mlp.in_features = 6;
  mlp.width = 10;
  mlp.out_features = 4;
  const auto linear = module_work(mlp, 3, 1);
  ASSERT_EQ(linear.size(), 3);
  expect_passes(linear[0].forward, {2 * 6 + 2 * 10, 2 * 6, 2, 1}, 3, "first");
  expect_passes(linear[0].backward, {3 * 6 + 2 * 10, 3 * 6 + 2 * 10, 2, 2}, 3, "first");
  expect_passes(linear[1].forward, {2 * 10 + 2 * 4, 2 * 10, 2, 1}, 3, "last");
  expect_passes(linear[2].forward, {3 * 4, 3 * 4, 1, 1}, 3, "loss");
  expect_passes(linear[2].backward, {2 * 4, 2 * 4, 1, 1}, 3, "loss");
  EXPECT_DOUBLE_EQ(linear[0].forward_flops(), 2 * 3 * 6 * 10);
  EXPECT_DOUBLE_EQ(linear[1].forward_flops(), 2 * 3 * 10 * 4);
  EXPECT_DOUBLE_EQ(linear[0].backward_flops(), 2 * 3 * 6 * 10) << "nobody wants the gradient of the batch";
  EXPECT_DOUBLE_EQ(linear[1].backward_flops(), 2 * 2 * 3 * 10 * 4);
  EXPECT_DOUBLE_EQ(linear[0].recompute_flops(), 0);
}

/// [m, n, k] times so many, in so many launches.
TEST(ModuleWork, ProductsByHand) {
  const auto text = [](const std::vector<Product>& all) {
    std::string said;
    for (const Product& p : all) {
      for (const std::int64_t number : {p.m, p.n, p.k, p.count, p.launches}) said += std::to_string(number) + ' ';
      said += p.grouped ? "grouped, " : ", ";
    }
    return said;
  };
  config::Model m = counted_by_hand();
  EXPECT_EQ(text(module_work(m, 1, 4)[1].products), "4 8 8 1 1 , 4 4 8 2 2 , 4 8 8 1 1 , 4 16 8 2 2 , 4 8 16 1 1 , ");
  m.fused_projections = true;
  EXPECT_EQ(text(module_work(m, 1, 4)[1].products), "4 16 8 1 1 , 4 8 8 1 1 , 4 32 8 1 1 , 4 8 16 1 1 , ");
  m.fused_projections = false;
  m.experts = 4, m.active_experts = 2;
  EXPECT_EQ(text(module_work(m, 1, 4)[1].products),
            "4 8 8 1 1 , 4 4 8 2 2 , 4 8 8 1 1 , 4 4 8 1 1 , 2 16 8 8 2 grouped, 2 8 16 4 1 grouped, ");
  EXPECT_EQ(text(module_work(m, 1, 1)[1].products),
            "1 8 8 1 1 , 1 4 8 2 2 , 1 8 8 1 1 , 1 4 8 1 1 , 1 16 8 4 2 grouped, 1 8 16 2 1 grouped, ")
      << "one token, which visits two";
  EXPECT_EQ(text(module_work(m, 1, 4, 1, {.ranks = 2, .imbalance = 1.2})[1].products),
            "4 8 8 1 1 , 4 4 8 2 2 , 4 8 8 1 1 , 4 4 8 1 1 , 5 16 8 4 2 grouped, 5 8 16 2 1 grouped, ")
      << "ten rows for two experts";
  EXPECT_EQ(module_work(m, 1, 4)[1].kept_products, 0);
  m.shared_experts = 3;
  const ModuleWork shared = module_work(m, 1, 4)[1];
  EXPECT_EQ(text(shared.products),
            "4 8 8 1 1 , 4 4 8 2 2 , 4 8 8 1 1 , 4 4 8 1 1 , 2 16 8 8 2 grouped, 2 8 16 4 1 grouped, "
            "4 48 8 2 2 , 4 8 48 1 1 , ");
  EXPECT_EQ(shared.kept_products, 1);
  EXPECT_EQ(shared.shared_products, 2);
  config::Model adapted = counted_by_hand();
  adapted.lora_rank = 2;
  const ModuleWork lora = module_work(adapted, 1, 4)[1];
  EXPECT_EQ(text(lora.adapters),
            "4 2 8 1 1 , 4 8 2 1 1 , 4 2 8 2 2 , 4 4 2 2 2 , 4 2 8 1 1 , 4 8 2 1 1 , 4 2 8 2 2 , "
            "4 16 2 2 2 , 4 2 16 1 1 , 4 8 2 1 1 , ");
}

TEST(ModuleWork, RanksThatSplitSequencesShareAttentionEqually) {
  using Pass = ModuleWork::Pass;
  const config::Model m = counted_by_hand();
  const ModuleWork work = module_work(m, 1, 8, 1, {}, config::CheckpointKeeps::nothing, 2)[1];
  EXPECT_TRUE(work.by_context);
  EXPECT_EQ(work.attention.rows, 4);
  const double attention = 4 * 4 * 4 * 8 + 2 * 4 * 8 * 8, projections = 2 * 4 * 8 * (8 + 2 * 4),
               feed_forward = 2 * 4 * 8 * 2 * 16 + 2 * 4 * 8 * 16;
  EXPECT_EQ(work.block_flops(Pass::forward).gathered_parts(false),
            (std::vector<double>{projections, attention + feed_forward}));
  EXPECT_EQ(work.block_flops(Pass::backward).gathered_parts(true),
            (std::vector<double>{2 * feed_forward, 2.5 * 4 * 4 * 4 * 8 + 2 * 2 * 4 * 8 * 8, 2 * projections}));
}

TEST(ModuleWork, PartsOfABlockByHand) {
  using Parts = std::vector<double>;
  const BlockFlops flops{1, 2, 4, 8, 16, 96};
  EXPECT_EQ(flops.total(), 127);
  EXPECT_EQ(flops.expert_parts(false), (Parts{19 + 96, 12, 0}));
  EXPECT_EQ(flops.expert_parts(true), (Parts{96, 12, 19}));
  EXPECT_EQ(flops.gathered_parts(false), (Parts{1, 126}));
  EXPECT_EQ(flops.gathered_parts(true), (Parts{124, 2, 1}));
  EXPECT_EQ(flops.forward_parts(false), (Parts{3, 12, 0}));
  EXPECT_EQ(flops.forward_parts(true), (Parts{0, 3, 0, 12, 0}));
  EXPECT_EQ(flops.backward_parts(false), (Parts{12, 3, 0}));
  EXPECT_EQ(flops.backward_parts(true), (Parts{0, 8, 4, 0, 2, 1, 0, 0}));
}

/// Four of 8 ranks' experts: 2 each, of which a token's two miss a rank with a chance of 6/8 * 5/7.
TEST(ModuleWork, RowsOfATokenGoToTheRanksOfItsExperts) {
  config::RunConfig c;
  c.model = counted_by_hand();
  c.model.experts = 8, c.model.active_experts = 2;
  c.mesh.expert = 4;
  c.mesh.expert_rows = config::ExpertRows::each_rank;
  const ExpertSplit split = expert_split(c);
  EXPECT_EQ(split.ranks, 4);
  EXPECT_DOUBLE_EQ(split.ranks_of_token(c.model), 4 * (1 - 30.0 / 56));
  EXPECT_EQ(split.sent_rows(c.model, 28), 26);
  EXPECT_EQ(split.sent_rows(c.model, 29), 27) << "what is begun counts";
  c.mesh.expert_rows = config::ExpertRows::one_rank;
  EXPECT_EQ(expert_split(c).sent_rows(c.model, 28), 14);
  c.mesh.expert_rows = config::ExpertRows::each_expert;
  EXPECT_EQ(expert_split(c).sent_rows(c.model, 28), 28);
  c.mesh.expert_imbalance = 1.3;
  EXPECT_EQ(expert_split(c).arrived_rows(9), 12);
  EXPECT_EQ(even_expert_split(c).arrived_rows(9), 9);
  EXPECT_EQ(even_expert_split(c).ranks, 4);
  EXPECT_DOUBLE_EQ((ExpertSplit{.ranks = 2, .rows = config::ExpertRows::each_rank}).ranks_of_token([&] {
    config::Model all = c.model;
    all.active_experts = 6;
    return all;
  }()),
                   2)
      << "four experts of one rank are not enough";
  // Rows of exchanges are kept beside attention's output and its sums of exponentials: 8 + 2 floats a token.
  c.train.batch_per_rank = 1, c.train.seq_len = 4;
  c.fsdp.activation_checkpointing = true;
  c.fsdp.checkpoint_keeps = config::CheckpointKeeps::attention;
  EXPECT_FALSE(expert_split(c).repeats);
  std::vector<ModuleSizes> sizes(3);
  set_kept_outputs(c, sizes);
  EXPECT_EQ(sizes[1].kept_output_bytes, 4 * (4 * (8 + 2) + (11 + 8) * 8)) << "11 rows came of 8, all 8 returned";
  EXPECT_EQ(sizes[1].kept_saved_bytes, 4 * (4 * (8 + 2) + 8 * 8));
}

/// FLOPs of 4 tokens: a router to 4 experts of 8 columns, and shared ones beside those that are chosen.
TEST(ModuleWork, ABlockOfSplitExpertsHasItsRouterBeforeTheExchange) {
  using Pass = ModuleWork::Pass;
  config::Model m = counted_by_hand();
  m.experts = 4, m.active_experts = 2, m.shared_experts = 3;
  const double router = 2 * 4 * 4 * 8, expert = 2 * 8 * 8 * 16, shared = 2 * 4 * 8 * 48;
  for (const bool split : {false, true}) {
    const ModuleWork work = module_work(m, 1, 4, 1, split ? ExpertSplit{.ranks = 2} : ExpertSplit{})[1];
    for (const auto& [pass, times] : {std::pair{Pass::forward, 1.0}, {Pass::backward, 2.0}}) {
      const BlockFlops flops = work.block_flops(pass);
      EXPECT_DOUBLE_EQ(flops.routing, split ? times * router : 0);
      EXPECT_DOUBLE_EQ(flops.expanding, times * (2 * expert + (split ? 0 : router)));
      EXPECT_DOUBLE_EQ(flops.contracting, times * expert);
      EXPECT_DOUBLE_EQ(flops.shared, times * 3 * shared);
      EXPECT_DOUBLE_EQ(flops.projections, times * 2 * 4 * 8 * (8 + 2 * 4));
      EXPECT_DOUBLE_EQ(flops.attention,
                       (pass == Pass::backward ? 2.5 : 1) * work.attention.flops() + times * 2 * 4 * 8 * 8);
    }
    const BlockFlops again = work.block_flops(Pass::recompute);
    EXPECT_DOUBLE_EQ(again.contracting, expert);
    EXPECT_DOUBLE_EQ(again.shared, 2 * shared) << "nobody needs its output again";
  }
}

/// The middle one of three linear layers trains: below it there is no backward, above it only the input's gradient.
TEST(ModuleWork, FrozenLayersOfAnMlpHaveNoWeightGradients) {
  config::Model mlp;
  mlp.kind = config::ModelKind::mlp;
  mlp.layers = 3;
  mlp.in_features = mlp.width = mlp.out_features = 10;
  mlp.trainable = {config::Trainable::Mode::blocks, 1, 1};
  const auto work = module_work(mlp, 3, 1);
  const double product = 2 * 3 * 10 * 10;
  EXPECT_FALSE(work[0].has_backward);
  EXPECT_DOUBLE_EQ(work[0].backward_flops(), 0);
  EXPECT_TRUE(work[1].has_backward);
  EXPECT_DOUBLE_EQ(work[1].backward_flops(), product) << "its weight's";
  EXPECT_DOUBLE_EQ(work[2].backward_flops(), product) << "its input's";
}

}  // namespace
}  // namespace fsdpbench::plan
