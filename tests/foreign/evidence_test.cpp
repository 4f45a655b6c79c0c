// What a job is follows from evidence: ranges before the likeness of orders, words before kinds of collectives.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "foreign/advice.h"
#include "foreign/diff_jobs.h"
#include "foreign/explain.h"
#include "foreign/job_kind.h"
#include "foreign/kineto_names.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {
namespace {

namespace fs = std::filesystem;
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

TEST(Evidence, KernelsOfDeepEPAreCommunication) {
  for (const char* name : {"void deep_ep::internode::dispatch<false, 8>(int4*, float*)", "dispatch", "combine",
                           "void combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", "notify_dispatch",
                           "cached_notify_combine(void**, int*)"}) {
    EXPECT_THAT(communication_of_kernel(name), Optional(Communication::all_to_all)) << name;
  }
  EXPECT_FALSE(communication_of_kernel("void flash_fwd_splitkv_combine_kernel<1>(int)"));
}

TEST(Evidence, AnAllToAllOfEmbeddingsMakesNoMixtureOfExperts) {
  PurposeCounts counts;
  counts.n[{Purpose::experts, schedule::Phase::forward}] = 2;
  counts.n[{Purpose::gradients, schedule::Phase::backward}] = 3;
  JobWords words;
  words.backward = "autograd::engine::evaluate_function: MmBackward0";
  EXPECT_EQ(kind_of(counts, words, false, 5), JobKind::experts);
  words.embeddings = "split_embedding_codegen_lookup_rowwise_adagrad_function";
  EXPECT_EQ(kind_of(counts, words, false, 5), JobKind::model_parallel);
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
  explained.causes.front().cause = metrics::Cause::link_bound;
  explained.causes.front().share_pct = 20;
  advise(job, found, explained);
  EXPECT_THAT(explained.causes.front().advice, HasSubstr("rank whose file is not here (1 of 2 are)"));
  EXPECT_THAT(explained.causes.front().advice, Not(HasSubstr("larger")));
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
