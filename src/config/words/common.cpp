// Words of several systems, and other spellings of the words used here.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& common_words() {
  static constexpr auto kMeanings = std::to_array<Meaning>({
      {"model.kind", "transformer", "decoder"},
      {"train.accumulate_mode", "reduceevery", "reduce_each"},
      {"fsdp.strategy", "hsdp", "hybrid_shard"},
      {"fsdp.all_gather_limit", "none", "unlimited"},
      {"fsdp.wrap", "layer", "block"},
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
  static constexpr std::string_view kSystemIsAPreset =
      "fsdp.preset names the system (\"fsdp1\", \"fsdp2\"); what both do unless told otherwise is \"full_shard\".";
  static constexpr std::string_view kHalf =
      "fp16 is not computed here; \"bf16\" has the same size in memory and on the wire.";
  static constexpr std::string_view kOffload =
      "CPUOffloadPolicy() and CPUOffload(offload_params=True) are \"all\", ZeRO-Offload is \"optimizer\".";
  static constexpr auto kAnswers = std::to_array<Answer>({
      {"fsdp.preset", "fsdp", "PyTorch's FullyShardedDataParallel is \"fsdp1\", its fully_shard is \"fsdp2\"."},
      {"fsdp.strategy", "fsdp", kSystemIsAPreset},
      {"fsdp.strategy", "fsdp1", kSystemIsAPreset},
      {"fsdp.strategy", "fsdp2", kSystemIsAPreset},
      {"fsdp.param_dtype", "fp16", kHalf},
      {"fsdp.param_dtype", "float16", kHalf},
      {"fsdp.param_dtype", "half", kHalf},
      {"fsdp.reduce_dtype", "fp16", kHalf},
      {"fsdp.reduce_dtype", "float16", kHalf},
      {"fsdp.reduce_dtype", "half", kHalf},
      {"fsdp.cpu_offload", "true", kOffload},
      {"fsdp.cpu_offload", "false", kOffload},
      {"fsdp.activation_checkpointing", "selective",
       "fsdp.checkpoint_every = 2 checkpoints every second block; fsdp.checkpoint_keeps says which operators' outputs "
       "are kept (simulated only)."},
      {"fsdp.wrap", "blocks", "\"blocks:K\" makes a unit of K blocks."},
      {"train.optimizer", "adam", "Adam is \"adamw\" with train.weight_decay = 0."},
      {"device.backend", "nccl", "NCCL is what device.backend = \"cuda\" communicates with."},
      {"device.backend", "gloo", "ranks without GPUs are device.backend = \"cpu\"."},
  });
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"dtype", "fsdp.param_dtype"},
      {"worldsize", "mesh.ranks"},
      {"nproc", "mesh.ranks"},
      {"nprocpernode", "mesh.ranks"},
      {"gpus", "mesh.ranks"},
      {"tensorparallelsize", "mesh.tensor"},
      {"tpsize", "mesh.tensor"},
      {"tp", "mesh.tensor"},
      {"batchsize", "train.batch_per_rank"},
      {"gradientaccumulationsteps", "train.accumulate"},
      {"sequencelength", "train.seq_len"},
      {"lr", "train.learning_rate"},
      {"model", "model.preset"},
      {"modelname", "model.preset"},
      {"eps", "train.epsilon"},
      {"numheads", "model.heads"},
      {"vocabsize", "model.vocab"},
      // What models of Hugging Face, vLLM and others call fused products.
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
      {"wqkv", "model.fused_projections"},
  });
  static const Words kWords{.name = "", .meanings = kMeanings, .answers = kAnswers, .keys = kKeys};
  return kWords;
}

}  // namespace fsdpbench::dialects
