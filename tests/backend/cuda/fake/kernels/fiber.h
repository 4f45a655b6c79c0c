#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace fake {

/// A place to run a function that may stop in the middle and go on later, on one thread.
class Fiber {
 public:
  /// `body` is called each time the fiber is entered while it rests; it may leave() anywhere.
  explicit Fiber(void (*body)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs or goes on until leave() or the end of `body`.
  void enter();
  /// From within: back to where enter() was called; returns when entered again.
  void leave();

 private:
  static constexpr std::size_t kStackBytes = 256 << 10;
  static void main();
  void switch_to_it();
  void switch_back();

  void (*body_)();
  std::byte* stack_;
  bool started_ = false;
  // Switching by setjmp costs no system call; sanitizers follow ucontext only.
  jmp_buf inside_, outside_;
  ucontext_t context_inside_, context_outside_;
  void* tsan_inside_ = nullptr;
  void* tsan_outside_ = nullptr;
  void* asan_inside_ = nullptr;
  void* asan_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_stack_bytes_ = 0;
};

}  // namespace fake
