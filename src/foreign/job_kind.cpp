#include "foreign/job_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "config/words/fsdpbench.h"

namespace fsdpbench::foreign {
namespace {

struct Word {
  std::string JobWords::*where;
  std::string_view part;
};

/// Words of other engines' tables that are in `name`.
void find_dialects(const std::string& name, JobWords& found) {
  const auto has = [&](std::string_view part) { return !part.empty() && name.find(part) != std::string::npos; };
  const auto note = [&](std::string& where, std::span<const std::string_view> parts) {
    if (where.empty() && std::ranges::any_of(parts, has)) where = name;
  };
  for (const dialects::Words* words : dialects::words_in_traces()) {
    const dialects::TraceNames& names = words->traces;
    if (!found.engines.contains(words) && std::ranges::any_of(names.parts, has)) found.engines[words] = name;
    note(found.layout_copy, names.layout_copies);
    note(found.quantized, names.quantization);
    if (found.limiter.empty() && has(names.limiter)) found.limiter = names.limiter;
  }
}

constexpr std::string_view kForwardOnly[] = {
    "vllm", "sglang", "paged_attention", "PagedAttention", "generate", "reshape_and_cache", "flash_fwd_splitkv"};

}  // namespace

JobWords find_job_words(const JobTrace& job) {
  static const std::vector<Word> kWords{
      {&JobWords::backward, "autograd::engine"},
      {&JobWords::backward, "ackward"},
      {&JobWords::optimizer, "Optimizer.step"},
      {&JobWords::optimizer, "multi_tensor_apply"},
      {&JobWords::optimizer, "Adam"},
      {&JobWords::embeddings, "torchrec"},
      {&JobWords::embeddings, "TableBatchedEmbedding"},
      {&JobWords::embeddings, "split_embedding_"},
      {&JobWords::embeddings, "dlrm"},
      {&JobWords::embeddings, "embedding_bag"},
      {&JobWords::embeddings, "EmbeddingBag"},
      {&JobWords::amd, "rccl"},
      {&JobWords::amd, "hipLaunchKernel"},
      {&JobWords::amd, "hipExtModuleLaunchKernel"},
      {&JobWords::amd, "Cijk_"},
  };
  JobWords words;
  for (const RankRows& rank : job.ranks) {
    for (const std::string& name : rank.names) {
      for (const Word& word : kWords) {
        std::string& found = words.*word.where;
        if (found.empty() && name.find(word.part) != std::string::npos) found = name;
      }
      for (const std::string_view part : kForwardOnly) {
        if (words.serving.empty() && name.find(part) != std::string::npos) words.serving = name;
      }
      find_dialects(name, words);
      const auto own = dialects::own_name(name);
      if (!own) continue;
      if (words.backward.empty() && own->op == "backward") words.backward = name;
      if (words.optimizer.empty() && own->op == "optimizer") words.optimizer = name;
    }
    if (words.amd.empty() &&
        (rank.device_model.starts_with("AMD") || rank.device_model.find("MI3") != std::string::npos)) {
      words.amd = rank.device_model;
    }
    for (const HostRow& row : rank.host) {
      words.runtime_rows = words.runtime_rows || row.kind == HostWork::synchronise || row.kind == HostWork::launch;
    }
  }
  return words;
}

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

bool shards_parameters(const PurposeCounts& counts) {
  const int early = counts.of(Purpose::parameters) - counts.of(Purpose::parameters, Phase::optimizer);
  return early > 0 && counts.of(Purpose::gradients) > 0;
}

/// The engine of whose own rows some are there, and that shards parameters; null: none.
static const dialects::Words* sharding_engine(const JobWords& words) {
  const auto own = std::ranges::find_if(words.engines, [](const auto& engine) {
    return engine.first->traces.of_one_program && !engine.first->traces.program.sharded.empty();
  });
  return own == words.engines.end() ? nullptr : own->first;
}

JobKind kind_of(const PurposeCounts& counts, const JobWords& words, bool all_equal, int collectives, bool several) {
  const bool trains = !words.backward.empty() || !words.optimizer.empty();
  const int gathers = counts.of(Purpose::parameters), gradients = counts.of(Purpose::gradients);
  if (counts.of(Purpose::experts) > 0) return words.embeddings.empty() ? JobKind::experts : JobKind::model_parallel;
  if (shards_parameters(counts)) return JobKind::sharded;
  if (gathers > 0 && gradients > 0) return JobKind::sharded_optimizer;
  if (!words.serving.empty() && !trains) return JobKind::inference;
  const int activations = counts.of(Purpose::activations) + counts.of(Purpose::pipeline);
  if (gathers > 0) return trains ? JobKind::unknown : JobKind::inference;
  if (gradients > 0) {
    // All of one size, in a program that never goes backward: parts of layers' activations.
    return !trains && all_equal && gradients > 2 ? JobKind::inference : JobKind::data_parallel;
  }
  // Rows of an engine that shards, and nothing that it sends: the recording was cut off before it.
  if (several && sharding_engine(words) != nullptr) return JobKind::unknown;
  if (activations > 0) return trains ? JobKind::model_parallel : JobKind::inference;
  if (collectives > 0) return JobKind::unknown;
  return trains || words.serving.empty() ? JobKind::single : JobKind::inference;
}

namespace {

/// Name of the engine where it does this; empty: its names say nothing of that.
std::string_view name_as(const dialects::ProgramNames& names, JobKind kind, bool quantized) {
  switch (kind) {
    case JobKind::sharded: return quantized && !names.quantized.empty() ? names.quantized : names.sharded;
    case JobKind::sharded_optimizer: return names.sharded_optimizer;
    case JobKind::data_parallel: return names.data_parallel;
    case JobKind::experts:
    case JobKind::model_parallel:
    case JobKind::inference:
    case JobKind::single:
    case JobKind::unknown: break;
  }
  return {};
}

}  // namespace

Program program_of(const JobWords& words, JobKind kind, const UnitTable& table) {
  if (kind == JobKind::sharded && table.source == UnitSource::own_names) {
    const dialects::Words& own = dialects::words_of("fsdpbench");
    return {std::string(own.traces.program.sharded), &own};
  }
  for (const dialects::Words* engine : dialects::words_in_traces()) {
    const std::string_view name = name_as(engine->traces.program, kind, !words.quantized.empty());
    if (!name.empty() && words.engines.contains(engine)) return {std::string(name), engine};
  }
  // The engine's own rows are there, and nothing that it sends: a short part of a step.
  if (const dialects::Words* own = sharding_engine(words); own != nullptr && kind == JobKind::unknown) {
    return {fmt::format("a part of a job of {} that gathers no parameters and reduces no gradients",
                        own->traces.program.sharded),
            nullptr, true};
  }
  if (kind == JobKind::model_parallel && !words.embeddings.empty()) {
    return {"a recommendation model, with its embedding tables split over ranks", nullptr};
  }
  static constexpr EnumNames<JobKind> kNobodys{"fully sharded data parallel training",
                                               "a sharded optimizer (ZeRO-1 or 2)",
                                               "data parallel training (DDP)",
                                               "a mixture of experts (expert parallel)",
                                               "tensor or pipeline parallel training",
                                               "inference",
                                               "one device alone, or several that do not communicate",
                                               "a job of a kind that is not known here"};
  return {std::string(kNobodys[kind]), nullptr};
}

std::vector<std::string> likely_presets(const dialects::Words* engine, const JobWords& words, bool experts) {
  std::vector<std::string> presets;
  const auto add = [&](std::span<const std::string_view> names) {
    presets.insert(presets.end(), names.begin(), names.end());
  };
  if (experts) {
    for (const dialects::Words* any : dialects::words_in_traces()) {
      if (engine == nullptr || engine->traces.presets.empty() || engine == any) add(any->traces.expert_presets);
    }
  }
  if (engine != nullptr && !engine->traces.presets.empty()) {
    add(engine->traces.presets);
  } else {
    add(dialects::likely_presets(!words.layout_copy.empty()));
  }
  return presets;
}

}  // namespace fsdpbench::foreign
