// Whole steps of small jobs, op by op: who waits for what and why, what comes to life and what goes. Each joins
// policies that meet nowhere else; the rules are in the comments of gatherer.h, reducer.h and prefetcher.h.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "schedule/print_schedule.h"
#include "support/presets.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::Prefetch;

/// "name <data <~reuse <*limit +born -gone;" for each op of the steady step, in lines of at most 116 characters. Names
/// are those of op_list(), in brackets where the host itself does it.
std::string steady(const config::RunConfig& config) {
  const testing::ScheduleCase c = testing::make_case(config);
  const Schedule& step = c.schedules.steady();
  std::map<EventId, std::string> recorded;
  for (const Op& op : step.ops) {
    if (op.record != kNoEvent) recorded[op.record] = op_name(c.plan, op);
  }
  std::string text;
  std::size_t column = 0;
  for (const Op& op : step.ops) {
    std::string one = op.is_host() ? "[" + op_name(c.plan, op) + "]" : op_name(c.plan, op);
    for (const Wait& wait : op.waits) {
      one += wait.reason == WaitReason::data ? " <" : wait.reason == WaitReason::reuse ? " <~" : " <*";
      one += recorded.at(wait.event);
    }
    for (const BufferId id : op.allocates) one += " +" + std::string(to_string(step.buffers[id].role));
    for (const BufferId id : op.frees) one += " -" + std::string(to_string(step.buffers[id].role));
    const bool fits = column + one.size() + 2 <= 116;
    text += (fits ? " " : "\n") + one + ";";
    column = (fits ? column + 1 : 0) + one.size() + 1;
  }
  return text;
}

config::RunConfig job(const std::string& preset, int blocks, int shard, int replicate = 1) {
  return testing::with_preset(testing::decoder_config(blocks, shard, replicate), preset);
}

TEST(Step, AHybridOfFsdp1RecomputesReducesTwiceAndClips) {
  config::RunConfig c = job("fsdp1", 1, 2, 2);
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.activation_checkpointing = true;
  c.train.clip_norm = 1;
  EXPECT_EQ(
      steady(c),
      R"( load_batch +batch_inputs +batch_targets; [host_wait R] <*reshard 0; cast_shard R <optimizer 0 +cast_shard;
all_gather R <optimizer 0 <cast_shard R +gathered -cast_shard;
forward embedding <all_gather R +boundary +workspace -workspace; [host_wait 0] <*reshard 0;
cast_shard 0 +cast_shard; all_gather 0 <cast_shard 0 +gathered -cast_shard;
forward blocks.0 <all_gather 0 +saved +boundary +workspace -workspace -saved; reshard 0 -gathered;
forward head +saved +workspace -workspace; [host_wait R] <*reshard R; cast_shard 0* +cast_shard;
all_gather 0* <cast_shard 0* +gathered -cast_shard;
backward head +gradients +workspace +d_stream -workspace -saved -boundary;
recompute blocks.0 <all_gather 0* +saved +workspace -workspace;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; reshard 0 -gathered; post_backward 0;
reduce_cast 0 <post_backward 0 +reduce_input -gradients; reduce_scatter 0 +reduce_output -reduce_input;
all_reduce 0 <reduce_scatter 0; finish_gradient 0 +gradient_shard -reduce_output;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -gathered;
post_backward R; reduce_cast R <post_backward R +reduce_input -gradients;
reduce_scatter R +reduce_output -reduce_input; all_reduce R <reduce_scatter R;
finish_gradient R +gradient_shard -reduce_output;
gradient_norm R <finish_gradient R <finish_gradient 0 +norm_partial; gradient_norm 0;
gather_norm <gradient_norm 0 +norm_gathered; clip <gather_norm +clip_factor -norm_gathered -norm_partial;
optimizer R -gradient_shard; optimizer 0 -gradient_shard -clip_factor;)");
}

TEST(Step, NestedExpertsAreGatheredOnDemandBehindThePartBeforeThem) {
  config::RunConfig c = testing::decoder_config(1, 4);
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.expert = 2;
  c = testing::with_preset(c, "torchtitan-moe");
  c.fsdp.expert_unit = config::ExpertUnit::module;
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::none, 1};
  EXPECT_EQ(
      steady(c),
      R"( load_batch +batch_inputs +batch_targets; copy_in R <optimizer E0 +gathered; all_gather R <optimizer E0 <copy_in R;
copy_out R <all_gather R +unsharded; forward embedding +boundary +workspace -workspace;
copy_in 0 <*forward embedding +gathered; all_gather 0 <copy_in 0; release R <~copy_out R -gathered;
copy_out 0 <all_gather 0 +unsharded; forward blocks.0/0 +saved +boundary +workspace +exchange;
copy_in E0 <*forward blocks.0/0 +gathered; all_gather E0 <copy_in E0; release 0 <~copy_out 0 -gathered;
copy_out E0 <all_gather E0 +unsharded; expert_dispatch blocks.0 <forward blocks.0/0;
forward blocks.0/1 <expert_dispatch blocks.0; expert_combine blocks.0 <forward blocks.0/1; reshard E0 -unsharded;
forward blocks.0/2 <expert_combine blocks.0 -workspace -exchange; reshard 0 -unsharded;
copy_in T <*forward blocks.0/2 +gathered; all_gather T <copy_in T; release E0 <~copy_out E0 -gathered;
copy_out T <all_gather T +unsharded; forward head +saved +workspace -workspace; reshard T -unsharded;
release T <~copy_out T -gathered; copy_in T +gathered; all_gather T <copy_in T; copy_out T <all_gather T +unsharded;
release T <~copy_out T -gathered; backward head +gradients +workspace +d_stream -workspace -saved -boundary;
reshard T -unsharded; post_backward T; reduce_copy_in T +reduce_input -gradients;
reduce_scatter T <reduce_copy_in T +reduce_output; finish_gradient T +gradient_shard -reduce_output;
copy_in 0 +gathered; all_gather 0 <copy_in 0; copy_out 0 <all_gather 0 +unsharded; release 0 <~copy_out 0 -gathered;
backward blocks.0/0 +gradients +workspace +exchange; copy_in E0 +gathered; all_gather E0 <copy_in E0;
copy_out E0 <all_gather E0 +unsharded; release E0 <~copy_out E0 -gathered;
expert_dispatch blocks.0 <backward blocks.0/0; backward blocks.0/1 <expert_dispatch blocks.0 +gradients;
expert_combine blocks.0 <backward blocks.0/1; reshard E0 -unsharded; post_backward E0;
release T <~reduce_scatter T -reduce_input; reduce_copy_in E0 +reduce_input -gradients;
reduce_scatter E0 <reduce_copy_in E0 +reduce_output; finish_gradient E0 +gradient_shard -reduce_output;
backward blocks.0/2 <expert_combine blocks.0 -workspace -exchange -saved -boundary; reshard 0 -unsharded;
post_backward 0; release E0 <~reduce_scatter E0 -reduce_input; reduce_copy_in 0 +reduce_input -gradients;
reduce_scatter 0 <reduce_copy_in 0 +reduce_output; finish_gradient 0 +gradient_shard -reduce_output;
backward embedding +gradients +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -unsharded;
post_backward R; release 0 <~reduce_scatter 0 -reduce_input; reduce_copy_in R +reduce_input -gradients;
reduce_scatter R <reduce_copy_in R +reduce_output; finish_gradient R +gradient_shard -reduce_output;
release R <finish_gradient R <finish_gradient 0 <finish_gradient T <finish_gradient E0 <~reduce_scatter R -reduce_input;
optimizer R -gradient_shard; optimizer 0 -gradient_shard; optimizer T -gradient_shard; optimizer E0 -gradient_shard;)");
}

TEST(Step, WhatIsOffloadedComesInTurnAndItsGradientsGoBeforeTheNext) {
  config::RunConfig c = job("fsdp1", 2, 4);
  c.fsdp.cpu_offload = config::CpuOffload::all;
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.forward_prefetch = {Prefetch::Mode::none, 1};
  c.train.clip_norm = 1;
  EXPECT_EQ(
      steady(c),
      R"( load_batch +batch_inputs +batch_targets; [host_wait R] <*reshard 1; host_to_device R <release +device_shard;
cast_shard R <release <host_to_device R +cast_shard -device_shard;
all_gather R <release <cast_shard R +gathered -cast_shard;
forward embedding <all_gather R +boundary +workspace -workspace; [host_wait 0] <*reshard 1;
host_to_device 0 <*forward embedding <*cast_shard R +device_shard;
cast_shard 0 <*forward embedding <host_to_device 0 +cast_shard -device_shard;
all_gather 0 <cast_shard 0 <*forward embedding +gathered -cast_shard;
forward blocks.0 <all_gather 0 +saved +boundary +workspace -workspace; reshard 0 -gathered;
[host_wait 1] <*reshard 0; host_to_device 1 <*forward blocks.0 <*cast_shard 0 +device_shard;
cast_shard 1 <*forward blocks.0 <host_to_device 1 +cast_shard -device_shard;
all_gather 1 <cast_shard 1 <*forward blocks.0 +gathered -cast_shard;
forward blocks.1 <all_gather 1 +saved +boundary +workspace -workspace; reshard 1 -gathered;
forward head +saved +workspace -workspace; [host_wait R] <*reshard R; [host_wait 1] <*reshard 0;
host_to_device 1* <*cast_shard 1 +device_shard; cast_shard 1* <host_to_device 1* +cast_shard -device_shard;
all_gather 1* <cast_shard 1* +gathered -cast_shard;
backward head +gradients +workspace +d_stream -workspace -saved -boundary;
host_to_device 0* <*cast_shard 1* +device_shard; cast_shard 0* <host_to_device 0* +cast_shard -device_shard;
all_gather 0* <cast_shard 0* +gathered -cast_shard;
backward blocks.1 <all_gather 1* +gradients +workspace -workspace -saved -boundary; reshard 1 -gathered;
post_backward 1; reduce_cast 1 <post_backward 1 +reduce_input -gradients;
reduce_scatter 1 +reduce_output -reduce_input; finish_gradient 1 +gradient_shard -reduce_output;
device_to_host 1 <finish_gradient 1 +gradient_shard -gradient_shard;
backward blocks.0 <all_gather 0* +gradients +workspace -workspace -saved -boundary; reshard 0 -gathered;
post_backward 0; reduce_cast 0 <post_backward 0 <*device_to_host 1 +reduce_input -gradients;
reduce_scatter 0 +reduce_output -reduce_input; finish_gradient 0 +gradient_shard -reduce_output;
device_to_host 0 <finish_gradient 0 +gradient_shard -gradient_shard;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -gathered;
post_backward R; reduce_cast R <post_backward R <*device_to_host 0 +reduce_input -gradients;
reduce_scatter R +reduce_output -reduce_input; finish_gradient R +gradient_shard -reduce_output;
device_to_host R <finish_gradient R +gradient_shard -gradient_shard; [host_wait R] <device_to_host R;
[host_wait 0] <device_to_host 0; [host_wait 1] <device_to_host 1; gradient_norm R +norm_partial; gradient_norm 0;
gradient_norm 1; gather_norm <gradient_norm 1 +norm_gathered;
clip <gather_norm +clip_factor -norm_gathered -norm_partial; optimizer R <~host_to_device 0* -gradient_shard;
optimizer 0 -gradient_shard; optimizer 1 -gradient_shard;
release <finish_gradient R <finish_gradient 0 <finish_gradient 1 <clip <optimizer 1 <host_to_device 0* -clip_factor;)");
}

TEST(Step, OffloadedOptimizersSendBackWhatTheyUpdated) {
  config::RunConfig c = job("fsdp2", 1, 4);
  c.fsdp.cpu_offload = config::CpuOffload::optimizer;
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.persistence_threshold = 1 << 30;
  c.train.accumulate = 2;
  c.train.clip_norm = 1;
  EXPECT_EQ(steady(c), R"( load_batch +batch_inputs +batch_targets; forward embedding +boundary +workspace -workspace;
forward blocks.0 +saved +boundary +workspace -workspace; forward head +saved +workspace -workspace;
backward head +gradients +workspace +d_stream -workspace -saved -boundary;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; post_backward 0;
reduce_copy_in 0 +reduce_input -gradients; reduce_scatter 0 <reduce_copy_in 0 +gradient_shard;
device_to_host 0 <reduce_scatter 0 +gradient_shard -gradient_shard;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; post_backward R;
release 0 <~reduce_scatter 0 -reduce_input; reduce_copy_in R +reduce_input -gradients;
reduce_scatter R <reduce_copy_in R <*device_to_host 0 +gradient_shard;
device_to_host R <reduce_scatter R +gradient_shard -gradient_shard;
release R <reduce_scatter R <reduce_scatter 0 -reduce_input; [host_wait R] <device_to_host R;
[host_wait 0] <device_to_host 0; end_backward; load_batch +batch_inputs +batch_targets;
forward embedding +boundary +workspace -workspace; forward blocks.0 +saved +boundary +workspace -workspace;
forward head +saved +workspace -workspace;
backward head +gradients +workspace +d_stream -workspace -saved -boundary;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; post_backward 0;
reduce_copy_in 0 +reduce_input -gradients; reduce_scatter 0 <reduce_copy_in 0 +reduce_output;
device_to_host 0 <reduce_scatter 0 +offloaded_gradient -reduce_output;
finish_gradient 0 <device_to_host 0 -offloaded_gradient;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; post_backward R;
release 0 <~reduce_scatter 0 -reduce_input; reduce_copy_in R +reduce_input -gradients;
reduce_scatter R <reduce_copy_in R <*device_to_host 0 +reduce_output;
device_to_host R <reduce_scatter R +offloaded_gradient -reduce_output;
finish_gradient R <device_to_host R -offloaded_gradient;
release R <reduce_scatter R <reduce_scatter 0 -reduce_input; [host_wait R] <finish_gradient R;
[host_wait 0] <finish_gradient 0; gradient_norm R +norm_partial; gradient_norm 0;
gather_norm <release <*end_backward <gradient_norm 0 +norm_gathered;
clip <gather_norm +clip_factor -norm_gathered -norm_partial; optimizer R -gradient_shard; cast_shard R +host_shard;
host_to_device R <release <cast_shard R <~release R -host_shard; optimizer 0 -gradient_shard;
cast_shard 0 +host_shard; host_to_device 0 <cast_shard 0 <~release R -host_shard;
copy_in R <clip <host_to_device 0 +gathered; copy_in 0 <host_to_device 0; all_gather {0,R}; copy_out R;
copy_out 0 -gathered; release <cast_shard 0 <host_to_device 0 -clip_factor;)");
}

TEST(Step, FrozenUnitsOfFsdp1SaveNothingAndAreFreedAtTheEnd) {
  config::RunConfig c = job("fsdp1", 3, 4);
  c.model.trainable = {config::Trainable::Mode::blocks, 1, 2};
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  EXPECT_EQ(steady(c),
            R"( load_batch +batch_inputs +batch_targets; [host_wait R] <*reshard 2; all_gather R <optimizer 2 +gathered;
[host_wait 0] <*reshard 2; all_gather 0* +gathered; forward embedding <all_gather R +boundary +workspace -workspace;
[host_wait 1] <*reshard 1; all_gather 1* +gathered;
forward blocks.0 <all_gather 0* +saved +boundary +workspace -workspace -saved -boundary; reshard 0 -gathered;
[host_wait 2] <*reshard R; all_gather 2* +gathered;
forward blocks.1 <all_gather 1* +saved +boundary +workspace -workspace; reshard 1 -gathered;
forward blocks.2 <all_gather 2* +saved +boundary +workspace -workspace; reshard 2 -gathered;
forward head +saved +workspace -workspace; [host_wait R] <*reshard 0; [host_wait 2] <*reshard 1;
all_gather 2* +gathered; backward head +workspace +d_stream -workspace -saved -boundary; all_gather 1* +gathered;
backward blocks.2 <all_gather 2* +gradients +workspace -workspace -saved -boundary;
backward blocks.1 <all_gather 1* +gradients +workspace -workspace -saved -boundary -d_stream -batch_inputs -batch_targets;
reshard 2 -gathered; post_backward 2; reduce_cast 2 <post_backward 2; reduce_scatter 2 +reduce_output -gradients;
finish_gradient 2 +gradient_shard -reduce_output; reshard 1 -gathered; post_backward 1;
reduce_cast 1 <post_backward 1; reduce_scatter 1 +reduce_output -gradients;
finish_gradient 1 +gradient_shard -reduce_output; reshard R -gathered;
optimizer 1 <finish_gradient 1 <finish_gradient 2 -gradient_shard; optimizer 2 -gradient_shard;)");
}

TEST(Step, KeptUnitsAreInFlightUntilTheirFirstUse) {
  config::RunConfig c = job("fsdp2", 2, 4);
  c.fsdp.strategy = config::Strategy::shard_grad_op;
  c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::strict, 1, 0};
  EXPECT_EQ(
      steady(c),
      R"( load_batch +batch_inputs +batch_targets; copy_in R <optimizer 1 +gathered; all_gather R <optimizer 1 <copy_in R;
copy_out R <all_gather R +unsharded; release R <~copy_out R -gathered;
forward embedding +boundary +workspace -workspace; copy_in 0 +gathered; all_gather 0 <copy_in 0;
copy_out 0 <all_gather 0 +unsharded -gathered; forward blocks.0 +saved +boundary +workspace -workspace;
[host_wait 1] <*forward blocks.0; copy_in 1 +gathered; all_gather 1 <copy_in 1;
copy_out 1 <all_gather 1 +unsharded -gathered; forward blocks.1 +saved +boundary +workspace -workspace;
forward head +saved +workspace -workspace;
backward head +gradients +workspace +d_stream -workspace -saved -boundary;
backward blocks.1 +gradients +workspace -workspace -saved -boundary; reshard 1 -unsharded; post_backward 1;
reduce_copy_in 1 +reduce_input -gradients; reduce_scatter 1 <reduce_copy_in 1 +gradient_shard;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; reshard 0 -unsharded; post_backward 0;
release 1 <~reduce_scatter 1 -reduce_input; reduce_copy_in 0 +reduce_input -gradients;
reduce_scatter 0 <reduce_copy_in 0 +gradient_shard;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -unsharded;
post_backward R; release 0 <~reduce_scatter 0 -reduce_input; reduce_copy_in R +reduce_input -gradients;
reduce_scatter R <reduce_copy_in R +gradient_shard;
release R <reduce_scatter R <reduce_scatter 0 <reduce_scatter 1 -reduce_input; optimizer R -gradient_shard;
optimizer 0 -gradient_shard; optimizer 1 -gradient_shard;)");
}

TEST(Step, EachMicrobatchBeginsAfterTheReductionsOfTheOneBefore) {
  config::RunConfig c = job("fsdp2", 1, 4);
  c.train.accumulate = 2;
  c.fsdp.wait_each_backward = true;
  EXPECT_EQ(
      steady(c),
      R"( load_batch +batch_inputs +batch_targets; copy_in R <optimizer 0 +gathered; all_gather R <optimizer 0 <copy_in R;
copy_out R <all_gather R +unsharded; forward embedding +boundary +workspace -workspace; copy_in 0 +gathered;
all_gather 0 <copy_in 0; release R <~copy_out R -gathered; copy_out 0 <all_gather 0 +unsharded;
forward blocks.0 +saved +boundary +workspace -workspace; reshard 0 -unsharded;
forward head +saved +workspace -workspace; release 0 <~copy_out 0 -gathered; copy_in 0* +gathered;
all_gather 0* <copy_in 0*; backward head +gradients +workspace +d_stream -workspace -saved -boundary;
copy_out 0 <all_gather 0* +unsharded; release 0 <~copy_out 0 -gathered;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; reshard 0 -unsharded; post_backward 0;
reduce_copy_in 0 +reduce_input -gradients; reduce_scatter 0 <reduce_copy_in 0 +gradient_shard;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -unsharded;
post_backward R; release 0 <~reduce_scatter 0 -reduce_input; reduce_copy_in R +reduce_input -gradients;
reduce_scatter R <reduce_copy_in R +gradient_shard; release R <reduce_scatter R <reduce_scatter 0 -reduce_input;
end_backward; load_batch +batch_inputs +batch_targets; copy_in R <*end_backward +gathered;
all_gather R <*end_backward <copy_in R; copy_out R <all_gather R +unsharded;
forward embedding +boundary +workspace -workspace; copy_in 0 +gathered; all_gather 0 <copy_in 0;
release R <~copy_out R -gathered; copy_out 0 <all_gather 0 +unsharded;
forward blocks.0 +saved +boundary +workspace -workspace; reshard 0 -unsharded;
forward head +saved +workspace -workspace; release 0 <~copy_out 0 -gathered; copy_in 0* +gathered;
all_gather 0* <copy_in 0*; backward head +gradients +workspace +d_stream -workspace -saved -boundary;
copy_out 0 <all_gather 0* +unsharded; release 0 <~copy_out 0 -gathered;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; reshard 0 -unsharded; post_backward 0;
reduce_copy_in 0 +reduce_input -gradients; reduce_scatter 0 <reduce_copy_in 0 +reduce_output;
finish_gradient 0 -reduce_output; backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets;
reshard R -unsharded; post_backward R; release 0 <~reduce_scatter 0 -reduce_input;
reduce_copy_in R +reduce_input -gradients; reduce_scatter R <reduce_copy_in R +reduce_output;
finish_gradient R -reduce_output; release R <finish_gradient R <finish_gradient 0 <~reduce_scatter R -reduce_input;
optimizer R -gradient_shard; optimizer 0 -gradient_shard;)");
}

TEST(Step, ARateGathersOnceForWhatAHookHasTakenBefore) {
  config::RunConfig c = job("deepspeed-z3", 2, 2);
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::rate, 1, 1 << 20};
  c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::fsdp1_queue, 2, 0};
  c.fsdp.gradients_after_views = true;
  c.fsdp.max_reuse_distance = c.fsdp.persistence_threshold = 0;
  EXPECT_EQ(steady(c),
            R"( load_batch +batch_inputs +batch_targets; [host_wait R] <*reshard R; all_gather R <optimizer 1 +gathered;
[host_wait 0] <*reshard 1; [host_wait 1] <*reshard 0; copy_in 0* +gathered; copy_in 1*; all_gather {0,1}*;
copy_out 0* +unsharded; copy_out 1* +unsharded -gathered;
forward embedding <all_gather R +boundary +workspace -workspace;
forward blocks.0 <copy_out 1* +saved +boundary +workspace -workspace;
forward blocks.1 <copy_out 1* +saved +boundary +workspace -workspace; forward head +saved +workspace -workspace;
reshard R -gathered; [host_wait R] <*reshard R; all_gather R +gathered;
backward head <all_gather R +gradients +workspace +d_stream -workspace -saved -boundary;
backward blocks.1 +gradients +workspace -workspace -saved -boundary;
backward blocks.0 +gradients +workspace -workspace -saved -boundary;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; post_backward 1;
reduce_cast 1 <post_backward 1 +reduce_input -gradients; reshard 1 -unsharded; post_backward 0;
reduce_cast 0 <post_backward 0 +reduce_input -gradients; reshard 0 -unsharded; post_backward R;
reduce_cast R <post_backward R +reduce_input -gradients; reduce_copy_in 1 +reduce_input -reduce_input;
reduce_copy_in 0 -reduce_input; reduce_copy_in R -reduce_input; reduce_scatter {0,1,R} +reduce_output -reduce_input;
finish_gradient 1 +gradient_shard; finish_gradient 0 +gradient_shard;
finish_gradient R +gradient_shard -reduce_output; [host_wait] <*reduce_scatter {0,1,R}; reshard R -gathered;
optimizer R <finish_gradient R <finish_gradient 0 <finish_gradient 1 -gradient_shard; optimizer 0 -gradient_shard;
optimizer 1 -gradient_shard;)");
}

TEST(Step, BucketsOfZero1AreReducedAndGatheredTogether) {
  config::RunConfig c = job("deepspeed-z1", 2, 2);
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.shard_threshold = 100;
  EXPECT_EQ(steady(c),
            R"( load_batch +batch_inputs +batch_targets; cast_replicated R; cast_replicated 0; cast_replicated 1;
forward embedding +boundary +workspace -workspace; forward blocks.0 +saved +boundary +workspace -workspace;
forward blocks.1 +saved +boundary +workspace -workspace; forward head +saved +workspace -workspace;
backward head +gradients +gradients_replicated +workspace +d_stream -workspace -saved -boundary;
backward blocks.1 +gradients +gradients_replicated +workspace -workspace -saved -boundary;
backward blocks.0 +gradients +gradients_replicated +workspace -workspace -saved -boundary;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; post_backward R;
reduce_copy_in R +reduce_input -gradients;
reduce_cast R <post_backward R +reduce_input_replicated -gradients_replicated; all_reduce R; post_backward 0;
reduce_copy_in 0 -gradients; reduce_cast 0 <post_backward 0 +reduce_input_replicated -gradients_replicated;
all_reduce 0; post_backward 1; reduce_copy_in 1 -gradients;
reduce_cast 1 <post_backward 1 +reduce_input_replicated -gradients_replicated; all_reduce 1; all_reduce {0,1,R};
finish_gradient R +gradient_shard; finish_gradient 0 +gradient_shard;
finish_gradient 1 +gradient_shard -reduce_input;
optimizer R <all_reduce R <all_reduce 0 <all_reduce 1 -gradient_shard; optimizer R -reduce_input_replicated;
optimizer 0 -gradient_shard; optimizer 0 -reduce_input_replicated; optimizer 1 -gradient_shard;
optimizer 1 -reduce_input_replicated; copy_in R +gathered; copy_in 0; copy_in 1; all_gather {0,1,R}; copy_out R;
copy_out 0; copy_out 1 -gathered;)");
}

TEST(Step, AWindowWaitsOnTheDeviceForItsBuffer) {
  config::RunConfig c = job("megatron-v1", 2, 2);
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 1};
  c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::buffers, 1, 0};
  EXPECT_EQ(steady(c), R"( load_batch +batch_inputs +batch_targets; all_gather R <optimizer 1 <*load_batch +gathered;
all_gather 0* <*load_batch +gathered; forward embedding <all_gather R +boundary +workspace -workspace;
forward blocks.0 <all_gather 0* +saved +boundary +workspace -workspace; reshard 0 -gathered;
all_gather 1 <*reshard 0 +gathered; forward blocks.1 <all_gather 1 +saved +boundary +workspace -workspace;
reshard 1 -gathered; forward head +saved +workspace -workspace;
backward head +gradients +workspace +d_stream -workspace -saved -boundary;
all_gather 1 <*reshard 1 <*backward head +gathered;
backward blocks.1 <all_gather 1 +gradients +workspace -workspace -saved -boundary; reshard 1 -gathered;
post_backward 1; reduce_scatter 1 <post_backward 1 +gradient_shard;
all_gather 0 <*reshard 1 <*post_backward 1 +gathered;
backward blocks.0 <all_gather 0 +gradients +workspace -workspace -saved -boundary; reshard 0 -gathered;
post_backward 0; reduce_scatter 0 <post_backward 0 +gradient_shard;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -gathered;
post_backward R; reduce_scatter R <post_backward R +gradient_shard;
release 1 <reduce_scatter R <reduce_scatter 0 <reduce_scatter 1 -gradients; release 0 <~reduce_scatter 0 -gradients;
release R <~reduce_scatter R -gradients; optimizer R -gradient_shard; optimizer 0 -gradient_shard;
optimizer 1 -gradient_shard;)");
}

TEST(Step, AScanReducesOneIterationLate) {
  config::RunConfig c = job("xla", 2, 2);
  c.inject.host_sync_after_layer = 0;
  EXPECT_EQ(steady(c), R"( load_batch +batch_inputs +batch_targets; all_gather R <optimizer 1 <*load_batch +gathered;
forward embedding <all_gather R +boundary +workspace -workspace; all_gather 0 <*forward embedding +gathered;
forward blocks.0 <all_gather 0 +saved +boundary +workspace -workspace -saved; [host_sync blocks.0];
reshard 0 -gathered; all_gather 1 <*forward blocks.0 <*reshard 0 +gathered;
forward blocks.1 <all_gather 1 +saved +boundary +workspace -workspace -saved; reshard 1 -gathered;
forward head +saved +workspace -workspace;
backward head +gradients +workspace +d_stream -workspace -saved -boundary; all_gather 1 <*backward head +gathered;
recompute blocks.1 <all_gather 1 +saved +workspace -workspace;
backward blocks.1 +gradients +workspace -workspace -saved -boundary; reshard 1 -gathered;
all_gather 0 <*reshard 1 +gathered; post_backward 1 <all_gather 0;
reduce_scatter 1 <post_backward 1 +gradient_shard; recompute blocks.0 +saved +workspace -workspace;
backward blocks.0 +gradients +workspace -workspace -saved -boundary; reshard 0 -gathered;
backward embedding +workspace -workspace -d_stream -batch_inputs -batch_targets; reshard R -gathered;
post_backward 0; reduce_scatter 0 <post_backward 0 +gradient_shard; post_backward R;
reduce_scatter R <post_backward R +gradient_shard;
release 1 <reduce_scatter R <reduce_scatter 0 <reduce_scatter 1 -gradients; release 0 <~reduce_scatter 0 -gradients;
release R <~reduce_scatter R -gradients; optimizer R -gradient_shard; optimizer 0 -gradient_shard;
optimizer 1 -gradient_shard;)");
}

}  // namespace
}  // namespace fsdpbench::schedule
