// Words of VeOmni, which sets FSDP2 up. Read, not tried.
#include <array>
#include <vector>

#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace veomni_arguments {

using config::Prefetch;
using config::ReshardAfterForward;

Said shard(const ExportSource&) { return written("train.accelerator.dp_shard_size"); }
Said replicate(const ExportSource&) { return written("train.accelerator.dp_replicate_size"); }
Said expert(const ExportSource& s) { return s.config.mesh.expert == 1 ? same() : written("train.accelerator.ep_size"); }

/// One flag turns the lists of both directions.
Said lists(const ExportSource& s, bool these, bool none) {
  const bool ahead = s.fsdp().forward_prefetch == Prefetch{Prefetch::Mode::explicit_, 1} &&
                     s.fsdp().backward_prefetch == Prefetch{Prefetch::Mode::explicit_, 1};
  const bool default_hooks = s.fsdp().forward_prefetch.mode == Prefetch::Mode::implicit &&
                             s.fsdp().backward_prefetch.mode == Prefetch::Mode::pre;
  if (these && ahead) return same();
  if (none && default_hooks) return written("train.accelerator.fsdp_config.forward_prefetch = false");
  return lost("each block lists the next one and its experts, in both directions or in none");
}
Said forward_prefetch(const ExportSource& s) {
  const Prefetch::Mode mode = s.fsdp().forward_prefetch.mode;
  return lists(s, mode == Prefetch::Mode::explicit_, mode == Prefetch::Mode::implicit);
}
Said backward_prefetch(const ExportSource& s) {
  const Prefetch::Mode mode = s.fsdp().backward_prefetch.mode;
  return lists(s, mode == Prefetch::Mode::explicit_, mode == Prefetch::Mode::pre);
}

Said reshard_after_forward(const ExportSource& s) {
  switch (s.fsdp().reshard_after_forward.mode) {
    case ReshardAfterForward::Mode::automatic: return same();
    case ReshardAfterForward::Mode::never:
      return written("train.accelerator.fsdp_config.reshard_after_forward = false");
    case ReshardAfterForward::Mode::always:
    case ReshardAfterForward::Mode::group: break;
  }
  return lost("blocks and experts are freed after forward, or nothing is; the root stays");
}
Said reentrant(const ExportSource& s) {
  return s.fsdp().checkpoint_reentrant ? written("train.gradient_checkpointing.enable_reentrant = true") : same();
}
Said wrap(const ExportSource& s) {
  return s.fsdp().wrap.mode == config::Wrap::Mode::block ? same() : lost("each decoder layer is a unit");
}
Said gradient_scaling(const ExportSource& s) {
  return s.fsdp().gradient_scaling == config::GradientScaling::average ? same() : lost("collectives average");
}

constexpr std::array kOwn = std::to_array<KeyRule>({
    {"mesh.shard", shard},
    {"mesh.replicate", replicate},
    {"mesh.expert", expert},
    {"mesh.expert_imbalance", expert_imbalance},
    {"mesh.expert_sync", nullptr, "the host waits for the counts of rows"},
    {"mesh.expert_separate_comm", nullptr, "rows are exchanged in a process group of their own"},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.root_prefetches_forward", nullptr, "the root has no list of modules"},
    {"fsdp.root_prefetches_backward", nullptr, "the root has no list of modules: it gathers the last block"},
    {"fsdp.reduce_scatter_buffers", nullptr, "one input of a reduction is alive"},
    {"fsdp.separate_reduce_scatter_comm", nullptr, "reductions share the gathers' communicator"},
    {"fsdp.wrap", wrap},
    {"fsdp.gradient_scaling", gradient_scaling},
    {"fsdp.gradient_divide_factor", nullptr, "gradients are divided by the number of ranks"},
    {"fsdp.checkpoint_every", nullptr, "every layer is recomputed"},
    {"fsdp.checkpoint_reentrant", reentrant},
    {"fsdp.expert_unit", nullptr, "the experts of a layer are a module of their own"},
    {"fsdp.shard_threshold", nullptr, "all parameters are split"},
    {"fsdp.head_unit", nullptr, "norm and head are in the root"},
});

std::span<const KeyRule> rules() {
  static const std::vector<KeyRule> kRules = joined_rules(kOwn, pytorch_fsdp2().rules);
  return kRules;
}

std::string_view engine(const config::RunConfig&) { return "veomni"; }

}  // namespace veomni_arguments
}  // namespace

Dialect veomni() {
  return {.name = "veomni",
          .system = "VeOmni (August 2026)",
          .what = "",
          .engine = veomni_arguments::engine,
          .rules = veomni_arguments::rules(),
          .write = nullptr};
}

}  // namespace fsdpbench::dialects
