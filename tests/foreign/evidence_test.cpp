// A job is recognised by evidence: ranges before the likeness of orders, words before kinds of collectives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/words/words.h"
#include "foreign/diff_jobs.h"
#include "foreign/evidence.h"
#include "foreign/explain.h"
#include "foreign/job_kind.h"
#include "foreign/kineto_names.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "foreign/unused_gathers.h"
#include "support/temporary_folder.h"

namespace fsdpbench::foreign {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

fs::path pairs_folder() {
  for (const auto& entry : fs::directory_iterator(FSDPBENCH_RECORDED_DIR)) {
    if (entry.path().filename().string().starts_with("pairs-")) return entry.path();
  }
  return {};
}

/// Real jobs of PyTorch under all settings of prefetching (tests/peer/pairs.py).
TEST(Evidence, PrefetchingIsWhatRangesSay) {
  int asked = 0;
  for (const auto& pair : fs::directory_iterator(pairs_folder())) {
    std::ifstream file(pair.path() / "pair.json");
    const nlohmann::json truth = nlohmann::json::parse(file);
    for (const char* side : {"a", "b"}) {
      const std::string where = pair.path().filename().string() + "/" + side;
      const Recognition found = recognise(read_job({(pair.path() / side).string()}));
      ASSERT_TRUE(found.schedule) << where;
      // Without gathers in backward nothing tells how they would be prefetched.
      const bool told = !truth[side].contains("fsdp.strategy");
      ASSERT_TRUE(found.facts.prefetch) << where;
      EXPECT_EQ(found.facts.prefetch->backward != ToldPrefetch::Backward::unknown, told) << where;
      using Mode = config::Prefetch::Mode;
      const config::Fsdp& fsdp = found.schedule->config.fsdp;
      const auto& keys = truth[side];
      const bool ahead = keys.contains("fsdp.forward_prefetch");
      EXPECT_EQ(fsdp.forward_prefetch.mode == Mode::explicit_, ahead) << where;
      if (ahead) {
        EXPECT_EQ(fsdp.forward_prefetch.depth, keys["fsdp.forward_prefetch"].get<int>()) << where;
      }
      const auto backward = keys.find("fsdp.backward_prefetch");
      if (backward == keys.end()) {
        EXPECT_EQ(fsdp.backward_prefetch.mode, Mode::pre) << where;
      } else if (backward->is_string()) {
        EXPECT_EQ(fsdp.backward_prefetch.mode, *backward == "post" ? Mode::post : Mode::none) << where;
      } else {
        EXPECT_EQ(fsdp.backward_prefetch.mode, Mode::explicit_) << where;
        EXPECT_EQ(fsdp.backward_prefetch.depth, backward->get<int>()) << where;
      }
      if (told) {
        EXPECT_GE(found.find("backward prefetch")->confidence, 0.9) << where;
      }
      if (found.schedule->distance > 0) {
        EXPECT_FALSE(found.schedule->deviations.empty()) << where;
      }
      ++asked;
    }
  }
  EXPECT_EQ(asked, 28);
}

/// Every cause, in a job of a program that these words are of.
std::vector<account::CauseShare> advised(const dialects::Words& words, JobKind kind, DType dtype) {
  JobTrace job;
  job.ranks.resize(2);
  job.ranks[1].rank = 1;
  for (RankRows& rank : job.ranks) rank.world_size = 2;
  Recognition found;
  found.engine = &words;
  found.kind = kind;
  found.shards = kind == JobKind::sharded;
  found.facts.param_dtype = dtype;
  found.facts.reduce_dtype = DType::f32;
  Explanation explained;
  for (const account::Cause cause : kEnumerators<account::Cause>) {
    account::CauseShare& share = explained.causes.emplace_back();
    share.cause = cause;
    share.ms = 2;
    share.share_pct = 20;
    share.late_rank = 1;
  }
  account::advise(explained.causes, evidence_of(job, found, explained));
  return explained.causes;
}

TEST(Evidence, NobodyIsToldWhatTheProgramHasNoWordFor) {
  using account::Cause;
  const auto remedy = [](const dialects::Words& words, Cause cause) -> std::optional<std::string> {
    const dialects::Remedies& of = *words.remedies;
    switch (cause) {
      case Cause::late_prefetch: return of.prefetch_forward;
      case Cause::all_gather_limit: return of.no_limit;
      case Cause::reduce_scatter_buffers: return of.more_buffers;
      case Cause::communicator_serialisation: return of.separate_reductions;
      case Cause::contention: return of.one_communicator;
      default: return std::nullopt;
    }
  };
  int silent = 0, named = 0;
  for (const dialects::Words* words : dialects::words_in_traces()) {
    if (words->name == "fsdpbench") continue;
    for (const JobKind kind : {JobKind::sharded, JobKind::data_parallel, JobKind::unknown}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const account::CauseShare& share : advised(*words, kind, dtype)) {
          const std::string where = words->name + ": " + share.advice;
          // Keys of this program are nobody else's words.
          EXPECT_THAT(share.advice, Not(::testing::ContainsRegex("(fsdp|mesh|train|nccl|simulate)\\.[a-z]"))) << where;
          if (share.advice.find("bf16") != std::string::npos) {
            EXPECT_THAT(share.advice, HasSubstr("which changes numerics")) << where;
          }
          if (kind != JobKind::sharded || !words->remedies) continue;
          const std::optional<std::string> setting = remedy(*words, share.cause);
          if (!setting) continue;
          if (setting->empty()) {
            EXPECT_EQ(share.advice, "") << where;
            ++silent;
          } else if (!setting->starts_with("{")) {  // a flag that was renamed
            EXPECT_THAT(share.advice, HasSubstr(*setting)) << where;
            ++named;
          }
        }
      }
    }
  }
  EXPECT_GE(silent, 10);
  EXPECT_GE(named, 20);
}

TEST(Evidence, KernelsOfDeepEPAreCommunication) {
  for (const char* name :
       {"void deep_ep::internode::dispatch<false, 8>(int4*, float*)", "dispatch", "combine",
        "void combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", "notify_dispatch", "cached_notify_combine(void**, int*)",
        "void dpsk::ep::internode::cached_notify<false>(int, int, int, int, int*)"}) {
    EXPECT_THAT(communication_of_kernel(name), Optional(Communication::all_to_all)) << name;
  }
  EXPECT_FALSE(communication_of_kernel("void flash_fwd_splitkv_combine_kernel<1>(int)"));
}

/// A step of experts whose rows a library exchanges; attention runs before.
std::string library_exchanges() {
  std::string rows = R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":1,"dur":900})";
  int id = 0;
  const auto kernel = [&](const char* name, int stream, int launched, int begin, int us) {
    ++id;
    rows += fmt::format(
        R"(,{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernelExC","pid":1,"tid":1,"ts":{},"dur":2,"args":{{"correlation":{}}}}})",
        launched, id);
    rows += fmt::format(
        R"(,{{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{"stream":{},"correlation":{}}}}})",
        name, stream, begin, us, stream, id);
  };
  const auto range = [&](const char* name, int begin, int us) {
    rows += fmt::format(R"(,{{"ph":"X","cat":"user_annotation","name":"{}","pid":1,"tid":1,"ts":{},"dur":{}}})", name,
                        begin, us);
  };
  range("attn(B)", 5, 20);
  kernel("void flash_bwd_kernel<128>(int)", 7, 10, 700, 150);
  range("dispatch(F)", 28, 700);
  kernel("void dpsk::ep::internode::notify_dispatch<false, 8>(int const*)", 27, 30, 40, 300);
  kernel("void dpsk::ep::internode::dispatch<false, 8>(int4*)", 27, 345, 350, 100);
  kernel("void dpsk::ep::internode::cached_notify<false>(int)", 27, 350, 450, 10);
  kernel("void dpsk::ep::internode::combine<false, 8>(int4*)", 27, 355, 460, 100);
  kernel("sm90_xmma_gemm_bf16", 7, 360, 400, 20);
  return "{\"traceEvents\":[" + rows + "]}";
}

TEST(Evidence, ExchangesOfALibraryAreOfExperts) {
  TemporaryFolder folder;
  folder.write("rank_0.json", library_exchanges());
  const JobTrace job = read_job({(folder / "rank_0.json")});
  const Recognition found = recognise(job);
  EXPECT_EQ(found.kind, JobKind::experts);
  ASSERT_EQ(found.syncs.size(), 1U);  // from the launch of notify_dispatch to that of dispatch
  const HostRow& wait = job.ranks[0].host[found.syncs[0].row];
  EXPECT_EQ(wait.end_ns - wait.begin_ns, 313'000);
  Explanation explained = explain(job, found);
  account::advise(explained.causes, evidence_of(job, found, explained));
  for (const account::CauseShare& share : explained.causes) {
    EXPECT_THAT(share.advice, Not(AnyOf(HasSubstr("prefetch"), HasSubstr("fsdp."), HasSubstr("reshard"))));
  }
  EXPECT_TRUE(find_unused_gathers(job, found).all.empty());
}

/// A real job of two ranks (tests/peer/profiled.py): experts in blocks that FSDP2 shards; rank 0's gets three quarters.
TEST(Evidence, TokensThatAreSpreadUnevenlyAreTold) {
  const fs::path folder = fs::path(FSDPBENCH_RECORDED_DIR) / "experts-2.15.0" / "experts-fsdp2";
  const std::vector<std::string> files{(folder / "rank_0.json.gz").string(), (folder / "rank_1.json.gz").string()};
  const JobTrace job = read_job(files);
  const Recognition found = recognise(job);
  EXPECT_EQ(found.kind, JobKind::experts);
  EXPECT_TRUE(found.shards);
  EXPECT_THAT(found.name, HasSubstr("FSDP2"));
  const Explanation explained = explain(job, found);
  // A part of the time that is exposed in exchanges is for rows beyond the mean, and no more than all of it.
  using account::Cause;
  const double uneven = explained.causes_ms[Cause::expert_imbalance];
  EXPECT_GT(uneven, 0);
  double exposed = 0;
  for (const ExplainedCollective& one : explained.collectives) {
    const bool exchange = one.kind == "all_to_all";  // counts of rows go the same way
    EXPECT_TRUE(exchange || one.causes_ms[Cause::expert_imbalance] == 0) << one.kind;
    if (exchange) exposed += one.exposed_ms;
  }
  EXPECT_LT(uneven, exposed);
  Explanation advised = explained;
  account::advise(advised.causes, evidence_of(job, found, advised));
  const auto share = std::ranges::find(advised.causes, Cause::expert_imbalance, &account::CauseShare::cause);
  ASSERT_NE(share, advised.causes.end());
  if (!share->advice.empty()) {
    EXPECT_THAT(share->advice, HasSubstr("auxiliary loss"));
  }
  const UnusedGathersFound unused = find_unused_gathers(job, found);
  EXPECT_EQ(unused.unknown, "");
  EXPECT_TRUE(unused.all.empty());
  JobTrace untold = job;
  for (CollectiveFacts& facts : untold.ranks[1].collectives) facts.elements_in = facts.elements_out = -1;
  const Explanation without_sizes = explain(untold, found);
  EXPECT_EQ(without_sizes.causes_ms[Cause::expert_imbalance], 0) << "one rank's sizes tell nothing of the other's";
  const Explanation alone = explain(read_job({files.front()}), recognise(read_job({files.front()})));
  EXPECT_EQ(alone.causes_ms[Cause::expert_imbalance], 0) << "nobody knows the rows of the other rank";
}

TEST(Evidence, AnAllToAllOfEmbeddingsMakesNoMixtureOfExperts) {
  PurposeCounts counts;
  counts.n[{Purpose::experts, schedule::Phase::forward}] = 2;
  counts.n[{Purpose::gradients, schedule::Phase::backward}] = 3;
  JobWords words;
  words.backward = "autograd::engine::evaluate_function: MmBackward0";
  EXPECT_EQ(kind_of(counts, words, false, 5, true), JobKind::experts);
  words.embeddings = "split_embedding_codegen_lookup_rowwise_adagrad_function";
  EXPECT_EQ(kind_of(counts, words, false, 5, true), JobKind::model_parallel);
  EXPECT_THAT(program_of(words, JobKind::model_parallel, {}).name, HasSubstr("recommendation"));
}

TEST(Evidence, TwoJobsAreRefused) {
  const fs::path pairs = pairs_folder();
  const std::string one = (pairs / "fsdp1-post/a/rank_0.json.gz").string();
  const std::string other = (pairs / "fsdp1-reshard/a/rank_1.json.gz").string();
  try {
    read_job({one, other});
    FAIL() << "ranks of two jobs were read as one";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("two jobs"));
  }
}

TEST(Evidence, OneFileBlamesNoLink) {
  const JobTrace job = read_job({(pairs_folder() / "fsdp2-reshard/a/rank_0.json.gz").string()});
  const Recognition found = recognise(job);
  Explanation explained = explain(job, found);
  // Whatever its share is: a transfer may be a wait for a rank that nobody sees.
  explained.causes = {{}};
  explained.causes.front().cause = account::Cause::link_bound;
  explained.causes.front().share_pct = 20;
  account::advise(explained.causes, evidence_of(job, found, explained));
  EXPECT_THAT(explained.causes.front().advice, HasSubstr("rank whose file is not here (1 of 2 are)"));
  EXPECT_THAT(explained.causes.front().advice, Not(HasSubstr("larger")));
}

TEST(Evidence, OneDeviceIsToldNothingOfUnits) {
  JobTrace job;
  job.ranks.resize(1);
  Recognition found;
  found.kind = JobKind::single;
  Explanation explained;
  explained.causes = {{}};
  explained.causes.front().cause = account::Cause::host_bound;
  explained.causes.front().share_pct = 20;
  const auto advice = [&] {
    account::advise(explained.causes, evidence_of(job, found, explained));
    return explained.causes.front().advice;
  };
  EXPECT_THAT(advice(), HasSubstr("fewer, larger ops (torch.compile"));
  found.shards = true;
  EXPECT_THAT(advice(), HasSubstr("fewer, larger ops (larger units, torch.compile"));
}

/// The parts of two real jobs' steps add up to the change of the step.
TEST(DiffJobs, AddsUpToTheNanosecond) {
  for (const auto& pair : fs::directory_iterator(pairs_folder())) {
    const JobTrace a = read_job({(pair.path() / "a").string()}), b = read_job({(pair.path() / "b").string()});
    const Recognition found_a = recognise(a), found_b = recognise(b);
    const Explanation explained_a = explain(a, found_a), explained_b = explain(b, found_b);
    const ReadJob one{a, found_a, explained_a}, other{b, found_b, explained_b};
    const JobDiff diff = diff_jobs(one, other), back = diff_jobs(other, one), same = diff_jobs(one, one);
    std::int64_t causes = 0, ops = 0;
    for (const PartChange& change : diff.causes) causes += change.change_ns;
    for (const PartChange& change : diff.ops) ops += change.change_ns;
    EXPECT_EQ(causes, diff.step.change_ns) << pair.path();
    EXPECT_EQ(ops, diff.step.change_ns) << pair.path();
    EXPECT_EQ(back.step.change_ns, -diff.step.change_ns);
    EXPECT_EQ(same.step.change_ns, 0);
    for (const PartChange& change : same.ops) EXPECT_FALSE(change.found || change.change_ns != 0) << change.op;
    EXPECT_TRUE(diff.step.low_ms);
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
