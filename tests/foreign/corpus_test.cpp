// The reader gives back what the corpus wrote.
#include "foreign/corpus.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>
#include <string>

#include "foreign/kineto_reader.h"
#include "support/temporary_folder.h"
#include "trace/validate.h"

namespace fsdpbench::foreign {
namespace {

Communication communication(schedule::OpKind kind) {
  switch (kind) {
    case schedule::OpKind::reduce_scatter: return Communication::reduce_scatter;
    case schedule::OpKind::all_reduce: return Communication::all_reduce;
    case schedule::OpKind::expert_counts:
    case schedule::OpKind::expert_dispatch:
    case schedule::OpKind::expert_combine: return Communication::all_to_all;
    default: return Communication::all_gather;
  }
}

class Corpus : public ::testing::TestWithParam<corpus::CaseSpec> {};

/// Whether it keeps to the rules of traces, as damaged and shuffled files do not.
bool keeps_to_rules(const corpus::CaseSpec& spec) {
  return !spec.faults.shuffled && spec.faults.cut_off == 0 && !spec.dialect.sync_rows && spec.config.mesh.ranks <= 4;
}

TEST_P(Corpus, KeepsToTheRulesOfTracesAndIsReadAsItWasWritten) {
  const corpus::Case made = corpus::make_case(GetParam());
  if (keeps_to_rules(made.spec)) {  // every rule that PyTorch's tools need
    std::istringstream in(made.files.front().json);
    const trace::Validation validation = trace::validate(in);
    EXPECT_TRUE(validation.ok()) << validation.findings.list().front().message;
  }
  const TemporaryFolder folder;
  for (const corpus::CaseFile& file : made.files) folder.write("rank" + std::to_string(file.rank) + ".json", file.json);
  const JobTrace job = read_job({folder.path().string()});
  ASSERT_EQ(job.ranks.size(), made.files.size());
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankRows& rows = job.ranks[i];
    EXPECT_EQ(rows.rank, made.files[i].rank);
    if (made.spec.faults.cut_off > 0) continue;
    for (const std::string& note : rows.notes) ADD_FAILURE() << note;
    std::vector<const DeviceRow*> collectives;
    for (const DeviceRow& row : rows.device) {
      if (row.kind == Activity::collective) collectives.push_back(&row);
    }
    std::ranges::sort(collectives, {},
                      [&](const DeviceRow* row) { return std::pair(row->begin_ns, rows.streams[row->stream].id); });
    if (made.run == nullptr) continue;  // of these programs it is not told what each collective was
    ASSERT_EQ(collectives.size(), made.files[i].collectives.size());
    for (std::size_t k = 0; k < collectives.size(); ++k) {
      EXPECT_EQ(collectives[k]->begin_ns, made.files[i].collectives[k].begin_ns);
      const CollectiveFacts& facts = rows.collectives.at(static_cast<std::size_t>(collectives[k]->collective));
      EXPECT_EQ(facts.kind, communication(made.files[i].collectives[k].kind));
    }
  }
}

TEST(CorpusCases, IsLargeAndItsNamesDiffer) {
  std::set<std::string> names;
  for (const corpus::CaseSpec& spec : corpus::all_cases()) names.insert(spec.name);
  EXPECT_GE(names.size(), 100U);
  EXPECT_EQ(names.size(), corpus::all_cases().size());
  EXPECT_GT(std::ranges::count_if(corpus::all_cases(), keeps_to_rules), 60);
}

TEST(CorpusCases, TheSameCaseIsWrittenTheSame) {
  const corpus::CaseSpec spec = corpus::all_cases().front();
  EXPECT_EQ(corpus::make_case(spec).files.at(1).json, corpus::make_case(spec).files.at(1).json);
}

INSTANTIATE_TEST_SUITE_P(Cases, Corpus, ::testing::ValuesIn(corpus::all_cases()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace fsdpbench::foreign
