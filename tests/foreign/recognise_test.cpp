// Traces as PyTorch's profiler would write them, made from simulated runs: what they are, and which collective is
// whose.
#include "foreign/recognise.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "account/cause_report.h"
#include "foreign/corpus.h"
#include "foreign/evidence.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "support/temporary_folder.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;

/// Count of right answers, over all cases.
struct Tally {
  int right = 0, all = 0;
  std::string wrong;
  void count(bool good, const std::string& what) {
    ++all;
    right += good;
    if (!good) wrong += "\n  " + what;
  }
  double share() const { return all > 0 ? static_cast<double>(right) / all : 1; }
  std::string text() const { return fmt::format("{} of {}{}", right, all, wrong); }
};

JobKind kind_of_system(const corpus::CaseSpec& spec) {
  if (spec.config.mesh.expert > 1) return JobKind::experts;
  if (spec.system == "ddp") return JobKind::data_parallel;
  if (spec.system == "inference") return JobKind::inference;
  if (spec.system == "moe") return JobKind::experts;
  if (spec.system == "alone") return JobKind::single;
  if (spec.system == "deepspeed-z1" || spec.system == "deepspeed-z2") return JobKind::sharded_optimizer;
  return JobKind::sharded;
}

/// The knobs that the order of launches shows, in words.
std::string knobs_of(config::RunConfig c) {
  // Never to free after forward is what the strategies without it do: nothing in a trace tells them apart.
  if (c.fsdp.reshard_after_forward.mode == config::ReshardAfterForward::Mode::never) {
    const bool hybrid = c.mesh.replicate > 1;
    c.fsdp.strategy = hybrid ? config::Strategy::hybrid_shard_grad_op : config::Strategy::shard_grad_op;
    c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::automatic;
  }
  // Before or after a gather is waited for, what is gathered ahead is launched in the same order.
  if (c.fsdp.forward_prefetch.mode == config::Prefetch::Mode::ahead) {
    c.fsdp.forward_prefetch.mode = config::Prefetch::Mode::explicit_;
  }
  if (c.fsdp.backward_prefetch.mode == config::Prefetch::Mode::ahead) {
    c.fsdp.backward_prefetch.mode = config::Prefetch::Mode::pre;
  }
  const auto prefetch = [](const config::Prefetch& p) {
    return fmt::format("{}:{}", static_cast<int>(p.mode), p.depth);
  };
  return fmt::format("{} shards x {}, strategy {}, forward {}, backward {}, reshard {}, {} microbatches, dtype {}",
                     c.mesh.shard, c.mesh.replicate, static_cast<int>(c.fsdp.strategy),
                     prefetch(c.fsdp.forward_prefetch), prefetch(c.fsdp.backward_prefetch),
                     static_cast<int>(c.fsdp.reshard_after_forward.mode), c.train.accumulate,
                     static_cast<int>(c.fsdp.param_dtype));
}

/// Whether the profiler could tell kinds of collectives.
bool tells_kinds(const corpus::CaseSpec& spec) {
  return spec.dialect.vendor != corpus::Vendor::amd || spec.dialect.collective_fields;
}

struct Read {
  corpus::Case made;
  JobTrace job;
  Recognition found;
};

Read read_case(const corpus::CaseSpec& spec) {
  Read read{corpus::make_case(spec), {}, {}};
  const TemporaryFolder folder;
  for (const corpus::CaseFile& file : read.made.files) {
    folder.write(fmt::format("rank{:04}.json", file.rank), file.json);
  }
  read.job = read_job({folder.path().string()});
  read.found = recognise(read.job);
  return read;
}

/// Collectives of all ranks and steps by their begin: right units, and all that have one.
void count_units(const Read& read, Tally& tally) {
  for (std::size_t r = 0; r < read.job.ranks.size(); ++r) {
    std::map<std::int64_t, std::vector<const corpus::CollectiveTruth*>> truth;
    for (const corpus::CollectiveTruth& one : read.made.files[r].collectives) truth[one.begin_ns].push_back(&one);
    for (const auto& uses : read.found.ranks[r].uses) {
      for (const CollectiveUse& use : uses) {
        const auto at = truth.find(read.job.ranks[r].device[use.row].begin_ns);
        if (at == truth.end()) continue;
        bool any = false, good = false;
        for (const corpus::CollectiveTruth* one : at->second) {
          if (one->unit < 0 || use.purpose == Purpose::experts || use.purpose == Purpose::scalars) continue;
          any = true;
          const int unit = plan_unit(read.found.table, use.unit);
          good = good || unit == one->unit || std::ranges::find(one->others, unit) != one->others.end();
        }
        if (!any) continue;
        ++tally.all;
        tally.right += good;
      }
    }
  }
}

struct CalledCorpus {
  Tally kinds, knobs, units;

  void count(const corpus::CaseSpec& spec, const Read& read) {
    const JobKind kind = kind_of_system(spec);
    kinds.count(read.found.kind == kind,
                fmt::format("{}: {} ({})", spec.name, to_string(read.found.kind), read.found.name));
    if (kind != JobKind::sharded || read.found.kind != kind) return;
    if (!read.found.schedule) {
      knobs.count(false, spec.name + ": no schedule");
      return;
    }
    const std::string is = knobs_of(read.found.schedule->config), was = knobs_of(read.made.run->config);
    knobs.count(is == was, fmt::format("{}: {}\n    was {} ({} off, {})", spec.name, is, was,
                                       read.found.schedule->collectives_off, read.found.schedule->config.fsdp.preset));
    Tally own;
    count_units(read, own);
    if (own.share() < 0.99) units.wrong += fmt::format("\n  {}: {}", spec.name, own.text());
    units.right += own.right;
    units.all += own.all;
  }
};

/// By how much computation beside collectives is slower, all kernels together; 1: none is.
double slower_beside(const Explanation& explained) {
  double alone = 0, beside = 0;
  for (const Contention& one : explained.contention) {
    alone += one.alone_us * static_cast<double>(one.beside);
    beside += one.beside_us * static_cast<double>(one.beside);
  }
  return alone > 0 ? beside / alone : 1;
}

struct ExplainedCorpus {
  Tally tops, planted, quiet;

  void count(const corpus::CaseSpec& spec, const Read& read) {
    if (!spec.faults.missing_ranks.empty() || kind_of_system(spec) != JobKind::sharded) return;
    const Explanation explained = explain(read.job, read.found);
    const double slower = slower_beside(explained), was_slower = spec.dialect.slower_beside;
    const std::string by = fmt::format("{}: {:.3f}, was {:.2f}", spec.name, slower, was_slower);
    (was_slower > 1 ? planted : quiet).count(std::abs(slower / was_slower - 1) < 0.05, by);
    const corpus::Case& made = read.made;
    const account::CauseReport report = account::rank_causes(made.run->view, made.run->setup.plan,
                                                             made.run->setup.policy, made.run->config.emulate.link());
    if (report.causes.empty()) return;
    // On real links a collective ends on all its ranks at once, whoever is slow: a trace has nothing more.
    const Cause first = report.causes.front().cause;
    // Waits for batches were put between the steps of a run that has none.
    const Cause was = spec.dialect.loader_ns > 0  ? Cause::data_loading
                      : first == Cause::slow_link ? Cause::link_bound
                                                  : first;
    const Cause is = explained.causes.front().cause;
    std::string shares;
    for (const account::CauseShare& share : report.causes) {
      shares += fmt::format(" {} {:.2f}", to_string(share.cause), share.ms);
    }
    shares += " | found";
    for (const account::CauseShare& share : explained.causes) {
      if (share.ms > 0.02) shares += fmt::format(" {} {:.2f}", to_string(share.cause), share.ms);
    }
    tops.count(is == was, fmt::format("{}: was{}", spec.name, shares));
  }
};

TEST(Recognise, TheCorpusIsCalledWhatItIsAndHasTheCausesOfItsRunsAndTheContentionThatWasPlanted) {
  CalledCorpus called;
  ExplainedCorpus explained;
  for (const corpus::CaseSpec& spec : corpus::all_cases()) {
    // Eight ranks of eight layers are four of six, at three times the cost.
    if (!tells_kinds(spec) || spec.faults.cut_off > 0 || spec.name.ends_with(" 8 ranks 8 layers")) continue;
    const Read read = read_case(spec);
    called.count(spec, read);
    explained.count(spec, read);
  }
  EXPECT_GE(called.kinds.share(), 0.95) << called.kinds.text();
  EXPECT_GE(called.knobs.share(), 0.95) << called.knobs.text();
  EXPECT_GE(called.units.share(), 0.99) << called.units.text();
  RecordProperty("agreement", explained.tops.text());
  EXPECT_GE(explained.tops.share(), 0.96) << explained.tops.text();
  EXPECT_EQ(explained.planted.right, explained.planted.all) << explained.planted.text();
  EXPECT_GE(explained.planted.all, 6);
  EXPECT_GE(explained.quiet.share(), 0.99) << explained.quiet.text();
}

TEST(Explain, OtherJobsGetNoAdviceAboutSharding) {
  for (const corpus::CaseSpec& spec : corpus::all_cases()) {
    if (kind_of_system(spec) == JobKind::sharded || !tells_kinds(spec) || spec.config.mesh.expert > 1) continue;
    const Read read = read_case(spec);
    EXPECT_FALSE(read.found.is_fsdp()) << spec.name;
    EXPECT_FALSE(read.found.schedule) << spec.name;
    Explanation explained = explain(read.job, read.found);
    account::advise(explained.causes, evidence_of(read.job, read.found, explained));
    for (const account::CauseShare& share : explained.causes) {
      for (const char* word : {"fsdp", "FSDP", "all_gather", "prefetch(", "stage3", "reshard"}) {
        EXPECT_EQ(share.advice.find(word), std::string::npos) << spec.name << ": " << share.advice;
      }
    }
  }
}

corpus::CaseSpec case_named(const std::string& name) {
  for (corpus::CaseSpec& spec : corpus::all_cases()) {
    if (spec.name == name) return std::move(spec);
  }
  throw std::runtime_error("no case " + name);
}

TEST(Recognise, ForwardsThatRunAgainInBackwardAreCheckpointing) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"fsdp2 checkpointing", "true"},
                                                                      {"fsdp1 checkpointing", "true"},
                                                                      {"fsdp2 hybrid", "false"},
                                                                      {"fsdp2 bf16", "false"},
                                                                      {"fsdp1 pairs", "false"},
                                                                      {"fsdp2 amd", "false"}}) {
    const Read read = read_case(case_named(name));
    const Finding* found = read.found.find("activation checkpointing");
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->value, value) << name << ": " << found->evidence;
  }
}

/// Ranges of FSDP2 on two ranks, and nothing that it gathers: a part of a job, whatever else its ranks exchange. On one
/// rank, and of a group of one, nothing is sent.
TEST(Recognise, AJobIsShardedByItsRangesAndAloneOnOneRank) {
  JobTrace job;
  RankRows& rank = job.ranks.emplace_back();
  rank.names = {"gemm", "FSDP::post_forward (blocks.0)", "nccl"};
  rank.streams.resize(1);
  CollectiveFacts& facts = rank.collectives.emplace_back();
  facts.kind = Communication::all_reduce;
  facts.elements_in = facts.elements_out = 4096;
  rank.device.push_back({.begin_ns = 0, .end_ns = 10});
  EXPECT_EQ(recognise(job).find("job")->value, "single");
  rank.world_size = 2;
  const Recognition part = recognise(job);
  EXPECT_EQ(part.find("job")->value, "sharded");
  EXPECT_EQ(part.find("job")->confidence, 0.8);
  EXPECT_FALSE(part.is_fsdp());
  rank.names[1] = "DistributedDataParallel.forward";
  rank.device.push_back({.begin_ns = 10, .end_ns = 20, .name = 2, .collective = 0, .kind = Activity::collective});
  EXPECT_EQ(recognise(job).find("job")->value, "data_parallel");
  rank.world_size = 1;
  EXPECT_EQ(recognise(job).find("job")->value, "single");
}

// One hardware queue: gathers run beside computation, reductions never do, though they have a stream of their own.
TEST(Recognise, ReductionsThatComputationWaitsForWithoutNeedAreSerialised) {
  const auto serialised_ms = [](config::ReduceLane lane, Recognition& found) {
    corpus::CaseSpec spec = case_named("fsdp2 4 ranks 6 layers");
    spec.config.fsdp.reduce_lane = lane;
    spec.dialect.one_queue = true;
    const Read read = read_case(spec);
    found = read.found;
    return explain(read.job, read.found).causes_ms[Cause::serialised];
  };
  Recognition found;
  EXPECT_GT(serialised_ms(config::ReduceLane::compute, found), 0);
  ASSERT_TRUE(found.schedule);
  EXPECT_TRUE(found.schedule->exact());
  EXPECT_EQ(found.schedule->config.fsdp.reduce_lane, config::ReduceLane::compute);
  ASSERT_NE(found.find("reductions"), nullptr);
  EXPECT_EQ(serialised_ms(config::ReduceLane::reduce_scatter, found), 0);
  EXPECT_EQ(found.find("reductions"), nullptr);
}

/// Where every module is in a unit, nothing is left for the root: a schedule is compared without the root's
/// computation.
TEST(Recognise, AJobWithoutARootFollowsItsSchedule) {
  for (const bool keeps : {false, true}) {
    corpus::CaseSpec spec = case_named("fsdp2 grad-op");
    spec.config.model.kind = config::ModelKind::mlp;
    if (!keeps) spec.config.fsdp.strategy = config::Strategy::full_shard;
    const Read read = read_case(spec);
    EXPECT_FALSE(read.found.facts.root);
    ASSERT_TRUE(read.found.schedule);
    EXPECT_EQ(read.found.schedule->distance, 0) << read.found.schedule->config.fsdp.preset;
    EXPECT_EQ(knobs_of(read.found.schedule->config), knobs_of(read.made.run->config));
  }
}

/// "AGR AG0 AGE0 …": schedules of experts on a mesh of their own are told by groups of ranks, and not guessed without.
TEST(Recognise, ExpertsOnAMeshOfTheirOwnFollowTheirSchedule) {
  int known = 0, unknown = 0;
  for (const corpus::CaseSpec& spec : corpus::all_cases()) {
    if (spec.config.mesh.expert <= 1) continue;
    const Read read = read_case(spec);
    SCOPED_TRACE(spec.name + ": " + ::testing::PrintToString(read.found.unknown));
    EXPECT_EQ(read.found.kind, JobKind::experts);
    EXPECT_TRUE(read.found.shards);
    if (!spec.dialect.ranges || !spec.dialect.collective_fields) {
      EXPECT_FALSE(read.found.schedule);
      EXPECT_EQ(read.found.find("schedule"), nullptr);
      EXPECT_TRUE(std::ranges::any_of(read.found.unknown, [](const std::string& line) {
        return line.starts_with("Which schedule the job follows");
      }));
      ++unknown;
      continue;
    }
    if (!read.found.schedule) {
      ADD_FAILURE() << "no schedule";
      continue;
    }
    const config::RunConfig &is = read.found.schedule->config, &was = read.made.run->config;
    EXPECT_EQ(is.fsdp.preset, spec.system);
    EXPECT_EQ(is.fsdp.expert_unit, was.fsdp.expert_unit);
    EXPECT_EQ(is.mesh.expert, was.mesh.expert);
    EXPECT_EQ(knobs_of(is), knobs_of(was));
    EXPECT_THAT(read.found.find("schedule")->evidence, ::testing::HasSubstr("follows " + spec.system + "'s order"));
    Tally units;
    count_units(read, units);
    EXPECT_EQ(units.right, units.all) << units.text();
    EXPECT_GT(units.all, 0);
    ++known;
  }
  EXPECT_EQ(known, 6);
  EXPECT_EQ(unknown, 4);
}

/// An int is told by the size of backward's groups; without sizes it is said that nothing tells.
TEST(Recognise, ReshardingWithinGroupsIsToldOrNotKnown) {
  const auto unknown = [](const Recognition& found) {
    return std::ranges::any_of(found.unknown,
                               [](const std::string& line) { return line.find("as a number") != std::string::npos; });
  };
  corpus::CaseSpec spec = case_named("fsdp2 reshard-2");
  const Read told = read_case(spec);
  EXPECT_EQ(told.found.find("reshard after forward")->value, "2");
  EXPECT_THAT(told.found.find("reshard after forward")->evidence,
              ::testing::HasSubstr("groups of 2, forward within 4"));
  EXPECT_FALSE(unknown(told.found));
  spec.dialect.collective_fields = false;
  const Read untold = read_case(spec);
  EXPECT_TRUE(unknown(untold.found));
  EXPECT_LE(untold.found.find("reshard after forward")->confidence, 0.6);
  EXPECT_FALSE(unknown(read_case(case_named("fsdp2 grad-op")).found));  // it does not reshard
}

}  // namespace
}  // namespace fsdpbench::foreign
