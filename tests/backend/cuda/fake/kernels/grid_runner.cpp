#include "backend/cuda/fake/kernels/grid_runner.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cuda/fake/kernels/fiber.h"
#include "backend/cuda/fake/kernels/warp_exchange.h"

namespace fake {

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local uint3 blockDim{};
constinit thread_local uint3 gridDim{};

namespace {

constexpr unsigned kLanes = 32;

[[noreturn]] void die(const char* kernel, const char* sentence) {
  std::fprintf(stderr, "emulated CUDA: kernel %s: %s\n", kernel, sentence);
  std::abort();
}

/// Threads that wait for each other, again and again.
struct Barrier {
  unsigned alive = 0;    ///< threads that have not ended
  unsigned arrived = 0;  ///< of them, how many wait here
  unsigned rounds = 0;   ///< how often all have come

  /// True if that completes the round.
  bool complete() {
    if (arrived == 0 || arrived != alive) return false;
    arrived = 0;
    ++rounds;
    return true;
  }
};

struct Warp {
  Barrier barrier;
  std::array<std::array<std::byte, 16 * kLanes>, 2> slots;  ///< taken in turns: see warp_slots()
};

/// One block at a time, on one thread.
class BlockRunner {
 public:
  void run(const char* kernel, dim3 block, const std::function<void()>& thread, bool backwards) {
    kernel_ = kernel;
    thread_ = &thread;
    backwards_ = backwards;
    threads_ = block.x * block.y * block.z;
    block_size_ = block;
    next_ = 0;
    block_ = {.alive = threads_};
    warps_.resize((threads_ + kLanes - 1) / kLanes);
    for (unsigned w = 0; w < warps_.size(); ++w) {
      warps_[w].barrier = {.alive = std::min(kLanes, threads_ - w * kLanes)};
    }
    exchanges_.assign(threads_, 0);
    waiting_.clear();
    while (next_ < threads_) start();
    while (!waiting_.empty()) resume();
  }

  unsigned running() const { return running_; }

  void wait(Barrier& barrier) {
    ++barrier.arrived;
    const unsigned round = barrier.rounds;
    if (barrier.complete()) return;
    const unsigned self = running_;
    const uint3 index = threadIdx;
    waiting_.push_back({current_, &barrier, round});
    current_->leave();
    running_ = self;
    threadIdx = index;
  }
  void wait_for_block() { wait(block_); }
  void wait_for_warp() { wait(warps_[running_ / kLanes].barrier); }

  /// A lane that writes for its next exchange may overtake one that still reads of the last: two sets are enough,
  /// because it cannot overtake it twice.
  std::byte* slots() { return warps_[running_ / kLanes].slots[exchanges_[running_]++ % 2].data(); }

 private:
  struct Waiting {
    Fiber* fiber;
    Barrier* barrier;
    unsigned round;
  };

  static BlockRunner& here();
  friend BlockRunner& runner();

  /// Runs threads on a fresh fiber until one waits or none is left.
  void start() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(&BlockRunner::run_threads));
      idle_.push_back(fibers_.back().get());
    }
    current_ = idle_.back();
    idle_.pop_back();
    current_->enter();
  }

  /// Goes on with all that have nothing to wait for any more, in the order in which they began to wait.
  void resume() {
    resumed_.swap(waiting_);
    bool progress = false;
    for (const Waiting& w : resumed_) {
      if (w.barrier->rounds == w.round) {
        waiting_.push_back(w);
        continue;
      }
      progress = true;
      current_ = w.fiber;
      current_->enter();
    }
    resumed_.clear();
    if (!progress) {
      die(kernel_, "some threads of a block wait at a barrier that others of it do not come to.");
    }
  }

  static void run_threads();
  void run_next() {
    running_ = backwards_ ? threads_ - 1 - next_ : next_;
    ++next_;
    threadIdx = {running_ % block_size_.x, running_ / block_size_.x % block_size_.y,
                 running_ / (block_size_.x * block_size_.y)};
    (*thread_)();
    end_of(block_);
    end_of(warps_[running_ / kLanes].barrier);
  }
  static void end_of(Barrier& barrier) {
    --barrier.alive;
    barrier.complete();
  }

  const char* kernel_ = "";
  const std::function<void()>* thread_ = nullptr;
  bool backwards_ = false;
  dim3 block_size_;
  unsigned threads_ = 0;
  unsigned next_ = 0;     ///< threads that have begun
  unsigned running_ = 0;  ///< the thread that runs, counted in the block
  Fiber* current_ = nullptr;
  Barrier block_;
  std::vector<Warp> warps_;
  std::vector<unsigned> exchanges_;  ///< of each thread
  std::vector<Waiting> waiting_, resumed_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

BlockRunner& runner() {
  thread_local BlockRunner instance;
  return instance;
}

void BlockRunner::run_threads() {
  BlockRunner& self = runner();
  Fiber* const fiber = self.current_;
  while (self.next_ < self.threads_) {
    self.run_next();
    self.current_ = fiber;
  }
  self.idle_.push_back(fiber);
}

}  // namespace

void check_launch(const char* name, dim3 grid, dim3 block, std::size_t parameter_bytes) {
  if (grid.x > 0x7FFFFFFFU || grid.y > 65535 || grid.z > 65535) die(name, "the grid is larger than any GPU takes.");
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024) die(name, "a block has from 1 to 1024 threads.");
  if (parameter_bytes > 4096) die(name, "the parameters are more than 4096 bytes.");
}

void refuse_pointer(const char* name) {
  die(name, "it was given memory that its GPU does not reach: pageable memory of the host, freed, or another GPU's.");
}

void run_grid(const char* name, dim3 grid, dim3 block, const std::function<void()>& thread) {
  gridDim = {grid.x, grid.y, grid.z};
  blockDim = {block.x, block.y, block.z};
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        runner().run(name, block, thread, (x + y + z) % 2 == 1);
      }
    }
  }
}

int lane() { return static_cast<int>(runner().running() % kLanes); }
void sync_block() { runner().wait_for_block(); }
void sync_warp() { runner().wait_for_warp(); }
std::byte* warp_slots() { return runner().slots(); }

void check_whole_warp(unsigned lanes) {
  if (lanes != 0xFFFFFFFFU) die("", "lanes are exchanged among whole warps only.");
}

unsigned ballot(unsigned lanes, bool vote) {
  check_whole_warp(lanes);
  std::byte* const slots = warp_slots();
  slots[16 * lane()] = static_cast<std::byte>(vote);
  sync_warp();
  unsigned bits = 0;
  for (unsigned l = 0; l < kLanes; ++l) bits |= static_cast<unsigned>(slots[16 * l]) << l;
  return bits;
}

}  // namespace fake

void __nanosleep(unsigned nanoseconds) { std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds)); }
