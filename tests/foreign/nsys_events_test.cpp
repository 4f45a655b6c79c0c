// A database of `nsys export --type sqlite`, made here table by table, is read as a trace of torch.profiler is.
#include "foreign/nsys_events.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "support/temporary_folder.h"
#include "trace/whole_file.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTables = R"(
CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)'), (2, 'sm90_xmma_gemm'),
  (3, 'cudaLaunchKernel_v7000'), (4, 'cudaLaunchKernelExC_v11060'), (5, 'cudaEventSynchronize_v3020'), (6, 'layers.0');
CREATE TABLE TARGET_INFO_GPU(name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H100 80GB HBM3');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT,
  demangledName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT,
  bytes INT);
CREATE TABLE NVTX_EVENTS(start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
)";
// Process 77, thread 78.
constexpr const char* kRows = R"(
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 110, (77 << 24) + 78, 1, 4), (120, 130, (77 << 24) + 78, 2, 3),
  (140, 500, (77 << 24) + 78, 3, 5);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200, 300, 0, 24, 1, 77 << 24, 1), (310, 400, 0, 7, 2, 77 << 24, 2);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (410, 420, 0, 7, 9, 77 << 24, 4096);
INSERT INTO NVTX_EVENTS VALUES (90, 600, 59, 'ProfilerStep#4', NULL, (77 << 24) + 78),
  (95, 135, 59, NULL, 6, (77 << 24) + 78), (99, NULL, 34, 'a mark', NULL, (77 << 24) + 78);
)";

class Nsys : public ::testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& sql) {
    const std::string path = (folder_.path() / name).string();
    sqlite3* database = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(database);
    return path;
  }
  static std::string refusal(const std::string& path) {
    try {
      read_job({path});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  TemporaryFolder folder_;
};

/// A file of some kilobytes may say that a value is 900 million characters long.
TEST_F(Nsys, ValuesThatTheFileComputesAreBounded) {
  const std::string generated =
      "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT GENERATED ALWAYS AS (hex(zeroblob(id * 1000000))) "
      "VIRTUAL);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, streamId INT, correlationId INT, "
      "globalPid INT, demangledName INT);";
  EXPECT_THAT(refusal(make("one.sqlite", generated + "INSERT INTO StringIds(id) VALUES (1);")),
              HasSubstr("one.sqlite: has a row or a value of more than 1.00 MiB"));
}

TEST_F(Nsys, KernelsStreamsCallsAndRangesAreRead) {
  const JobTrace job = read_job({make("rank_3.sqlite", std::string(kTables) + kRows)});
  ASSERT_EQ(job.ranks.size(), 1U);
  const RankRows& rank = job.ranks.front();
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.device_model, "NVIDIA H100 80GB HBM3");
  ASSERT_EQ(rank.device.size(), 3U);
  const DeviceRow &gather = rank.device[0], &product = rank.device[1], &copy = rank.device[2];
  EXPECT_EQ(gather.kind, Activity::collective);
  EXPECT_EQ(rank.collectives.at(static_cast<std::size_t>(gather.collective)).kind, Communication::all_gather);
  EXPECT_EQ(rank.streams.at(static_cast<std::size_t>(gather.stream)).id, 24);
  EXPECT_EQ(product.kind, Activity::computation);
  EXPECT_EQ(rank.names.at(static_cast<std::size_t>(product.name)), "sm90_xmma_gemm");
  EXPECT_EQ(copy.kind, Activity::copy);
  EXPECT_EQ(copy.bytes, 4096);
  ASSERT_GE(gather.launch, 0);
  const HostRow& launch = rank.host.at(static_cast<std::size_t>(gather.launch));
  EXPECT_EQ(launch.begin_ns, 100);
  EXPECT_EQ(rank.names.at(static_cast<std::size_t>(launch.name)), "cudaLaunchKernelExC");
  ASSERT_GE(launch.parent, 0);
  EXPECT_EQ(rank.names.at(static_cast<std::size_t>(rank.host[launch.parent].name)), "layers.0");
  EXPECT_EQ(std::ranges::count(rank.host, HostWork::synchronise, &HostRow::kind), 1);
  ASSERT_EQ(rank.steps.size(), 1U);
  EXPECT_EQ(rank.steps.front().number, 4);
}

TEST_F(Nsys, WaitsAreReadWhereTheirCallsAreLeftOut) {
  const std::string waits =
      "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start INT, end INT, correlationId INT, globalPid INT, syncType "
      "INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (145, 490, 3, 77 << 24, 3), (520, 560, 12, 77 << 24, 3), "
      "(520, 560, 3, 78 << 24, 3), (570, 580, 13, 77 << 24, 2);";
  const auto waits_of = [&](const std::string& sql) {
    std::vector<std::int64_t> begins;
    for (const RankRows& rank : read_job({make(std::to_string(sql.size()) + ".sqlite", sql)}).ranks) {
      for (const HostRow& row : rank.host) {
        if (row.kind == HostWork::synchronise) begins.push_back(row.begin_ns);
      }
    }
    return begins;
  };
  // A call of its own, a wait whose call is not there; not a stream's wait for an event.
  EXPECT_THAT(waits_of(std::string(kTables) + kRows + waits), ::testing::ElementsAre(140, 520));
  EXPECT_THAT(waits_of(std::string(kTables) + kRows + waits + "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME;"),
              ::testing::IsEmpty());
}

TEST_F(Nsys, FoldersAreLookedThroughForThem) {
  make("rank_0.sqlite", std::string(kTables) + kRows);
  make("rank_1.sqlite", std::string(kTables) + kRows);
  make("notes.sqlite", "CREATE TABLE notes(text TEXT)");
  const JobTrace job = read_job({folder_.path().string()});
  EXPECT_EQ(job.ranks.size(), 2U);
  ASSERT_FALSE(job.notes.empty());
  EXPECT_THAT(job.notes.front(), HasSubstr("without kernels"));
}

// Process 99 has the first device; 12 has none, and loads data.
constexpr const char* kOtherProcesses = R"(
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (101, 109, (99 << 24) + 1, 1, 4), (5, 900, (12 << 24) + 1, 7, 5);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (210, 290, 0, 24, 1, 99 << 24, 1);
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE globalPid = 77 << 24;
UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET deviceId = 1;
)";

TEST_F(Nsys, EachProcessOfAReportIsARank) {
  const JobTrace job = read_job({make("report1.sqlite", std::string(kTables) + kRows + kOtherProcesses)});
  ASSERT_EQ(job.ranks.size(), 2U);
  EXPECT_TRUE(job.shared_clock);
  EXPECT_EQ(job.ranks[0].device.size(), 1U);
  EXPECT_EQ(job.ranks[0].host.size(), 1U);
  EXPECT_EQ(job.ranks[1].device.size(), 3U);
  EXPECT_THAT(job.ranks[0].notes, ::testing::Contains(HasSubstr("process 99 of the 2")));
}

TEST_F(Nsys, ReportsOfSeveralNodesShareTheClockThatTheyTell) {
  for (const char* name : {"node0.sqlite", "node1.sqlite"}) {
    const std::string begin = name[4] == '0' ? "1700000000000000000" : "1700000000000000050";
    make(name, std::string(kTables) + kRows + "CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INT);" +
                   "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (" + begin + ");");
  }
  const JobTrace job = read_job({folder_.path().string()});
  ASSERT_EQ(job.ranks.size(), 2U);
  EXPECT_TRUE(job.shared_clock);
  EXPECT_EQ(job.ranks[1].device.front().begin_ns - job.ranks[0].device.front().begin_ns, 50);
}

TEST_F(Nsys, AGzippedDatabaseIsReadAsItIs) {
  const std::string plain = make("rank_1.sqlite", std::string(kTables) + kRows);
  std::ifstream file(plain, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  trace::WholeFile packed((folder_.path() / "rank_0.sqlite.gz").string());
  packed.write(bytes);
  packed.commit();
  const JobTrace job = read_job({folder_.path().string()});
  ASSERT_EQ(job.ranks.size(), 2U);
  EXPECT_EQ(job.ranks[0].device.size(), job.ranks[1].device.size());
  ReadOptions options;
  options.most_bytes = bytes.size() / 2;
  EXPECT_THROW(read_job({job.ranks[0].file}, options), ConfigError);
}

TEST_F(Nsys, NumbersOfAutogradAreNoPartOfAName) {
  const JobTrace job = read_job({make(
      "rank_0.sqlite",
      std::string(kTables) + kRows +
          "INSERT INTO NVTX_EVENTS VALUES (91, 99, 59, 'FSDP::pre_forward (layers.1), seq = 7, op_id = 12', NULL, "
          "(77 << 24) + 78);")});
  EXPECT_THAT(job.ranks.front().names, ::testing::Contains("FSDP::pre_forward (layers.1)"));
}

/// The payload of a range of NCCL's: domain 3, a schema, its size, where it begins; then numbers of 8 or 4 bytes.
std::string blob(int schema, std::initializer_list<std::pair<std::uint64_t, int>> numbers) {
  std::string hex;
  const auto add = [&](std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", (number >> (8 * i)) & 0xFF);
  };
  for (const std::uint64_t number : {3, schema, 16, 32}) add(number, 8);
  for (const auto& [number, bytes] : numbers) add(number, bytes);
  return "x'" + hex + "'";
}

std::string payload_tables() {
  return std::string(kTables) +
         "ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData TEXT;"
         "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES(domainId INT, schemaId INT, idx INT, type INT, name TEXT, offset "
         "INT);"
         "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (3, 1, 0, 18, 'NCCL communicator ID', 0),"
         "(3, 1, 1, 5, 'No. of ranks', 8), (3, 1, 2, 5, 'Rank', 12), (3, 4, 0, 18, 'NCCL communicator ID', 0),"
         "(3, 4, 1, 22, 'Message size [bytes]', 8);"
         "INSERT INTO StringIds VALUES (7, 'ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgs)');"
         "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 110, 78, 1, 4), (200, 210, 78, 2, 4);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (300, 400, 0, 24, 1, 0, 1), (400, 500, 0, 25, 2, 0, 7);";
}
std::string ranges_of_nccl(std::uint64_t gathered, std::uint64_t reduced) {
  const std::string event = "INSERT INTO NVTX_EVENTS(start, end, eventType, text, globalTid, binaryData) VALUES ";
  return event + "(195, 215, 59, 'ncclReduceScatter', 78, " + blob(4, {{0xABC, 8}, {reduced, 8}}) + "), " +
         "(95, 115, 59, 'ncclAllGather', 78, " + blob(4, {{0xABC, 8}, {gathered, 8}}) + "), " +
         "(10, 20, 59, 'ncclCommInitRankConfig', 78, " + blob(1, {{0xABC, 8}, {4, 4}, {1, 4}}) + ");";
}

TEST_F(Nsys, PayloadsOfNcclTellSizesAndGroups) {
  const JobTrace job = read_job({make("rank_0.sqlite", payload_tables() + ranges_of_nccl(2000, 4000))});
  const RankRows& rank = job.ranks.front();
  const auto facts = [&](std::size_t row) {
    return rank.collectives.at(static_cast<std::size_t>(rank.device.at(row).collective));
  };
  EXPECT_EQ(facts(0).kind, Communication::all_gather);
  EXPECT_EQ(facts(0).elements_in, 1000);  // what is reduced as 1000 elements of 4 bytes is gathered as so many of 2
  EXPECT_EQ(facts(0).elements_out, 4000);
  EXPECT_EQ(facts(0).dtype, "BFloat16");
  EXPECT_EQ(facts(1).kind, Communication::reduce_scatter);
  EXPECT_EQ(facts(1).elements_in, 4000);
  EXPECT_EQ(facts(1).elements_out, 1000);
  EXPECT_EQ(facts(1).dtype, "Float");
  ASSERT_EQ(rank.groups.size(), 1U);
  EXPECT_EQ(rank.groups.front().size, 4);
  EXPECT_EQ(rank.groups.front().name, "abc");
}

TEST_F(Nsys, WhereNoReductionTellsTheTypeOfAGatherItsSizeIsNotKnown) {
  const JobTrace job = read_job({make("rank_0.sqlite", payload_tables() + ranges_of_nccl(2002, 4000))});
  const RankRows& rank = job.ranks.front();
  EXPECT_EQ(rank.collectives.at(static_cast<std::size_t>(rank.device[0].collective)).elements_out, -1);
  EXPECT_EQ(rank.collectives.at(static_cast<std::size_t>(rank.device[1].collective)).elements_in, 4000);
}

TEST_F(Nsys, DamagedPayloadsTellNothing) {
  const std::string event = "INSERT INTO NVTX_EVENTS(start, end, eventType, text, globalTid, binaryData) VALUES ";
  for (const std::string& payload : {std::string("x'00'"), blob(4, {}), blob(9, {{1, 8}}), std::string("'text'")}) {
    const JobTrace job =
        read_job({make("rank_" + std::to_string(payload.size()) + ".sqlite",
                       payload_tables() + event + "(95, 115, 59, 'ncclAllGather', 78, " + payload + ");")});
    const RankRows& rank = job.ranks.front();
    EXPECT_LE(rank.collectives.at(static_cast<std::size_t>(rank.device[0].collective)).elements_out, 0) << payload;
  }
}

TEST_F(Nsys, WhatIsNoSuchDatabaseIsRefusedByName) {
  EXPECT_THAT(refusal(make("other.sqlite", "CREATE TABLE StringIds(id INT, value TEXT)")),
              HasSubstr("without kernels"));
  EXPECT_THAT(
      refusal(make("old.sqlite", "CREATE TABLE StringIds(id INT, value TEXT); CREATE TABLE NVTX_EVENTS(start INT)")),
      HasSubstr("no such column"));
  const std::string whole = make("whole.sqlite", std::string(kTables) + kRows);
  std::ifstream file(whole, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string cut = folder_.write("cut.sqlite", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(refusal(cut), HasSubstr("cut.sqlite: cannot be read as a database of Nsight Systems"));
}

TEST_F(Nsys, NoMoreRowsAreReadThanAreAsked) {
  ReadOptions options;
  options.most_events = 2;
  const JobTrace job = read_job({make("rank_0.sqlite", std::string(kTables) + kRows)}, options);
  EXPECT_EQ(job.ranks.front().host.size() + job.ranks.front().device.size(), 2U);
  EXPECT_THAT(job.ranks.front().notes.front(), HasSubstr("more rows than the 2"));
}

}  // namespace
}  // namespace fsdpbench::foreign
