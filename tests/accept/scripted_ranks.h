#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "accept/collectives/collective_row.h"
#include "backend/backend.h"
#include "backend/kernels.h"
#include "launch/run_ranks.h"

/// Ranks whose devices and communicators do at once what they are asked for, write it down, and stamp it with the times
/// that a test gives: what measures on them has exact results.
namespace fsdpbench::testing {

/// Kernels that fill, copy and tell of products and casts.
class ScriptedKernels : public backend::Kernels {
 public:
  explicit ScriptedKernels(std::function<void(std::string)> say, std::function<std::string(const void*)> where)
      : say_(std::move(say)), where_(std::move(where)) {}

  void gemm(const backend::Gemm& g) override {
    say_(fmt::format("  {} = {} x {}, {} x {} x {}, {} to {}", where_(g.c), where_(g.a), where_(g.b), g.m, g.n, g.k,
                     app::type_name(g.input_dtype), app::type_name(g.output_dtype)));
  }
  void cast(const backend::ConstElements& source, const backend::Elements& target, std::int64_t count,
            float factor) override {
    say_(fmt::format("  {} = {} x {}, {} elements", where_(target.memory), factor, where_(source.memory), count));
  }
  void fill_zero(std::byte* target, std::int64_t bytes) override {
    say_(fmt::format("  {} = 0, {} B", where_(target), bytes));
    std::memset(target, 0, static_cast<std::size_t>(bytes));
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override {
    say_(fmt::format("  {} = host, {} B", where_(target), bytes));
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
    uploads.emplace_back(static_cast<const char*>(source), static_cast<std::size_t>(bytes));
  }
  void download(const std::byte* source, void* target, std::int64_t bytes) override {
    say_(fmt::format("  host = {}, {} B", where_(source), bytes));
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
  }

  std::vector<std::string> uploads;  ///< bytes that came from the host

  void rms_norm(const backend::RmsNormCall&) override {}
  void rms_norm_backward(const backend::RmsNormBackwardCall&) override {}
  void rotary(const backend::AttentionShape&, std::byte*, std::byte*, float, bool) override {}
  void attention(const backend::AttentionCall&) override {}
  void attention_backward(const backend::AttentionBackwardCall&) override {}
  void swiglu(const backend::SwigluCall&) override {}
  void swiglu_backward(const backend::SwigluBackwardCall&) override {}
  void embedding(const backend::EmbeddingCall&) override {}
  void embedding_backward(const backend::EmbeddingBackwardCall&) override {}
  void cross_entropy(const backend::CrossEntropyCall&) override {}
  void cross_entropy_terms(const backend::CrossEntropyCall&, float*) override {}
  void cross_entropy_of_terms(const backend::CrossEntropyCall&, const float*, int) override {}
  void mean_squared_error(const backend::MeanSquaredErrorCall&) override {}
  void add_bias(const backend::RowShape&, std::byte*, const std::byte*) override {}
  void bias_backward(const backend::RowShape&, const std::byte*, const backend::Elements&) override {}
  void relu(const std::byte*, std::byte*, std::int64_t, DType) override {}
  void relu_backward(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void add(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void accumulate(const backend::ConstElements&, float*, std::int64_t, float) override {}
  void copy_runs(const backend::ConstElements&, const backend::Elements&, std::span<const backend::CopyRun>) override {}
  void sum_of_squares(const backend::ConstElements&, std::int64_t, double, double*, bool) override {}
  void clip_factor(const double*, std::int64_t, double, float*) override {}
  void sgd(const backend::ParameterUpdate&, const backend::SgdStep&) override {}
  void adamw(const backend::ParameterUpdate&, const backend::AdamWStep&) override {}
  void delay(std::int64_t) override {}

 private:
  std::function<void(std::string)> say_;
  std::function<std::string(const void*)> where_;
};

class ScriptedDevice : public backend::Device {
 public:
  /// Microseconds of the next op of this name that is stamped: "gemm"; of a collective of some of a team's ranks these
  /// follow, "broadcast 2 5".
  std::function<std::int64_t(const std::string& name)> takes_us = [](const std::string&) { return 1; };
  bool is_emulated = false;
  backend::Facts told;
  std::vector<std::string> log;
  std::vector<std::string> uploads;  ///< bytes that came from the host, by op

  void enqueue(Lane lane, const char* name, Task task, backend::Stamp* stamp) override {
    log.push_back(fmt::format("{} {}{}", to_string(lane), name, stamp == nullptr ? "" : ", timed"));
    ScriptedKernels kernels([this](std::string text) { log.push_back(std::move(text)); },
                            [this](const void* at) { return where(at); });
    task(kernels);
    uploads.insert(uploads.end(), kernels.uploads.begin(), kernels.uploads.end());
    time(lane, name, stamp);
  }
  void record(Event event, Lane lane) override { log.push_back(fmt::format("{} records {}", to_string(lane), event)); }
  void wait(Lane lane, Event event) override {
    log.push_back(fmt::format("{} waits for {}", to_string(lane), event));
    clock_ns(lane) = latest_ns();
  }
  void host_wait(Event event) override { log.push_back(fmt::format("host waits for {}", event)); }
  void synchronize() override {
    log.emplace_back("synchronize");
    lanes_.fill(latest_ns());
  }
  std::byte* allocate(std::int64_t bytes, MemoryCategory category, Lane lane) override {
    log.push_back(fmt::format("{} of {} B for {}", to_string(lane), bytes, to_string(category)));
    blocks_.emplace_back(static_cast<std::size_t>(bytes));
    return blocks_.back().data();
  }
  void free(std::byte* memory, Lane lane) override {
    log.push_back(fmt::format("{} frees {}", to_string(lane), where(memory)));
  }
  const PoolStatistics& memory() const override { return statistics_; }
  void reset_memory_peaks() override {}
  void settle_stamps() override {
    log.emplace_back("settle");
    for (const auto& [stamp, times] : stamps_) *stamp = times;
    stamps_.clear();
  }
  backend::Facts facts() const override { return told; }
  bool computes() const override { return !is_emulated; }

  /// An op of a lane, which begins where the one before it ended.
  void time(Lane lane, const std::string& name, backend::Stamp* stamp) {
    if (stamp == nullptr) return;
    const std::int64_t begin_ns = clock_ns(lane);
    clock_ns(lane) += 1000 * takes_us(name);
    stamps_.push_back({stamp, {.begin_ns = begin_ns, .end_ns = clock_ns(lane)}});
  }
  /// "block 1 + 4096"
  std::string where(const void* at) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto* const first = blocks_[i].data();
      const auto* const byte = static_cast<const std::byte*>(at);
      if (std::less_equal<>()(first, byte) && std::less_equal<>()(byte, first + blocks_[i].size())) {
        return byte == first ? fmt::format("block {}", i) : fmt::format("block {} + {}", i, byte - first);
      }
    }
    return "elsewhere";
  }

 private:
  std::int64_t& clock_ns(Lane lane) { return lanes_[index_of(lane)]; }
  std::int64_t latest_ns() const { return *std::ranges::max_element(lanes_); }

  std::array<std::int64_t, kLaneCount> lanes_{};
  std::vector<std::pair<backend::Stamp*, backend::Stamp>> stamps_;
  std::vector<std::vector<std::byte>> blocks_;
  PoolStatistics statistics_;
};

/// The meeting of some ranks that are threads.
struct ScriptedTeam {
  explicit ScriptedTeam(int ranks) : door(ranks), asked(static_cast<std::size_t>(ranks)) {}
  std::barrier<> door;
  std::mutex mutex;
  std::vector<std::pair<int, int>> asked;  ///< color and key of each
  std::map<int, std::shared_ptr<ScriptedTeam>> parts;
};

/// Moves no bytes.
class ScriptedWorld : public backend::Communicator {
 public:
  /// `team`: none if the other ranks are imagined.
  ScriptedWorld(ScriptedDevice& device, std::string name, int rank, int size, std::shared_ptr<ScriptedTeam> team = {},
                std::string members = {})
      : device_(device),
        name_(std::move(name)),
        members_(std::move(members)),
        rank_(rank),
        size_(size),
        team_(std::move(team)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void enqueue(Lane lane, const backend::CollectiveCall& call, backend::Stamp* stamp) override {
    device_.log.push_back(
        fmt::format("{}: {} on {}, {} x {}, {} to {}{}{}{}", name_, to_string(call.kind), to_string(lane), call.count,
                    app::type_name(call.dtype), device_.where(call.input), device_.where(call.output),
                    call.scale == 1 ? "" : fmt::format(", times {}", call.scale),
                    call.root == 0 ? "" : fmt::format(", root {}", call.root), stamp == nullptr ? "" : ", timed"));
    device_.time(lane, std::string(to_string(call.kind)) + members_, stamp);
  }
  void barrier() override {
    device_.log.push_back(name_ + ": barrier");
    meet();
  }
  std::unique_ptr<backend::Communicator> split(int color, int key) override {
    device_.log.push_back(fmt::format("{}: split {} by {}", name_, color, key));
    const std::string name = fmt::format("part {}", color);
    if (!team_) return std::make_unique<ScriptedWorld>(device_, name, rank_, size_);
    team_->asked[static_cast<std::size_t>(rank_)] = {color, key};
    meet();
    int before = 0, count = 0;
    std::string members;
    for (std::size_t other = 0; other < team_->asked.size(); ++other) {
      if (team_->asked[other].first != color) continue;
      ++count;
      members += fmt::format(" {}", other);
      before += team_->asked[other].second < key ? 1 : 0;
    }
    std::shared_ptr<ScriptedTeam> part;
    {
      const std::lock_guard lock(team_->mutex);
      std::shared_ptr<ScriptedTeam>& there = team_->parts[color];
      if (!there) there = std::make_shared<ScriptedTeam>(count);
      part = there;
    }
    meet();
    {
      const std::lock_guard lock(team_->mutex);
      team_->parts.clear();
    }
    meet();
    return std::make_unique<ScriptedWorld>(device_, name, before, count, std::move(part), members);
  }
  const backend::WireBytes& wire_bytes() const override { return wire_bytes_; }

 private:
  void meet() {
    if (team_) team_->door.arrive_and_wait();
  }

  ScriptedDevice& device_;
  const std::string name_, members_;
  const int rank_, size_;
  const std::shared_ptr<ScriptedTeam> team_;
  backend::WireBytes wire_bytes_{};
};

/// Calls `body` on a thread for each of `ranks` ranks, with its device, which has a script of its own.
inline void on_scripted_ranks(int ranks, const std::function<void(backend::RankContext&, ScriptedDevice&)>& body) {
  const auto team = std::make_shared<ScriptedTeam>(ranks);
  launch::run_ranks(ranks, [&](int rank) {
    ScriptedDevice device;
    ScriptedWorld world(device, "world", rank, ranks, team);
    backend::RankContext context{rank, device, world};
    body(context, device);
  });
}

}  // namespace fsdpbench::testing
