// Traces of PyTorch's own profiler (tests/peer/profiled.py), against what its engines said they did.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "foreign/kineto_reader.h"
#include "foreign/recorded_jobs.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The collectives that a step's calls issued, in their order: "AG RS"; those that nothing issued are "?".
std::string issued_collectives(const RankRows& rows, const StepMark& step) {
  std::vector<std::pair<std::int64_t, std::string>> issued;
  for (const DeviceRow& row : rows.device) {
    if (row.kind != Activity::collective || row.begin_ns < step.begin_ns || row.begin_ns >= step.end_ns) continue;
    const Communication kind = rows.collectives.at(static_cast<std::size_t>(row.collective)).kind;
    const std::string word = kind == Communication::all_gather       ? "AG"
                             : kind == Communication::reduce_scatter ? "RS"
                             : kind == Communication::all_reduce     ? "AR"
                                                                     : "?";
    if (row.launch < 0) return "a collective without its call";
    issued.emplace_back(rows.host.at(static_cast<std::size_t>(row.launch)).begin_ns, word);
  }
  std::ranges::sort(issued);
  std::string text;
  for (const auto& [time, word] : issued) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// "AG0 AG1* RS1" without units and stars.
std::string kinds(const std::string& tokens) {
  std::istringstream words(tokens);
  std::string word, text;
  while (words >> word) text += (text.empty() ? "" : " ") + word.substr(0, 2);
  return text;
}

class Recorded : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Recorded, EveryCollectiveIsReadWithItsCall) {
  std::ifstream file(GetParam() / "truth.json");
  const nlohmann::json truth = nlohmann::json::parse(file);
  std::vector<std::string> traces;
  for (int rank = 0; rank < truth["ranks"].get<int>(); ++rank) {
    traces.push_back((GetParam() / ("rank_" + std::to_string(rank) + ".json.gz")).string());
  }
  const JobTrace job = read_job(traces);
  EXPECT_THAT(job.notes, IsEmpty());
  EXPECT_TRUE(job.shared_clock);
  ASSERT_THAT(job.ranks, SizeIs(truth["ranks"].get<std::size_t>()));
  for (const RankRows& rows : job.ranks) {
    EXPECT_THAT(rows.notes, IsEmpty());
    EXPECT_TRUE(rows.rank_told);
    ASSERT_THAT(rows.steps, SizeIs(truth["steps"].size()));
    EXPECT_EQ(rows.backend, "gloo");
    EXPECT_GT(std::ranges::count(rows.device, Activity::computation, &DeviceRow::kind), 50);
    for (std::size_t i = 0; i < rows.steps.size(); ++i) {
      const std::string expected = kinds(truth["steps"][i].get<std::string>());
      if (truth["preset"] == "ddp") {
        EXPECT_THAT(issued_collectives(rows, rows.steps[i]), ::testing::MatchesRegex("AR( AR)*"));
      } else {
        EXPECT_EQ(issued_collectives(rows, rows.steps[i]), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Recorded, ::testing::ValuesIn(recorded_jobs()), job_name);

}  // namespace
}  // namespace fsdpbench::foreign
