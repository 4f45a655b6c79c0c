// Words of Hugging Face Accelerate: the YAML that `accelerate launch --config_file` reads.
#include <fmt/format.h>

#include <array>
#include <vector>

#include "config/validate.h"
#include "dialects/hugging_face.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace accelerate_yaml {

Said processes(const ExportSource&) { return written("num_processes"); }
constexpr std::string_view kStrategy = "fsdp_sharding_strategy";
Said strategy(const ExportSource& s) { return sharding_said(s, kStrategy); }
Said reshard_after_forward(const ExportSource& s) { return reshard_said(s, kStrategy); }
Said cpu_offload(const ExportSource& s) { return offloads_all(s, "offload_params = true"); }

constexpr std::array kOwn = std::to_array<KeyRule>({{"mesh.ranks", processes},
                                                    {"fsdp.strategy", strategy},
                                                    {"fsdp.reshard_after_forward", reshard_after_forward},
                                                    {"fsdp.cpu_offload", cpu_offload}});

std::span<const KeyRule> rules() {
  static const std::vector<KeyRule> kRules = with_hugging_face_rules(kOwn);
  return kRules;
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  const config::Fsdp& fsdp = s.fsdp();
  const int version = hugging_face_version(s.config);
  std::string text = commented("#", notes);
  text += fmt::format(R"(
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 1  # and machine_rank, main_process_ip, main_process_port for more
num_processes: {}
mixed_precision: {}
fsdp_config:
  fsdp_version: {}
  {}: {}
  fsdp_auto_wrap_policy: {}
)",
                      s.config.mesh.ranks, fsdp.param_dtype == DType::bf16 ? "bf16" : "'no'", version,
                      version == 1 ? kStrategy : "fsdp_reshard_after_forward", reshard_word(s), wrap_policy(s));
  if (fsdp.wrap.mode == config::Wrap::Mode::min_size)
    text += fmt::format("  fsdp_min_num_params: {}\n", fsdp.wrap.parameters);
  if (version == 1) {
    text += fmt::format("  fsdp_backward_prefetch: {}\n  fsdp_forward_prefetch: {}\n  fsdp_use_orig_params: true\n",
                        backward_prefetch_word(s), prefetches_forward(s));
  }
  text += fmt::format(
      "  fsdp_activation_checkpointing: {}\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_offload_params: {}\n",
      fsdp.activation_checkpointing, s.offloads());
  if (version == 2 && config::is_hybrid(fsdp.strategy)) {
    text += fmt::format(
        "parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n  parallelism_config_dp_shard_size: {}\n",
        s.config.mesh.replicate, s.config.mesh.shard);
  }
  return {{"accelerate.yaml", text}};
}

}  // namespace accelerate_yaml
}  // namespace

Dialect accelerate() {
  return {.name = "accelerate",
          .system = "Hugging Face Accelerate 1.15",
          .what = "a YAML file for accelerate launch: accelerate.yaml",
          .engine = hugging_face_engine,
          .rules = accelerate_yaml::rules(),
          .write = accelerate_yaml::write};
}

}  // namespace fsdpbench::dialects
