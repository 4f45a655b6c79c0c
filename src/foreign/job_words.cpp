#include "foreign/job_words.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "config/words/fsdpbench.h"

namespace fsdpbench::foreign {
namespace {

struct Word {
  std::string JobWords::*where;
  std::string_view part;
};

/// What the tables of other engines know in `name`.
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

}  // namespace fsdpbench::foreign
