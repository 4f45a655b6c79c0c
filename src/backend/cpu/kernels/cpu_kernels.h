#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Threads that work with the one that calls them on one range after another. They sleep in between.
class Crew {
 public:
  /// Parts begin at multiples of so many elements, so that where a range is cut changes no loop over whole vectors.
  static constexpr std::int64_t kGrain = 4096;
  using Work = std::function<void(std::int64_t begin, std::int64_t end)>;

  /// `threads`: the caller's among them, at least 1.
  explicit Crew(int threads);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// Calls work(begin, end) for parts that make up [0, count), each on a thread of its own, and returns when all are
  /// done. A range too short to be worth waking somebody for is one part. Throws what a part threw. One call at a time.
  void share(std::int64_t count, const Work& work);

 private:
  void run(int member);
  void perform(int part) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_, done_;
  bool closing_ = false;
  std::int64_t round_ = 0;  // counts the calls of share()
  int busy_ = 0;            // members that have not ended this round's part
  std::int64_t count_ = 0, part_ = 0;
  const Work* work_ = nullptr;
  std::exception_ptr failure_;
  std::vector<std::thread> members_;
};

/// Kernels that compute on the calling thread alone. An object belongs to one lane thread, which must also be the one
/// that makes it: oneDNN's thread count is a setting of the calling thread.
std::unique_ptr<Kernels> make_cpu_kernels();
/// Kernels whose parts of an update of offloaded state (optimizers, casts, sums, copies) run on up to
/// `threads` threads at once where it is long. The bits are those of one thread.
std::unique_ptr<Kernels> make_shared_cpu_kernels(int threads);

}  // namespace fsdpbench::backend::cpu
