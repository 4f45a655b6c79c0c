// mesh.expert_halves on schedule and computed clock: the exact order, the memory, and what it hides.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "model/outline.h"
#include "schedule/check_schedules.h"
#include "schedule/print_schedule.h"
#include "support/small_simulation.h"

namespace fsdpbench::engine {
namespace {

using config::ExpertOverlap;
using config::RunConfig;
using schedule::Op;
using schedule::OpKind;
using ::testing::ElementsAre;

/// One block of four experts, each token visits two; two ranks split the experts.
RunConfig mixture_of_two(bool halves, const std::function<void(RunConfig&)>& change = {}) {
  RunConfig c = testing::small_mixture(1, 2);
  c.mesh.expert_sync = false;
  c.mesh.expert_halves = halves;
  c.train.batch_per_rank = 2;
  if (change) change(c);
  config::validate(c);
  return c;
}

/// The block's parts and exchanges in the host's order. A part says behind which exchange of rows it waits, by number.
std::vector<std::string> parts_and_waits(const RunConfig& c) {
  const Setup p = set_up(c);
  EXPECT_TRUE(schedule::check_schedules(p.schedules).empty());
  std::vector<std::string> names;
  std::vector<schedule::EventId> exchanges;
  for (const Op& op : p.schedules.steady().ops) {
    const bool pass = op.kind == OpKind::forward || op.kind == OpKind::recompute || op.kind == OpKind::backward;
    if (op.module != 1 || !(pass || op.exchanges_rows())) continue;
    std::string name = std::string(schedule::to_string(op.kind));
    if (op.exchanges_rows()) {
      exchanges.push_back(op.record);
      name += " " + std::to_string(exchanges.size());
    }
    for (const schedule::Wait& wait : op.waits) {
      const auto found = std::ranges::find(exchanges, wait.event);
      if (pass && found != exchanges.end()) name += " after " + std::to_string(found - exchanges.begin() + 1);
    }
    names.push_back(name);
  }
  return names;
}

/// Up to the sums the order is that of SGLang's two-batch overlap of a prefill, whose halves take turns after each
/// dispatch and combine (_compute_moe_deepseek_blog_prefill).
TEST(ExpertHalves, TakeTurnsInEveryPass) {
  EXPECT_THAT(parts_and_waits(mixture_of_two(true, [](RunConfig& c) { c.fsdp.activation_checkpointing = true; })),
              ElementsAre("forward", "expert_dispatch 1", "forward", "expert_dispatch 2",                     //
                          "forward after 1", "expert_combine 3", "forward after 2", "expert_combine 4",       //
                          "forward after 3", "forward after 4",                                               //
                          "recompute", "expert_dispatch 5", "recompute", "expert_dispatch 6",                 //
                          "recompute after 5", "expert_combine 7", "recompute after 6", "expert_combine 8",   //
                          "recompute after 7", "recompute after 8",                                           //
                          "backward", "expert_dispatch 9", "backward", "expert_dispatch 10",                  //
                          "backward after 9", "expert_combine 11", "backward after 10", "expert_combine 12",  //
                          "backward after 11", "backward after 12"));
}

TEST(ExpertHalves, GoWithASharedExpertBesideTheExchanges) {
  std::vector<std::string> all = parts_and_waits(mixture_of_two(true, [](RunConfig& c) {
    c.model.shared_experts = 1;
    c.mesh.expert_overlap = ExpertOverlap::both;
  }));
  all.resize(all.size() / 2);
  EXPECT_THAT(all, ElementsAre("forward", "expert_dispatch 1", "forward", "expert_dispatch 2", "forward", "forward",
                               "forward after 1", "expert_combine 3", "forward after 2", "expert_combine 4", "forward",
                               "forward", "forward after 3", "forward after 4"));
}

TEST(ExpertHalves, HideExchangesBehindTheOtherHalf) {
  const auto no_latency = [](RunConfig& c) { c.emulate.link_latency_us = 0; };
  EXPECT_LT(testing::median_step_ms(mixture_of_two(true, no_latency)),
            testing::median_step_ms(mixture_of_two(false, no_latency)));
  for (const ExpertOverlap overlap : {ExpertOverlap::none, ExpertOverlap::combine, ExpertOverlap::both}) {
    const auto shared = [&](RunConfig& c) {
      no_latency(c);
      c.model.shared_experts = 1;
      c.mesh.expert_overlap = overlap;
      c.emulate.link_gb_per_s = 0.01;  // a shared expert alone does not hide it
    };
    EXPECT_LT(testing::median_step_ms(mixture_of_two(true, shared)),
              testing::median_step_ms(mixture_of_two(false, shared)));
  }
}

/// Without time of computation there is nothing to hide an exchange behind, and halves pay every latency twice.
TEST(ExpertHalves, GainNothingWhereNothingIsComputed) {
  const auto instant = [](double latency_us) {
    return [=](RunConfig& c) {
      c.emulate.compute_tflops = 1e6;
      c.emulate.link_latency_us = latency_us;
    };
  };
  EXPECT_NEAR(testing::median_step_ms(mixture_of_two(true, instant(0))),
              testing::median_step_ms(mixture_of_two(false, instant(0))), 1e-4);
  EXPECT_GT(testing::median_step_ms(mixture_of_two(true, instant(50))),
            testing::median_step_ms(mixture_of_two(false, instant(50))) + 3 * 0.05);
}

TEST(ExpertHalves, NeedTheMemoryOfTheWhole) {
  EXPECT_EQ(set_up(mixture_of_two(true)).memory.peak_occupied_total,
            set_up(mixture_of_two(false)).memory.peak_occupied_total);
}

TEST(ExpertHalves, AreSimulatedOnly) {
  const auto on_cpu = [](RunConfig& c) {
    c.device.backend = config::BackendKind::cpu;
    c.emulate.compute_tflops.reset();
  };
  EXPECT_EQ(model::key_without_kernels(mixture_of_two(true, on_cpu)), "mesh.expert_halves");
  EXPECT_EQ(model::key_without_kernels(mixture_of_two(false, on_cpu)), "");
}

}  // namespace
}  // namespace fsdpbench::engine
