// DeepSpeed's ZeRO and ZeRO++.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& deepspeed_words() {
  constexpr std::int64_t kAll = std::int64_t{1} << 60;            // elements: more than any unit has
  constexpr std::int64_t kAfterBackward = std::int64_t{1} << 16;  // units: more than any model has
  static constexpr auto kZ1 = std::to_array<Setting>({
      {"fsdp.strategy", "shard_grad_op"},
      {"fsdp.layout", "flat"},
      {"fsdp.persistence_threshold", kAll},
      {"fsdp.reduce_bucket", std::int64_t{500'000'000}},
      {"fsdp.reduce_by", "all_reduce"},
      {"fsdp.reduce_lane", "compute"},
      {"fsdp.reduce_lag", kAfterBackward},
      {"fsdp.reduce_scatter_buffers", std::int64_t{0}},
      {"train.accumulate_mode", "no_sync"},
  });
  static constexpr auto kZ2 = std::to_array<Setting>({
      {"fsdp.strategy", "shard_grad_op"},
      {"fsdp.layout", "flat"},
      {"fsdp.persistence_threshold", kAll},
      {"fsdp.reduce_bucket", std::int64_t{500'000'000}},
      {"fsdp.reduce_by", "all_reduce"},
      {"fsdp.reduce_lane", "compute"},
      {"fsdp.reduce_scatter_buffers", std::int64_t{0}},
  });
  static constexpr auto kZ3 = std::to_array<Setting>({
      {"fsdp.layout", "flat"},
      {"fsdp.reshard_after_forward", true},
      {"fsdp.forward_prefetch", "rate:50000000"},
      {"fsdp.backward_prefetch", "rate:50000000"},
      {"fsdp.learn_execution_order", true},
      {"fsdp.all_gather_limit", "fetched:2"},
      {"fsdp.max_live_parameters", std::int64_t{1'000'000'000}},
      {"fsdp.max_reuse_distance", std::int64_t{1'000'000'000}},
      {"fsdp.persistence_threshold", std::int64_t{100'000}},
      {"fsdp.reduce_bucket", std::int64_t{500'000'000}},
      {"fsdp.reductions_in_flight", std::int64_t{2}},
      {"fsdp.reduce_scatter_buffers", std::int64_t{0}},
  });
  static constexpr auto kHpz = std::to_array<Setting>({
      {"fsdp.reshard_after_forward", std::int64_t{8}},
      {"fsdp.host_sync_at_group_shard", true},
      {"fsdp.keep_group_shard", true},
  });
  static constexpr auto kZeroPp = std::to_array<Setting>({
      {"fsdp.gather_quantization", "int8:8000"},
      {"fsdp.reduce_quantization", "int4:2048"},
      {"fsdp.reduce_within", std::int64_t{8}},
  });
  // moe/ and runtime/zero/stage_1_and_2.py of August 2026: experts fill the same bucket, and are reduced over their own
  // group.
  static constexpr auto kExperts = std::to_array<Setting>({{"fsdp.expert_unit", "bucket"}});
  static constexpr auto kPresets = std::to_array<Preset>({
      {"deepspeed-z1", "fsdp2", kZ1},
      {"deepspeed-z2", "fsdp2", kZ2},
      {"deepspeed-z3", "fsdp2", kZ3},
      {"deepspeed-z3-hpz", "deepspeed-z3", kHpz},
      {"deepspeed-zeropp", "deepspeed-z3-hpz", kZeroPp},
      {"deepspeed-moe", "deepspeed-z2", kExperts},
  });
  static constexpr auto kMeanings = std::to_array<Meaning>({
      {"fsdp.preset", "zero1", "deepspeed-z1"},
      {"fsdp.preset", "zero2", "deepspeed-z2"},
      {"fsdp.preset", "zero3", "deepspeed-z3"},
      {"fsdp.preset", "deepspeedzero1", "deepspeed-z1"},
      {"fsdp.preset", "deepspeedzero2", "deepspeed-z2"},
      {"fsdp.preset", "deepspeedzero3", "deepspeed-z3"},
      {"fsdp.preset", "hpz", "deepspeed-z3-hpz"},
      {"fsdp.preset", "zero++", "deepspeed-zeropp"},
      {"fsdp.preset", "zeropp", "deepspeed-zeropp"},
      {"fsdp.strategy", "zero3", "full_shard"},
      {"fsdp.strategy", "zerostage3", "full_shard"},
      {"fsdp.strategy", "zero2", "shard_grad_op"},
      {"fsdp.strategy", "zerostage2", "shard_grad_op"},
      {"fsdp.strategy", "zero0", "no_shard"},
  });
  static constexpr std::string_view kStages =
      "DeepSpeed's stages are \"deepspeed-z1\", \"deepspeed-z2\" and \"deepspeed-z3\".";
  static constexpr std::string_view kZeroStage =
      "Stage 3 is \"full_shard\", 2 is \"shard_grad_op\", 0 is \"no_shard\"; as DeepSpeed does them, 1 among them, "
      "they "
      "are fsdp.preset = \"deepspeed-z3\", \"deepspeed-z2\" and \"deepspeed-z1\".";
  static constexpr std::string_view kStage1 =
      "ZeRO-1 shards the optimizer only: that is fsdp.preset = \"deepspeed-z1\"; \"shard_grad_op\" (ZeRO-2) shards "
      "gradients, too.";
  static constexpr std::string_view kKin = "ZeRO++'s hpZ and MiCS are kin of \"hybrid_shard\".";
  static constexpr auto kAnswers = std::to_array<Answer>({
      {"fsdp.preset", "deepspeed", kStages},
      {"fsdp.preset", "zero", kStages},
      {"fsdp.strategy", "zero1", kStage1},
      {"fsdp.strategy", "zerostage1", kStage1},
      {"fsdp.strategy", "hpz", kKin},
      {"fsdp.strategy", "mics", kKin},
      {"", "zerostage", kZeroStage},
      {"", "stage", kZeroStage},
  });
  static constexpr auto kKeys = std::to_array<KeyWord>({
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
      {"zeroquantizedweights", "fsdp.gather_quantization"},
      {"zeroquantizedgradients", "fsdp.reduce_quantization"},
      {"overlapcomm", "fsdp.reduce_lane"},
      {"communicationdatatype", "fsdp.reduce_dtype"},
      {"trainmicrobatchsizepergpu", "train.batch_per_rank"},
      {"trainbatchsize", "train.batch_global"},
      {"gradientclipping", "train.clip_norm"},
  });
  static constexpr auto kParts =
      std::to_array<std::string_view>({"deepspeed", "DeepSpeed", "fetch_sub_module", "PartitionedParameterCoordinator",
                                       "PreBackwardFunctionForModule"});
  static constexpr auto kMeant =
      std::to_array<std::string_view>({"deepspeed-z3", "deepspeed-z3-hpz", "deepspeed-zeropp"});
  static constexpr auto kMeantQuantized = std::to_array<std::string_view>({"deepspeed-zeropp", "deepspeed-z3-hpz"});
  static constexpr auto kQuantization = std::to_array<std::string_view>({"dequantize", "swizzled_quant"});
  static const Words kWords{.name = "deepspeed",
                            .presets = kPresets,
                            .meanings = kMeanings,
                            .answers = kAnswers,
                            .keys = kKeys,
                            .traces = {.parts = kParts,
                                       .of_one_program = true,
                                       .program = {.sharded = "DeepSpeed ZeRO-3",
                                                   .quantized = "DeepSpeed ZeRO++",
                                                   .sharded_optimizer = "DeepSpeed ZeRO-1 or 2"},
                                       .presets = kMeant,
                                       .quantized_presets = kMeantQuantized,
                                       .quantization = kQuantization},
                            .remedies = Remedies{.prefetch_forward = "stage3_prefetch_bucket_size",
                                                 .prefetch_backward = "stage3_prefetch_bucket_size",
                                                 .no_limit = "stage3_max_live_parameters",
                                                 .separate_reductions = "",
                                                 .accumulate = "gradient_accumulation_steps"}};
  return kWords;
}

}  // namespace fsdpbench::dialects
