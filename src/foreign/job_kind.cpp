#include "foreign/job_kind.h"

#include <fmt/format.h>

#include <span>

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

bool shards_parameters(const PurposeCounts& counts) {
  const int early = counts.of(Purpose::parameters) - counts.of(Purpose::parameters, Phase::optimizer);
  return early > 0 && counts.of(Purpose::gradients) > 0;
}

JobKind kind_of(const PurposeCounts& counts, const JobWords& words, bool all_equal, int collectives) {
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
  if (activations > 0) return trains ? JobKind::model_parallel : JobKind::inference;
  if (collectives > 0) return JobKind::unknown;
  return trains || words.serving.empty() ? JobKind::single : JobKind::inference;
}

namespace {

/// What the engine is called where it does this; empty: its names say nothing of that.
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
    const dialects::Words& own = dialects::fsdpbench_words();
    return {std::string(own.traces.program.sharded), &own};
  }
  for (const dialects::Words* engine : dialects::words_in_traces()) {
    const std::string_view name = name_as(engine->traces.program, kind, !words.quantized.empty());
    if (!name.empty() && words.engines.contains(engine)) return {std::string(name), engine};
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

std::vector<std::string> likely_presets(const dialects::Words* engine, const JobWords& words, bool exchanges,
                                        bool experts) {
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
    const bool quantizes = exchanges && !engine->traces.quantized_presets.empty();
    add(quantizes ? engine->traces.quantized_presets : engine->traces.presets);
  } else if (exchanges) {
    for (const dialects::Words* any : dialects::words_in_traces()) add(any->traces.quantized_presets);
  } else {
    add(dialects::likely_presets(!words.layout_copy.empty()));
  }
  return presets;
}

}  // namespace fsdpbench::foreign
