#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::foreign::corpus {

/// A file of torch.profiler's, written as kineto writes it: key by key on lines of their own, flows behind what they
/// begin at. Times are nanoseconds of one clock that all files share.
class KinetoText {
 public:
  struct Group {
    std::string name, description;
    std::vector<int> ranks;
  };
  struct Facts {
    int rank = 0, world = 1;
    std::string backend = "nccl";  ///< "": a program that is not distributed, without distributedInfo
    std::string device_model;
    std::vector<Group> groups;
    std::int64_t base_ns = 1'790'857'026'000'000'000;  ///< 0: written as by a PyTorch that did not tell it
    std::string host = "node-0";
  };

  explicit KinetoText(Facts facts) : facts_(std::move(facts)) {}

  /// `args`: inner text of the object, "" for none.
  void slice(std::string_view category, std::string_view name, std::int64_t pid, std::int64_t tid,
             std::int64_t begin_ns, std::int64_t end_ns, std::string_view args = {});
  /// From a launch to what it launched: "ac2g".
  void arrow(std::int64_t id, std::int64_t pid, std::int64_t tid, std::int64_t begin_ns, std::int64_t device,
             std::int64_t stream, std::int64_t end_ns);
  void instant(std::string_view category, std::string_view name, std::int64_t pid, std::int64_t tid,
               std::int64_t time_ns, std::string_view args);
  void name_process(std::int64_t pid, std::string_view name);

  /// Events in another order than they were told.
  void shuffle(std::uint64_t seed);
  std::string text() const;

 private:
  Facts facts_;
  std::vector<std::string> events_;
};

/// Quoted and escaped.
std::string quoted(std::string_view text);

}  // namespace fsdpbench::foreign::corpus
