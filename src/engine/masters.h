#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/buffer_table.h"
#include "engine/trouble.h"
#include "model/initialize.h"
#include "plan/plan.h"

namespace fsdpbench::engine {

/// Gets elements [begin, begin + values.size()) of parameter `parameter` (canonical index).
using TakeParameter = std::function<void(int parameter, std::int64_t begin, std::span<const float> values)>;

/// The way of one rank's fp32 masters from the host onto the device and back. They travel in pieces, so what the host
/// holds of them does not grow with the model; but of parameters that ranks split rank 0 holds one.
class Masters {
 public:
  /// Largest size of a piece.
  static constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
  static constexpr std::int64_t kPieceNumel = kPieceBytes / static_cast<std::int64_t>(sizeof(float));
  /// Host memory that initialize() needs, and collect() on rank 0.
  static std::int64_t staging_bytes(const plan::Plan& plan);
  /// Device memory that collect() needs beside the persistent buffers, as the pool rounds it.
  static std::int64_t collection_bytes(const plan::Plan& plan);

  /// Host memory that collect() needs on rank 0 for a parameter that ranks split, beside what it takes in pieces.
  static std::int64_t whole_bytes(const plan::Plan& plan);

  /// All must outlive this object.
  Masters(backend::RankContext& context, const plan::Plan& plan, const BufferTable& buffers,
          Communicators& communicators)
      : context_(context), plan_(plan), buffers_(buffers), communicators_(communicators) {}

  /// Sets this rank's masters to what `fill` says, on up to `threads` threads at once; padding and moments become zero.
  /// The device must be one that computes. Throws what `fill` throws.
  void initialize(const model::FillParameter& fill, int threads);

  /// Shows all of this rank's state, masters and moments with their padding, piece by piece in an order that the plan
  /// decides. What was issued before is waited for.
  void download(const std::function<void(std::span<const float>)>& take) const;
  /// Sets it to what `give` writes into the pieces, in the same order. Throws what `give` throws.
  void upload(const std::function<void(std::span<float>)>& give);

  /// Shows rank 0 all masters in canonical order: every parameter from its first element to its last, piece by piece,
  /// on the calling thread. `take` is not called on other ranks, but all must call collect().
  void collect(const TakeParameter& take);

 private:
  void load(schedule::BufferRole role, int unit, const std::vector<plan::ShardPiece>& pieces, std::span<float> staging,
            const model::FillParameter& fill, int threads);
  /// Casts the masters to the shards that gathers read instead of them (fsdp.cpu_offload, fsdp.cast_in_optimizer), and
  /// waits for all that was issued.
  void cast_device_shards();

  backend::RankContext& context_;
  const plan::Plan& plan_;
  const BufferTable& buffers_;
  Communicators& communicators_;
};

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
  /// Number of added values that are NaN or infinite.
  std::int64_t not_finite() const;
  static constexpr int kText = 32;  ///< characters of a digest: hexadecimal digits
  /// The digest of all that was added.
  std::string bits() const;
  /// The same, absent if any of it is not finite: runs that have nothing in common but that they diverged would have
  /// one digest.
  std::optional<std::string> text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fsdpbench::engine
