#include <fmt/format.h>

#include <functional>
#include <utility>

#include "foreign/corpus.h"
#include "support/cause_cases.h"
#include "support/presets.h"

namespace fsdpbench::foreign::corpus {
namespace {

using config::RunConfig;

constexpr std::int64_t kUnit = 4 * 256 * 256 + 3 * 256 * 512;  // elements of a block

/// A decoder whose communication mostly hides, on a host that takes 20 us an op.
RunConfig base(unsigned seed, const std::string& preset, int ranks, int layers) {
  testing::CauseCases cases(seed, testing::CauseCases::Sizes::many);
  RunConfig c = cases.healthy();
  c.model.layers = layers;
  c.mesh.ranks = ranks;
  c.mesh.shard = c.mesh.replicate = 0;
  c.train.steps = 3;
  c.train.warmup = 2;
  c = testing::with_scaled_preset(c, preset, kUnit);
  testing::CauseCases::set_rates(c, 3.0, 2.0, 0);
  c.simulate.host_issue_us = 20;
  c.simulate.launch_us = 5;
  c.simulate.jitter_pct = 2;
  c.simulate.seed = seed;
  return c;
}

struct Engine {
  std::string preset;
  Framework framework;
};

/// Setting that is turned in a preset's run.
struct Turn {
  std::string name;
  std::function<void(RunConfig&)> turn;
};

void hybrid(RunConfig& c) {
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.mesh.shard = c.mesh.ranks / 2;
  c.mesh.replicate = 2;
}
void grad_op(RunConfig& c) { c.fsdp.strategy = config::Strategy::shard_grad_op; }
void bf16(RunConfig& c) { c.fsdp.param_dtype = DType::bf16; }
void accumulate(RunConfig& c) { c.train.accumulate = 2; }
void checkpointing(RunConfig& c) { c.fsdp.activation_checkpointing = true; }
void pairs(RunConfig& c) { c.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0}; }

class Cases {
 public:
  CaseSpec& add(std::string name, const Engine& engine, int ranks, int layers,
                const std::function<void(RunConfig&)>& turn = {}) {
    CaseSpec spec;
    spec.seed = cases_.size() + 1;
    spec.name = std::move(name);
    spec.system = engine.preset;
    spec.config = base(static_cast<unsigned>(spec.seed), engine.preset, ranks, layers);
    if (turn) turn(spec.config);
    spec.dialect.framework = engine.framework;
    return cases_.emplace_back(std::move(spec));
  }
  CaseSpec& add_other(std::string name, std::string system, int ranks) {
    CaseSpec spec;
    spec.seed = cases_.size() + 1;
    spec.name = std::move(name);
    spec.system = std::move(system);
    spec.config.mesh.ranks = ranks;
    spec.config.model.layers = 8;
    return cases_.emplace_back(std::move(spec));
  }
  std::vector<CaseSpec> take() { return std::move(cases_); }

 private:
  std::vector<CaseSpec> cases_;
};

const Engine kFsdp2{"fsdp2", Framework::fsdp2};
const Engine kFsdp1{"fsdp1", Framework::fsdp1};

void presets(Cases& cases) {
  const Engine engines[] = {kFsdp2,
                            kFsdp1,
                            {"deepspeed-z1", Framework::deepspeed},
                            {"deepspeed-z2", Framework::deepspeed},
                            {"deepspeed-z3", Framework::deepspeed},
                            {"deepspeed-z3-hpz", Framework::deepspeed},
                            {"megatron-v1", Framework::megatron},
                            {"megatron-v2", Framework::megatron},
                            {"simplefsdp", Framework::compiled},
                            {"xla", Framework::plain},
                            {"xla-pipelined", Framework::plain}};
  for (const Engine& engine : engines) {
    const bool groups_of_eight = engine.preset.ends_with("hpz");
    for (const auto& [ranks, layers] : {std::pair(2, 4), {4, 6}, {8, 8}}) {
      if (groups_of_eight && ranks != 8) continue;
      const int wanted = groups_of_eight ? 16 : ranks;
      cases.add(fmt::format("{} {} ranks {} layers", engine.preset, wanted, layers), engine, wanted, layers);
    }
  }
}

void knobs(Cases& cases) {
  using Prefetch = config::Prefetch;
  const Turn both[] = {{"grad-op", grad_op},
                       {"hybrid", hybrid},
                       {"bf16", bf16},
                       {"accumulate", accumulate},
                       {"checkpointing", checkpointing},
                       {"pairs", pairs},
                       {"no-sync",
                        [](RunConfig& c) {
                          accumulate(c);
                          c.train.accumulate_mode = config::AccumulateMode::no_sync;
                        }},
                       {"clip", [](RunConfig& c) { c.train.clip_norm = 1; }}};
  for (const Turn& turn : both) {
    cases.add("fsdp2 " + turn.name, kFsdp2, 4, 6, turn.turn);
    cases.add("fsdp1 " + turn.name, kFsdp1, 4, 6, turn.turn);
  }
  const Turn fsdp2[] = {
      {"explicit-1",
       [](RunConfig& c) {
         c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
       }},
      {"explicit-2",
       [](RunConfig& c) {
         c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
       }},
      {"backward-explicit-2",
       [](RunConfig& c) {
         c.fsdp.backward_prefetch = {Prefetch::Mode::explicit_, 2};
       }},
      {"explicit-2-2",
       [](RunConfig& c) {
         c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
         c.fsdp.backward_prefetch = {Prefetch::Mode::explicit_, 2};
       }},
      {"reshard-never",
       [](RunConfig& c) { c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::never; }},
      {"reshard-always",
       [](RunConfig& c) { c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always; }},
      {"reshard-2",
       [](RunConfig& c) {
         c.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, 2};
       }},
      {"own-reduce-communicator", [](RunConfig& c) { c.fsdp.separate_reduce_scatter_comm = true; }},
      {"reduce-buffers-3", [](RunConfig& c) { c.fsdp.reduce_scatter_buffers = 3; }}};
  for (const Turn& turn : fsdp2) cases.add("fsdp2 " + turn.name, kFsdp2, 4, 6, turn.turn);
  const Turn fsdp1[] = {
      {"forward-prefetch",
       [](RunConfig& c) {
         c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
       }},
      {"post",
       [](RunConfig& c) {
         c.fsdp.backward_prefetch = {Prefetch::Mode::post, 1};
       }},
      {"no-backward-prefetch",
       [](RunConfig& c) {
         c.fsdp.backward_prefetch = {Prefetch::Mode::none, 1};
       }},
      {"no-limit", [](RunConfig& c) { c.fsdp.all_gather_limit.mode = config::AllGatherLimit::Mode::unlimited; }},
      {"hybrid-grad-op",
       [](RunConfig& c) {
         hybrid(c);
         c.fsdp.strategy = config::Strategy::hybrid_shard_grad_op;
       }},
      {"no-shard", [](RunConfig& c) { c.fsdp.strategy = config::Strategy::no_shard; }}};
  for (const Turn& turn : fsdp1) cases.add("fsdp1 " + turn.name, kFsdp1, 4, 6, turn.turn);
}

void causes(Cases& cases) {
  const Turn turns[] = {{"straggler",
                         [](RunConfig& c) {
                           c.inject.slow_rank = 1;
                           c.inject.slow_rank_factor = 1.6;
                         }},
                        {"link-bound", [](RunConfig& c) { *c.emulate.link_gb_per_s /= 4; }},
                        {"slow-link",
                         [](RunConfig& c) {
                           c.inject.slow_link_rank = 1;
                           c.inject.slow_link_factor = 5;
                         }},
                        {"host-sync", [](RunConfig& c) { c.inject.host_sync_after_layer = 2; }},
                        {"host-bound", [](RunConfig& c) { c.inject.host_delay_us = 1800; }},
                        {"latency-bound", [](RunConfig& c) {
                           grad_op(c);
                           testing::CauseCases::set_rates(c, 3.0, 0.3, 5);
                         }}};
  for (const Turn& turn : turns) {
    for (const Engine& engine : {kFsdp2, kFsdp1}) {
      cases.add(fmt::format("{} {}", engine.preset, turn.name), engine, 4, 6, turn.turn);
    }
  }
}

/// Slowdown of the device by collectives, planted as a number.
void contention(Cases& cases) {
  for (const Engine& engine : {kFsdp2, kFsdp1}) {
    for (const int percent : {15, 30, 60}) {
      cases.add(fmt::format("{} contention {} %", engine.preset, percent), engine, 4, 8).dialect.slower_beside =
          1 + percent / 100.0;
    }
  }
}

/// Runs in the words of other versions, machines and settings of the profiler, and damaged files.
void dialects(Cases& cases) {
  for (const Engine& engine : {kFsdp2, kFsdp1}) {
    const auto named = [&](std::string_view what) { return fmt::format("{} {}", engine.preset, what); };
    cases.add(named("amd"), engine, 4, 6).dialect.vendor = Vendor::amd;
    CaseSpec& untold = cases.add(named("amd-no-fields"), engine, 4, 6);
    untold.dialect.vendor = Vendor::amd;
    untold.dialect.collective_fields = false;
    cases.add(named("old-nccl"), engine, 4, 6).dialect.vendor = Vendor::nvidia_old;
    cases.add(named("one-stream"), engine, 4, 6).dialect.one_stream = true;
    cases.add(named("no-ranges"), engine, 4, 6).dialect.ranges = false;
    cases.add(named("no-fields"), engine, 4, 6).dialect.collective_fields = false;
    cases.add(named("cuda-only"), engine, 4, 6).dialect.host_ops = false;
    cases.add(named("no-steps"), engine, 4, 6).dialect.steps = false;
    cases.add(named("no-arrows"), engine, 4, 6).dialect.arrows = false;
    CaseSpec& rich = cases.add(named("stacks"), engine, 4, 6);
    rich.dialect.stacks = rich.dialect.sync_rows = rich.dialect.memory = true;
    rich.dialect.unit_prefix = "model.layers.";
    cases.add(named("shuffled"), engine, 4, 6).faults.shuffled = true;
    cases.add(named("cut-off"), engine, 4, 6).faults.cut_off = 0.25;
    cases.add(named("missing-ranks"), engine, 8, 4).faults.missing_ranks = {1, 2, 5};
    cases.add(named("late-clocks"), engine, 4, 6).faults.clock_ns = 40'000;
    cases.add(named("waits-for-batches"), engine, 4, 6).dialect.loader_ns = 9'000'000;
    cases.add(named("one-rank"), engine, 4, 6).faults.missing_ranks = {0, 2, 3};
  }
}

/// Mixtures of experts under FSDP2: every rank has its shard of all experts, or ranks split them, which then are units
/// of their own on fewer ranks.
void experts(Cases& cases) {
  const auto mixture = [](int expert) {
    return [expert](RunConfig& c) {
      c.model.experts = 8;
      c.model.active_experts = 2;
      c.model.ffn_width = 64;
      c.mesh.expert = expert;
    };
  };
  // As above as modules of their own, with lists that name a block and its experts.
  const auto modules = [&](int expert) {
    return [expert, mixture](RunConfig& c) {
      mixture(expert)(c);
      c.fsdp.expert_unit = config::ExpertUnit::module;
      c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {config::Prefetch::Mode::explicit_, 1};
      c.fsdp.root_prefetches_forward = false;
    };
  };
  const auto add = [&](const Engine& engine, const auto& change) {
    for (const auto& [ranks, expert] : {std::pair(4, 1), {4, 2}, {8, 2}, {8, 4}}) {
      cases.add(fmt::format("{} experts {} of {} ranks", engine.preset, expert, ranks), engine, ranks, 4,
                change(expert));
    }
    cases.add(fmt::format("{} experts no-ranges", engine.preset), engine, 4, 4, change(2)).dialect.ranges = false;
    cases.add(fmt::format("{} experts no-fields", engine.preset), engine, 4, 4, change(2)).dialect.collective_fields =
        false;
  };
  add({"torchtitan-moe", Framework::fsdp2}, mixture);
  add(kFsdp2, modules);
}

void other_systems(Cases& cases) {
  const Engine ddp{"fsdp1", Framework::ddp};
  for (const int ranks : {2, 4, 8}) {
    CaseSpec& spec = cases.add(fmt::format("ddp {} ranks", ranks), ddp, ranks, 6,
                               [](RunConfig& c) { c.fsdp.strategy = config::Strategy::no_shard; });
    spec.system = "ddp";
    if (ranks == 8) spec.dialect.vendor = Vendor::amd;
  }
  cases
      .add("alone", {"fsdp2", Framework::plain}, 1, 6,
           [](RunConfig& c) { c.fsdp.strategy = config::Strategy::no_shard; })
      .system = "alone";
  cases.add_other("inference small messages", "inference", 2);
  cases.add_other("inference large messages", "inference", 4);
  cases.add_other("inference amd", "inference", 4).dialect.vendor = Vendor::amd;
  cases.add_other("inference no steps", "inference", 4).dialect.steps = false;
  cases.add_other("experts", "moe", 4);
  cases.add_other("experts amd", "moe", 4).dialect.vendor = Vendor::amd;
  cases.add_other("experts no fields", "moe", 8).dialect.collective_fields = false;
}

}  // namespace

std::vector<CaseSpec> all_cases() {
  Cases cases;
  presets(cases);
  knobs(cases);
  causes(cases);
  dialects(cases);
  other_systems(cases);
  contention(cases);
  experts(cases);
  return cases.take();
}

}  // namespace fsdpbench::foreign::corpus
