#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"

namespace fsdpbench::testing {

/// A device that writes down what it is asked for, and asks another one to do it.
class LoggedDevice : public backend::Device {
 public:
  explicit LoggedDevice(backend::Device& device) : device_(device) {}

  void enqueue(Lane lane, const char* name, Task task, backend::Stamp* stamp) override {
    log.push_back(fmt::format("enqueue {} {}{}", to_string(lane), name, stamp == nullptr ? "" : " stamped"));
    device_.enqueue(lane, name, std::move(task), stamp);
  }
  void record(Event event, Lane lane) override {
    log.push_back(fmt::format("record {} {}", to_string(lane), event));
    device_.record(event, lane);
  }
  void wait(Lane lane, Event event) override {
    log.push_back(fmt::format("wait {} {}", to_string(lane), event));
    device_.wait(lane, event);
  }
  void host_wait(Event event) override {
    log.push_back(fmt::format("host_wait {}", event));
    device_.host_wait(event);
  }
  void synchronize() override {
    log.push_back("synchronize");
    device_.synchronize();
  }
  std::byte* allocate(std::int64_t bytes, MemoryCategory category, Lane lane) override {
    log.push_back(fmt::format("allocate {} {}", to_string(lane), bytes));
    return device_.allocate(bytes, category, lane);
  }
  std::byte* allocate_host(std::int64_t bytes, MemoryCategory category, Lane lane) override {
    log.push_back(fmt::format("allocate_host {} {}", to_string(lane), bytes));
    return device_.allocate_host(bytes, category, lane);
  }
  void free(std::byte* memory, Lane lane) override {
    log.push_back(fmt::format("free {}", to_string(lane)));
    device_.free(memory, lane);
  }
  const PoolStatistics& memory() const override { return device_.memory(); }
  const PoolStatistics& host_memory() const override { return device_.host_memory(); }
  void reset_memory_peaks() override { device_.reset_memory_peaks(); }
  void drop_tasks() override { device_.drop_tasks(); }
  void set_op(std::int32_t step, std::int32_t op) override { log.push_back(fmt::format("op {} {}", step, op)); }
  void settle_stamps() override {
    log.push_back("settle");
    device_.settle_stamps();
  }
  backend::Activities take_activities() override { return activities; }
  bool computes() const override { return device_.computes(); }

  std::vector<std::string> log;
  backend::Activities activities;  ///< of each step

 private:
  backend::Device& device_;
};

}  // namespace fsdpbench::testing
