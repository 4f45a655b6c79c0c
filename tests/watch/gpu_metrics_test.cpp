#include "foreign/watch/judge_gpus.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "foreign/watch/judge.h"

namespace fsdpbench::watch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kBegan_s = 1.7e9;
std::int64_t looked_ns(double s) { return static_cast<std::int64_t>((kBegan_s + s) * 1e9); }

struct GpuState {
  double clock_mhz = 1980, busy = 0.98;
  ClockLimits limits = 0;
  int xid = 0;  // the last one
  std::int64_t thermal_ns = 0, replays = 0, recoveries = 0;
};
using Host = std::vector<GpuState>;

/// As internal/pkg/rendermetrics/render_metrics.go of dcgm-exporter writes it. `host_label`: "Hostname" until May 2026.
/// `rare`: the counters that are off by default.
std::string dcgm_text(const std::string& host, const Host& gpus, bool rare = false,
                      const std::string& host_label = "hostname", const std::string& uuid_label = "UUID") {
  std::string text;
  const auto family = [&](const char* name, const char* type, const auto& value) {
    text += fmt::format("# HELP {} Something of a GPU.\n# TYPE {} {}\n", name, name, type);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      text += fmt::format(
          "{}{{gpu=\"{}\",{}=\"GPU-{}-{}\",pci_bus_id=\"00000000:{:02X}:00.0\",device=\"nvidia{}\",modelName=\"NVIDIA "
          "H100 "
          "80GB HBM3\",{}=\"{}\",DCGM_FI_DRIVER_VERSION=\"590.48.01\"}} {}\n",
          name, i, uuid_label, host, i, 16 + i, i, host_label, host, value(gpus[i]));
    }
  };
  family("DCGM_FI_DEV_SM_CLOCK", "gauge", [](const GpuState& one) { return fmt::format("{:.0f}", one.clock_mhz); });
  family("DCGM_FI_DEV_GPU_UTIL", "gauge", [](const GpuState& one) { return fmt::format("{:.0f}", 100 * one.busy); });
  family("DCGM_FI_DEV_XID_ERRORS", "gauge", [](const GpuState& one) { return one.xid; });
  if (!rare) return text;
  family("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", [](const GpuState& one) { return one.limits; });
  family("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", [](const GpuState& one) { return one.thermal_ns; });
  family("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter",
         [](const GpuState& one) { return one.recoveries; });
  text +=
      "# HELP DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0 Replays.\n"
      "# TYPE DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0 counter\n";
  for (std::size_t i = 0; i < gpus.size(); ++i) {  // a series of a link
    text += fmt::format(
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{nvlink=\"0\",gpu=\"{}\",gpu_uuid=\"GPU-{}-{}\",model_name="
        "\"NVIDIA H100 "
        "80GB HBM3\",{}=\"{}\"}} {}\n",
        i, host, i, host_label, host, gpus[i].replays);
  }
  return text;
}

/// As nvidia_gpu_exporter writes it (docs/METRICS.md, internal/integration/testdata).
std::string nvidia_smi_text(const std::string& host, const Host& gpus) {
  std::string text = "# HELP go_goroutines Number of goroutines.\n# TYPE go_goroutines gauge\ngo_goroutines 12\n";
  const auto family = [&](const char* name, const auto& value) {
    text += fmt::format("# HELP {} x\n# TYPE {} gauge\n", name, name);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      text += fmt::format("{}{{uuid=\"{}-{}\"}} {}\n", name, host, i, value(gpus[i]));
    }
  };
  family("nvidia_smi_clocks_current_sm_clock_hz",
         [](const GpuState& one) { return fmt::format("{:g}", 1e6 * one.clock_mhz); });
  family("nvidia_smi_clocks_event_reasons_active", [](const GpuState& one) { return one.limits; });
  text += "# HELP nvidia_smi_gpu_info x\n# TYPE nvidia_smi_gpu_info gauge\n";
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    text += fmt::format(
        "nvidia_smi_gpu_info{{compute_cap=\"9.0\",cuda_version=\"13.1\",driver_model_current=\"[N/"
        "A]\",index=\"{}\",name="
        "\"NVIDIA H200\",pci_bus_id=\"00000000:{:02X}:00.0\",uuid=\"{}-{}\"}} 1\n",
        i, 16 + i, host, i);
  }
  family("nvidia_smi_utilization_gpu_ratio", [](const GpuState& one) { return fmt::format("{:.2f}", one.busy); });
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].xid != 0) {
      text += fmt::format("nvidia_smi_xid_errors_total{{uuid=\"{}-{}\",xid=\"{}\"}} 1\n", host, i, gpus[i].xid);
    }
  }
  return text + "nvidia_smi_last_collect_success 1\n";
}

/// A healthy job on two hosts of four GPUs, asked every five seconds: clocks differ by their power caps and vary; a
/// look in fifty finds a GPU nearly idle, another one a clock that is held down; each ten minutes all GPUs pause for
/// 40 s to save a checkpoint, with one host busy for longer. Some links count a replay each ten minutes.
class Cluster {
 public:
  explicit Cluster(bool dcgm, unsigned seed = 1) : dcgm_(dcgm), luck_(seed), hosts_(2, Host(4)) {
    for (Host& host : hosts_) {
      for (GpuState& gpu : host) usual_.push_back(gpu.clock_mhz * (0.9 + 0.1 * luck()));
    }
  }
  std::function<void(std::vector<Host>&, double)> fault = [](std::vector<Host>&, double) {};

  void look(JobView& job) {
    now_s_ += 5;
    std::size_t place = 0;
    for (Host& host : hosts_) {
      for (GpuState& gpu : host) {
        const bool pauses = now_s_ > 60 && std::fmod(now_s_, 600) < 40;
        gpu.busy = pauses ? 0.0 : luck() < 0.02 ? 0.05 : 0.85 + 0.15 * luck();
        gpu.clock_mhz = pauses ? 345 : usual_[place++ % usual_.size()] * (0.97 + 0.03 * luck());
        gpu.limits = pauses ? bit(ClockLimit::idle) : luck() < 0.5 ? bit(ClockLimit::power_cap) : 0;
        if (luck() < 0.02) gpu.clock_mhz *= 0.6, gpu.limits |= bit(ClockLimit::software_thermal);
        if (luck() < 0.008) ++gpu.replays;
      }
    }
    fault(hosts_, now_s_);
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::string host = "node-" + std::to_string(i);
      const std::string why =
          add_gpu_metrics(job, dcgm_ ? dcgm_text(host, hosts_[i], true) : nvidia_smi_text(host, hosts_[i]), host, host,
                          looked_ns(now_s_));
      EXPECT_EQ(why, "");
    }
  }
  double now_s() const { return now_s_; }
  Judgement judged(const JobView& job) const { return judge(job, looked_ns(now_s_)); }

 private:
  double luck() { return std::uniform_real_distribution<double>(0, 1)(luck_); }
  bool dcgm_;
  std::mt19937 luck_;
  std::vector<Host> hosts_;
  std::vector<double> usual_;
  double now_s_ = 0;
};

std::vector<std::string> troubles(const Judgement& judged) {
  std::vector<std::string> all;
  for (const Accusation& one : judged.all) all.push_back(one.host + " " + one.gpu + " " + one.trouble);
  return all;
}

class GpuHour : public ::testing::TestWithParam<bool> {};

TEST_P(GpuHour, NothingIsSaidOfACleanHour) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    Cluster cluster(GetParam(), seed);
    JobView job;
    while (cluster.now_s() < 3600) {
      cluster.look(job);
      const Judgement judged = cluster.judged(job);
      ASSERT_THAT(troubles(judged), IsEmpty()) << cluster.now_s() << " s: " << judged.sentence;
      ASSERT_EQ(judged.verdict, Verdict::unknown);
      ASSERT_THAT(judged.sentence, HasSubstr("It is not known who comes last"));
    }
    EXPECT_EQ(job.gpus.size(), 8U);
    EXPECT_GT(job.gpus.begin()->second.looks.size(), 600U);  // in a pause nothing changes
  }
}

TEST_P(GpuHour, AThrottledGpuIsNamedWithItsReasonAndForgottenOnceItHasRecovered) {
  Cluster cluster(GetParam());
  JobView job;
  cluster.fault = [](std::vector<Host>& hosts, double now_s) {
    if (now_s < 300 || now_s > 400) return;
    hosts[1][2].clock_mhz = 1100;
    hosts[1][2].busy = 0.99;
    hosts[1][2].limits = bit(ClockLimit::hardware_thermal);
  };
  while (cluster.now_s() < 305) cluster.look(job);
  EXPECT_THAT(troubles(cluster.judged(job)), IsEmpty());
  while (cluster.now_s() < 310) cluster.look(job);
  const Judgement judged = cluster.judged(job);
  EXPECT_EQ(judged.verdict, Verdict::gpu);
  EXPECT_THAT(troubles(judged), ElementsAre("node-1 GPU 2 throttled"));
  EXPECT_THAT(judged.sentence, HasSubstr("GPU 2 (00000000:12:00.0) of node-1 is throttled"));
  EXPECT_THAT(judged.sentence, HasSubstr("of 7 peers. The reason: hardware thermal slowdown."));
  while (cluster.now_s() < 405) cluster.look(job);
  EXPECT_THAT(troubles(cluster.judged(job)), IsEmpty());
}

TEST_P(GpuHour, AnXidCountsFromTheSecondLookOnAndIsExplained) {
  Cluster cluster(GetParam());
  JobView job;
  cluster.fault = [](std::vector<Host>& hosts, double now_s) {
    hosts[0][0].xid = 31;
    if (now_s > 100) hosts[0][3].xid = 79;
  };
  while (cluster.now_s() < 100) cluster.look(job);
  EXPECT_THAT(troubles(cluster.judged(job)), IsEmpty());
  EXPECT_THAT(cluster.judged(job).notes, ::testing::Contains(HasSubstr("Xid 31 (memory page fault) before the watch")));
  while (cluster.now_s() < 200) cluster.look(job);
  const Judgement judged = cluster.judged(job);
  EXPECT_THAT(troubles(judged), ElementsAre("node-0 GPU 3 Xid 79"));
  EXPECT_THAT(judged.sentence, HasSubstr("reported Xid 79 (the GPU has fallen off the bus) since the watch began"));
  EXPECT_EQ(judged.all[0].since_ns, looked_ns(105));
}

TEST_P(GpuHour, AnIdleGpuAmongBusyOnesIsNamedUnlessItNeverWorked) {
  Cluster cluster(GetParam());
  JobView job;
  cluster.fault = [](std::vector<Host>& hosts, double now_s) {
    hosts[0][1].busy = 0;  // not of the job
    if (now_s > 300) hosts[1][3].busy = 0;
    if (now_s > 300) hosts[0][0].busy = hosts[0][2].busy = hosts[0][3].busy = 1;
    if (now_s > 300) hosts[1][0].busy = hosts[1][1].busy = hosts[1][2].busy = 1;
  };
  while (cluster.now_s() < 315) cluster.look(job);
  EXPECT_THAT(troubles(cluster.judged(job)), IsEmpty());
  while (cluster.now_s() < 325) cluster.look(job);
  const Judgement judged = cluster.judged(job);
  EXPECT_THAT(troubles(judged), ElementsAre("node-1 GPU 3 idle"));
  EXPECT_THAT(judged.sentence, HasSubstr("while 6 of 6 others are busy"));
}

INSTANTIATE_TEST_SUITE_P(Watch, GpuHour, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "dcgm" : "nvidia_smi"; });

TEST(GpuMetricsTest, NvlinkErrorsThatGrowAreNamed) {
  Cluster cluster(true);
  JobView job;
  cluster.fault = [](std::vector<Host>& hosts, double now_s) {
    if (now_s > 100) hosts[0][2].replays += 3;
    if (now_s > 100) hosts[1][1].recoveries = 1;
  };
  while (cluster.now_s() < 110) cluster.look(job);
  EXPECT_THAT(troubles(cluster.judged(job)), ElementsAre("node-1 GPU 1 NVLink errors"));  // it recovered: enough
  while (cluster.now_s() < 115) cluster.look(job);
  const Judgement judged = cluster.judged(job);
  EXPECT_THAT(troubles(judged), ElementsAre("node-0 GPU 2 NVLink errors", "node-1 GPU 1 NVLink errors"));
  EXPECT_THAT(judged.sentence,
              HasSubstr("counted 9 replays or wrong checksums and 0 recoveries within 10 s, more at each of 3 looks"));
}

TEST(GpuMetricsTest, TheCounterOfViolationsIsAReasonWhereThereAreNoBits) {
  Cluster cluster(true);
  JobView job;
  cluster.fault = [](std::vector<Host>& hosts, double now_s) {
    for (Host& host : hosts) {
      for (GpuState& gpu : host) gpu.limits = 0;
    }
    if (now_s <= 100) return;
    hosts[0][0].clock_mhz = 900, hosts[0][0].busy = 1;
    hosts[0][0].thermal_ns += 4'000'000'000;
  };
  while (cluster.now_s() < 115) cluster.look(job);
  EXPECT_THAT(cluster.judged(job).sentence, HasSubstr("The reason: thermal limit."));
}

TEST(GpuMetricsTest, TheHostOfARankThatIsLateIsConnectedWithItsGpu) {
  Cluster cluster(true);
  JobView job;
  cluster.fault = [](std::vector<Host>& hosts, double) { hosts[1][2].clock_mhz = 900, hosts[1][2].busy = 1; };
  while (cluster.now_s() < 60) cluster.look(job);
  job.world = 2;
  for (int rank = 0; rank < 2; ++rank) {
    job.ranks[rank].host = fmt::format("node-{}.example.org", rank);
    for (int step = 1; step <= 120; ++step) {
      job.ranks[rank].heard.add(looked_ns(0.5 * step));
      add_step(job.ranks[rank], {step, looked_ns(0.5 * step), 500, rank == 1 ? 10.0 : 210.0});
    }
  }
  const Judgement judged = cluster.judged(job);
  EXPECT_EQ(judged.verdict, Verdict::late_rank);
  ASSERT_EQ(judged.all.size(), 2U);
  EXPECT_THAT(judged.sentence, HasSubstr("On the host of rank 1: GPU 2 (00000000:12:00.0) of node-1 is throttled"));
  EXPECT_THAT(judged.all[1].sentence, HasSubstr("Rank 1 (late rank) runs on this host."));
}

TEST(GpuMetricsTest, LabelsOfBothAgesAreRead) {
  for (const auto& [host_label, uuid_label] : {std::pair{"Hostname", "UUID"}, std::pair{"hostname", "uuid"}}) {
    JobView job;
    EXPECT_EQ(add_gpu_metrics(job, dcgm_text("node-7", Host(2), true, host_label, uuid_label), "x:9400", "x", 1), "");
    ASSERT_EQ(job.gpus.size(), 2U);
    const WatchedGpu& gpu = job.gpus.begin()->second;
    EXPECT_EQ(gpu.host, "node-7");
    EXPECT_EQ(gpu.name, "GPU 0");
    EXPECT_EQ(gpu.model, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(gpu.bus, "00000000:10:00.0");
    EXPECT_DOUBLE_EQ(gpu.looks.back().busy.value(), 0.98);
    EXPECT_DOUBLE_EQ(gpu.looks.back().clock_mhz.value(), 1980);
  }
}

TEST(GpuMetricsTest, WhatTheExporterHasNotAskedAnewIsNoLook) {
  JobView job;
  const std::string text = dcgm_text("a", Host(1));
  for (double s = 0; s < 31; s += 5) EXPECT_EQ(add_gpu_metrics(job, text, "a", "a", looked_ns(s)), "");
  EXPECT_EQ(job.gpus.begin()->second.looks.size(), 1U);
  EXPECT_EQ(add_gpu_metrics(job, text, "a", "a", looked_ns(40)), "");
  EXPECT_EQ(job.gpus.begin()->second.looks.size(), 2U);
}

TEST(GpuMetricsTest, XidsAndClockEventsOfTheLastWindow) {
  const auto text = [](int xids, int events) {
    return fmt::format(
        "DCGM_FI_DEV_SM_CLOCK{{gpu=\"0\",UUID=\"GPU-a\",hostname=\"h\"}} {}\n"
        "DCGM_FI_DEV_XID_ERRORS{{gpu=\"0\",UUID=\"GPU-a\",hostname=\"h\"}} 94\n"
        "DCGM_EXP_XID_ERRORS_COUNT{{gpu=\"0\",UUID=\"GPU-a\",hostname=\"h\",window_size_in_ms=\"300000\",xid=\"94\"}} "
        "{}\n"
        "DCGM_EXP_CLOCK_EVENTS_COUNT{{gpu=\"0\",UUID=\"GPU-a\",hostname=\"h\",clock_event=\"hw_thermal\"}} {}\n",
        1000 + events, xids, events);
  };
  JobView job;
  const auto look = [&](int s, int xids, int events) {
    EXPECT_EQ(add_gpu_metrics(job, text(xids, events), "h", "h", looked_ns(s)), "");
    return job.gpus.begin()->second;
  };
  EXPECT_THAT(look(0, 1, 0).xids, IsEmpty());
  EXPECT_EQ(look(5, 3, 1).xids.at(94).times, 2);
  EXPECT_EQ(look(10, 1, 2).xids.at(94).times, 2);  // the window has moved on
  EXPECT_EQ(look(15, 2, 2).xids.at(94).times, 3);
  EXPECT_EQ(job.gpus.begin()->second.looks.back().limits, bit(ClockLimit::hardware_thermal));
  EXPECT_EQ(look(20, 2, 1).looks.back().limits, 0U);
}

TEST(GpuMetricsTest, WhatIsNotOfAGpuIsLeftOut) {
  JobView job;
  EXPECT_THAT(add_gpu_metrics(job, "up 1\n", "a", "a", 1), HasSubstr("has no series"));
  EXPECT_THAT(add_gpu_metrics(job, "", "a", "a", 1), HasSubstr("has no series"));
  // Instances of MIG, blanks, values that cannot be, and lines that are cut.
  EXPECT_EQ(
      add_gpu_metrics(job,
                      "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"7\"} 5\n"
                      "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-a\",hostname=\"h\\\\1\\\"\"} 9223372036854775794\n"
                      "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\"} NaN\n"
                      "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GP\n"
                      "DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"GPU-c\"}\n"
                      "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu=\"3\" , UUID=\"GPU-d\" , } 1 1700000000000\n",
                      "a", "a", 1),
      "");
  ASSERT_EQ(job.gpus.size(), 2U);
  const WatchedGpu& gpu = job.gpus.rbegin()->second;
  EXPECT_EQ(gpu.host, "h\\1\"");
  EXPECT_FALSE(gpu.looks.back().busy);
  EXPECT_FALSE(gpu.looks.back().clock_mhz);
}

TEST(GpuMetricsTest, TextsThatWereDamagedAreNoDanger) {
  std::mt19937 luck(7);
  const std::string whole = dcgm_text("a", Host(2), true) + nvidia_smi_text("b", Host(2));
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    for (int j = 0; j < 12; ++j) text[luck() % text.size()] = static_cast<char>(luck() % 256);
    text.resize(luck() % text.size());
    JobView job;
    (void)add_gpu_metrics(job, text, "a", "a", 1);
    (void)judge(job, 1);
  }
}

TEST(GpuMetricsTest, HostsAreTheSameUpToTheFirstDot) {
  EXPECT_TRUE(is_same_host("node-1", "node-1.example.org"));
  EXPECT_FALSE(is_same_host("node-1", "node-10"));
  EXPECT_FALSE(is_same_host("10.0.0.1", "10.0.0.2"));
  EXPECT_FALSE(is_same_host("", ""));
}

}  // namespace
}  // namespace fsdpbench::watch
