#include <gtest/gtest.h>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

// Appends to $MUTANTS_TESTS a line per test: its name, whether it failed, and the mutants that it reached.
class ReachedMutants : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string path = std::getenv("MUTANTS_REACHED");
    std::ifstream file(path, std::ios::binary);
    const std::string reached((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::ofstream out(std::getenv("MUTANTS_TESTS"), std::ios::app);
    out << test.test_suite_name() << '.' << test.name() << ' ' << !test.result()->Passed() << ' '
        << test.result()->elapsed_time();
    for (std::size_t mutant = 0; mutant < reached.size(); ++mutant) {
      if (reached[mutant] != 0) {
        out << ' ' << mutant;
      }
    }
    out << '\n';
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << std::string(reached.size(), '\0');
  }
};

[[maybe_unused]] const bool kListens = [] {
  if (std::getenv("MUTANTS_TESTS") != nullptr) {
    testing::UnitTest::GetInstance()->listeners().Append(new ReachedMutants);
  }
  return true;
}();

}  // namespace
