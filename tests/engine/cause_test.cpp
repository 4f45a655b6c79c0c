// Known causes come back: what is configured or injected is what the diagnosis names, on a computed clock. How well
// that holds in real time is bench/causes.cpp's to say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <thread>

#include "backend/cpu/wait_point.h"
#include "support/cause_cases.h"

namespace fsdpbench::account {
namespace {

std::string list(const std::vector<CauseShare>& found) {
  std::string text;
  for (const CauseShare& c : found) text += std::string(to_string(c.cause)) + " " + std::to_string(c.share_pct) + " % ";
  return text;
}

class KnownCause : public ::testing::TestWithParam<Cause> {};

TEST_P(KnownCause, ComesBackAsTheLargest) {
  testing::CauseCases cases(17);
  const testing::CauseCase c = cases.one(GetParam());
  const std::vector<CauseShare> found = testing::found_causes(testing::diagnose(c.config, testing::simulate_tiny));
  EXPECT_TRUE(testing::right(c, found)) << c.name << ": " << list(found);
}

INSTANTIATE_TEST_SUITE_P(All, KnownCause,
                         ::testing::Values(Cause::late_prefetch, Cause::all_gather_limit, Cause::straggler,
                                           Cause::host_sync, Cause::link_bound, Cause::inefficient_collective,
                                           Cause::communicator_serialisation, Cause::host_bound, Cause::unknown),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(KnownCauses, NothingIsInventedWhereNothingIs) {
  testing::CauseCases cases(5);
  for (int i = 0; i < 20; ++i) {
    const testing::CauseCase c = cases.none();
    const std::vector<CauseShare> found = testing::found_causes(testing::diagnose(c.config, testing::simulate_tiny));
    EXPECT_TRUE(found.empty()) << list(found);
  }
}

/// Where the system keeps no such count, it stays 0 for ever.
bool core_waits_are_counted() {
  std::int64_t total = 0;
  std::jthread([&] {
    const backend::cpu::CoreWait wait;
    for (int i = 0; i < 10'000 && total == 0; ++i) {
      sched_yield();
      total = wait.total_ns();
    }
  }).join();
  return total > 0;
}

TEST(KnownCauses, RanksThatShareACoreWaitForIt) {
  if (!core_waits_are_counted()) GTEST_SKIP() << "/proc/thread-self/schedstat counts nothing here";
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::int64_t waited = 0;
  for (int tries = 0; tries < 20 && waited == 0; ++tries) {
    const engine::Measurement measured = testing::run_tiny(testing::tiny_decoder());
    for (const trace::RankTrace& rank : measured.traces) {
      for (const trace::Record& record : rank.records) waited += record.core_wait_ns;
    }
  }
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_GT(waited, 0);
}

constexpr std::array kSingle{Cause::late_prefetch,
                             Cause::all_gather_limit,
                             Cause::straggler,
                             Cause::host_sync,
                             Cause::link_bound,
                             Cause::inefficient_collective,
                             Cause::communicator_serialisation,
                             Cause::host_bound,
                             Cause::unknown};

/// Wrong answers among `count` cases that `make` makes.
template <typename Make>
std::vector<std::string> wrong(int count, Make&& make) {
  std::vector<std::string> answers;
  for (int i = 0; i < count; ++i) {
    testing::CauseCase c = make(i);
    testing::forget_what_costs_nothing(c);
    const std::vector<CauseShare> found = testing::found_causes(testing::diagnose(c.config, testing::simulate_tiny));
    if (!testing::right(c, found)) answers.push_back(c.name + ": " + list(found));
  }
  return answers;
}

TEST(KnownCauses, EverySingleOneOfAGeneratedSuiteComesBack) {
  testing::CauseCases cases(101, testing::CauseCases::Sizes::many);
  EXPECT_THAT(wrong(200, [&](int i) { return cases.one(kSingle[static_cast<std::size_t>(i) % kSingle.size()]); }),
              ::testing::IsEmpty());
}

TEST(KnownCauses, OneSlowLinkAmongAnyNumberOfRanksComesBack) {
  testing::CauseCases cases(104, testing::CauseCases::Sizes::many);
  EXPECT_THAT(wrong(30, [&](int) { return cases.one(Cause::slow_link); }), ::testing::IsEmpty());
}

TEST(KnownCauses, NineteenOfTwentyPairsComeBack) {
  constexpr std::array kPairs{
      std::pair{Cause::late_prefetch, Cause::straggler}, std::pair{Cause::late_prefetch, Cause::host_sync},
      std::pair{Cause::straggler, Cause::host_sync},     std::pair{Cause::straggler, Cause::link_bound},
      std::pair{Cause::straggler, Cause::host_bound},    std::pair{Cause::straggler, Cause::all_gather_limit}};
  testing::CauseCases cases(102, testing::CauseCases::Sizes::many);
  const std::vector<std::string> answers = wrong(60, [&](int i) {
    const auto& [a, b] = kPairs[static_cast<std::size_t>(i) % kPairs.size()];
    return cases.two(a, b);
  });
  EXPECT_LE(answers.size(), 3U) << ::testing::PrintToString(answers);
}

TEST(KnownCauses, NothingIsInventedAtAnySize) {
  testing::CauseCases cases(103, testing::CauseCases::Sizes::many);
  EXPECT_THAT(wrong(50, [&](int) { return cases.none(); }), ::testing::IsEmpty());
}

}  // namespace
}  // namespace fsdpbench::account
