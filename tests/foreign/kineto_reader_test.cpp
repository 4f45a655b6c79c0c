#include "foreign/kineto_reader.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <string>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// One event in kineto's way.
std::string event(const std::string& category, const std::string& name, int tid, double ts, double dur,
                  const std::string& args = "") {
  return R"({"ph": "X", "cat": ")" + category + R"(", "name": ")" + name + R"(", "pid": 7, "tid": )" +
         std::to_string(tid) + R"(, "ts": )" + std::to_string(ts) + R"(, "dur": )" + std::to_string(dur) +
         R"(, "args": {)" + args + "}}";
}

std::string file_of(const std::string& events, const std::string& rank = "0", const std::string& base = "1000000000") {
  return R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
  "distributedInfo": {"backend": "nccl", "rank": )" +
         rank + R"(, "world_size": 2, "pg_config": [
     {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]},
     {"pg_name": "3", "pg_desc": "mesh_shard", "pg_size": 2, "ranks": "[0, 1]"}]},
  "host_name": "a", "baseTimeNanoseconds": )" +
         base + ", \"traceEvents\": [\n" + events + "\n]}";
}

/// A step with a product and an all-gather, their launches and ranges, in no order.
std::string small_step() {
  return event("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24, 150, 100,
               R"("device": 0, "stream": 24, "correlation": 102, "External id": 5)") +
         ",\n" + event("kernel", "gemm", 7, 260, 40, R"("device": 0, "stream": 7, "correlation": 103)") + ",\n" +
         event("user_annotation", "ProfilerStep#4", 11, 0, 400) + ",\n" +
         event("user_annotation", "FSDP::pre_forward (layers.0)", 11, 5, 60) + ",\n" +
         event("cpu_op", "record_param_comms", 11, 10, 30,
               R"("External id": 5, "Collective name": "_allgather_base", "In msg nelems": 500, "Out msg nelems": 1000,
                  "Group size": 2, "dtype": "BFloat16", "Process Group Name": "0", "Seq": 17)") +
         ",\n" + event("cuda_runtime", "cudaLaunchKernelExC", 11, 20, 5, R"("correlation": 102)") + ",\n" +
         event("cuda_driver", "cuLaunchKernelEx", 11, 22, 1, R"("correlation": 102)") + ",\n" +
         event("cuda_runtime", "cudaLaunchKernel", 11, 80, 5, R"("correlation": 103)") + ",\n" +
         event("cuda_sync", "Stream Wait Event", -1, 90, 0, R"("stream": 7, "wait_on_stream": 24, "device": 0)") +
         ",\n" +
         event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, 300, 10,
               R"("device": 0, "stream": 7, "correlation": 999, "bytes": 4096)") +
         R"(,
{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 11, "ts": 30,
 "args": {"Total Allocated": 100, "Total Reserved": 200, "Device Type": 1, "Bytes": 8}},
)" + event("python_function", "train.py(3): main", 11, 0, 400);
}

class KinetoReader : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) { return folder_.write(name, text); }
  RankRows read_one(const std::string& text, const ReadOptions& options = {}) {
    return read_job({write("trace.json", text)}, options).ranks.at(0);
  }
  std::string refusal(const std::vector<std::string>& paths) {
    try {
      read_job(paths);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  const TemporaryFolder folder_;
};

std::string name_of(const RankRows& rows, std::int32_t host) {
  return host < 0 ? "" : rows.names.at(static_cast<std::size_t>(rows.host.at(static_cast<std::size_t>(host)).name));
}

TEST_F(KinetoReader, LinksWhatRanToWhoLaunchedItAndWhatItWasPartOf) {
  const RankRows rows = read_one(file_of(small_step()));
  ASSERT_THAT(rows.device, SizeIs(3));
  const DeviceRow& gather = rows.device[0];
  EXPECT_EQ(gather.kind, Activity::collective);
  EXPECT_EQ(gather.begin_ns, 150'000);
  EXPECT_EQ(gather.end_ns, 250'000);
  EXPECT_EQ(rows.streams[gather.stream].id, 24);
  EXPECT_EQ(name_of(rows, gather.launch), "cudaLaunchKernelExC");  // not the driver's call inside it
  const HostRow& launch = rows.host[gather.launch];
  EXPECT_EQ(name_of(rows, launch.parent), "record_param_comms");
  const HostRow& call = rows.host[launch.parent];
  EXPECT_EQ(name_of(rows, call.parent), "FSDP::pre_forward (layers.0)");
  const CollectiveFacts& facts = rows.collectives.at(static_cast<std::size_t>(gather.collective));
  EXPECT_EQ(facts.kind, Communication::all_gather);
  EXPECT_EQ(facts.elements_in, 500);
  EXPECT_EQ(facts.elements_out, 1000);
  EXPECT_EQ(facts.dtype, "BFloat16");
  EXPECT_EQ(facts.sequence, 17);
  EXPECT_EQ(rows.groups.at(static_cast<std::size_t>(facts.group)).description, "default_pg");
  EXPECT_EQ(rows.device[1].kind, Activity::computation);
  EXPECT_EQ(name_of(rows, rows.device[1].launch), "cudaLaunchKernel");
  EXPECT_EQ(rows.device[2].kind, Activity::copy);
  EXPECT_EQ(rows.device[2].bytes, 4096);
  EXPECT_EQ(rows.device[2].launch, -1);
  EXPECT_THAT(rows.notes, IsEmpty());
}

TEST_F(KinetoReader, WhereCallsAreNotInTheFileTheOpWithTheExternalIdLaunched) {
  const RankRows rows =
      read_one(file_of(event("cpu_op", "aten::mm", 11, 10, 30, R"("External id": 5)") + ",\n" +
                       event("user_annotation", "ProfilerStep#4", 11, 0, 400, R"("External id": 6)") + ",\n" +
                       event("kernel", "gemm", 7, 260, 40, R"("stream": 7, "correlation": 103, "External id": 5)") +
                       ",\n" + event("kernel", "other", 7, 360, 40, R"("stream": 7, "External id": 6)")));
  ASSERT_THAT(rows.device, SizeIs(2));
  EXPECT_EQ(name_of(rows, rows.device[0].launch), "aten::mm");
  EXPECT_EQ(rows.device[1].launch, -1);
}

TEST_F(KinetoReader, KeepsWhatTheFileSaysOfTheJob) {
  const RankRows rows = read_one(file_of(small_step(), "1"));
  EXPECT_EQ(rows.rank, 1);
  EXPECT_TRUE(rows.rank_told);
  EXPECT_EQ(rows.world_size, 2);
  EXPECT_EQ(rows.backend, "nccl");
  EXPECT_EQ(rows.device_model, "NVIDIA H100");
  EXPECT_EQ(rows.schema, 1);
  ASSERT_THAT(rows.groups, SizeIs(2));
  EXPECT_THAT(rows.groups[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(rows.groups[1].description, "mesh_shard");
  EXPECT_THAT(rows.groups[1].ranks, ElementsAre(0, 1));
  ASSERT_THAT(rows.steps, SizeIs(1));
  EXPECT_EQ(rows.steps[0].number, 4);
  EXPECT_EQ(rows.steps[0].end_ns, 400'000);
  ASSERT_THAT(rows.waits, SizeIs(1));
  EXPECT_EQ(rows.streams[rows.waits[0].on_stream].id, 24);
  ASSERT_THAT(rows.memory, SizeIs(1));
  EXPECT_EQ(rows.memory[0].allocated, 100);
}

TEST_F(KinetoReader, KeepsPythonsFunctionsOnlyIfAsked) {
  const auto functions = [](const RankRows& rows) {
    return std::ranges::count(rows.host, HostWork::function, &HostRow::kind);
  };
  EXPECT_EQ(functions(read_one(file_of(small_step()))), 0);
  ReadOptions options;
  options.functions = true;
  EXPECT_EQ(functions(read_one(file_of(small_step()), options)), 1);
}

TEST_F(KinetoReader, AFileCutOffAnywhereGivesWhatItHasAndSaysSo) {
  const std::string text = file_of(small_step());
  const std::size_t first = text.find("},\n", text.find("traceEvents")) + 1;  // behind the first event
  for (std::size_t length = first; length < text.size() - 1; length += 7) {
    const RankRows rows = read_one(text.substr(0, length));
    EXPECT_THAT(rows.notes, Contains(HasSubstr("Only the first"))) << length;
    EXPECT_FALSE(rows.device.empty());
  }
  EXPECT_THAT(read_one(text).notes, Not(Contains(HasSubstr("Only the first"))));
}

TEST_F(KinetoReader, AnOldFilesArrowsLinkWhatHasNoCorrelation) {
  const RankRows rows = read_one(file_of(event("kernel", "gemm", 7, 260, 40, R"("device": 0, "stream": 7)") + ",\n" +
                                         event("cuda_runtime", "cudaLaunchKernel", 11, 80, 5) + R"(,
{"ph": "s", "id": 3, "pid": 7, "tid": 11, "ts": 80, "cat": "ac2g", "name": "ac2g"},
{"ph": "f", "id": 3, "pid": 0, "tid": 7, "ts": 260, "cat": "ac2g", "name": "ac2g", "bp": "e"})"));
  ASSERT_THAT(rows.device, SizeIs(1));
  EXPECT_EQ(name_of(rows, rows.device[0].launch), "cudaLaunchKernel");
}

TEST_F(KinetoReader, RowsWithTimesThatCannotBeAreLeftOutAndCounted) {
  const RankRows rows = read_one(file_of(small_step() + R"(,
{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1, "dur": -3, "args": {"stream": 7}},
{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 9e99, "dur": 3, "args": {"stream": 7}},
{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": -100000000000, "dur": 3, "args": {"stream": 7}},
{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 0, "tid": 7, "ts": 9223372036854775807, "dur": 9e15})"));
  EXPECT_THAT(rows.device, SizeIs(3));
  EXPECT_THAT(rows.notes, Contains(HasSubstr("3 rows have no begin or no length")));
  EXPECT_THAT(rows.notes, Contains(HasSubstr("1 rows of the device lie more than an hour")));
}

TEST_F(KinetoReader, HostileNamesAreShownHarmlessAndStayApart) {
  const RankRows rows = read_one(file_of(event("cpu_op", R"(a\u001b[31m\u202eb)", 1, 0, 1) + ",\n" +
                                         event("cpu_op", R"(a\\x1b[31m)", 1, 2, 1) + ",\n" +
                                         event("cpu_op", std::string(100'000, 'x'), 1, 4, 1)));
  ASSERT_THAT(rows.host, SizeIs(3));
  EXPECT_THAT(name_of(rows, 0), HasSubstr("\\x1b[31m"));
  EXPECT_EQ(name_of(rows, 0).find('\x1b'), std::string::npos);
  EXPECT_NE(rows.host[0].name, rows.host[1].name);
  EXPECT_LT(name_of(rows, 2).size(), 3000U);
}

TEST_F(KinetoReader, OfAGzipBombOnlySoMuchIsRead) {
  const std::string path = folder_ / "rank_0.json.gz";
  gzFile out = gzopen(path.c_str(), "wb9");
  const std::string head = file_of(small_step());
  const std::string beginning = head.substr(0, head.rfind("\n]}"));
  gzwrite(out, beginning.data(), static_cast<unsigned>(beginning.size()));
  const std::string blanks(1 << 20, ' ');
  for (int i = 0; i < 64; ++i) gzwrite(out, blanks.data(), static_cast<unsigned>(blanks.size()));
  gzclose(out);
  ReadOptions options;
  options.most_bytes = 8 << 20;
  const JobTrace job = read_job({path}, options);
  EXPECT_THAT(job.ranks.at(0).device, SizeIs(3));
  EXPECT_THAT(job.ranks.at(0).notes, Contains(HasSubstr("more than 8388608 bytes")));
}

TEST_F(KinetoReader, OfTooManyEventsTheFirstAreRead) {
  ReadOptions options;
  options.most_events = 4;
  const RankRows rows = read_one(file_of(small_step()), options);
  EXPECT_THAT(rows.device, SizeIs(2));
  EXPECT_THAT(rows.notes, Contains(HasSubstr("Only the first 4 events are read")));
}

TEST_F(KinetoReader, AFolderIsReadByRankAndWhatIsMissingOrTwiceIsSaid) {
  write("rank_10.json", file_of(small_step(), "3"));
  write("rank_2.json", file_of(small_step(), "1", "1000007000"));
  write("rank_2_again.json", file_of(small_step(), "1"));
  write("notes.json", R"({"a": 1})");
  const JobTrace job = read_job({folder_.path().string()});
  ASSERT_THAT(job.ranks, SizeIs(2));
  EXPECT_EQ(job.ranks[0].rank, 1);
  EXPECT_THAT(job.ranks[0].file, HasSubstr("rank_2.json"));
  EXPECT_EQ(job.ranks[0].device[0].begin_ns, 157'000);  // moved onto the clock of the others
  EXPECT_TRUE(job.shared_clock);
  EXPECT_THAT(job.notes, Contains(HasSubstr("notes.json skipped: not a trace")));
  EXPECT_THAT(job.notes, Contains(HasSubstr("Rank 1 has two files")));
  EXPECT_THAT(job.notes, Contains(HasSubstr("missing: 0, 2")));
}

TEST_F(KinetoReader, WithoutDistributedInfoTheNameOrThePlaceTellsTheRank) {
  const std::string bare = R"({"traceEvents": [)" + small_step() + "]}";
  const JobTrace job = read_job({write("b.json", bare), write("trace_rank3.json", bare), write("a.json", bare)});
  ASSERT_THAT(job.ranks, SizeIs(3));
  EXPECT_EQ(job.ranks[0].rank, 0);
  EXPECT_FALSE(job.ranks[0].rank_told);
  EXPECT_EQ(job.ranks[1].rank, 2);
  EXPECT_EQ(job.ranks[2].rank, 3);
  EXPECT_TRUE(job.ranks[2].rank_told);
  EXPECT_FALSE(job.shared_clock);
  EXPECT_THAT(job.notes, Contains(HasSubstr("each rank has its own")));
}

TEST_F(KinetoReader, OtherMachinesClocksAreNotShared) {
  std::string other = file_of(small_step(), "1");
  other.replace(other.find("\"host_name\": \"a\""), 16, "\"host_name\": \"b\"");
  EXPECT_FALSE(read_job({write("0.json", file_of(small_step())), write("1.json", other)}).shared_clock);
}

TEST_F(KinetoReader, OldFilesTimesAreUnixTimes) {
  const auto old = [](const std::string& begin) {
    return R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 1, "ts": )" + begin +
           R"(, "dur": 5}]})";
  };
  const JobTrace job =
      read_job({write("rank0.json", old("1658000000000000")), write("rank1.json", old("1658000000000003"))});
  EXPECT_TRUE(job.shared_clock);
  EXPECT_EQ(job.ranks[1].host[0].begin_ns - job.ranks[0].host[0].begin_ns, 3000);
}

TEST_F(KinetoReader, RowsComeInOrderHoweverTheFileHasThem) {
  const RankRows rows = read_one(file_of(small_step()));
  EXPECT_TRUE(std::ranges::is_sorted(rows.host, {}, &HostRow::begin_ns));
  EXPECT_TRUE(std::ranges::is_sorted(rows.device, {}, &DeviceRow::begin_ns));
  for (std::size_t i = 0; i < rows.host.size(); ++i) EXPECT_LT(rows.host[i].parent, static_cast<std::int32_t>(i));
}

TEST_F(KinetoReader, WhatOutlastsARowOrIsARangeOfACollectiveIsNotAroundIt) {
  const RankRows rows = read_one(
      file_of(event("cpu_op", "outer", 1, 0, 100) + ",\n" + event("cpu_op", "broken", 1, 10, 20) + ",\n" +
              event("cpu_op", "late", 1, 20, 30) + ",\n" + event("user_annotation", "nccl:all_reduce", 1, 60, 20) +
              ",\n" + event("cpu_op", "inner", 1, 65, 5)));
  ASSERT_THAT(rows.host, SizeIs(5));
  EXPECT_EQ(name_of(rows, rows.host[1].parent), "outer");
  EXPECT_EQ(name_of(rows, rows.host[2].parent), "outer");
  EXPECT_EQ(name_of(rows, rows.host[3].parent), "outer");
  EXPECT_EQ(name_of(rows, rows.host[4].parent), "outer");
}

TEST_F(KinetoReader, AnAllToAllWithoutFieldsIsReadFromTheRangeThatLaunchedIt) {
  // With record_function() around it and nothing else: no op of c10d, no record_param_comms, no sizes.
  const std::string kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
  const auto launched = [&](int correlation, double ts) {
    const std::string number = std::to_string(correlation);
    return event("cuda_runtime", "cudaLaunchKernelExC", 1, ts, 2, "\"correlation\": " + number) + ",\n" +
           event("kernel", kernel, 24, ts + 50, 10, R"("device": 0, "stream": 24, "correlation": )" + number);
  };
  const RankRows rows = read_one(
      file_of(event("user_annotation", "nccl:all_to_all", 1, 0, 10) + ",\n" + launched(1, 5) + ",\n" + launched(2, 12) +
              ",\n" + event("user_annotation", "nccl:all_to_all", 1, 100, 10) + ",\n" + launched(3, 104)));
  ASSERT_THAT(rows.device, SizeIs(3));
  std::vector<Communication> kinds;
  for (const DeviceRow& row : rows.device) {
    const CollectiveFacts& facts = rows.collectives.at(static_cast<std::size_t>(row.collective));
    kinds.push_back(facts.kind);
    EXPECT_EQ(facts.elements_in, -1);  // sizes are not made up
    EXPECT_EQ(facts.elements_out, -1);
  }
  EXPECT_THAT(kinds, ElementsAre(Communication::all_to_all, Communication::other, Communication::all_to_all));
}

TEST_F(KinetoReader, FilesOfOtherKindsAreRefusedWithAReason) {
  EXPECT_THAT(refusal({write("a.sqlite", std::string("SQLite format 3\0 and more", 25))}), HasSubstr("Nsight Systems"));
  EXPECT_THAT(refusal({write("a.zip", "PK\x03\x04")}), HasSubstr("zip archive"));
  EXPECT_THAT(refusal({write("memory.pickle", "\x80\x04\x95 and more")}), HasSubstr("a snapshot of PyTorch's memory"));
  EXPECT_THAT(refusal({write("memory.json", R"({"segments": [], "device_traces": []})")}),
              HasSubstr("is a snapshot of PyTorch's memory"));
  EXPECT_THAT(refusal({write("memory.html", "\n<!DOCTYPE html><script src=MemoryViz.js>")}),
              HasSubstr("shows a snapshot of PyTorch's memory"));
  EXPECT_THAT(refusal({write("page.html", "<html>")}), HasSubstr("is a page, no trace"));
  EXPECT_THAT(refusal({write("report.nsys-rep.gz", "any")}), HasSubstr("a report of Nsight Systems"));
  EXPECT_THAT(refusal({write("b.json", R"({"a": 1})")}), HasSubstr("no traceEvents list"));
  EXPECT_THAT(refusal({write("c.json", "what?")}), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal({write("d.json", R"({"traceEvents": []})")}), HasSubstr("no rows of a profiler"));
  EXPECT_THAT(refusal({write("e.json", "")}), HasSubstr("e.json"));
  EXPECT_THAT(refusal({folder_ / "missing.json"}), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal({}), HasSubstr("no trace is given"));
}

TEST_F(KinetoReader, AFolderMayHaveAFolderForEachRank) {
  const std::string bare = R"({"traceEvents": [)" + small_step() + "]}";
  for (const char* name : {"rank_10", "rank_2"}) {
    std::filesystem::create_directory(folder_.path() / name);
    write(std::string(name) + "/trace.json", bare);
  }
  const JobTrace job = read_job({folder_.path().string()});
  ASSERT_THAT(job.ranks, SizeIs(2));
  EXPECT_EQ(job.ranks[0].rank, 2);
  EXPECT_EQ(job.ranks[1].rank, 10);
  write("rank_2/other.json", bare);
  EXPECT_THAT(read_job({folder_.path().string()}).notes, Contains(HasSubstr("Rank 2 has two files")));
}

TEST_F(KinetoReader, AnEmptyFolderIsRefused) {
  EXPECT_THAT(refusal({folder_.path().string()}), HasSubstr("has no trace"));
}

/// A functional collective calls one of c10d's, directly or not. Were these two calls, each later range would be of the
/// call before its own.
TEST_F(KinetoReader, ACallWithinACallIsOne) {
  std::string events;
  for (int step = 0; step < 3; ++step) {
    const double at = step * 100;
    events += event("cpu_op", "_c10d_functional::all_reduce", 1, at, 50) + ",\n";
    if (step > 0) events += event("cpu_op", "between", 1, at + 1, 48) + ",\n";
    events += event("cpu_op", "c10d::allreduce_", 1, at + 2, 10) + ",\n" +
              event("user_annotation", "gloo:all_reduce", 2, at + 5, 30) + (step < 2 ? ",\n" : "");
  }
  const RankRows rows = read_one(file_of(events));
  ASSERT_THAT(rows.device, SizeIs(3));
  for (const DeviceRow& row : rows.device) {
    EXPECT_EQ(name_of(rows, row.launch), "c10d::allreduce_");
    EXPECT_EQ(row.begin_ns - rows.host.at(static_cast<std::size_t>(row.launch)).begin_ns, 3'000);
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
