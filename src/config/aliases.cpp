#include "config/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {
namespace {

struct Word {
  std::string_view key;
  std::string_view word;     ///< squeezed
  std::string_view meaning;  ///< a value of the key, or a sentence
};

/// Words for exactly one value. Other cases, dashes and Python's enum in front (ShardingStrategy.FULL_SHARD) need no
/// line: words are compared squeezed.
constexpr std::array kMeanings = std::to_array<Word>({
    {"model.kind", "transformer", "decoder"},
    {"train.accumulate_mode", "reduceevery", "reduce_each"},
    {"fsdp.preset", "fullysharddataparallel", "fsdp1"},
    {"fsdp.preset", "fullyshardeddataparallel", "fsdp1"},
    {"fsdp.preset", "fsdpv1", "fsdp1"},
    {"fsdp.preset", "fullyshard", "fsdp2"},
    {"fsdp.preset", "fsdpv2", "fsdp2"},
    {"fsdp.preset", "zero1", "deepspeed-z1"},
    {"fsdp.preset", "zero2", "deepspeed-z2"},
    {"fsdp.preset", "zero3", "deepspeed-z3"},
    {"fsdp.preset", "deepspeedzero1", "deepspeed-z1"},
    {"fsdp.preset", "deepspeedzero2", "deepspeed-z2"},
    {"fsdp.preset", "deepspeedzero3", "deepspeed-z3"},
    {"fsdp.preset", "hpz", "deepspeed-z3-hpz"},
    {"fsdp.preset", "zero++", "deepspeed-zeropp"},
    {"fsdp.preset", "zeropp", "deepspeed-zeropp"},
    {"fsdp.preset", "megatronfsdp", "megatron-v1"},
    {"fsdp.strategy", "hybridshardzero2", "hybrid_shard_grad_op"},
    {"fsdp.strategy", "hsdp", "hybrid_shard"},
    {"fsdp.strategy", "zero3", "full_shard"},
    {"fsdp.strategy", "zerostage3", "full_shard"},
    {"fsdp.strategy", "optimgradsparams", "full_shard"},
    {"fsdp.strategy", "zero2", "shard_grad_op"},
    {"fsdp.strategy", "zerostage2", "shard_grad_op"},
    {"fsdp.strategy", "optimgrads", "shard_grad_op"},
    {"fsdp.strategy", "zero0", "no_shard"},
    {"fsdp.strategy", "ddp", "no_shard"},
    {"fsdp.layout", "flatparam", "flat"},
    {"fsdp.layout", "flatparameter", "flat"},
    {"fsdp.layout", "perparameter", "per_param"},
    {"fsdp.layout", "dtensor", "per_param"},
    {"fsdp.reshard_after_forward", "none", "auto"},
    {"fsdp.backward_prefetch", "backwardpre", "pre"},
    {"fsdp.backward_prefetch", "backwardpost", "post"},
    {"fsdp.all_gather_limit", "none", "unlimited"},
    {"fsdp.wrap", "layer", "block"},
    {"fsdp.wrap", "transformerblock", "block"},
    {"fsdp.param_dtype", "bfloat16", "bf16"},
    {"fsdp.param_dtype", "float32", "fp32"},
    {"fsdp.param_dtype", "f32", "fp32"},
    {"fsdp.param_dtype", "float", "fp32"},
    {"fsdp.reduce_dtype", "bfloat16", "bf16"},
    {"fsdp.reduce_dtype", "float32", "fp32"},
    {"fsdp.reduce_dtype", "f32", "fp32"},
    {"fsdp.reduce_dtype", "float", "fp32"},
    {"fsdp.gradient_scaling", "avg", "average"},
    {"fsdp.gradient_scaling", "mean", "average"},
    {"device.backend", "gpu", "cuda"},
});

constexpr std::string_view kSystemIsAPreset =
    "fsdp.preset names the system (\"fsdp1\", \"fsdp2\"); what both do unless told otherwise is \"full_shard\".";
constexpr std::string_view kZero1 =
    "ZeRO-1 shards the optimizer only: that is fsdp.preset = \"deepspeed-z1\"; \"shard_grad_op\" (ZeRO-2) shards "
    "gradients, too.";
constexpr std::string_view kDeepSpeed =
    "DeepSpeed's stages are \"deepspeed-z1\", \"deepspeed-z2\" and \"deepspeed-z3\".";
constexpr std::string_view kZeroStage =
    "Stage 3 is \"full_shard\", 2 is \"shard_grad_op\", 0 is \"no_shard\"; as DeepSpeed does them, 1 among them, they "
    "are "
    "fsdp.preset = \"deepspeed-z3\", \"deepspeed-z2\" and \"deepspeed-z1\".";
constexpr std::string_view kForwardPrefetch =
    "FSDP1's forward_prefetch=True is 1 (one unit ahead), its False is \"implicit\" (the host runs ahead).";
constexpr std::string_view kBackwardPrefetch = "PyTorch's BACKWARD_PRE is \"pre\", BACKWARD_POST is \"post\".";
constexpr std::string_view kLimit = "FSDP1's limit_all_gathers=True is \"fsdp1_queue:2\", its False is \"unlimited\".";
constexpr std::string_view kHalf = "fp16 is not computed here; \"bf16\" has the same size in memory and on the wire.";
constexpr std::string_view kOffload =
    "CPUOffloadPolicy() and CPUOffload(offload_params=True) are \"all\", ZeRO-Offload is \"optimizer\".";
constexpr std::string_view kWrap = "\"blocks:K\" makes a unit of K blocks.";

/// Words that mean none of the values, or more than one.
constexpr std::array kAnswers = std::to_array<Word>({
    {"fsdp.preset", "fsdp", "PyTorch's FullyShardedDataParallel is \"fsdp1\", its fully_shard is \"fsdp2\"."},
    {"fsdp.preset", "deepspeed", kDeepSpeed},
    {"fsdp.preset", "zero", kDeepSpeed},
    {"fsdp.preset", "megatron", "Megatron-FSDP is \"megatron-v1\", its rewrite of 2026 \"megatron-v2\"."},
    {"fsdp.strategy", "fsdp", kSystemIsAPreset},
    {"fsdp.strategy", "fsdp1", kSystemIsAPreset},
    {"fsdp.strategy", "fsdp2", kSystemIsAPreset},
    {"fsdp.strategy", "zero1", kZero1},
    {"fsdp.strategy", "zerostage1", kZero1},
    {"fsdp.strategy", "optim", kZero1},
    {"fsdp.strategy", "hpz", "ZeRO++'s hpZ and MiCS are kin of \"hybrid_shard\"."},
    {"fsdp.strategy", "mics", "ZeRO++'s hpZ and MiCS are kin of \"hybrid_shard\"."},
    {"fsdp.forward_prefetch", "true", kForwardPrefetch},
    {"fsdp.forward_prefetch", "false", kForwardPrefetch},
    {"fsdp.backward_prefetch", "true", kBackwardPrefetch},
    {"fsdp.backward_prefetch", "false", kBackwardPrefetch},
    {"fsdp.all_gather_limit", "true", kLimit},
    {"fsdp.all_gather_limit", "false", kLimit},
    {"fsdp.param_dtype", "fp16", kHalf},
    {"fsdp.param_dtype", "float16", kHalf},
    {"fsdp.param_dtype", "half", kHalf},
    {"fsdp.reduce_dtype", "fp16", kHalf},
    {"fsdp.reduce_dtype", "float16", kHalf},
    {"fsdp.reduce_dtype", "half", kHalf},
    {"fsdp.cpu_offload", "true", kOffload},
    {"fsdp.cpu_offload", "false", kOffload},
    {"fsdp.wrap", "blocks", kWrap},
    {"train.optimizer", "adam", "Adam is \"adamw\" with train.weight_decay = 0."},
    {"device.backend", "nccl", "NCCL is what device.backend = \"cuda\" communicates with."},
    {"device.backend", "gloo", "ranks without GPUs are device.backend = \"cpu\"."},
});

constexpr std::array kKeys = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"shardingstrategy", "fsdp.strategy"},
    {"zerostage", "fsdp.strategy"},
    {"zerooptimization", "fsdp.strategy"},
    {"stage3prefetchbucketsize", "fsdp.forward_prefetch"},
    {"stage3maxliveparameters", "fsdp.max_live_parameters"},
    {"stage3maxreusedistance", "fsdp.max_reuse_distance"},
    {"stage3parampersistencethreshold", "fsdp.persistence_threshold"},
    {"reducebucketsize", "fsdp.reduce_bucket"},
    {"zerohpzpartitionsize", "fsdp.reshard_after_forward"},
    {"offloadoptimizer", "fsdp.cpu_offload"},
    {"offloadparam", "fsdp.cpu_offload"},
    {"offloadparams", "fsdp.cpu_offload"},
    {"offloadpolicy", "fsdp.cpu_offload"},
    {"zeroquantizedweights", "fsdp.gather_quantization"},
    {"zeroquantizedgradients", "fsdp.reduce_quantization"},
    {"zerodpstrategy", "fsdp.strategy"},
    {"dataparallelshardingstrategy", "fsdp.strategy"},
    {"fsdpdoublebuffer", "fsdp.all_gather_limit"},
    {"unifycommunicationstream", "fsdp.reduce_lane"},
    {"setreducescattermaxinputbuffers", "fsdp.reduce_scatter_buffers"},
    {"setseparatereducescattergroup", "fsdp.separate_reduce_scatter_comm"},
    {"setforcesumreductionforcomms", "fsdp.gradient_scaling"},
    {"setgradientdividefactor", "fsdp.gradient_divide_factor"},
    {"setsymmmemforcomm", "nccl.register_buffers"},
    {"limitallgathers", "fsdp.all_gather_limit"},
    {"mixedprecision", "fsdp.param_dtype"},
    {"dtype", "fsdp.param_dtype"},
    {"autowrappolicy", "fsdp.wrap"},
    {"worldsize", "mesh.ranks"},
    {"nproc", "mesh.ranks"},
    {"nprocpernode", "mesh.ranks"},
    {"gpus", "mesh.ranks"},
    {"dpshard", "mesh.shard"},
    {"dpreplicate", "mesh.replicate"},
    {"tensorparallelsize", "mesh.tensor"},
    {"tensormodelparallelsize", "mesh.tensor"},
    {"tensorparalleldegree", "mesh.tensor"},
    {"tpsize", "mesh.tensor"},
    {"tp", "mesh.tensor"},
    {"sequenceparallel", "mesh.sequence_parallel"},
    {"batchsize", "train.batch_per_rank"},
    {"microbatchsize", "train.batch_per_rank"},
    {"globalbatchsize", "train.batch_global"},
    {"trainbatchsize", "train.batch_global"},
    {"gradientaccumulationsteps", "train.accumulate"},
    {"seqlength", "train.seq_len"},
    {"sequencelength", "train.seq_len"},
    {"maxsteps", "train.steps"},
    {"lr", "train.learning_rate"},
    {"numlayers", "model.layers"},
    {"nlayers", "model.layers"},
    {"hiddensize", "model.width"},
    {"dim", "model.width"},
    {"numheads", "model.heads"},
    {"vocabsize", "model.vocab"},
    {"gradientcheckpointing", "fsdp.activation_checkpointing"},
    // What `fsdpbench export` writes (app/export).
    {"overlapcomm", "fsdp.reduce_lane"},
    {"communicationdatatype", "fsdp.reduce_dtype"},
    {"gradcommdtype", "fsdp.reduce_dtype"},
    {"megatronfsdpgradcommdtype", "fsdp.reduce_dtype"},
    {"mixedprecisionreduce", "fsdp.reduce_dtype"},
    {"mixedprecisionparam", "fsdp.param_dtype"},
    {"suggestedcommunicationunitsize", "fsdp.forward_prefetch"},
    {"createallgathergroup", "fsdp.separate_reduce_scatter_comm"},
    {"fsdpgroupag", "fsdp.separate_reduce_scatter_comm"},
    {"averageincollective", "fsdp.gradient_scaling"},
    {"ddpaverageincollective", "fsdp.gradient_scaling"},
    {"ncclub", "nccl.register_buffers"},
    {"usencclub", "nccl.register_buffers"},
    {"enablefsdpsymmmem", "nccl.register_buffers"},
    {"setallocatememoryfromprocessgroupforcomm", "nccl.register_buffers"},
    {"setmodulestoforwardprefetch", "fsdp.forward_prefetch"},
    {"setmodulestobackwardprefetch", "fsdp.backward_prefetch"},
    {"fsdpforwardprefetch", "fsdp.forward_prefetch"},
    {"fsdpbackwardprefetch", "fsdp.backward_prefetch"},
    {"setreshardafterforward", "fsdp.reshard_after_forward"},
    {"fsdpreshardafterforward", "fsdp.reshard_after_forward"},
    {"setreshardafterbackward", "fsdp.reshard_after_backward"},
    {"setislastbackward", "fsdp.wait_each_backward"},
    {"setrequiresgradientsync", "train.accumulate_mode"},
    {"setrequiresallreduce", "train.accumulate_mode"},
    {"nosync", "train.accumulate_mode"},
    {"synceachbatch", "train.accumulate_mode"},
    {"fsdpautowrappolicy", "fsdp.wrap"},
    {"fsdpunitmodules", "fsdp.wrap"},
    {"minnumparams", "fsdp.wrap"},
    {"fsdpminnumparams", "fsdp.wrap"},
    {"fsdpactivationcheckpointing", "fsdp.activation_checkpointing"},
    {"recomputegranularity", "fsdp.activation_checkpointing"},
    {"rematpolicy", "fsdp.activation_checkpointing"},
    {"selectiveacoption", "fsdp.checkpoint_every"},
    {"dataparallelsharddegree", "mesh.shard"},
    {"dataparallelreplicatedegree", "mesh.replicate"},
    {"dpshardsize", "mesh.shard"},
    {"dpreplicatesize", "mesh.replicate"},
    {"parallelismconfigdpshardsize", "mesh.shard"},
    {"parallelismconfigdpreplicatesize", "mesh.replicate"},
    {"icifsdpparallelism", "mesh.shard"},
    {"dcndataparallelism", "mesh.replicate"},
    {"numdistributedoptimizerinstances", "mesh.replicate"},
    {"numprocesses", "mesh.ranks"},
    {"trainmicrobatchsizepergpu", "train.batch_per_rank"},
    {"localbatchsize", "train.batch_per_rank"},
    {"perdevicetrainbatchsize", "train.batch_per_rank"},
    {"perdevicebatchsize", "train.batch_per_rank"},
    {"maxtargetlength", "train.seq_len"},
    {"gradientclipping", "train.clip_norm"},
    {"gradientclippingthreshold", "train.clip_norm"},
    {"clipgrad", "train.clip_norm"},
    {"maxnorm", "train.clip_norm"},
    {"maxgradnorm", "train.clip_norm"},
    {"adambeta1", "train.beta1"},
    {"adambeta2", "train.beta2"},
    {"adamb1", "train.beta1"},
    {"adamb2", "train.beta2"},
    {"adameps", "train.epsilon"},
    {"adamepsilon", "train.epsilon"},
    {"eps", "train.epsilon"},
    {"adamweightdecay", "train.weight_decay"},
    {"basenumdecoderlayers", "model.layers"},
    {"baseembdim", "model.width"},
    {"basenumqueryheads", "model.heads"},
    {"basenumkvheads", "model.kv_heads"},
    {"basemlpdim", "model.ffn_width"},
    {"ropemaxtimescale", "model.rope_theta"},
    {"logitsviaembedding", "model.tied_head"},
    {"fusedqkv", "model.fused_projections"},
    {"fusedmlp", "model.fused_projections"},
    {"fuseqkvparams", "model.fused_projections"},
    {"fuseqkvprojections", "model.fused_projections"},
    {"fuseqkv", "model.fused_projections"},
    {"fuseqkvproj", "model.fused_projections"},
    {"fuseattentionqkv", "model.fused_projections"},
    {"fuseattentionffn", "model.fused_projections"},
    {"fusemlp", "model.fused_projections"},
    {"fusedgateup", "model.fused_projections"},
    {"gateup", "model.fused_projections"},
    {"gateupproj", "model.fused_projections"},
    {"qkvproj", "model.fused_projections"},
    {"linearqkv", "model.fused_projections"},
    {"wqkv", "model.fused_projections"},
});

/// Lower case, without what stands before the last dot, without dashes, underscores and spaces.
std::string squeezed(std::string_view text) {
  if (const auto dot = text.rfind('.'); dot != std::string_view::npos) text.remove_prefix(dot + 1);
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != '-' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string word_of(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? std::string() : squeezed(*text);
}

/// The words in quotation marks in what the field says it accepts.
std::vector<std::string> words_of(const Field& field) {
  std::vector<std::string> words;
  for (auto begin = field.valid.find('"'); begin != std::string::npos; begin = field.valid.find('"', begin)) {
    const auto end = field.valid.find('"', begin + 1);
    words.push_back(field.valid.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return words;
}

bool accepts(const Field& field, const Value& value) {
  RunConfig scratch;
  return field.read(scratch, value);
}

/// "Llama-3.2-1B": {"llama", "3", "2", "1b"}.
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      if (!parts.back().empty()) parts.emplace_back();
    } else {
      parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

/// Each part of `word`, in order, begins a part of `name`; what begins with a digit is a size and must be all of it.
bool abbreviates(const std::vector<std::string>& word, const std::vector<std::string>& name) {
  auto at = name.begin();
  for (const std::string& part : word) {
    const bool size = std::isdigit(static_cast<unsigned char>(part.front())) != 0;
    at = std::find_if(at, name.end(), [&](const std::string& other) {
      return size ? other == part : part.size() > 1 && other.starts_with(part);
    });
    if (at == name.end()) return false;
    ++at;
  }
  return !word.empty();
}

}  // namespace

std::optional<Value> meant_by(const Field& field, const Value& value) {
  const std::string word = word_of(value);
  const auto* text = std::get_if<std::string>(&value);
  if (word.empty() || text == nullptr) return std::nullopt;
  for (const std::string& valid : words_of(field)) {
    if (squeezed(valid) == word && accepts(field, Value(valid))) return Value(valid);
  }
  for (const Word& known : kMeanings) {
    if (known.key == field.name() && known.word == word) return Value(std::string(known.meaning));
  }
  // Python's True, False.
  if ((word == "true" || word == "yes" || word == "on") && accepts(field, true)) return Value(true);
  if ((word == "false" || word == "no" || word == "off") && accepts(field, false)) return Value(false);
  return std::nullopt;
}

std::string right_word(const Field& field, const Value& value) {
  const std::string word = word_of(value);
  if (word.empty()) return "";
  for (const Word& known : kAnswers) {
    if (known.key == field.name() && known.word == word) return fmt::format(" {}", known.meaning);
  }
  return "";
}

std::string preset_meant_by(std::string_view word, std::span<const std::string> names) {
  if (const auto slash = word.rfind('/'); slash != std::string_view::npos) word.remove_prefix(slash + 1);
  std::vector<std::string> parts = parts_of(word);
  std::erase(parts, "meta");
  std::vector<std::string> meant;
  for (const std::string& name : names) {
    const std::vector<std::string> other = parts_of(name);
    if (joined(other) == joined(parts)) return name;
    if (abbreviates(parts, other)) meant.push_back(name);
  }
  // A bare size is one of the models that are trained here, though others of that size can be simulated.
  if (meant.size() > 1) {
    std::erase_if(meant,
                  [](const std::string& name) { return !name.starts_with("llama3") && !name.starts_with("gpt2"); });
  }
  if (meant.size() == 1) return meant.front();
  // Llama 3.1 has the sizes of Llama 3.
  std::string all = joined(parts);
  if (!all.starts_with("llama31")) return "";
  all.erase(6, 1);
  const auto same = std::ranges::find_if(names, [&](const std::string& name) { return joined(parts_of(name)) == all; });
  return same == names.end() ? std::string() : *same;
}

std::string words_for_key(std::string_view key) {
  const std::string word = squeezed(key);
  return word == "zerostage" || word == "stage" ? fmt::format(" {}", kZeroStage) : std::string();
}

std::string_view key_of_other_system(std::string_view key) {
  const std::string word = squeezed(key);
  const auto found = std::ranges::find_if(kKeys, [&](const auto& pair) { return pair.first == word; });
  return found == kKeys.end() ? std::string_view() : found->second;
}

}  // namespace fsdpbench::config
