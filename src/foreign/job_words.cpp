#include "foreign/job_words.h"

#include <initializer_list>
#include <string_view>
#include <vector>

#include "foreign/host_words.h"

namespace fsdpbench::foreign {
namespace {

struct Word {
  std::string JobWords::*where;
  std::string_view part;
};

constexpr std::string_view kForwardOnly[] = {
    "vllm", "sglang", "paged_attention", "PagedAttention", "generate", "reshape_and_cache", "flash_fwd_splitkv"};

}  // namespace

JobWords find_job_words(const JobTrace& job) {
  static const std::vector<Word> kWords{
      {&JobWords::fsdp2, "FSDP::"},
      {&JobWords::fsdp1, "FullyShardedDataParallel"},
      {&JobWords::data_parallel, "DistributedDataParallel"},
      {&JobWords::deepspeed, "deepspeed"},
      {&JobWords::deepspeed, "DeepSpeed"},
      {&JobWords::deepspeed, "fetch_sub_module"},
      {&JobWords::deepspeed, "PartitionedParameterCoordinator"},
      {&JobWords::megatron, "megatron"},
      {&JobWords::megatron, "Megatron"},
      {&JobWords::megatron, "MCoreFSDP"},
      {&JobWords::megatron, "RegisterFSDPBackwardFunction"},
      {&JobWords::deepspeed, "PreBackwardFunctionForModule"},
      {&JobWords::compiled, "CompiledFxGraph"},
      {&JobWords::compiled, "_c10d_functional::"},
      {&JobWords::xla, "ThunkExecutor"},
      {&JobWords::xla, "XlaModule"},
      {&JobWords::backward, "autograd::engine"},
      {&JobWords::backward, "ackward"},
      {&JobWords::optimizer, "Optimizer.step"},
      {&JobWords::optimizer, "multi_tensor_apply"},
      {&JobWords::optimizer, "Adam"},
      {&JobWords::layout_copy, "split_with_sizes_copy"},
      {&JobWords::layout_copy, "all_gather_copy_out"},
      {&JobWords::layout_copy, "chunk_cat"},
      {&JobWords::layout_copy, "(copy_out"},
      {&JobWords::quantized, "dequantize"},
      {&JobWords::quantized, "swizzled_quant"},
      {&JobWords::amd, "rccl"},
      {&JobWords::amd, "hipLaunchKernel"},
      {&JobWords::amd, "hipExtModuleLaunchKernel"},
      {&JobWords::amd, "Cijk_"},
      {&JobWords::limiter, "rate_limiter"},
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
      const auto own = own_name(name);
      if (!own) continue;
      if (words.own.empty() && name.starts_with("ncclDevKernel_")) words.own = name;
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
