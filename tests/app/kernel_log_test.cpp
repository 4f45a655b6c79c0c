// What the kernels of hosts wrote while an acceptance measured, from files that stand for /dev/kmsg.

#include "app/acceptance/kernel_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace fsdpbench::app {
namespace {

using accept::Verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kBoot =
    "6,1,10,-;Linux version 6.8\n SUBSYSTEM=none\n6,2,20,-;pcieport 0000:00:01.0: AER: enabled with IRQ 27\n";
const std::string kXid = "4,3,30,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n";

KernelLog log_of(const std::string& text) {
  const TemporaryFolder folder;
  return kernel_log(folder.write("kmsg", text));
}

TEST(KernelLogTest, IsReadAndTravels) {
  const nlohmann::json sent =
      to_json(log_of(kBoot + kXid + "14,4,40,-;NVRM: Xid (PCI:0000:3b:00): 79, of a program\n"));
  const KernelLog log = kernel_log_from_json(JsonPart(sent));
  EXPECT_EQ(log.unknown_because, "");
  EXPECT_EQ(log.last, 4);
  ASSERT_THAT(log.lines, SizeIs(1)) << "what programs write into it is not the kernel's";
  EXPECT_EQ(log.lines[0].first, 3);
  EXPECT_EQ(log.lines[0].second, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
}

TEST(KernelLogTest, TroublesAreToldApart) {
  for (const char* line :
       {"NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE",
        "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 19084, Fatal, Link 29",
        "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received", "mce: [Hardware Error]: Uncorrected error",
        "I/O error, dev nvme0n1, sector 8", "EXT4-fs error (device sda1): ext4_find_entry"}) {
    EXPECT_EQ(kernel_trouble(line), KernelTrouble::fails) << line;
  }
  for (const char* line :
       {"NVRM: Xid (PCI:0000:3b:00): 31, pid=1, MMU fault", "AER: Corrected error received: 0000:00:01.0",
        "mce: [Hardware Error]: Machine check events logged", "Out of memory: Killed process 7 (python)",
        "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32"}) {
    EXPECT_EQ(kernel_trouble(line), KernelTrouble::told) << line;
  }
  for (const char* line :
       {"eth0: link up", "pcieport 0000:00:01.0: AER: enabled with IRQ 27", "EXT4-fs (sda1): mounted"}) {
    EXPECT_EQ(kernel_trouble(line), KernelTrouble::none) << line;
  }
}

TEST(KernelLogTest, WhatWasWrittenMeanwhileFailsItsHost) {
  const KernelLog quiet = log_of(kBoot), broken = log_of(kBoot + kXid);
  const std::vector<std::string> hosts{"a", "a", "b", "b"};
  const auto judged = judge_kernel_logs(hosts, {quiet, quiet, quiet, quiet}, {quiet, quiet, broken, broken});
  ASSERT_THAT(judged, SizeIs(1));
  EXPECT_EQ(judged[0].verdict, Verdict::fail);
  EXPECT_THAT(judged[0].ranks, ElementsAre(2, 3));
  EXPECT_EQ(judged[0].place.host, "b");
  EXPECT_THAT(judged[0].sentence,
              HasSubstr("the kernel of b wrote while it was measured: NVRM: Xid (PCI:0000:3b:00): 79"));
  const auto before = judge_kernel_logs({"b"}, {broken}, {broken});
  EXPECT_EQ(before.front().verdict, Verdict::pass) << "it was there before";
  EXPECT_THAT(before.front().sentence, HasSubstr("from before"));
}

TEST(KernelLogTest, WhatIsToldFailsNobodyAndWhatCannotBeReadIsUnrated) {
  const KernelLog quiet = log_of(kBoot), killed = log_of(kBoot + "3,3,30,-;Out of memory: Killed process 7 (python)\n");
  EXPECT_EQ(judge_kernel_logs({"a"}, {quiet}, {killed}).front().verdict, Verdict::unrated);
  const KernelLog none = kernel_log("/nowhere/kmsg");
  const auto judged = judge_kernel_logs({"a"}, {none}, {none});
  EXPECT_EQ(judged.front().verdict, Verdict::unrated);
  EXPECT_EQ(judged.front().sentence, "the kernel log of a cannot be read: No such file or directory");
  const auto some = judge_kernel_logs({"a", "b", "c"}, {none, quiet, none}, {none, quiet, none});
  ASSERT_THAT(some, SizeIs(2)) << "those that can be read, and those that cannot";
  EXPECT_EQ(some[1].sentence, "the kernel log of a cannot be read: No such file or directory, and 1 more host");
  EXPECT_THAT(judge_kernel_logs({"a"}, {}, {}), IsEmpty()) << "nobody looked";
}

}  // namespace
}  // namespace fsdpbench::app
