#pragma once

// Ranks as threads over the fake NCCL and the fake CUDA runtime, with a small device of their own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/copy_kernels.h"
#include "backend/cuda/check.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/fake/nccl/fake_nccl.h"
#include "backend/cuda/id_exchange.h"
#include "backend/cuda/nccl/nccl_comm.h"
#include "backend/cuda/nccl/nccl_communicator.h"
#include "backend/support.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cuda {

/// Kernels of a stream that can scale, later, when the stream comes to it.
class ScalingKernels : public CopyKernels {
 public:
  explicit ScalingKernels(cudaStream_t stream) : stream_(stream) {}
  void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) override {
    ASSERT_EQ(source.dtype, DType::f32);
    ASSERT_EQ(target.dtype, DType::f32);
    fake::run_on_stream(stream_, [=] {
      for (std::int64_t i = 0; i < count; ++i) {
        target.floats()[i] = factor * reinterpret_cast<const float*>(source.memory)[i];
      }
    });
  }

 private:
  cudaStream_t stream_;
};

/// The lanes of one rank, its memory, and waits that ask the watch as a device does.
class TestLanes : public LaneAccess {
 public:
  TestLanes(launch::Abort& abort, std::size_t arena_bytes) : abort_(abort) {
    for (cudaStream_t& stream : streams_) {
      cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    }
    for (std::size_t i = 0; i < kLaneCount; ++i) kernels_.push_back(std::make_unique<ScalingKernels>(streams_[i]));
    if (arena_bytes > 0) arena_ = std::make_unique<RegisteredArena>(arena_bytes);
  }
  ~TestLanes() override {
    for (cudaStream_t stream : streams_) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
  }

  cudaStream_t stream(Lane lane) override { return streams_[index_of(lane)]; }
  void run_op(Lane lane, const char* name, const std::function<void(cudaStream_t)>& work, Stamp* stamp) override {
    abort_.throw_if_set();
    ops.emplace_back(name);
    work(stream(lane));
    if (stamp != nullptr) stamp->end_ns = 1;
  }
  void watch(std::function<void()> check) override { check_ = std::move(check); }
  launch::Abort& abort() override { return abort_; }
  Kernels& kernels(Lane lane) override { return *kernels_[index_of(lane)]; }
  std::span<std::byte> communication_memory() override { return arena_ ? arena_->memory() : std::span<std::byte>(); }

  void synchronize() {
    for (cudaStream_t stream : streams_) {
      while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (check_) check_();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    abort_.throw_if_set();
  }
  bool watched() const { return static_cast<bool>(check_); }

  std::vector<std::string> ops;

 private:
  launch::Abort& abort_;
  std::array<cudaStream_t, kLaneCount> streams_{};
  std::vector<std::unique_ptr<ScalingKernels>> kernels_;
  std::unique_ptr<RegisteredArena> arena_;
  std::function<void()> check_;
};

/// Context of one rank's body.
struct NcclRankContext {
  int rank = 0;
  TestLanes& lanes;
  Communicator& world;
};

struct NcclRun {
  int ranks = 2;
  NcclOptions options{};
  NcclDeadlines deadlines{};
  std::size_t arena_bytes = 0;
  launch::Abort* shared_abort = nullptr;  ///< instead of one of its own

  /// Runs `body` on all ranks; fails as the run's first failure says.
  void run(const std::function<void(NcclRankContext&)>& body) const {
    launch::Abort own_abort;
    launch::Abort& abort = shared_abort != nullptr ? *shared_abort : own_abort;
    ThreadExchange ids(abort, ranks);
    launch::run_ranks(ranks, [&](int rank) {
      std::unique_ptr<TestLanes> lanes;
      std::unique_ptr<Communicator> world;
      try {
        cuda::check(cudaSetDevice(rank), "cudaSetDevice");
        lanes = std::make_unique<TestLanes>(abort, arena_bytes);
        world = ranks == 1 ? make_world_communicator(*lanes, ids, rank, ranks, options)
                           : make_nccl_communicator(*lanes, ids, rank, ranks, options, deadlines);
        NcclRankContext context{rank, *lanes, *world};
        body(context);
        lanes->synchronize();
      } catch (...) {
        abort.set(std::current_exception());
        throw;
      }
    });
  }
  std::string failure(const std::function<void(NcclRankContext&)>& body) const {
    try {
      run(body);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "(nothing was thrown)";
  }
};

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// Every test begins with a fake without faults, and ends with none of NCCL's rules broken and every communicator
/// destroyed or aborted.
class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::nccl::reset();
    fake::reset();
  }
  void TearDown() override {
    EXPECT_EQ(fake::nccl::misuses(), "");
    const fake::nccl::Counts counts = fake::nccl::counts();
    EXPECT_EQ(counts.made, counts.destroyed + counts.aborted);
    if (counts.aborted == 0) {
      EXPECT_EQ(counts.operators, counts.freed_operators);
      EXPECT_EQ(counts.registrations, counts.deregistrations);
      EXPECT_EQ(counts.windows, counts.closed_windows);
    }
    fake::nccl::reset();
  }
};

}  // namespace fsdpbench::backend::cuda
