#include "clock/compute_cost.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "config/run_config.h"
#include "plan/module_work.h"
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

TEST(ComputeCost, ASumReadsItsPartOfABucket) {
  schedule::Schedule schedule;
  schedule.buffers = {{.dtype = DType::bf16, .bytes = 4000}, {.dtype = DType::f32, .bytes = 400}};
  schedule::Op op;
  op.kind = schedule::OpKind::finish_gradient;
  op.work = schedule::Accumulate{.from = 0, .sum = 1, .count = 100, .overwrite = true};
  EXPECT_EQ(buffer_bytes(schedule, op), 100 * 2 + 400);
}

TEST(ComputeCost, ACopyMovesWhatTheSmallerOfItsBuffersHolds) {
  const ComputeCost cost({.memory_bytes_per_s = 1e12}, {}, DType::bf16);
  schedule::Schedule schedule;
  schedule.buffers = {{.dtype = DType::bf16, .bytes = 4'000'000}, {.dtype = DType::f32, .bytes = 40'000'000}};
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}}) {
    schedule.ops.assign(1, {.kind = schedule::OpKind::copy_in, .work = schedule::LayoutCopy{.from = from, .to = to}});
    EXPECT_DOUBLE_EQ(compute_seconds(schedule, {}, cost)[0], cost.apart_seconds(2'000'000 * (2 + 4)));
  }
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
  const auto slowdown = [&](const GpuLoad& beside) {
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
  const auto blocks = [&](const GpuLoad& beside) {
    return cost.product_seconds({256 * 11, 128 * 12, 8192}, false, beside);
  };
  EXPECT_GT(blocks({24, 0}), 1.5 * blocks({}));
  EXPECT_LE(blocks({24, 0}), 2 * blocks({}));
}

constexpr double kGap = 2.5e-6;  // after each kernel

/// 1 PFLOP/s of products, memory that never holds up, and as many multiprocessors.
GpuRates simple(int sms, double memory_bytes_per_s = 1e24) { return {1e15, 2e15, 1e15, memory_bytes_per_s, sms}; }

TEST(ComputeCost, EachTileIsTheBestForItsShape) {
  const ComputeCost one(simple(1), kBest, DType::bf16), two(simple(2), kBest, DType::bf16);
  const auto took = [](const ComputeCost& cost, std::int64_t m, std::int64_t n, const GpuLoad& beside = {}) {
    return cost.product_seconds({m, n, 616}, false, beside) - kGap;  // with 384 to fill it, 1000 deep
  };
  EXPECT_NEAR(took(one, 256, 128), 2 * 256 * 128 * 1000 / 1e15, 1e-15);
  EXPECT_NEAR(took(one, 128, 256), 2 * 128 * 256 * 1000 / 1e15, 1e-15);
  EXPECT_NEAR(took(one, 128, 128), 2 * 128 * 128 * 1000 / 0.92e15, 1e-15);
  EXPECT_NEAR(took(one, 128, 64), 2 * 128 * 64 * 1000 / 0.75e15, 1e-15);
  EXPECT_NEAR(took(one, 256, 129), 2 * took(one, 256, 128), 1e-15) << "a tile begun is a tile";
  EXPECT_NEAR(took(two, 256, 256), 2 * took(one, 256, 128), 1e-15) << "two tiles at once, each on half of the GPU";
  EXPECT_NEAR(took(two, 256, 256, {1, 0}), 4 * took(one, 256, 128), 1e-15) << "one after another";
  EXPECT_NEAR(took(two, 256, 256, {2, 0}), 4 * took(one, 256, 128), 1e-15) << "one is always left";
  const ComputeCost half(simple(1), {.efficiency = 0.5}, DType::bf16);
  EXPECT_NEAR(took(half, 256, 128), 2 * took(one, 256, 128), 1e-15);
  // Six in two launches: three share the waves of one.
  EXPECT_NEAR(one.product_seconds({256, 128, 616, 6, 2}), 2 * (3 * took(one, 256, 128) + kGap), 1e-15);
  EXPECT_NEAR(one.product_seconds({256, 128, 616}, true) - kGap, took(one, 256, 128) / 2, 1e-15) << "fp8";
  const ComputeCost rowwise(simple(1), kBest, DType::bf16, true, config::Fp8Recipe::rowwise);
  EXPECT_NEAR(rowwise.product_seconds({256, 128, 616}, true) - kGap, took(one, 256, 128) / 2 / 0.95, 1e-15);
  EXPECT_NEAR(took(rowwise, 256, 128), took(one, 256, 128), 1e-15) << "without fp8 there are no rows to scale";
  GpuRates none = simple(1);
  none.fp8_product_flops = 0;
  EXPECT_NEAR(ComputeCost(none, kBest, DType::bf16).product_seconds({256, 128, 616}, true) - kGap, took(one, 256, 128),
              1e-15);
}

TEST(ComputeCost, AProductReadsItsOperandsAndWritesItsResult) {
  const ComputeCost low(simple(1, 1e6), kBest, DType::bf16), full(simple(1, 1e6), kBest, DType::f32);
  const double inputs = 10 * 30 + 30 * 20, outputs = 10 * 20;
  EXPECT_NEAR(low.product_seconds({10, 20, 30}), 2 * (inputs + outputs) / 1e6 + kGap, 1e-12);
  EXPECT_NEAR(full.product_seconds({10, 20, 30}), 4 * (inputs + outputs) / 1e6 + kGap, 1e-12);
  EXPECT_NEAR(low.product_seconds({10, 20, 30}, true), (inputs + 2 * outputs) / 1e6 + kGap, 1e-12) << "operands of fp8";
  EXPECT_NEAR(low.product_seconds({10, 20, 30, 6, 2}), 2 * (3 * 2 * (inputs + outputs) / 1e6 + kGap), 1e-12);
  EXPECT_NEAR(low.product_seconds({10, 20, 30}, false, {0, 0.75e6}), 2 * (inputs + outputs) / 0.25e6 + kGap, 1e-12);
  EXPECT_EQ(low.stream_seconds(0), 0);
  EXPECT_NEAR(low.stream_seconds(100), 100 / 1e6 + kGap, 1e-12);
  EXPECT_NEAR(low.stream_seconds(100, {0, 0.5e6}), 100 / 0.5e6 + kGap, 1e-12);
  EXPECT_NEAR(low.stream_seconds(100, {0, 0.9e6}), 100 / 0.25e6 + kGap, 1e-12) << "a quarter is always left";
  EXPECT_NEAR(low.update_seconds(100), 100 / 1e6 + kGap, 1e-12);
  const ComputeCost separate(simple(1, 1e6), {.fused_optimizer = false}, DType::f32);
  EXPECT_NEAR(separate.update_seconds(100), 250 / 1e6 + kGap, 1e-12);
}

/// The figures that compute_cost.cpp names the sources of.
TEST(ComputeCost, AttentionReachesThePartsOfThePeakThatAreStated) {
  struct Row {
    Attention kernel;
    double peak, fraction, half_length, of_64;
  };
  for (const Row& row :
       {Row{Attention::flash1, 480e12, 0.34, 500, 1.0}, Row{Attention::flash1, 500e12, 0.20, 500, 0.84},
        Row{Attention::flash2, 480e12, 0.63, 600, 0.90}, Row{Attention::flash2, 500e12, 0.25, 900, 0.90},
        Row{Attention::current, 480e12, 0.63, 600, 0.90}, Row{Attention::current, 500e12, 0.56, 1200, 0.82}}) {
    GpuRates gpu = simple(100);
    gpu.peak_flops = row.peak;
    const ComputeCost cost(gpu, {.attention = row.kernel, .efficiency = 0.5}, DType::bf16);
    const double flops = 4.0 * 1000 * 500 * 2 * 128, rate = 0.5 * row.peak * row.fraction;
    const plan::AttentionWork wide{1000, 1000, 2, 128, 0};
    const double took = flops / (rate * 1000 / (1000 + row.half_length));
    EXPECT_NEAR(cost.attention_seconds(wide, false), took + kGap, 1e-12);
    EXPECT_NEAR(cost.attention_seconds(wide, true), 2.5 * took + kGap, 1e-12);
    EXPECT_NEAR(cost.attention_seconds(wide, false, {20, 0}), took / 0.8 + kGap, 1e-12);
    const plan::AttentionWork narrow{1000, 1000, 4, 64, 0};
    EXPECT_NEAR(cost.attention_seconds(narrow, false), took / row.of_64 + kGap, 1e-12);
  }
}

TEST(ComputeCost, KernelsOfAPassAreCounted) {
  const GpuRates gpu = simple(100);
  using config::Fp8Recipe;
  const auto count = [&](const plan::ModuleWork& work, Pass pass, const Framework& framework = {}, bool fp8 = false,
                         Fp8Recipe recipe = Fp8Recipe::delayed) {
    return ComputeCost(gpu, framework, DType::bf16, fp8, recipe).launches(work, pass);
  };
  config::Model m;
  m.layers = 1;
  const auto all = plan::module_work(m, 1, 64);
  const plan::ModuleWork& block = all[1];
  // Seven products, attention, and what moves bytes: 24, compiled 5, in backward twice.
  EXPECT_EQ(count(block, Pass::forward), 7 + 1 + 24);
  EXPECT_EQ(count(block, Pass::forward, {.compiled = true}), 7 + 1 + 5);
  EXPECT_EQ(count(block, Pass::recompute), 6 + 1 + 24);
  EXPECT_EQ(count(block, Pass::backward), 14 + 1 + 48);
  EXPECT_EQ(count(block, Pass::backward, {.compiled = true, .fused_loss = true}), 14 + 1 + 10);
  EXPECT_EQ(count(block, Pass::forward, {.fused_loss = true}), 7 + 1 + 24) << "blocks have no loss";
  const ComputeCost cost(gpu, {}, DType::bf16);
  EXPECT_EQ(cost.module_seconds(block, Pass::recompute, {}, 0.5), cost.module_seconds(block, Pass::recompute) / 2);
  EXPECT_EQ(cost.module_seconds(block, Pass::forward, {}, 0.5), cost.module_seconds(block, Pass::forward));
  const std::pair<Fp8Recipe, std::pair<int, int>> casts[] = {{Fp8Recipe::tensorwise, {4, 5}},
                                                             {Fp8Recipe::rowwise, {2, 7}},
                                                             {Fp8Recipe::mx, {2, 2}},
                                                             {Fp8Recipe::delayed, {2, 2}}};
  for (const auto& [recipe, more] : casts) {
    EXPECT_EQ(count(block, Pass::forward, {}, true, recipe), (1 + more.first) * 7 + 1 + 24);
    EXPECT_EQ(count(block, Pass::backward, {}, true, recipe), (2 + more.second) * 7 + 1 + 48);
    EXPECT_EQ(count(all[2], Pass::forward, {}, true, recipe), 1 + 5) << "the head stays as it is";
  }
  EXPECT_EQ(count(all[2], Pass::forward, {.compiled = true}), 1 + 3);
  EXPECT_EQ(count(all[2], Pass::forward, {.fused_loss = true}), 1 + 3);
  EXPECT_EQ(count(all[2], Pass::forward, {.compiled = true, .fused_loss = true, .eager_loss = true}), 1 + 5);
  EXPECT_EQ(count(all[0], Pass::backward), 3);
  const auto kept = [&](config::CheckpointKeeps keeps) {
    return count(plan::module_work(m, 1, 64, 1, {}, keeps)[1], Pass::recompute);
  };
  EXPECT_EQ(kept(config::CheckpointKeeps::attention), 6 + 24);
  EXPECT_EQ(kept(config::CheckpointKeeps::products), 24);
  m.lora_rank = 4;
  const plan::ModuleWork adapted = plan::module_work(m, 1, 64)[1];
  EXPECT_EQ(count(adapted, Pass::forward, {}, true), 3 * 7 + 2 * 7 + 1 + 24 + 14) << "adapters are not of fp8";
}

/// Bytes of a table's gradient are filled with zeros, and added to.
TEST(ComputeCost, APassMovesItsElements) {
  const ComputeCost cost(simple(1, 1e6), kBest, DType::bf16), compiled(simple(1, 1e6), {.compiled = true}, DType::bf16);
  plan::ModuleWork work;
  work.kind = plan::ModuleKind::embedding;
  work.forward = {1000, 600, 4, 2};
  work.recompute = {500, 300, 3, 1};
  work.backward = {3000, 2000, 6, 5};
  work.table_elements = 70;
  EXPECT_NEAR(cost.module_seconds(work, Pass::forward), 2 * 1000 / 1e6 + 5 * kGap, 1e-12);
  EXPECT_NEAR(compiled.module_seconds(work, Pass::forward), 2 * 600 / 1e6 + 3 * kGap, 1e-12);
  EXPECT_NEAR(cost.module_seconds(work, Pass::recompute), 2 * 500 / 1e6 + 4 * kGap, 1e-12);
  EXPECT_NEAR(cost.module_seconds(work, Pass::backward), 2 * (3000 + 140) / 1e6 + 7 * kGap, 1e-12);
}

TEST(ComputeCost, RatesAreTheClustersOwn) {
  config::Cluster cluster;
  cluster.gpu.peak = {.fp32 = 20, .bf16 = 100, .fp8 = 300};
  cluster.gpu.gemm_fraction = 0.5;
  cluster.gpu.fp8_gemm_fraction = 0.25;
  cluster.gpu.memory_copy_gb_per_s = 7;
  cluster.gpu.sms = 11;
  cluster.intra.all_gather_gb_per_s = 100;
  cluster.intra.collective_sms = 20;
  const GpuRates low = gpu_rates(cluster, DType::bf16), full = gpu_rates(cluster, DType::f32);
  EXPECT_DOUBLE_EQ(low.product_flops, 50e12);
  EXPECT_DOUBLE_EQ(low.peak_flops, 100e12);
  EXPECT_DOUBLE_EQ(low.fp8_product_flops, 75e12);
  EXPECT_DOUBLE_EQ(low.memory_bytes_per_s, 7e9);
  EXPECT_EQ(low.sms, 11);
  EXPECT_DOUBLE_EQ(full.product_flops, 10e12);
  EXPECT_DOUBLE_EQ(full.peak_flops, 20e12);
  EXPECT_EQ(beside_collective(cluster, 100e9).sms, 20);
  EXPECT_EQ(beside_collective(cluster, 500e9).sms, 20);
  EXPECT_EQ(beside_collective(cluster, 26e9).sms, 6);
  EXPECT_DOUBLE_EQ(beside_collective(cluster, 26e9).memory_bytes_per_s, 52e9);
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

/// Rates without a GPU's noise: 100 TFLOP/s of products that need 500 of k to fill, attention of 10 and 20.
TEST(ComputeCost, AMeasuredGpuIsItsFigures) {
  GpuRates gpu = simple(10, 1e18);
  gpu.measured = {.product_tflops = 100,
                  .product_fill = 500,
                  .odd_output_tflops = 40,
                  .odd_input_tflops = 25,
                  .attention_64_tflops = 10,
                  .attention_128_tflops = 20,
                  .attention_half_length = 1000};
  const ComputeCost cost(gpu, kBest, DType::bf16, true);
  const auto tflops = [&](std::int64_t m, std::int64_t n, std::int64_t k, const GpuLoad& beside = {}) {
    const plan::Product product{m, n, k, 6, 2};
    return product.flops() / (cost.product_seconds(product, false, beside) - 2 * kGap) * 1e-12;
  };
  EXPECT_NEAR(tflops(8000, 8000, 504), 100 / (1 + 500 / 504.0), 1e-6);
  EXPECT_NEAR(tflops(8000, 8000, 8000), 100 / (1 + 500 / 8000.0), 1e-6);
  EXPECT_NEAR(tflops(8000, 8001, 8000), 40, 1e-6);
  EXPECT_NEAR(tflops(8001, 8001, 8000), 40, 1e-6);
  EXPECT_NEAR(tflops(8001, 8000, 8000), 25, 1e-6);
  EXPECT_NEAR(tflops(8000, 8000, 8001), 25, 1e-6);
  EXPECT_NEAR(tflops(8000, 8001, 8000, {5, 0}), 20, 1e-6);
  EXPECT_NEAR(tflops(8000, 8001, 8000, {20, 0}), 4, 1e-6) << "one multiprocessor is always left";
  EXPECT_LT(cost.product_seconds({8000, 8000, 8000}, true), cost.product_seconds({8000, 8000, 8000}) / 10)
      << "fp8 was not measured, and is 2 PFLOP/s";
  const auto attention = [&](std::int64_t dim, bool backward = false, const GpuLoad& beside = {}) {
    const plan::AttentionWork work{100'000, 1000, 2, dim, 0};
    return work.flops() / (cost.attention_seconds(work, backward, beside) - kGap) * 1e-12;
  };
  EXPECT_NEAR(attention(64), 5, 1e-9) << "half of it at this length";
  EXPECT_NEAR(attention(32), 5, 1e-9);
  EXPECT_NEAR(attention(96), 5 + 5 * std::log2(1.5), 1e-9);
  EXPECT_NEAR(attention(128), 10, 1e-9);
  EXPECT_NEAR(attention(256), 10, 1e-9);
  EXPECT_NEAR(attention(64, true), 2, 1e-9);
  EXPECT_NEAR(attention(64, false, {5, 0}), 2.5, 1e-9);
  EXPECT_NEAR(attention(64, false, {20, 0}), 0.5, 1e-9);
  // Without figures for attention it takes what its kernel reaches: 0.25 of the peak, half of that at 900.
  gpu.measured.attention_64_tflops = 0;
  const plan::AttentionWork work{100'000, 1000, 2, 128, 0};
  const ComputeCost known(gpu, kBest, DType::bf16);
  EXPECT_NEAR(work.flops() / (known.attention_seconds(work, false) - kGap), 0.25e15 * 1000 / 1900, 1e5);
  EXPECT_NEAR(work.flops() / (known.attention_seconds(work, false, {20, 0}) - kGap), 0.25e14 * 1000 / 1900, 1e4);
  const ComputeCost low(simple(1, 1e6), kBest, DType::bf16);
  EXPECT_NEAR(low.product_seconds({10, 20, 30}, false, {0, 1e6}), 2 * 1100 + kGap, 1e-6) << "a byte a second";
}

/// The rate of a copy that passes reach: 0.25 of joined ones, 0.5 of PyTorch's own.
TEST(ComputeCost, PassesReachTheirPartOfTheRateOfACopy) {
  struct Row {
    plan::ModuleKind kind;
    Framework framework;
    double apart, measured, reached;
  };
  constexpr auto kBlock = plan::ModuleKind::block, kHead = plan::ModuleKind::head;
  const Framework compiled{.compiled = true}, loss{.fused_loss = true},
      eager_loss{.compiled = true, .eager_loss = true};
  for (const Row& row : {Row{kBlock, {}, 1, 0, 1},
                         {kBlock, {}, 0.5, 0, 0.5},
                         {kBlock, {}, 0.5, 0.25, 0.25},
                         {kBlock, {}, 1, 0.25, 0.25},
                         {kBlock, compiled, 0.5, 0, 1},
                         {kBlock, compiled, 0.5, 0.25, 0.25},
                         {kBlock, loss, 0.5, 0, 0.5},
                         {kHead, {}, 0.5, 0.25, 0.5},
                         {kHead, {}, 1, 0.25, 0.25},
                         {kHead, loss, 0.5, 0.25, 0.25},
                         {kHead, compiled, 0.5, 0.25, 0.25},
                         {kHead, eager_loss, 0.5, 0.25, 0.5}}) {
    GpuRates gpu = simple(1, 1e6);
    gpu.apart_fraction = row.apart;
    gpu.measured.pass_fraction = row.measured;
    plan::ModuleWork work;
    work.kind = row.kind;
    work.forward = work.backward = {1000, 1000, 3, 3};
    const ComputeCost cost(gpu, row.framework, DType::bf16);
    EXPECT_NEAR(cost.module_seconds(work, Pass::forward), 2000 / 1e6 / row.reached + 4 * kGap, 1e-12);
    const bool done = row.kind == kHead && row.framework.fused_loss;  // the gradient lies where the logits did
    EXPECT_NEAR(cost.module_seconds(work, Pass::backward), done ? 3 * kGap : 2000 / 1e6 / row.reached + 4 * kGap,
                1e-12);
    const double update = row.apart == 1 || row.measured == 0 ? row.apart : row.measured;
    EXPECT_NEAR(cost.update_seconds(100), 100 / 1e6 / update + kGap, 1e-12);
    EXPECT_NEAR(cost.apart_seconds(100), 100 / 1e6 / row.apart + kGap, 1e-12);
  }
}

TEST(ComputeCost, WorkOfAnOpIsWhatItMoves) {
  schedule::Schedule schedule;
  schedule.buffers = {{.dtype = DType::f32, .bytes = 400}, {.dtype = DType::f32, .bytes = 1000}};
  const plan::Groups groups(plan::Mesh{4, 1});
  std::vector<plan::ModuleSizes> sizes(1);
  sizes[0].forward_flops = 0.5;
  struct Row {
    schedule::Op op;
    OpWork::Unit unit;
    double fixed, amount;
  };
  using Unit = OpWork::Unit;
  const schedule::LayoutCopy copy{.from = 0, .to = 1};
  for (const Row& row :
       {Row{{.kind = schedule::OpKind::all_gather,
       .work = schedule::Collective{.group = schedule::Group::shard, .count = 100}},
            Unit::wire_bytes,
            3,
            1200},
        {{.kind = schedule::OpKind::forward, .module = 0}, Unit::flops, 0, 0.5},
        {{.kind = schedule::OpKind::copy_in, .work = copy}, Unit::bytes, 1, 1400},
        {{.kind = schedule::OpKind::copy_in, .lane = Lane::host_compute, .work = copy}, Unit::host_bytes, 1, 1400},
        {{.kind = schedule::OpKind::host_to_device, .work = schedule::Transfer{.bytes = 70}},
         Unit::pcie_bytes,
         1,
         70}}) {
    const OpWork work = work_of(row.op, schedule, groups, sizes);
    EXPECT_EQ(work.unit, row.unit);
    EXPECT_EQ(work.fixed, row.fixed) << to_string(row.unit);
    EXPECT_EQ(work.amount, row.amount) << to_string(row.unit);
  }
}

}  // namespace
}  // namespace fsdpbench::clock
