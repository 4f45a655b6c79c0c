#pragma once

#include <memory>
#include <span>
#include <string>

namespace fsdpbench::engine {

/// XXH3-128 over all parameters in canonical order: equal exactly if every bit of every parameter is (up to hash
/// collisions), whatever the sharding, and in whatever pieces they come.
class ParametersDigest {
 public:
  ParametersDigest();
  ~ParametersDigest();
  ParametersDigest(const ParametersDigest&) = delete;
  ParametersDigest& operator=(const ParametersDigest&) = delete;

  /// The next elements.
  void add(std::span<const float> values);
  /// Of all that was added, as 32 hex digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fsdpbench::engine
