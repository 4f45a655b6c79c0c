#include "launch/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

[[noreturn]] void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(InterruptDeathTest, EndsAtOnceAndSaysSoWhereNothingIsKept) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto interrupted = [](int number) {
    install_interrupt_handlers();
    raise(number);
    sleep_for_ever();
  };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(interrupted(number), ::testing::ExitedWithCode(130), "^\ninterrupted\n$");
  }
}

TEST(InterruptDeathTest, WhatIsNotObeyedInTimeIsDealtWith) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    install_interrupt_handlers();
    keep_what_is_done(false);
    const AfterInterrupt never(3600, [] { _exit(1); });
    const AfterInterrupt soon(0.05, [] { _exit(7); });
    raise(SIGTERM);
    sleep_for_ever();
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(7), "stopping after this step");
  const auto earlier = [] {
    install_interrupt_handlers();
    keep_what_is_done(true);
    raise(SIGTERM);
    const AfterInterrupt late(0, [] { _exit(7); });
    sleep_for_ever();
  };
  EXPECT_EXIT(earlier(), ::testing::ExitedWithCode(7), "^$");
}

/// The signal came when the result was complete.
TEST(InterruptDeathTest, OneSignalChangesNothingFromTheKeepingOnToTheEndOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto signalled = [](int times) {
    install_interrupt_handlers();
    [] { keep_what_is_done(true); }();  // what a command's function returns from
    for (int i = 0; i < times; ++i) raise(SIGTERM);
    _exit(3);
  };
  EXPECT_EXIT(signalled(1), ::testing::ExitedWithCode(3), "^$");
  EXPECT_EXIT(signalled(2), ::testing::ExitedWithCode(130), "^$");
}

/// A launcher that a script has started behind `&`: its ranks inherit that Ctrl-C is ignored, and it passes it on.
TEST(InterruptDeathTest, InAJobWhatWasIgnoredFromTheStartCountsAllTheSame) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto rank = [](int number, bool in_a_job) {
    for (const int ignored : {SIGINT, SIGTERM, SIGHUP}) signal(ignored, SIG_IGN);
    install_interrupt_handlers();
    if (in_a_job) obey_launcher();
    raise(number);
    _exit(3);
  };
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(rank(number, false), ::testing::ExitedWithCode(3), "^$");
    EXPECT_EXIT(rank(number, true), ::testing::ExitedWithCode(130), "^\ninterrupted\n$");
  }
  EXPECT_EXIT(rank(SIGHUP, true), ::testing::ExitedWithCode(3), "^$") << "nohup";
}

/// It would wait for its own end for ever.
TEST(AfterInterrupt, IsRefusedWithoutAFileToWatch) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  bool refused = false;
  try {
    const AfterInterrupt ends(1, [] {});
  } catch (const ResourceError&) {
    refused = true;
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(refused);
}

TEST(AfterInterrupt, DoesNothingWithoutASignal) {
  bool acted = false;
  {
    const AfterInterrupt at_once(0, [&] { acted = true; });
  }
  EXPECT_FALSE(acted);
}

}  // namespace
}  // namespace fsdpbench::app
