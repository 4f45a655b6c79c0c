#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>

#include "hardware/host_topology.h"

namespace fsdpbench::hardware {
namespace {

using ::testing::HasSubstr;

Processors of_this_thread() {
  cpu_set_t set;
  Processors all;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return all;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) all.push_back(i);
  }
  return all;
}

TEST(ThreadBinding, HoldsForTheThreadAndThoseItStartsAndEnds) {
  const auto host = HostTopology::of_this_host();
  ASSERT_NE(host, nullptr);
  const Processors before = of_this_thread();
  if (before != host->all()) GTEST_SKIP() << "this process was bound by whoever started it";
  const LocalRank last{1, 2, {}};
  const Processors wanted = processors_of_rank(*host, Binding::cores, last);
  {
    const ThreadBinding binding(Binding::cores, last);
    EXPECT_EQ(of_this_thread(), wanted);
    EXPECT_THAT(binding.text(), HasSubstr("processors " + to_text(wanted)));
    Processors of_child;
    std::thread([&] { of_child = of_this_thread(); }).join();
    EXPECT_EQ(of_child, wanted);
  }
  EXPECT_EQ(of_this_thread(), before);
}

TEST(ThreadBinding, NoneLeavesEverythingAsItIs) {
  const Processors before = of_this_thread();
  const ThreadBinding binding(Binding::none, {0, 2, {}});
  EXPECT_EQ(of_this_thread(), before);
  EXPECT_EQ(binding.text(), "");
}

}  // namespace
}  // namespace fsdpbench::hardware
