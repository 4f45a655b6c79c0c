#include "config/load.h"

#include <fmt/format.h>

#include "config/fields.h"
#include "config/find_file.h"
#include "config/support.h"

namespace fsdpbench::config {
namespace {

using testing::Contains;
using testing::EndsWith;
using ::testing::HasSubstr;

class Load : public testing::Test {
 protected:
  RunConfig load(const std::string& text, const std::vector<std::string>& set = {}) {
    return load_profile(folder_.write("run.toml", text), set);
  }
  /// The message without the folder in front.
  std::string error(const std::string& text, const std::vector<std::string>& set = {}) {
    std::string message = config_error([&] { load(text, set); });
    const std::string folder = folder_.path().string() + "/";
    for (auto at = message.find(folder); at != std::string::npos; at = message.find(folder))
      message.erase(at, folder.size());
    return message;
  }
  TemporaryFolder folder_;
};

TEST_F(Load, AnEmptyProfileIsTheDefaults) { EXPECT_EQ(load(""), RunConfig()); }

TEST_F(Load, QuickstartPresetIsTheBuiltInModel) { EXPECT_EQ(load("model.preset = 'quickstart'").model, Model()); }

TEST_F(Load, ReadsEveryType) {
  const RunConfig config = load(R"(
[model]
layers = 3
tied_head = true
rope_theta = 5e5
[fsdp]
strategy = "shard_grad_op"
param_dtype = "bf16"
[emulate]
link_gb_per_s = 2
[data]
path = "a folder"
)");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_TRUE(config.model.tied_head);
  EXPECT_EQ(config.model.rope_theta, 5e5);
  EXPECT_EQ(config.fsdp.strategy, Strategy::shard_grad_op);
  EXPECT_EQ(config.fsdp.param_dtype, DType::bf16);
  EXPECT_EQ(config.emulate.link_gb_per_s, 2.0);
  EXPECT_EQ(config.data.path, "a folder");
}

TEST_F(Load, PresetThenProfileThenSet) {
  EXPECT_EQ(load("[model]\npreset = 'llama3-8b'").model.layers, 32);
  EXPECT_EQ(load("[model]\npreset = 'llama3-8b'\nlayers = 3").model.layers, 3);
  EXPECT_EQ(load("[model]\nlayers = 3\npreset = 'llama3-8b'").model.layers, 3);
  EXPECT_EQ(load("[model]\nlayers = 3\npreset = 'llama3-8b'").model.width, 4096);
  EXPECT_EQ(load("[model]\npreset = 'llama3-8b'\nlayers = 3", {"model.layers=5"}).model.layers, 5);
  EXPECT_EQ(load("[model]\nlayers = 3", {"model.preset=llama3-70b"}).model.layers, 3);
  EXPECT_EQ(load("[model]\nlayers = 3", {"model.preset=llama3-70b"}).model.width, 8192);
  EXPECT_EQ(load("", {"model.layers=5", "model.layers=6"}).model.layers, 6);
}

TEST_F(Load, Fsdp1Preset) {
  const Fsdp fsdp = load("[fsdp]\npreset = 'fsdp1'").fsdp;
  EXPECT_EQ(fsdp.layout, Layout::flat);
  EXPECT_EQ(fsdp.forward_prefetch.mode, Prefetch::Mode::implicit);
  EXPECT_TRUE(fsdp.learn_execution_order);
  EXPECT_EQ(fsdp.backward_prefetch.mode, Prefetch::Mode::pre);
  EXPECT_EQ(fsdp.all_gather_limit, (AllGatherLimit{AllGatherLimit::Mode::fsdp1_queue, 2, 0}));
  EXPECT_EQ(fsdp.reduce_scatter_buffers, 0);
  EXPECT_EQ(fsdp.gradient_scaling, GradientScaling::pre_post_divide);
}

TEST_F(Load, Fsdp2PresetIsTheBuiltInDefault) { EXPECT_EQ(load("[fsdp]\npreset = 'fsdp2'").fsdp, Fsdp()); }

TEST_F(Load, ExplicitKnobsWinOverThePresetInAnyOrder) {
  EXPECT_EQ(load("[fsdp]\nlayout = 'per_param'\npreset = 'fsdp1'").fsdp.layout, Layout::per_param);
  EXPECT_EQ(load("[fsdp]\nlayout = 'per_param'", {"fsdp.preset=fsdp1"}).fsdp.layout, Layout::per_param);
  EXPECT_EQ(load("", {"fsdp.layout=per_param", "fsdp.preset=fsdp1"}).fsdp.layout, Layout::per_param);
}

TEST_F(Load, SpellingsOfPrefetch) {
  const auto backward = [&](const std::string& v) {
    return load("", {"fsdp.backward_prefetch=" + v}).fsdp.backward_prefetch;
  };
  EXPECT_EQ(backward("none").mode, Prefetch::Mode::none);
  EXPECT_EQ(backward("post").mode, Prefetch::Mode::post);
  EXPECT_EQ(backward("\"pre\"").mode, Prefetch::Mode::pre);
  EXPECT_EQ(backward("3"), (Prefetch{Prefetch::Mode::explicit_, 3}));
  EXPECT_EQ(backward("explicit:2"), (Prefetch{Prefetch::Mode::explicit_, 2}));
  EXPECT_THAT(error("", {"fsdp.backward_prefetch=0"}), HasSubstr("fsdp.backward_prefetch = 0 is not valid; expected"));
  EXPECT_THAT(error("", {"fsdp.backward_prefetch=implicit"}), HasSubstr("is not valid"));
  EXPECT_THAT(error("", {"fsdp.forward_prefetch=pre"}), HasSubstr("is not valid"));
  EXPECT_THAT(error("", {"fsdp.forward_prefetch=explicit:"}), HasSubstr("is not valid"));
}

TEST_F(Load, SpellingsOfTheLimit) {
  using Mode = AllGatherLimit::Mode;
  const auto limit = [&](const std::string& v) {
    return load("", {"fsdp.all_gather_limit=" + v}).fsdp.all_gather_limit;
  };
  EXPECT_EQ(limit("unlimited").mode, Mode::unlimited);
  EXPECT_EQ(limit("fsdp2_event").mode, Mode::fsdp2_event);
  EXPECT_EQ(limit("fsdp1_queue"), (AllGatherLimit{Mode::fsdp1_queue, 2, 0}));
  EXPECT_EQ(limit("fsdp1_queue:3"), (AllGatherLimit{Mode::fsdp1_queue, 3, 0}));
  EXPECT_EQ(limit("1"), (AllGatherLimit{Mode::strict, 1, 0}));
  EXPECT_EQ(limit("strict:4"), (AllGatherLimit{Mode::strict, 4, 0}));
  EXPECT_EQ(limit("bytes:64MiB"), (AllGatherLimit{Mode::bytes, 2, 64 << 20}));
  for (const char* bad :
       {"0", "strict:0", "strict:x", "bytes:", "bytes:lots", "fsdp1_queue:-1", "fsdp1_queue:1025", "true", "1.5"}) {
    EXPECT_THAT(error("", {std::string("fsdp.all_gather_limit=") + bad}), HasSubstr("is not valid; expected")) << bad;
  }
}

TEST_F(Load, SpellingsOfReshardAndWrap) {
  const auto reshard = [&](const std::string& v) {
    return load("", {"fsdp.reshard_after_forward=" + v}).fsdp.reshard_after_forward;
  };
  EXPECT_EQ(reshard("auto").mode, ReshardAfterForward::Mode::automatic);
  EXPECT_EQ(reshard("true").mode, ReshardAfterForward::Mode::always);
  EXPECT_EQ(reshard("false").mode, ReshardAfterForward::Mode::never);
  EXPECT_EQ(reshard("4"), (ReshardAfterForward{ReshardAfterForward::Mode::group, 4}));
  const auto wrap = [&](const std::string& v) { return load("", {"fsdp.wrap=" + v}).fsdp.wrap; };
  EXPECT_EQ(wrap("block").mode, Wrap::Mode::block);
  EXPECT_EQ(wrap("model").mode, Wrap::Mode::model);
  EXPECT_EQ(wrap("blocks:2"), (Wrap{Wrap::Mode::blocks, 2, 0}));
  EXPECT_EQ(wrap("size:1000000"), (Wrap{Wrap::Mode::min_size, 1, 1000000}));
  EXPECT_THAT(error("", {"fsdp.wrap=blocks:0"}), HasSubstr("is not valid"));
}

TEST_F(Load, NoneTakesAnEmulationAway) {
  EXPECT_EQ(load("[emulate]\nlink_gb_per_s = 1.0", {"emulate.link_gb_per_s=none"}).emulate.link_gb_per_s, std::nullopt);
}

TEST_F(Load, SetAcceptsTextForTextKeysWhateverItLooksLike) {
  EXPECT_EQ(load("", {"data.path=1984"}).data.path, "1984");
  EXPECT_EQ(load("", {"data.path=1984-01-01"}).data.path, "1984-01-01");
  EXPECT_EQ(load("", {"data.path=true"}).data.path, "true");
  EXPECT_EQ(load("", {"data.path=a=b c"}).data.path, "a=b c");
  EXPECT_EQ(load("", {" mesh.ranks = 8 "}).mesh.ranks, 8);
}

TEST_F(Load, UnknownKeyNamesFileLineAndTheNearest) {
  EXPECT_EQ(error("[mesh]\nranks = 4\nrnks = 2"),
            "run.toml:3: unknown key 'mesh.rnks'; the nearest valid key is 'mesh.ranks'.");
  EXPECT_EQ(error("[train]\nranks = 2"),
            "run.toml:2: unknown key 'train.ranks'; the nearest valid key is 'mesh.ranks'.");
  EXPECT_EQ(error("[fsdp]\nprefetch_backward = 'pre'").substr(0, 46), "run.toml:2: unknown key 'fsdp.prefetch_backwar");
  EXPECT_EQ(error("", {"mesh.rank=8"}),
            "--set mesh.rank=8: unknown key 'mesh.rank'; the nearest valid key is 'mesh.ranks'.");
  EXPECT_EQ(error("", {"strategy=8"}),
            "--set strategy=8: unknown key 'strategy'; the nearest valid key is 'fsdp.strategy'.");
  EXPECT_EQ(error("[mesh.ranks]\nn = 4"),
            "run.toml:1: mesh.ranks is not valid as a table; expected an integer from 1 to 1048576.");
}

TEST_F(Load, UnknownTableNamesTheNearest) {
  EXPECT_EQ(error("\n[fdsp]\nlayout = 'flat'"), "run.toml:2: unknown table [fdsp]; the nearest valid one is [fsdp].");
  EXPECT_EQ(error("ranks = 4"), "run.toml:1: unknown key 'ranks'; the nearest valid key is 'mesh.ranks'.");
  EXPECT_EQ(error("mesh = 4"), "run.toml:1: 'mesh' is a table: write [mesh] on a line of its own, its keys below.");
}

TEST_F(Load, WrongTypeOrRangeSaysWhatIsValid) {
  EXPECT_EQ(error("[mesh]\nranks = 'four'"),
            "run.toml:2: mesh.ranks = \"four\" is not valid; expected an integer from 1 to 1048576.");
  EXPECT_EQ(error("[mesh]\nranks = 0"),
            "run.toml:2: mesh.ranks = 0 is not valid; expected an integer from 1 to 1048576.");
  EXPECT_EQ(error("[mesh]\nranks = 4.0"),
            "run.toml:2: mesh.ranks = 4.0 is not valid; expected an integer from 1 to 1048576.");
  EXPECT_EQ(error("[mesh]\nranks = [4]"),
            "run.toml:2: mesh.ranks is not valid as an array; expected an integer from 1 to 1048576.");
  EXPECT_EQ(
      error("[fsdp]\nstrategy = 'full'"),
      "run.toml:2: fsdp.strategy = \"full\" is not valid; expected \"no_shard\", \"shard_grad_op\", \"full_shard\", "
      "\"hybrid_shard\", \"hybrid_shard_grad_op\".");
  EXPECT_EQ(
      error("", {"train.learning_rate=-1"}),
      "--set train.learning_rate=-1: train.learning_rate = -1 is not valid; expected a number from 1e-30 to 1e+38.");
  EXPECT_THAT(error("[train]\nlearning_rate = nan"), EndsWith("train.learning_rate = nan is not valid; expected a "
                                                              "number from 1e-30 to 1e+38."));
  EXPECT_THAT(error("[train]\nlearning_rate = -inf"), HasSubstr("train.learning_rate = -inf is not valid; expected"));
  EXPECT_THAT(error("[train]\nbeta1 = 1.0"), EndsWith("expected a number from 0 to below 1."));
  EXPECT_THAT(error("[fsdp]\nreduce_scatter_buffers = 5000000000"), HasSubstr("is not valid"));
  EXPECT_THAT(error("[train]\nseed = -1"), HasSubstr("is not valid"));
  EXPECT_THAT(error("[fsdp]\npreset = 'fsdp3'"), HasSubstr("expected \"fsdp1\", \"fsdp2\", \"deepspeed-z1\","));
  EXPECT_THAT(error("[inject]\ndelay_lane = 'gpu'"), HasSubstr("the name of a lane"));
}

TEST_F(Load, NumbersBeyondAnyMachineAreRefused) {
  for (const auto& [key, value] : {std::pair{"emulate.link_gb_per_s", "1e-300"},
                                   {"emulate.link_latency_us", "1e+300"},
                                   {"emulate.compute_tflops", "1e+308"},
                                   {"inject.jitter_us", "1e+300"}}) {
    const std::string message = error("", {fmt::format("{}={}", key, value)});
    EXPECT_THAT(message, HasSubstr(fmt::format("{} = {} is not valid; expected a number from ", key, value)));
  }
  for (const char* value : {"nan.0", "inf.0", "1_e5", "0x1p3", "1e999", "NaN"}) {
    EXPECT_THAT(error("", {fmt::format("train.learning_rate={}", value)}),
                HasSubstr(fmt::format("train.learning_rate = \"{}\" is not valid; expected a number from ", value)));
    EXPECT_THAT(error(fmt::format("[train]\nlearning_rate = {}", value)), testing::StartsWith("run.toml:2:"));
  }
}

TEST_F(Load, BrokenSyntaxNamesLineAndColumn) {
  EXPECT_THAT(error("[mesh]\nranks = = 4"), testing::StartsWith("run.toml:2:9: not valid TOML: "));
  EXPECT_THAT(error("[mesh]\nranks = 4\nranks = 5"), testing::StartsWith("run.toml:3:"));
  EXPECT_THAT(error("[model]\nwidth = 99999999999999999999"), HasSubstr("64 bits: width = 99999999999999999999"));
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST_F(Load, NestingThatWouldOverflowTheStackIsRefusedWithItsLine) {
  const std::string key = "a" + repeated(".a", 50'000);
  EXPECT_EQ(error("# ...\n" + key + " = 1\n"), "run.toml:2: a key has more than 16 parts; no run profile needs that.");
  EXPECT_EQ(error("\n[" + key + "]\n"), "run.toml:2: a key has more than 16 parts; no run profile needs that.");
  EXPECT_THAT(error("\"a\"" + repeated(".\"a\"", 50'000) + " = 1"), HasSubstr("run.toml:1: a key has more than"));
  for (const char* open : {"[", "{ a = "}) {
    EXPECT_EQ(error("x = '''\n'''\na = " + repeated(open, 50'000)),
              "run.toml:3: arrays or tables are nested more than 32 deep; no run profile needs that.");
  }
  EXPECT_THAT(error("", {"mesh.ranks=" + repeated("[", 50'000)}), HasSubstr("expected an integer"));
  EXPECT_THAT(error("", {key + "=1"}), HasSubstr("unknown key"));
}

TEST_F(Load, DotsInTextAndCommentsAreNoNesting) {
  const std::string up = repeated("../", 40) + "data";
  EXPECT_EQ(load("# " + up + " [[[[\n[data]\npath = \"" + up + "\" # '" + up).data.path, up);
  EXPECT_EQ(load("[data]\npath = '''" + up + "'''\n").data.path, up);
  EXPECT_EQ(load("[data]\npath = \"\\\"" + up + "\"\n").data.path, "\"" + up);
  EXPECT_EQ(load("", {"data.path=" + up}).data.path, up);
}

TEST_F(Load, BadSetArguments) {
  EXPECT_EQ(error("", {"mesh.ranks"}), "--set mesh.ranks: expected key=value, as in --set mesh.ranks=8.");
  EXPECT_EQ(error("", {"=3"}), "--set =3: expected key=value, as in --set mesh.ranks=8.");
  EXPECT_THAT(error("", {"mesh.ranks="}), HasSubstr("mesh.ranks = \"\" is not valid"));
}

TEST_F(Load, MissingProfile) {
  EXPECT_EQ(config_error([] { load_profile("/nowhere/x.toml"); }),
            "/nowhere/x.toml: there is no such file; expected a run profile (TOML).");
  EXPECT_THAT(config_error([&] { load_profile(folder_.path().string()); }), HasSubstr("is a folder"));
}

TEST_F(Load, WhatCannotBeReadIsNotCalledMissing) {
  const std::filesystem::path circle = folder_.path() / "circle.toml";
  std::filesystem::create_symlink(circle, circle);
  EXPECT_THAT(
      config_error([&] { load_profile(circle.string()); }),
      EndsWith("circle.toml: cannot be read: Too many levels of symbolic links; expected a run profile (TOML)."));
}

TEST_F(Load, UnknownModelPresetListsTheKnown) {
  const std::string message = error("[model]\npreset = 'llama'");
  EXPECT_THAT(message, HasSubstr("model.preset = \"llama\" is not valid; the nearest is 'llama2-7b'; known are "));
  EXPECT_THAT(message, HasSubstr(", gpt2-124m, "));
  EXPECT_THAT(message, HasSubstr(", mlp, "));
  EXPECT_THAT(message, EndsWith("."));
  EXPECT_THAT(error("[model]\npreset = 'x.toml'"), HasSubstr("there is no such file"));
}

TEST_F(Load, ModelPresetMayBeAFileBesideTheProfile) {
  folder_.write("tiny.toml", "[model]\nlayers = 2\nwidth = 32");
  const RunConfig config = load("[model]\npreset = 'tiny.toml'");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.preset, (folder_.path() / "tiny.toml").string());
}

TEST_F(Load, ModelFilesHoldTheModelOnly) {
  folder_.write("tiny.toml", "[model]\nlayers = 2\n[mesh]\nranks = 2");
  EXPECT_EQ(error("[model]\npreset = 'tiny.toml'"),
            "tiny.toml:4: 'mesh.ranks' has no place in a model file: only keys of [model] (but preset) have.");
}

TEST_F(Load, ModelsBesideTheProfileComeFirst) {
  folder_.write("models/llama3-8b.toml", "[model]\nlayers = 2");
  EXPECT_EQ(load("[model]\npreset = 'llama3-8b'").model.layers, 2);
}

TEST_F(Load, AModelAloneIsTrainedAsIsUsual) {
  std::vector<std::string> notes;
  const RunConfig config = load_profile(find_profile("llama3-70b"), {"mesh.ranks=64"}, &notes);
  RunConfig expected = load_profile(find_profile(kTypicalProfile), {"model.preset=llama3-70b", "mesh.ranks=64"});
  EXPECT_EQ(config, expected);
  EXPECT_EQ(config.model.preset, "llama3-70b");
  EXPECT_EQ(config.fsdp.param_dtype, DType::bf16);
  EXPECT_EQ(config.fsdp.reduce_dtype, DType::f32);
  EXPECT_EQ(config.mesh.ranks, 64);
  EXPECT_THAT(notes,
              Contains(HasSubstr("llama3-70b is a model: it is trained as the profile llama3-8b-emulated says")));

  // A file of the user's own, too; and what says more, or not what kind of model it is, is a profile.
  const std::string own = folder_.write("tiny.toml", "[model]\nkind = 'decoder'\nlayers = 2");
  EXPECT_EQ(load_profile(own).model.layers, 2);
  EXPECT_EQ(load_profile(own).model.preset, own);
  EXPECT_EQ(load_profile(own).fsdp.param_dtype, DType::bf16);
  EXPECT_EQ(load("[model]\nlayers = 2").fsdp.param_dtype, DType::f32);
  EXPECT_EQ(load("[model]\nkind = 'decoder'\nlayers = 2\n[mesh]\nranks = 2").fsdp.param_dtype, DType::f32);
}

}  // namespace
}  // namespace fsdpbench::config
