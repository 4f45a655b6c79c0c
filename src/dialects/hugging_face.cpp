#include "dialects/hugging_face.h"

#include <fmt/format.h>

#include <array>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace hugging {

using config::AllGatherLimit;
using config::Prefetch;

bool first_version(const ExportSource& s) { return hugging_face_version(s.config) == 1; }

Said shard(const ExportSource& s) {
  if (!config::is_hybrid(s.fsdp().strategy)) return same();
  if (!first_version(s)) return written("parallelism_config");
  return roughly("HYBRID_SHARD: the ranks of one machine are a shard group");
}

Said forward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (prefetch.mode == Prefetch::Mode::implicit) return same();
  if (prefetch.mode == Prefetch::Mode::none) return lost("each unit is gathered as soon as the host reaches it");
  if (!first_version(s)) return lost("no list of modules (version 2): the host runs ahead");
  return is_one_unit_ahead(prefetch) ? written("forward_prefetch = true")
                                     : roughly("forward_prefetch = true, which is one unit ahead");
}

Said backward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().backward_prefetch;
  if (!first_version(s)) {
    return prefetch.mode == Prefetch::Mode::pre ? same() : lost("always one unit ahead (pre), version 2 has no choice");
  }
  const std::string word = fmt::format("backward_prefetch = {}", backward_prefetch_word(s));
  if (is_one_unit_ahead(prefetch) || prefetch.mode == Prefetch::Mode::pre || prefetch.mode == Prefetch::Mode::post ||
      prefetch.mode == Prefetch::Mode::none)
    return written(word);
  return roughly(word + ", which is one unit ahead");
}

Said wrap(const ExportSource& s) {
  switch (s.fsdp().wrap.mode) {
    case config::Wrap::Mode::block: return written("TRANSFORMER_BASED_WRAP");
    case config::Wrap::Mode::blocks: return lost("each block is a unit (TRANSFORMER_BASED_WRAP)");
    case config::Wrap::Mode::min_size:
      return roughly("SIZE_BASED_WRAP, which also splits a block whose parts are large");
    case config::Wrap::Mode::model: break;
  }
  return written("NO_WRAP");
}

Said head_unit(const ExportSource& s) {
  if (first_version(s)) return s.fsdp().head_unit ? lost("norm and head are in the root") : same();
  if (s.fsdp().head_unit)
    return roughly("norm and head are a unit that stays gathered after forward; the embedding is another");
  return lost("embedding, and norm with head, are units of their own; the latter stays gathered after forward");
}

Said param_dtype(const ExportSource& s) { return s.fsdp().param_dtype == DType::bf16 ? written("bf16") : same(); }

Said reduce_dtype(const ExportSource& s) {
  if (s.fsdp().reduce_dtype == s.fsdp().param_dtype) return same();
  return lost("as param_dtype, unless your script passes FullyShardedDataParallelPlugin a mixed_precision_policy");
}

Said checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing ? written("activation_checkpointing = true") : same();
}
Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return lost("every unit is checkpointed");
}

Said all_gather_limit(const ExportSource& s) {
  const AllGatherLimit& limit = s.fsdp().all_gather_limit;
  if (limit == s.reference.fsdp.all_gather_limit) return same();
  return lost(first_version(s)
                  ? "limit_all_gathers is on (fsdp1_queue:2); only a plugin made in your script turns it off"
                  : "gathers wait on the device for the copy-out before last");
}

Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  switch (s.config.train.accumulate_mode) {
    case config::AccumulateMode::no_sync: return same();
    case config::AccumulateMode::reduce_each:
      return yours("GradientAccumulationPlugin(sync_each_batch=True); without it only the last microbatch is reduced");
    case config::AccumulateMode::reduce_scatter_only: break;
  }
  return lost("the last microbatch alone is reduced, or with sync_each_batch each");
}

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.shard", shard},
    {"mesh.replicate", shard},
    {"train.accumulate_mode", accumulate_mode},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.all_gather_limit", all_gather_limit},
    {"fsdp.wrap", wrap},
    {"fsdp.head_unit", head_unit},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.activation_checkpointing", checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
});

}  // namespace hugging
}  // namespace

int hugging_face_version(const config::RunConfig& config) { return config.fsdp.layout == config::Layout::flat ? 1 : 2; }

std::string_view hugging_face_engine(const config::RunConfig& config) {
  return hugging_face_version(config) == 1 ? "fsdp1" : "fsdp2";
}

std::string_view wrap_policy(const ExportSource& s) {
  switch (s.fsdp().wrap.mode) {
    case config::Wrap::Mode::block:
    case config::Wrap::Mode::blocks: return "TRANSFORMER_BASED_WRAP";
    case config::Wrap::Mode::min_size: return "SIZE_BASED_WRAP";
    case config::Wrap::Mode::model: break;
  }
  return "NO_WRAP";
}

std::string_view reshard_word(const ExportSource& s) {
  const bool frees = frees_after_forward(s);
  if (hugging_face_version(s.config) == 2) return frees ? "true" : "false";
  if (s.fsdp().strategy == config::Strategy::no_shard) return "NO_SHARD";
  if (config::is_hybrid(s.fsdp().strategy)) return frees ? "HYBRID_SHARD" : "HYBRID_SHARD_ZERO2";
  return frees ? "FULL_SHARD" : "SHARD_GRAD_OP";
}

std::string_view backward_prefetch_word(const ExportSource& s) {
  const config::Prefetch::Mode mode = s.fsdp().backward_prefetch.mode;
  if (mode == config::Prefetch::Mode::none) return "NO_PREFETCH";
  return mode == config::Prefetch::Mode::post ? "BACKWARD_POST" : "BACKWARD_PRE";
}

Said sharding_said(const ExportSource& s, std::string_view word) {
  const bool first = hugging_face_version(s.config) == 1;
  if (first) return written(fmt::format("{} = {}", word, reshard_word(s)));
  if (s.fsdp().strategy == config::Strategy::no_shard)
    return lost(
        "it shards (version 2 has no NO_SHARD); use distributed_type MULTI_GPU, which is DistributedDataParallel");
  if (config::is_hybrid(s.fsdp().strategy)) return written("parallelism_config");
  return written(fmt::format("reshard_after_forward = {}", reshard_word(s)));
}

Said reshard_said(const ExportSource& s, std::string_view word) {
  using Mode = config::ReshardAfterForward::Mode;
  const bool first = hugging_face_version(s.config) == 1;
  const std::string setting = fmt::format("{} = {}", first ? word : "reshard_after_forward", reshard_word(s));
  switch (s.fsdp().reshard_after_forward.mode) {
    case Mode::automatic: return same();
    case Mode::never: return written(setting);
    case Mode::always:
      return roughly(first ? setting + ", which keeps the root"
                           : "true for blocks and embedding; norm and head are kept");
    case Mode::group: break;
  }
  return lost(first ? "a freed unit is gathered from the whole shard group again"
                    : "true or false only: a freed unit is gathered from the whole shard group again");
}

std::vector<KeyRule> with_hugging_face_rules(std::span<const KeyRule> own) {
  return joined_rules(own, hugging::kRules);
}

}  // namespace fsdpbench::dialects
