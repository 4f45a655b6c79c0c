#include "foreign/job_kind.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/enum_table.h"

namespace fsdpbench::foreign {

using schedule::Phase;

std::string_view to_string(JobKind kind) {
  static constexpr EnumNames<JobKind> kNames{"sharded",        "sharded_optimizer", "data_parallel", "experts",
                                             "model_parallel", "inference",         "single",        "unknown"};
  return kNames[kind];
}

std::string what_they_do(const PurposeCounts& counts) {
  std::string text;
  const auto add = [&](int n, const char* what) {
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "of a step's collectives " : ", ", n, what);
  };
  add(counts.of(Purpose::parameters, Phase::forward), "gather parameters in forward");
  add(counts.of(Purpose::parameters, Phase::backward), "in backward");
  add(counts.of(Purpose::gradients), "reduce gradients");
  add(counts.of(Purpose::replicas), "reduce across replicas");
  add(counts.of(Purpose::parameters, Phase::optimizer), "gather after the optimizer");
  add(counts.of(Purpose::activations), "are of activations");
  add(counts.of(Purpose::experts), "of experts");
  add(counts.of(Purpose::pipeline), "from stage to stage");
  add(counts.of(Purpose::unknown), "of nobody knows what");
  return text.empty() ? "there are no collectives" : text;
}

JobKind kind_of(const PurposeCounts& counts, const JobWords& words, bool all_equal, int collectives) {
  const bool trains = !words.backward.empty() || !words.optimizer.empty();
  const int gathers = counts.of(Purpose::parameters), gradients = counts.of(Purpose::gradients);
  const int early = gathers - counts.of(Purpose::parameters, Phase::optimizer);
  if (counts.of(Purpose::experts) > 0) return JobKind::experts;
  if (early > 0 && gradients > 0) return JobKind::sharded;
  if (gathers > 0 && gradients > 0) return JobKind::sharded_optimizer;
  if (!words.serving.empty() && !trains) return JobKind::inference;
  const int activations = counts.of(Purpose::activations) + counts.of(Purpose::pipeline);
  if (gathers > 0) return trains ? JobKind::unknown : JobKind::inference;
  if (gradients > 0) {
    // All of one size, in a program that never goes backward: parts of layers' activations.
    return !trains && all_equal && gradients > 2 ? JobKind::inference : JobKind::data_parallel;
  }
  if (activations > 0) return trains ? JobKind::model_parallel : JobKind::inference;
  if (collectives > 0) return JobKind::unknown;
  return trains || words.serving.empty() ? JobKind::single : JobKind::inference;
}

std::string engine_name(const JobWords& words, JobKind kind, const UnitTable& table) {
  switch (kind) {
    case JobKind::sharded: break;
    case JobKind::sharded_optimizer:
      return words.deepspeed.empty() ? "a sharded optimizer (ZeRO-1 or 2)" : "DeepSpeed ZeRO-1 or 2";
    case JobKind::data_parallel:
      return !words.data_parallel.empty() ? "PyTorch DistributedDataParallel" : "data parallel training (DDP)";
    case JobKind::experts: return "a mixture of experts (expert parallel)";
    case JobKind::model_parallel: return "tensor or pipeline parallel training";
    case JobKind::inference: return "inference";
    case JobKind::single: return "one device alone, or several that do not communicate";
    case JobKind::unknown: return "a job of a kind that is not known here";
  }
  if (table.source == UnitSource::own_names) return "fsdpbench";
  if (!words.fsdp2.empty()) return "PyTorch FSDP2 (fully_shard)";
  if (!words.fsdp1.empty()) return "PyTorch FSDP1 (FullyShardedDataParallel)";
  if (!words.deepspeed.empty()) return words.quantized.empty() ? "DeepSpeed ZeRO-3" : "DeepSpeed ZeRO++";
  if (!words.megatron.empty()) return "Megatron-FSDP";
  if (!words.compiled.empty()) return "compiled FSDP (SimpleFSDP)";
  if (!words.xla.empty()) return "fully sharded data parallel training compiled by XLA";
  return "fully sharded data parallel training";
}

std::vector<std::string> likely_presets(const JobWords& words, const UnitTable& table, bool exchanges) {
  const std::vector<std::string> all{"fsdp2",        "fsdp1",         "megatron-v2",     "megatron-v1",
                                     "deepspeed-z3", "simplefsdp",    "vescale",         "deepspeed-z3-hpz",
                                     "xla",          "xla-pipelined", "deepspeed-zeropp"};
  if (table.source != UnitSource::own_names) {
    if (!words.fsdp2.empty()) return {"fsdp2", "simplefsdp"};
    if (!words.fsdp1.empty()) return {"fsdp1"};
    if (!words.megatron.empty()) return {"megatron-v2", "megatron-v1"};
    if (!words.xla.empty()) return {"xla", "xla-pipelined"};
    if (!words.compiled.empty()) return {"simplefsdp", "xla", "xla-pipelined"};
    if (exchanges) return {"deepspeed-zeropp"};
    if (!words.deepspeed.empty()) return {"deepspeed-z3", "deepspeed-z3-hpz", "deepspeed-zeropp"};
  }
  if (exchanges) return {"deepspeed-zeropp", "deepspeed-z3-hpz"};
  if (!words.layout_copy.empty()) return {"fsdp2", "simplefsdp", "fsdp1", "vescale", "megatron-v2", "deepspeed-z3"};
  std::vector<std::string> flat = all;
  std::rotate(flat.begin(), flat.begin() + 1, flat.begin() + 2);  // no copies between layouts: FSDP1 before FSDP2
  return flat;
}

}  // namespace fsdpbench::foreign
