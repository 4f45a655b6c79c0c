// corpus_files FOLDER [CASE…]: the corpus as files, a folder a case with rank_N.json and truth.txt, to look at or to
// give to other tools.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "foreign/corpus.h"

int main(int count, char** arguments) {
  using namespace fsdpbench;
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.empty()) {
    fmt::print(stderr, "corpus_files FOLDER [CASE…]\n");
    return 2;
  }
  for (const foreign::corpus::CaseSpec& spec : foreign::corpus::all_cases()) {
    if (given.size() > 1 && std::find(given.begin() + 1, given.end(), spec.name) == given.end()) continue;
    std::string name = spec.name;
    std::ranges::replace(name, ' ', '-');
    const foreign::corpus::Case made = foreign::corpus::make_case(spec);
    const std::filesystem::path folder = std::filesystem::path(given[0]) / name;
    std::filesystem::create_directories(folder);
    std::ofstream truth(folder / "truth.txt");
    truth << spec.system << "\n";
    if (made.run != nullptr) {
      const account::CauseReport causes = true_causes(made);
      for (const account::CauseShare& cause : causes.causes) {
        truth << fmt::format("cause {} {:.1f} % of the step\n", account::to_string(cause.cause), cause.share_pct);
      }
    }
    for (const foreign::corpus::CaseFile& file : made.files) {
      std::ofstream(folder / fmt::format("rank_{}.json", file.rank)) << file.json;
      for (const foreign::corpus::CollectiveTruth& c : file.collectives) {
        truth << fmt::format("rank {} step {} {} {}: {} of unit {}{}\n", file.rank, c.step, c.begin_ns,
                             schedule::to_string(c.phase), schedule::to_string(c.kind), c.unit, c.prefetch ? "*" : "");
      }
    }
    fmt::print("{}\n", spec.name);
  }
}
