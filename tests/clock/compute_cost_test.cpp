#include "clock/compute_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

using ::fsdpbench::testing::make_case;

/// An A100 and an H100 as their clusters have them.
GpuRates a100() { return {312e12 * 0.87, 0, 312e12, 1.61e12, 108}; }
GpuRates h100() { return {989e12 * 0.80, 1979e12 * 0.71, 989e12, 2.9e12, 132}; }

constexpr Framework kBest{.efficiency = 1};

double square(const ComputeCost& cost, std::int64_t size, bool fp8) {
  const auto n = static_cast<double>(size);
  return 2 * n * n * n / cost.product_seconds({size, size, size}, fp8) / 1e12;
}

TEST(ComputeCost, SquareProductsReachTheRatesThatWereMeasured) {
  // Sustained cuBLASLt rates of Azure/AI-benchmarking-guide, TFLOP/s.
  const ComputeCost a(a100(), kBest, DType::bf16), h(h100(), kBest, DType::bf16, true);
  EXPECT_NEAR(square(a, 4096, false) / 228, 1, 0.04);
  EXPECT_NEAR(square(a, 8192, false) / 254, 1, 0.04);
  EXPECT_NEAR(square(a, 16384, false) / 257, 1, 0.04);
  EXPECT_NEAR(square(h, 2048, true) / 1011, 1, 0.05);
  EXPECT_NEAR(square(h, 8192, true) / 1290, 1, 0.04);
  EXPECT_NEAR(square(h, 16384, true) / 1377, 1, 0.04);
}

/// Products of bf16 as they occur in models of 1 to 3 B, each timed for itself: TFLOP/s of an H100 in XLA's
/// matmul_interpolator_data.h. Such clocks do not last for a step, so the model must not say more, nor much less.
TEST(ComputeCost, ProductsTakeLittleMoreThanThoseThatWereTimedAlone) {
  struct Row {
    plan::Product product;
    double tflops;
  };
  const ComputeCost cost(h100(), kBest, DType::bf16);
  for (const auto& [product, tflops] :
       {Row{{4096, 2048, 2048, 2}, 733}, Row{{4096, 1024, 2048, 4}, 721}, Row{{4096, 2048, 2048, 4}, 759},
        Row{{4096, 4096, 2048, 4}, 765}, Row{{2048, 4096, 4096, 4}, 802}, Row{{4096, 2048, 4096}, 758}}) {
    const double modelled = product.flops() / cost.product_seconds(product) / 1e12;
    EXPECT_LT(modelled, tflops) << product.m << " x " << product.n << " x " << product.k;
    EXPECT_GT(modelled, 0.8 * tflops) << product.m << " x " << product.n << " x " << product.k;
  }
}

TEST(ComputeCost, ATileMoreThanAWaveCostsAWave) {
  const ComputeCost cost(h100(), kBest, DType::bf16);
  // 11 x 12 tiles of 256 x 128 on 132 multiprocessors, and a row of tiles more.
  const double full = cost.product_seconds({256 * 11, 128 * 12, 8192}),
               more = cost.product_seconds({256 * 11 + 1, 128 * 12, 8192});
  EXPECT_GT(more, 1.4 * full);
  EXPECT_DOUBLE_EQ(cost.product_seconds({256 * 10 + 1, 128 * 12, 8192}), full);
}

TEST(ComputeCost, ThinProductsAreAsFastAsMemory) {
  const ComputeCost cost(a100(), kBest, DType::bf16);
  const double bytes = 2.0 * (1e6 * 1024 + 1024 * 64 + 1e6 * 64);
  EXPECT_NEAR(cost.product_seconds({1'000'000, 64, 1024}), bytes / 1.61e12, 0.02 * bytes / 1.61e12);
}

TEST(ComputeCost, AttentionGrowsWithTheSpanAndEachKernelIsFasterThanTheLast) {
  const auto rate = [](Attention kernel, const GpuRates& gpu, std::int64_t seq, std::int64_t window = 0) {
    const plan::AttentionWork work{16384, seq, 32, 128, window};
    const ComputeCost cost(gpu, {.compiled = false, .attention = kernel, .efficiency = 1}, DType::bf16);
    return 3.5 * work.flops() / (cost.attention_seconds(work, false) + cost.attention_seconds(work, true)) / 1e12;
  };
  // FlashAttention-2's own figures, causal, forward + backward, 16k: 189 on an A100; on an H100 335, but in trainings
  // less.
  EXPECT_NEAR(rate(Attention::flash2, a100(), 16384) / 189, 1, 0.05);
  EXPECT_LT(rate(Attention::flash2, h100(), 16384), 335);
  EXPECT_GT(rate(Attention::flash2, h100(), 16384), 1.1 * rate(Attention::flash2, a100(), 16384));
  EXPECT_LT(rate(Attention::flash2, h100(), 1024), 0.7 * rate(Attention::flash2, h100(), 16384));
  EXPECT_LT(rate(Attention::flash1, h100(), 8192), rate(Attention::flash2, h100(), 8192));
  EXPECT_LT(rate(Attention::flash2, h100(), 8192), rate(Attention::current, h100(), 8192));
  EXPECT_LT(rate(Attention::flash2, h100(), 16384, 128), rate(Attention::flash2, h100(), 16384)) << "short spans";
}

TEST(ComputeCost, NarrowHeadsCostEachKernelWhatItsPaperShows) {
  const auto of_128 = [](Attention kernel, std::int64_t head_dim) {
    const ComputeCost cost(h100(), {.compiled = false, .attention = kernel, .efficiency = 1}, DType::bf16);
    const auto seconds = [&](std::int64_t heads, std::int64_t dim) {
      return cost.attention_seconds({16384, 16384, heads, dim, 0}, true);
    };
    return seconds(32, 128) / seconds(32 * 128 / head_dim, head_dim);  // as many FLOPs
  };
  EXPECT_NEAR(of_128(Attention::flash2, 64), 291.0 / 322, 0.02);
  EXPECT_NEAR(of_128(Attention::current, 64), 474.0 / 561, 0.03);
  EXPECT_LT(of_128(Attention::flash1, 64), of_128(Attention::flash2, 64));
  EXPECT_LT(of_128(Attention::flash2, 32), of_128(Attention::flash2, 64));
  EXPECT_NEAR(of_128(Attention::flash2, 256), 1, 1e-6);
}

struct Step {
  testing::ScheduleCase c = make_case([] {
    config::RunConfig config = testing::decoder_config(3, 4);
    config.model.width = 2048;
    config.model.heads = 16;
    config.model.kv_heads = 8;
    config.model.ffn_width = 8192;
    config.train.seq_len = 2048;
    config.fsdp.param_dtype = DType::bf16;
    config.fsdp.activation_checkpointing = true;
    return config;
  }());
  std::vector<plan::ModuleWork> work = plan::module_work(c.config.model, 2, 2048);
  double of(schedule::OpKind kind, const ComputeCost& cost, double share = 1) const {
    const std::vector<double> seconds = compute_seconds(c.schedules.steady(), work, cost, {}, share);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      const schedule::Op& op = c.schedules.steady().ops[i];
      if (op.kind == kind && (op.module < 0 || op.module == 2)) return seconds[i];
    }
    return -1;
  }
};

TEST(ComputeCost, OpsOfAStepAreInProportion) {
  using schedule::OpKind;
  const Step step;
  const ComputeCost eager(h100(), kBest, DType::bf16), fused(h100(), {.compiled = true, .efficiency = 1}, DType::bf16),
      half(h100(), {.efficiency = 0.5}, DType::bf16), fp8(h100(), kBest, DType::bf16, true);
  const double forward = step.of(OpKind::forward, eager);
  EXPECT_GT(step.of(OpKind::backward, eager), 1.8 * forward);
  EXPECT_LT(step.of(OpKind::backward, eager), 3.0 * forward);
  EXPECT_LT(step.of(OpKind::recompute, eager), forward);
  EXPECT_DOUBLE_EQ(step.of(OpKind::recompute, eager, 0.5), 0.5 * step.of(OpKind::recompute, eager));
  EXPECT_LT(step.of(OpKind::forward, fused), forward);
  EXPECT_GT(step.of(OpKind::forward, half), 1.5 * forward);
  EXPECT_LT(step.of(OpKind::forward, half), 2 * forward) << "what moves bytes is as fast as before";
  EXPECT_LT(step.of(OpKind::forward, fp8), forward);
  EXPECT_EQ(step.of(OpKind::all_gather, eager), 0);
  EXPECT_EQ(step.of(OpKind::reshard, eager), 0);
}

TEST(ComputeCost, WhatMovesBytesTakesItsBytes) {
  using schedule::OpKind;
  const Step step;
  const ComputeCost cost(h100(), kBest, DType::bf16);
  const plan::ShardLayout& unit = step.c.plan.units[0].layout;  // the first copy is the root's
  const auto elements = static_cast<double>(unit.shard_numel);
  // An fp32 shard read and written as bf16; a gathered unit read and written, bf16 both.
  EXPECT_NEAR(step.of(OpKind::copy_in, cost), elements * 6 / 2.9e12, 3e-6);
  EXPECT_NEAR(step.of(OpKind::copy_out, cost), elements * 4 * 4 / 2.9e12, 3e-6);
  EXPECT_GT(step.of(OpKind::optimizer, cost), elements * 28 / 2.9e12);  // four read, three written
}

TEST(ComputeCost, RecipesOfFp8MoveTheirBytes) {
  using config::Fp8Recipe;
  plan::ModuleWork work;
  work.kind = plan::ModuleKind::block;
  work.products = {{8192, 4096, 2048}};
  constexpr double kMega = 1 << 20, kOperands = (16 + 8) * kMega, kGradient = 32 * kMega;
  // Bytes beyond those of delayed scaling: a cast of 2 + 1 of each operand, in backward of the gradient twice.
  const auto beyond = [&](Fp8Recipe recipe, Pass pass) {
    const ComputeCost cost(h100(), kBest, DType::bf16, true, recipe), delayed(h100(), kBest, DType::bf16, true);
    return (cost.module_seconds(work, pass) - delayed.module_seconds(work, pass)) * h100().memory_bytes_per_s;
  };
  EXPECT_NEAR(beyond(Fp8Recipe::tensorwise, Pass::forward), 2 * kOperands, kMega);
  EXPECT_NEAR(beyond(Fp8Recipe::tensorwise, Pass::backward), kGradient - kOperands, kMega);
  // By row the products themselves are slower, too.
  const ComputeCost rowwise(h100(), kBest, DType::bf16, true, Fp8Recipe::rowwise);
  const auto products = [&](const ComputeCost& cost, Pass pass) {
    const plan::Product& p = work.products.front();
    if (pass == Pass::forward) return cost.product_seconds(p, true);
    return cost.product_seconds(p.input_gradient(), true) + cost.product_seconds(p.weight_gradient(), true);
  };
  const auto slower = [&](Pass pass) {
    const ComputeCost delayed(h100(), kBest, DType::bf16, true);
    return (products(rowwise, pass) - products(delayed, pass)) * h100().memory_bytes_per_s;
  };
  EXPECT_NEAR(rowwise.product_seconds({8192, 8192, 8192}, true) /
                  ComputeCost(h100(), kBest, DType::bf16, true).product_seconds({8192, 8192, 8192}, true),
              1 / 0.95, 0.01);
  EXPECT_NEAR(beyond(Fp8Recipe::rowwise, Pass::forward), slower(Pass::forward), kMega);
  EXPECT_NEAR(beyond(Fp8Recipe::rowwise, Pass::backward), 2 * (kOperands + kGradient) + slower(Pass::backward), kMega);
  EXPECT_NEAR(beyond(Fp8Recipe::mx, Pass::forward), kOperands / 32, kMega / 100);
  EXPECT_NEAR(beyond(Fp8Recipe::mx, Pass::backward), (kOperands + 2 * kGradient) / 32, kMega / 100);
}

TEST(ComputeCost, CollectivesSlowWhatRunsBesideThem) {
  const Step step;
  const ComputeCost cost(h100(), kBest, DType::bf16);
  const auto slowdown = [&](const Beside& beside) {
    return slowdown_beside_collective(step.c.schedules.steady(), step.work, cost, beside);
  };
  const std::vector<double> none = slowdown({}), sms = slowdown({24, 0}), more = slowdown({32, 7e11});
  for (std::size_t i = 0; i < none.size(); ++i) {
    const schedule::Op& op = step.c.schedules.steady().ops[i];
    EXPECT_EQ(none[i], 1);
    EXPECT_LE(sms[i], more[i]);
    if (op.kind == schedule::OpKind::forward && op.module == 2) {
      EXPECT_GT(sms[i], 1.05);
      EXPECT_LT(sms[i], 2);
    }
    EXPECT_EQ(more[i] == 1, !op.has_work() || op.is_collective() || op.kind == schedule::OpKind::clip) << i;
  }
  // 132 blocks beside a collective of 24: a second wave (measured 1.7; NVIDIA developer forum 337991).
  const auto blocks = [&](const Beside& beside) {
    return cost.product_seconds({256 * 11, 128 * 12, 8192}, false, beside);
  };
  EXPECT_GT(blocks({24, 0}), 1.5 * blocks({}));
  EXPECT_LE(blocks({24, 0}), 2 * blocks({}));
}

/// Products of the section of kernels on an H100, microseconds, and what the cluster's file says of them.
TEST(ComputeCost, AMeasuredGpuHasTheRatesOfItsShapes) {
  const config::Cluster cluster = config::load_cluster("dgx-h100");
  GpuRates rates = gpu_rates(cluster, DType::bf16);
  rates.measured = cluster.measured;
  const ComputeCost cost(rates, {.efficiency = 1}, DType::bf16);
  const auto us = [&](std::int64_t m, std::int64_t n, std::int64_t k) { return cost.product_seconds({m, n, k}) * 1e6; };
  EXPECT_NEAR(us(8192, 8192, 2048), 396.4, 0.08 * 396.4);
  EXPECT_NEAR(us(4096, 128256, 3072), 4840.5, 0.08 * 4840.5);
  EXPECT_NEAR(us(16384, 768, 3072), 108.8, 0.08 * 108.8);
  EXPECT_GT(us(16384, 50257, 768), 5 * us(16384, 50304, 768)) << "rows of the output are not aligned";
  EXPECT_GT(us(16384, 768, 50257), 3 * us(16384, 768, 50304)) << "rows of an input are not";
  const auto attention = [&](std::int64_t heads, std::int64_t size) {
    const plan::AttentionWork work{.rows = 8192, .seq_len = 2048, .heads = heads, .head_dim = size};
    return cost.attention_seconds(work, false) + cost.attention_seconds(work, true);
  };
  EXPECT_NEAR(attention(32, 64) * 1e3, 14.9 / 16, 0.05);
  EXPECT_LT(attention(16, 128), attention(32, 64));
}

}  // namespace
}  // namespace fsdpbench::clock
