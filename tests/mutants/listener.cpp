#include <gtest/gtest.h>
#include <sys/resource.h>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

// Processor time of this process and of those that it has waited for.
std::int64_t used_ms() {
  std::int64_t result = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& time : {used.ru_utime, used.ru_stime}) {
      result += time.tv_sec * 1000 + time.tv_usec / 1000;
    }
  }
  return result;
}

// Appends to $MUTANTS_TESTS a line per test: its name, whether it failed, milliseconds by the clock and of processors,
// and the mutants that it reached.
class ReachedMutants : public testing::EmptyTestEventListener {
  std::int64_t began_ms_ = 0;

  void OnTestStart(const testing::TestInfo&) override { began_ms_ = used_ms(); }

  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string path = std::getenv("MUTANTS_REACHED");
    std::ifstream file(path, std::ios::binary);
    const std::string reached((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::ofstream out(std::getenv("MUTANTS_TESTS"), std::ios::app);
    out << test.test_suite_name() << '.' << test.name() << ' ' << !test.result()->Passed() << ' '
        << test.result()->elapsed_time() << ' ' << used_ms() - began_ms_;
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
