// Our caching allocator against PyTorch's own, request by request. The lines are allocator.py's; the beginning of
// allocator_stand_in.cpp says what they mean.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "clock/caching_allocator.h"

namespace fsdpbench::clock {
namespace {

class Requests {
 public:
  /// The request of one line; what the allocator counts after it, as the recorder writes it.
  /// `expandable`: of a segment that grows.
  std::string answer(std::istringstream& words, bool expandable) {
    const std::int64_t failures = allocator_.statistics().failures;
    std::string verb;
    words >> verb;
    if (verb == "capacity") {
      std::int64_t capacity = 0;
      words >> capacity;
      allocator_ = CachingAllocator(capacity, expandable);
      blocks_.clear();
      return "";
    }
    int id = 0, stream = 0;
    words >> id;
    if (verb == "+") {
      std::int64_t bytes = 0, now = 0;
      words >> stream >> bytes >> now;
      blocks_[id] = allocator_.allocate(bytes, static_cast<Lane>(stream), static_cast<double>(now));
    } else if (verb == "~") {
      double passed = 0;
      words >> stream >> passed;
      allocator_.free_after(blocks_.at(id), passed);
    } else {
      allocator_.free(blocks_.at(id));
    }
    const CachingAllocator::Statistics& s = allocator_.statistics();
    if (s.failures > failures) return "out of memory";
    std::ostringstream text;
    text << s.allocated << ' ' << s.reserved << ' ' << s.peak_allocated << ' ' << s.peak_reserved << ' ' << s.retries;
    return text.str();
  }

 private:
  CachingAllocator allocator_;
  std::map<int, CachingAllocator::BlockId> blocks_;
};

TEST(AllocatorPeer, CountsAfterEachRequestAreThoseOfPyTorch) {
  for (const auto& entry : std::filesystem::directory_iterator(FSDPBENCH_PEER_DIR "/recorded")) {
    if (!entry.path().filename().string().starts_with("allocator-")) continue;
    std::ifstream file(entry.path());
    Requests requests;
    std::string name;
    std::map<std::string, int> seen;  // by verb, and what decides
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("case ")) {
        name = line;
        continue;
      }
      const std::size_t equals = line.find(" = ");
      const std::string theirs = equals == std::string::npos ? "" : line.substr(equals + 3);
      std::istringstream words(line.substr(0, equals));
      ASSERT_EQ(requests.answer(words, name.ends_with(" expandable")), theirs) << name << ": " << line;
      ++seen[line.substr(0, line.find(' '))];
      if (theirs == "out of memory") {
        ++seen[theirs];
      } else if (!theirs.empty() && !theirs.ends_with(" 0")) {
        ++seen["after a retry"];
      }
    }
    EXPECT_EQ(seen["capacity"], 16);
    EXPECT_GT(seen["+"], 500);
    EXPECT_GT(seen["-"], 500);
    EXPECT_GT(seen["~"], 50);
    EXPECT_GT(seen["after a retry"], 50);
    EXPECT_GT(seen["out of memory"], 0);
    return;
  }
  FAIL() << "no recorded/allocator-VERSION.txt";
}

}  // namespace
}  // namespace fsdpbench::clock
