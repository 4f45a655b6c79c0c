
#include "config/load.h"
#include "config/nearest.h"
#include "config/support.h"
#include "config/sweep_file.h"

namespace fsdpbench::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Aliases : public ::testing::Test {
 protected:
  /// The value of `key` after `--set key=word`, as a profile spells it.
  Value set(const std::string& key, const std::string& word) {
    notes_.clear();
    const RunConfig config = load_profile(profile_, {key + "=" + word}, &notes_);  // throws if there is no such key
    return find_field(key)->write(config);
  }
  std::string error(const std::string& key, const std::string& word) {
    return config_error([&] { set(key, word); });
  }

  TemporaryFolder folder_;
  std::string profile_ = folder_.write("run.toml", "");
  std::vector<std::string> notes_;
};

TEST_F(Aliases, WordsForExactlyOneValueAreTakenForIt) {
  const struct {
    const char *key, *word, *value;
  } cases[] = {
      {"fsdp.strategy", "FULL_SHARD", "full_shard"},
      {"fsdp.strategy", "ShardingStrategy.SHARD_GRAD_OP", "shard_grad_op"},
      {"fsdp.strategy", "NO_SHARD", "no_shard"},
      {"fsdp.strategy", "HYBRID_SHARD", "hybrid_shard"},
      {"fsdp.strategy", "_HYBRID_SHARD_ZERO2", "hybrid_shard_grad_op"},
      {"fsdp.strategy", "zero3", "full_shard"},
      {"fsdp.strategy", "ZeRO-3", "full_shard"},
      {"fsdp.strategy", "zero_2", "shard_grad_op"},
      {"fsdp.strategy", "DDP", "no_shard"},
      {"fsdp.strategy", "HSDP", "hybrid_shard"},
      {"fsdp.preset", "FSDP2", "fsdp2"},
      {"fsdp.preset", "zero_3", "deepspeed-z3"},
      {"fsdp.preset", "DeepSpeed-Z2", "deepspeed-z2"},
      {"fsdp.preset", "MegatronV2", "megatron-v2"},
      {"fsdp.preset", "fully_shard", "fsdp2"},
      {"fsdp.preset", "FullyShardedDataParallel", "fsdp1"},
      {"fsdp.backward_prefetch", "BACKWARD_PRE", "pre"},
      {"fsdp.backward_prefetch", "BackwardPrefetch.BACKWARD_POST", "post"},
      {"fsdp.backward_prefetch", "None", "none"},
      {"fsdp.param_dtype", "bfloat16", "bf16"},
      {"fsdp.param_dtype", "torch.bfloat16", "bf16"},
      {"fsdp.reduce_dtype", "float32", "fp32"},
      {"fsdp.reduce_dtype", "BF16", "bf16"},
      {"fsdp.all_gather_limit", "None", "unlimited"},
      {"fsdp.reshard_after_forward", "None", "auto"},
      {"device.backend", "GPU", "cuda"},
      {"train.optimizer", "AdamW", "adamw"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(set(c.key, c.word), Value(std::string(c.value))) << c.word;
    EXPECT_THAT(notes_,
                testing::Contains(std::string(c.key) + " = \"" + c.word + "\" is taken for \"" + c.value + "\"."));
  }
}

TEST_F(Aliases, PythonsTruth) {
  EXPECT_EQ(set("fsdp.activation_checkpointing", "True"), Value(true));
  EXPECT_THAT(notes_, ElementsAre("fsdp.activation_checkpointing = \"True\" is taken for true."));
  EXPECT_EQ(set("fsdp.reshard_after_forward", "False"), Value(false));
}

TEST_F(Aliases, WordsOfThisProgramNeedNoNote) {
  EXPECT_EQ(set("fsdp.strategy", "full_shard"), Value(std::string("full_shard")));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(Aliases, WordsThatMeanNoneOrManyAreAnsweredWithTheRightOne) {
  EXPECT_THAT(error("fsdp.strategy", "zero1"), EndsWith("\"shard_grad_op\" (ZeRO-2) shards gradients, too."));
  EXPECT_THAT(error("fsdp.strategy", "zero1"), HasSubstr("fsdp.preset = \"deepspeed-z1\""));
  EXPECT_THAT(error("fsdp.preset", "DeepSpeed"), HasSubstr("\"deepspeed-z1\", \"deepspeed-z2\" and \"deepspeed-z3\"."));
  EXPECT_THAT(error("fsdp.preset", "megatron"), HasSubstr("\"megatron-v1\", its rewrite"));
  EXPECT_THAT(error("fsdp.zero_stage", "2"),
              AllOf(HasSubstr("the nearest valid key is 'fsdp.strategy'"), HasSubstr("2 is \"shard_grad_op\"")));
  EXPECT_THAT(error("fsdp.strategy", "fsdp2"), HasSubstr("fsdp.preset names the system"));
  EXPECT_THAT(error("fsdp.preset", "fsdp"), HasSubstr("fully_shard is \"fsdp2\""));
  EXPECT_THAT(error("fsdp.forward_prefetch", "True"), HasSubstr("forward_prefetch=True is 1"));
  EXPECT_THAT(error("fsdp.all_gather_limit", "true"), HasSubstr("limit_all_gathers=True is \"fsdp1_queue:2\""));
  EXPECT_THAT(error("fsdp.param_dtype", "torch.float16"), HasSubstr("\"bf16\" has the same size"));
  EXPECT_THAT(error("train.optimizer", "Adam"), HasSubstr("\"adamw\" with train.weight_decay = 0"));
}

/// Values that the tables offer can be taken, and words that they answer are not taken anyway.
TEST_F(Aliases, EveryAnswerIsToAValueThatIsNotValid) {
  for (const char* word : {"fsdp", "fsdp1", "zero1", "hpz", "mics"})
    EXPECT_THAT(error("fsdp.strategy", word), testing::Not(EndsWith("\"hybrid_shard_grad_op\"."))) << word;
}

TEST_F(Aliases, AModelIsNamedAsItsFile) {
  EXPECT_THAT(error("model.preset", "llama3_8b"), HasSubstr("is not valid; the nearest is 'llama3-8b'; known are "));
  for (const char* word : {"8b", "llama", "b", "405"})
    EXPECT_THAT(error("model.preset", word), HasSubstr("is not valid")) << word;
}

// Who has a file for another system finds what its words are here.
TEST_F(Aliases, WordsThatAreExportedLeadBack) {
  const struct {
    const char *theirs, *ours;
  } cases[] = {
      {"zero_optimization.overlap_comm", "fsdp.reduce_lane"},
      {"communication_data_type", "fsdp.reduce_dtype"},
      {"train_micro_batch_size_per_gpu", "train.batch_per_rank"},
      {"gradient_clipping", "train.clip_norm"},
      {"--suggested-communication-unit-size", "fsdp.forward_prefetch"},
      {"--use-nccl-ub", "nccl.register_buffers"},
      {"--create-all-gather-group", "fsdp.separate_reduce_scatter_comm"},
      {"parallelism.data_parallel_shard_degree", "mesh.shard"},
      {"training.mixed_precision_param", "fsdp.param_dtype"},
      {"activation_checkpoint.selective_ac_option", "fsdp.checkpoint_every"},
      {"fsdp_config.fsdp_reshard_after_forward", "fsdp.reshard_after_forward"},
      {"fsdp_auto_wrap_policy", "fsdp.wrap"},
      {"per_device_train_batch_size", "train.batch_per_rank"},
      {"set_is_last_backward", "fsdp.wait_each_backward"},
      {"set_modules_to_backward_prefetch", "fsdp.backward_prefetch"},
      {"ici_fsdp_parallelism", "mesh.shard"},
      {"remat_policy", "fsdp.activation_checkpointing"},
      {"fused_qkv", "model.fused_projections"},
      {"fuse_qkv_params", "model.fused_projections"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(unknown_key(c.theirs), HasSubstr("the nearest valid key is '" + std::string(c.ours) + "'."));
    EXPECT_NE(find_field(c.ours), nullptr) << c.ours;
  }
}

TEST_F(Aliases, KeysOfOtherSystemsAreAnsweredWithOurs) {
  EXPECT_THAT(error("sharding_strategy", "FULL_SHARD"), HasSubstr("the nearest valid key is 'fsdp.strategy'"));
  EXPECT_THAT(error("fsdp.limit_all_gathers", "true"), HasSubstr("the nearest valid key is 'fsdp.all_gather_limit'"));
  EXPECT_THAT(error("world_size", "8"), HasSubstr("the nearest valid key is 'mesh.ranks'"));
  for (const char* word :
       {"fuse_qkv", "model.fused_qkv", "fuse_attention_qkv", "qkv_proj", "fused_mlp", "gate_up_proj"})
    EXPECT_THAT(error(word, "true"), HasSubstr("the nearest valid key is 'model.fused_projections'")) << word;
}

TEST_F(Aliases, SweepFilesKnowThemToo) {
  const SweepFile sweep = load_sweep(folder_.write("s.toml", R"(base = "run.toml"
[axes]
"fsdp.strategy" = ["FULL_SHARD", "zero2"]
)"));
  EXPECT_THAT(sweep.axes.front().values,
              ElementsAre(Value(std::string("full_shard")), Value(std::string("shard_grad_op"))));
  EXPECT_THAT(sweep.notes, ElementsAre("fsdp.strategy = \"FULL_SHARD\" is taken for \"full_shard\".",
                                       "fsdp.strategy = \"zero2\" is taken for \"shard_grad_op\"."));
  const std::string twice =
      folder_.write("t.toml", "base = 'run.toml'\n[axes]\nfsdp.strategy = ['zero3', 'full_shard']\n");
  EXPECT_THAT(config_error([&] { load_sweep(twice); }), HasSubstr("has the value \"full_shard\" twice"));
}

}  // namespace
}  // namespace fsdpbench::config
