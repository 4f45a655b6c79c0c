#include "foreign/watch/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "foreign/watch/judge.h"
#include "foreign/watch/plain_pickle.h"

namespace fsdpbench::watch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;  // NOLINT: pickles have zeros in them

nlohmann::json parsed(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }
bool go_on() { return false; }

std::string step_line(int step, int rank) {
  return R"({"fsdpbench_step":)" + std::to_string(step) + R"(,"rank":)" + std::to_string(rank) +
         R"(,"ranks":2,"host":"a","ended_ns":)" + std::to_string(1'000'000'000'000'000'000 + step) + R"(,"step_ms":1})";
}

class SourcesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("watch_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text, bool append = false) const {
    std::ofstream(folder_ / name, append ? std::ios::app | std::ios::binary : std::ios::binary) << text;
  }
  std::string error_of(const std::string& name) const {
    JobView job;
    try {
      Sources({(folder_ / name).string()}, parsed).read(job, 0, true, go_on);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(SourcesTest, FilesAreReadAsTheyGrow) {
  Sources sources({folder_.string()}, parsed);
  JobView job;
  sources.read(job, 1, false, go_on);
  EXPECT_EQ(sources.files(), 0);
  write("steps_0.jsonl", step_line(1, 0) + "\n" + step_line(2, 0).substr(0, 20));
  sources.read(job, 2, false, go_on);
  EXPECT_EQ(job.ranks.at(0).steps.size(), 1U);
  write("steps_0.jsonl", step_line(2, 0).substr(20) + "\n", true);
  write("steps_1.jsonl", step_line(1, 1) + "\n");
  sources.read(job, 3, false, go_on);
  EXPECT_EQ(job.ranks.at(0).steps.size(), 2U);
  EXPECT_EQ(job.ranks.at(1).steps.size(), 1U);
  EXPECT_TRUE(job.notes.empty());
}

TEST_F(SourcesTest, ADumpThatIsHalfWrittenIsReadOnceItIsWhole) {
  const std::string dump =
      R"({"pg_config":{},"entries":[],"fsdpbench":{"rank":3,"ranks":4,"host":"a","written_ns":5000000000}})";
  Sources sources({folder_.string()}, parsed);
  JobView job;
  write("dump_3", dump.substr(0, 30));
  sources.read(job, 1, false, go_on);
  EXPECT_TRUE(job.ranks.empty());
  write("dump_3", dump);
  sources.read(job, 2, false, go_on);
  EXPECT_EQ(job.ranks.at(3).heard.newest_ns(), 5'000'000'000);
}

TEST_F(SourcesTest, LinesThatAreNoneAreCountedAndLeftOut) {
  write("steps.jsonl", step_line(1, 0) + "\n{\"a\":\n[]\n" + step_line(2, 0));
  JobView job;
  Sources({folder_.string()}, parsed).read(job, 0, true, go_on);
  EXPECT_EQ(job.ranks.at(0).steps.size(), 2U);
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("2 of 4 lines are left out; the first, line 2, is no JSON.")));
}

/// As NCCL prints it, over several lines.
std::string ras_answer(int second, int count) {
  return "{\n  \"nccl_version\": \"2.29.1\",\n  \"timestamp\": \"2025-12-19 13:06:" + std::to_string(second) +
         "\",\n  \"communicators_count\": 1,\n  \"communicators\": [\n    {\n      \"hash\": \"0xa\",\n      \"size\": "
         "1,\n"
         "      \"ranks\": [\n        {\n          \"rank\": 0,\n          \"host\": \"a}\\\"{\",\n          "
         "\"status\": {},\n"
         "          \"collective_counts\": {\"AllReduce\": " +
         std::to_string(count) + "}\n        }\n      ],\n      \"missing_ranks\": [\n\n      ]\n    }\n  ]\n}\n";
}

TEST_F(SourcesTest, AnswersOfRasFollowOneAnother) {
  Sources sources({folder_.string()}, parsed);
  JobView job;
  const std::string third = ras_answer(30, 9);
  write("ras.json",
        ras_answer(10, 7) + ras_answer(20, 8).substr(0, 100) + "\n" + ras_answer(25, 8) + third.substr(0, 50));
  sources.read(job, 1, false, go_on);
  ASSERT_EQ(job.communicators.size(), 1U);
  EXPECT_EQ(job.communicators.begin()->second.members.at(0).handed.count, 8);
  EXPECT_EQ(job.communicators.begin()->second.looks, 2);
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("1 of 3 answers are left out; the first, answer 2, is no JSON.")));
  write("ras.json", third.substr(50), true);
  sources.read(job, 2, false, go_on);
  EXPECT_EQ(job.communicators.begin()->second.members.at(0).handed.count, 9);
  EXPECT_EQ(job.communicators.begin()->second.looks, 3);
}

TEST_F(SourcesTest, OtherFilesAreAnError) {
  EXPECT_THAT(error_of("missing"), HasSubstr("there is no such file"));
  EXPECT_THAT(error_of(""), HasSubstr("has no files"));
  write("text", "hello\n");
  EXPECT_THAT(error_of("text"), HasSubstr("is neither JSON nor a pickle"));
  write("object", "{}");
  EXPECT_THAT(error_of("object"), HasSubstr("no dump of a flight recorder"));
  write("code_0", "\x80\x02\x63os\nsystem\n(X\x02\0\0\0lstR."s);
  EXPECT_THAT(error_of("code_0"), HasSubstr("nothing of it is run"));
  EXPECT_THAT(error_of(""), HasSubstr("code_0"));  // a folder of which nothing can be used
  write("dump", R"({"pg_config":{},"entries":[]})");
  EXPECT_THAT(error_of("dump"), HasSubstr("does not tell its rank"));
  write("large_0", "{");
  fs::resize_file(folder_ / "large_0", std::uintmax_t{65} << 20);
  EXPECT_THAT(error_of("large_0"), HasSubstr("at most"));
}

TEST_F(SourcesTest, PicklesThatPyTorchWroteNameTheRankThatDidNotCome) {
  JobView job;
  Sources sources({std::string(FSDPBENCH_WATCH_RECORDED) + "/native"}, parsed);
  sources.read(job, 0, true, go_on);
  EXPECT_EQ(sources.files(), 4);
  const Judgement judged = judge(job, job.newest_ns(), {.stopped = true});
  EXPECT_EQ(judged.verdict, Verdict::hang);
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(2));
  EXPECT_EQ(judged.all.at(0).sequence, 35);
  EXPECT_EQ(judge(job, job.newest_ns()).verdict, Verdict::unknown);
}

TEST_F(SourcesTest, DamagedFilesAreNoCrash) {
  std::mt19937 luck(1);
  const auto bytes_of = [](const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::vector<std::string> whole;
  for (const int rank : {0, 2}) {
    whole.push_back(bytes_of(fs::path(FSDPBENCH_WATCH_RECORDED) / ("native/nccl_trace_rank_" + std::to_string(rank))));
  }
  whole.push_back(ras_answer(10, 7) + ras_answer(20, 8));
  std::string why;
  whole.push_back(read_plain_pickle(whole[0], why)->dump());
  whole.push_back(step_line(1, 0) + "\n" + step_line(2, 0) + "\n");
  for (int round = 0; round < 1000; ++round) {
    std::string text = whole[static_cast<std::size_t>(round) % whole.size()];
    for (int damage = 0; damage < 1 + round % 4; ++damage) {
      const std::size_t at = luck() % text.size();
      if (luck() % 4 == 0)
        text.erase(at, 1 + luck() % 40);
      else if (luck() % 3 == 0)
        text.insert(at, text.substr(luck() % text.size(), luck() % 40));
      else
        text[at] = static_cast<char>(luck());
      if (text.empty()) text = "x";
    }
    write("dump_1", text);
    JobView job;
    Sources sources({(folder_ / "dump_1").string()}, parsed);
    sources.read(job, 1, false, go_on);
    (void)judge(job, job.newest_ns(), {.stopped = round % 2 == 0});
  }
}

}  // namespace
}  // namespace fsdpbench::watch
