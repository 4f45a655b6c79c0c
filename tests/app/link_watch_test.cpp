// Links of hosts as an acceptance looks at them before and after, in folders that stand for /sys.

#include "app/acceptance/link_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "acceptance_cases.h"
#include "app/acceptance/acceptance_files.h"
#include "app/acceptance/host_watch.h"
#include "app/acceptance/kernel_log.h"
#include "app/acceptance/node_lists.h"
#include "support/temporary_folder.h"

namespace fsdpbench::app {
namespace {

using accept::Verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A host with an interface, a bridge without a device, and a port of an InfiniBand adapter.
struct HostFolder {
  TemporaryFolder sys;

  HostFolder() {
    set("class/net/eth0/device/vendor", "0x15b3");
    set("class/net/eth0/operstate", "up");
    set("class/net/eth0/speed", "100000");
    set("class/net/eth0/carrier_changes", "1");
    set("class/net/eth0/statistics/rx_errors", "0");
    set("class/net/eth0/statistics/tx_errors", "2");
    set("class/net/eth0/statistics/rx_dropped", "17");
    set("class/net/docker0/operstate", "down");
    set("class/infiniband/mlx5_2/ports/1/state", "4: ACTIVE");
    set("class/infiniband/mlx5_2/ports/1/rate", "400 Gb/sec (4X NDR)");
    set("class/infiniband/mlx5_2/ports/1/counters/link_downed", "3");
    set("class/infiniband/mlx5_2/ports/1/counters/symbol_error", "0");
    set("class/infiniband/mlx5_2/ports/1/counters/port_rcv_errors", "5");
  }
  void set(const std::string& file, const std::string& text) const { (void)sys.write(file, text + "\n"); }
  std::vector<HostLink> links() const { return host_links(sys.path()); }
};

TEST(HostLinks, AreReadAndTravel) {
  const HostFolder host;
  const nlohmann::json sent = to_json(host.links());
  const std::vector<HostLink> links = host_links_from_json(JsonPart(sent));
  ASSERT_THAT(links, SizeIs(2)) << "a bridge has no cable";
  EXPECT_EQ(links[0].name, "eth0");
  EXPECT_TRUE(links[0].up);
  EXPECT_DOUBLE_EQ(links[0].gbit_per_s, 100);
  EXPECT_EQ(links[0].downs, 1);
  EXPECT_THAT(links[0].errors, ElementsAre(std::pair("rx_errors", 0), std::pair("tx_errors", 2), std::pair("rx_dropped", 17)));
  EXPECT_EQ(links[1].name, "mlx5_2 port 1");
  EXPECT_TRUE(links[1].up);
  EXPECT_DOUBLE_EQ(links[1].gbit_per_s, 400);
  EXPECT_EQ(links[1].downs, 3);
  EXPECT_THAT(host_links(host.sys.path() / "nothing"), IsEmpty());
}

TEST(HostLinks, AnErrorThatWasCountedMeanwhileIsToldAndFailsNobody) {
  const Trial trial = trial_with_exposed(0.05);
  const HostFolder host;
  AcceptanceMeasurements m = measured({});
  m.host_links_before = m.host_links_after = {host.links()};
  const AcceptanceReport quiet = judge_acceptance(wanted(), m, &trial);
  ASSERT_TRUE(judgement(quiet, kHostLinkRule, Verdict::pass));
  EXPECT_EQ(judgement(quiet, kHostLinkRule, Verdict::pass)->sentence,
            "none of 2 links of 1 host went down, is slower than that of most hosts, or counted errors");
  host.set("class/infiniband/mlx5_2/ports/1/counters/symbol_error", "12");
  m.host_links_after = {host.links()};
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(report.verdict, Verdict::pass) << acceptance_table(report);
  EXPECT_THAT(acceptance_table(report), HasSubstr("mlx5_2 port 1 of node counted 12 more symbol_error while it was measured"));
  EXPECT_THAT(acceptance_markdown(report), HasSubstr("\n- host links: mlx5_2 port 1 of node counted 12 more"));
  const nlohmann::json links = acceptance_json(report, m, World{}, nlohmann::json())["host_links"];
  ASSERT_THAT(links, SizeIs(2)) << "8 ranks of one host have the same";
  EXPECT_EQ(links[1]["name"], "mlx5_2 port 1");
  EXPECT_EQ(links[1]["gbit_per_s"], 400);
  EXPECT_EQ(links[1]["changes"], 0);
  EXPECT_EQ(links[1]["more_errors"], nlohmann::json({{"symbol_error", 12}, {"port_rcv_errors", 0}}));
  EXPECT_THAT(acceptance_metrics(report), HasSubstr("figure=\"mlx5_2 port 1 of node\",host=\"node\",nic=\"mlx5_2 port 1\"} 1\n"));
}

TEST(HostLinks, ALinkThatWentDownMeanwhileFailsItsHost) {
  const std::vector<std::string> hosts{"a", "a", "b", "b"};
  const HostFolder good, bad;
  const std::vector<std::vector<HostLink>> before{good.links(), good.links(), bad.links(), bad.links()};
  EXPECT_EQ(judge_host_links(hosts, before, before).front().verdict, Verdict::pass);
  bad.set("class/infiniband/mlx5_2/ports/1/counters/link_downed", "4");  // and came up again
  const auto fell = judge_host_links(hosts, before, {good.links(), good.links(), bad.links(), bad.links()});
  ASSERT_THAT(fell, SizeIs(1));
  EXPECT_EQ(fell.front().verdict, Verdict::fail);
  EXPECT_EQ(fell.front().sentence, "mlx5_2 port 1 of b went down while it was measured");
  EXPECT_THAT(fell.front().ranks, ElementsAre(2, 3));
  bad.set("class/net/eth0/operstate", "down");
  EXPECT_THAT(judge_host_links(hosts, before, {good.links(), good.links(), bad.links(), bad.links()}), SizeIs(2));
  HostLink was_down{.name = "eth1"}, came_up{.name = "eth1", .up = true, .gbit_per_s = 100, .downs = 1};
  EXPECT_EQ(judge_host_links({"a"}, {{was_down}}, {{came_up}}).front().verdict, Verdict::pass);
}

TEST(HostWatchTest, ALinkThatFellInTheMiddleFailsItsHostWithTheStage) {
  const HostFolder host;
  const TemporaryFolder logs;
  const std::filesystem::path kmsg = logs.write("kmsg", "6,1,10,-;Linux version 6.8\n");
  HostWatch watch({host.sys.path(), kmsg}, 0);
  const std::vector<std::vector<HostLink>> before{host.links()};
  watch.look();
  EXPECT_THAT(watch.events(), IsEmpty());
  host.set("class/net/eth0/operstate", "down");
  host.set("class/infiniband/mlx5_2/ports/1/counters/symbol_error", "12");
  (void)logs.write("kmsg", "6,1,10,-;Linux version 6.8\n4,2,30,-;NVRM: Xid (PCI:0000:3b:00): 79, fallen off the bus\n");
  watch.look();
  host.set("class/net/eth0/operstate", "up");
  host.set("class/infiniband/mlx5_2/ports/1/counters/symbol_error", "13");
  watch.look();
  const nlohmann::json sent = to_json(watch.events());
  std::vector<HostEvent> events = host_events_from_json(JsonPart(sent));
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].part, "eth0");
  EXPECT_EQ(events[0].what, "went down");
  EXPECT_TRUE(events[0].fails);
  EXPECT_EQ(events[1].what, "symbol_error") << "its first error; how many there are the counter has";
  EXPECT_EQ(events[2].part, kKernelLogRule);
  EXPECT_TRUE(events[2].fails);
  EXPECT_EQ(events[3].what, "came up");
  EXPECT_FALSE(events[3].fails);
  EXPECT_EQ(events[0].time.size(), std::string("2026-11-25T14:03:07Z").size());

  const std::string name = events[0].host;
  events[0].at_s = 47.2;
  events[0].time = "2026-11-25T14:03:07Z";
  std::vector<Stage> stages(3);
  for (const auto& [at, name_of_stage, began_s] : {std::tuple{0, "inventory", 1}, {1, "pairs", 40}, {2, "collectives", 60}}) {
    stages[static_cast<std::size_t>(at)].name = name_of_stage;
    stages[static_cast<std::size_t>(at)].began_s = began_s;
  }
  name_stages(events, stages, 2);
  EXPECT_EQ(events[0].stage, "pairs");
  // Before and after it is the same.
  EXPECT_EQ(judge_host_links({name}, before, before).front().verdict, Verdict::pass);
  const auto judged = judge_host_links({name}, before, before, events);
  ASSERT_THAT(judged, SizeIs(1));
  EXPECT_EQ(judged[0].verdict, Verdict::fail);
  EXPECT_EQ(judged[0].sentence, "eth0 of " + name + " went down while it was measured (seen 47 s after the start, at "
                                "2026-11-25T14:03:07Z, in the stage pairs)");
  AcceptanceMeasurements m = measured({});
  m.host_events = events;
  const nlohmann::json written = acceptance_json(AcceptanceReport{}, m, World{}, nlohmann::json())["host_events"];
  ASSERT_THAT(written, SizeIs(4));
  EXPECT_EQ(written[0]["stage"], "pairs");
}

TEST(HostWatchTest, AKernelLineHasItsTime) {
  const TemporaryFolder logs;
  const std::string boot = "6,1,10,-;Linux version 6.8\n";
  const std::filesystem::path kmsg = logs.write("kmsg", boot);
  HostWatch watch({logs.path(), kmsg}, 0);
  const KernelLog before = kernel_log(kmsg);
  (void)logs.write("kmsg", boot + "4,2,30,-;mlx5_core 0000:3b:00.0 eth2: Link down\n");
  watch.look();
  std::vector<HostEvent> events = watch.events();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_FALSE(events[0].fails);
  const auto judged = judge_kernel_logs({events[0].host}, {before}, {kernel_log(kmsg)}, events);
  ASSERT_THAT(judged, SizeIs(1));
  EXPECT_EQ(judged[0].verdict, Verdict::unrated);
  EXPECT_THAT(judged[0].sentence, HasSubstr("eth2: Link down (seen 0 s after the start, at 20"));
}

/// The thread looks by itself: nobody else does here, and it is waited for.
TEST(HostWatchTest, AThreadLooksAgainAndAgain) {
  const HostFolder host;
  HostWatch watch({host.sys.path(), host.sys.path() / "no-kmsg"}, 0.001);
  host.set("class/net/eth0/operstate", "down");
  while (watch.events().empty()) std::this_thread::yield();
  EXPECT_EQ(watch.events().front().what, "went down");
}

TEST(HostLinks, ALinkThatIsGoneFailsItsHost) {
  const HostFolder host;
  const std::vector<std::vector<HostLink>> before{host.links()}, after{{before[0][0]}};
  const auto judged = judge_host_links({"a"}, before, after);
  ASSERT_THAT(judged, SizeIs(1));
  EXPECT_EQ(judged[0].verdict, Verdict::fail);
  EXPECT_EQ(judged[0].sentence, "mlx5_2 port 1 of a is gone since it was measured");
}

TEST(HostLinks, ALinkThatIsWorseThanThoseOfMostHostsIsTold) {
  const std::vector<std::string> hosts{"a", "b", "c", "d"};
  const HostFolder good, slow, down;
  slow.set("class/infiniband/mlx5_2/ports/1/rate", "200 Gb/sec (2X NDR)");
  down.set("class/net/eth0/operstate", "down");
  const std::vector<std::vector<HostLink>> links{good.links(), slow.links(), down.links(), good.links()};
  const auto told = judge_host_links(hosts, links, links);
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].sentence, "mlx5_2 port 1 of b has 200 Gbit/s, and most hosts have 400");
  EXPECT_EQ(told[1].sentence, "eth0 of c is down, and up on 3 of 4 hosts");
  EXPECT_EQ(told[0].verdict, Verdict::unrated);
  EXPECT_EQ(told[1].verdict, Verdict::unrated);
  // One of two hosts is not a majority, and a port that nobody uses is down on every host.
  EXPECT_EQ(judge_host_links({"a", "b"}, {links[0], links[1]}, {links[0], links[1]}).front().verdict, Verdict::pass);
  EXPECT_EQ(judge_host_links({"c", "e"}, {links[2], links[2]}, {links[2], links[2]}).front().verdict, Verdict::pass);
  EXPECT_THAT(judge_host_links({"a"}, {{}}, {{}}), IsEmpty()) << "nothing is known of a host without links";
}

}  // namespace
}  // namespace fsdpbench::app
