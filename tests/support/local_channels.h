#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "launch/control_channel.h"
#include "launch/run_ranks.h"

namespace fsdpbench::testing {

/// Control channels of ranks that are threads of a test.
class LocalChannels {
 public:
  explicit LocalChannels(int ranks) : ranks_(ranks) {}
  /// The hub must outlive the channel.
  std::unique_ptr<launch::ControlChannel> channel(int rank) { return std::make_unique<Channel>(*this, rank); }

 private:
  class Channel : public launch::ControlChannel {
   public:
    Channel(LocalChannels& hub, int rank) : hub_(hub), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return hub_.ranks_; }
    void send(int to, std::string_view topic, std::string payload) override {
      const std::lock_guard lock(hub_.mutex_);
      hub_.messages_[{rank_, to, std::string(topic)}].push_back(std::move(payload));
      hub_.changed_.notify_all();
    }
    std::string receive(int from, std::string_view topic) override {
      std::unique_lock lock(hub_.mutex_);
      for (;;) {
        if (auto message = hub_.take(from, rank_, topic)) return *std::move(message);
        if (hub_.failure_) throw launch::Stopped(hub_.failure_->message);
        hub_.changed_.wait(lock);
      }
    }
    std::optional<std::string> poll(int from, std::string_view topic) override {
      const std::lock_guard lock(hub_.mutex_);
      return hub_.take(from, rank_, topic);
    }
    using launch::ControlChannel::fail;
    void fail(const std::string& message, ExitCode code) override {
      const std::lock_guard lock(hub_.mutex_);
      if (!hub_.failure_) hub_.failure_ = launch::JobFailure{rank_, false, message, code};
      hub_.changed_.notify_all();
    }
    std::optional<launch::JobFailure> failure() const override {
      const std::lock_guard lock(hub_.mutex_);
      return hub_.failure_;
    }
    void on_failure(std::function<void(const launch::JobFailure&)>) override {}

   private:
    LocalChannels& hub_;
    int rank_;
  };

  std::optional<std::string> take(int from, int to, std::string_view topic) {
    std::deque<std::string>& queue = messages_[{from, to, std::string(topic)}];
    if (queue.empty()) return std::nullopt;
    std::string payload = std::move(queue.front());
    queue.pop_front();
    return payload;
  }

  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, std::string>, std::deque<std::string>> messages_;
  std::optional<launch::JobFailure> failure_;
};

}  // namespace fsdpbench::testing
