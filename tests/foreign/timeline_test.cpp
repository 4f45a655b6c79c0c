// The timeline of somebody else's job: whole, by the rules of traces, and with the explanation's own numbers in it.
#include "foreign/timeline.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "foreign/evidence.h"
#include "foreign/kineto_reader.h"
#include "foreign/recorded_jobs.h"
#include "support/temporary_folder.h"
#include "trace/validate.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Explained {
  JobTrace job;
  Recognition found;
  Explanation explanation;

  explicit Explained(const std::filesystem::path& folder) : job(read_job({folder.string()})), found(recognise(job)) {
    explanation = explain(job, found);
    account::advise(explanation.causes, evidence_of(job, found, explanation));
  }
  std::string timeline() const {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    write_timeline(path, job, found, explanation);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

std::int64_t ns(const nlohmann::json& us) { return std::llround(us.get<double>() * 1000); }

std::filesystem::path recorded(const std::string& name) {
  for (const auto& path : recorded_jobs()) {
    if (path.filename() == name) return path;
  }
  throw std::runtime_error("no recorded job " + name);
}

class Timeline : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Timeline, KeepsToTheRulesAndHasTheExplanationsNumbers) {
  const Explained one(GetParam());
  const std::string text = one.timeline();
  std::istringstream in(text);
  const trace::Validation validation = trace::validate(in);
  EXPECT_TRUE(validation.ok()) << validation.findings.list().front().message;

  std::map<std::pair<int, std::string>, std::int64_t> exposed;  // by process and cause
  std::map<int, std::size_t> device_rows;
  const nlohmann::json trace = nlohmann::json::parse(text);
  for (const nlohmann::json& event : trace["traceEvents"]) {
    const std::string category = event.value("cat", "");
    const int pid = event["pid"].get<int>();
    if (category == "exposed") {
      exposed[{pid, event["name"].get<std::string>()}] += ns(event["dur"]);
      EXPECT_FALSE(event["args"]["advice"].get<std::string>().empty());
    }
    device_rows[pid] += category == "computation" || category == "communication" || category == "copy";
  }
  for (std::size_t r = 0; r < one.job.ranks.size(); ++r) {
    const int pid = static_cast<int>(r) + 1;
    EXPECT_EQ(device_rows[pid], one.job.ranks[r].device.size());
    CauseTimes sums;
    for (const account::Cause cause : kEnumerators<account::Cause>) {
      for (const ExplainedStep& step : one.explanation.ranks[r].steps) sums[cause] += step.causes[cause];
      const auto at = exposed.find({pid, std::string(to_string(cause))});
      EXPECT_EQ(at == exposed.end() ? 0 : at->second, sums[cause]) << to_string(cause);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Timeline, ::testing::ValuesIn(recorded_jobs()), job_name);

TEST(TimelineOfAJob, NamesCollectivesByTheirUnitAndLanesByWhatTheyDo) {
  const std::string text = Explained(recorded("fsdp2")).timeline();
  for (const char* part : {R"("name":"all_gather blocks.0*")", R"("name":"compute")", R"("phase":"backward")"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(TimelineOfAJob, PutsAllRanksOnTheFirstRanksClock) {
  Explained one(recorded("fsdp1"));
  const auto second_step = [&] {
    std::map<int, std::int64_t> begin;
    const nlohmann::json trace = nlohmann::json::parse(one.timeline());
    for (const nlohmann::json& event : trace["traceEvents"]) {
      if (event.value("cat", "") == "step") begin.try_emplace(event["pid"].get<int>(), ns(event["ts"]));
    }
    return begin[2] - begin[1];
  };
  const std::int64_t before = second_step();
  one.explanation.ranks[1].clock_offset_ns += 5000;
  EXPECT_EQ(second_step(), before + 5000);
}

TEST(TimelineOfAJob, OfManyRanksShowsThoseThatMatter) {
  Explanation explained;
  for (int rank = 0; rank < 40; ++rank) {
    ExplainedStep step;
    step.parts.step = rank == 30 ? 200 : 100;
    explained.ranks.push_back({.rank = rank,
                               .steps = {step},
                               .overlap_pct = {},
                               .most_allocated = {},
                               .most_reserved = {},
                               .clock_offset_ns = 0});
  }
  explained.late_rank = 35;
  EXPECT_THAT(shown_ranks(explained), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 30, 35));
  explained.ranks.resize(3);
  explained.late_rank = 2;
  EXPECT_THAT(shown_ranks(explained), ElementsAre(0, 1, 2));
}

TEST(TimelineOfAJob, AFileThatCannotBeWrittenIsNamed) {
  const Explained one(recorded("alone"));
  try {
    write_timeline("/nowhere/trace.json", one.job, one.found, one.explanation);
    FAIL();
  } catch (const OutputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/trace.json"));
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
