#include "backend/cuda/fake/kernels/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

// From the sanitizers' runtimes; absent in other builds.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* stack, std::size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** stack, std::size_t* bytes);
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace fake {
namespace {

thread_local Fiber* entering = nullptr;

bool sanitized() { return __sanitizer_start_switch_fiber != nullptr || __tsan_switch_to_fiber != nullptr; }

}  // namespace

Fiber::Fiber(void (*body)()) : body_(body) {
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "emulated CUDA: no memory for the stack of a thread\n");
    std::abort();
  }
  stack_ = static_cast<std::byte*>(memory);
  if (__tsan_create_fiber != nullptr) tsan_inside_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (tsan_inside_ != nullptr) __tsan_destroy_fiber(tsan_inside_);
  munmap(stack_, kStackBytes);
}

void Fiber::main() {
  Fiber* const self = entering;
  for (;;) {
    if (__sanitizer_finish_switch_fiber != nullptr) {
      __sanitizer_finish_switch_fiber(self->asan_inside_, &self->outside_stack_, &self->outside_stack_bytes_);
    }
    self->body_();
    self->switch_back();
  }
}

void Fiber::enter() {
  entering = this;
  if (__tsan_get_current_fiber != nullptr) tsan_outside_ = __tsan_get_current_fiber();
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&asan_outside_, stack_, kStackBytes);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(tsan_inside_, 0);
  switch_to_it();
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(asan_outside_, nullptr, nullptr);
}

void Fiber::switch_to_it() {
  if (!started_) {
    started_ = true;
    getcontext(&context_inside_);
    context_inside_.uc_stack.ss_sp = stack_;
    context_inside_.uc_stack.ss_size = kStackBytes;
    context_inside_.uc_link = nullptr;
    makecontext(&context_inside_, &Fiber::main, 0);
    if (sanitized()) {
      swapcontext(&context_outside_, &context_inside_);
    } else if (_setjmp(outside_) == 0) {
      setcontext(&context_inside_);
    }
  } else if (sanitized()) {
    swapcontext(&context_outside_, &context_inside_);
  } else if (_setjmp(outside_) == 0) {
    _longjmp(inside_, 1);
  }
}

void Fiber::leave() {
  switch_back();
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(asan_inside_, &outside_stack_, &outside_stack_bytes_);
  }
}

void Fiber::switch_back() {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&asan_inside_, outside_stack_, outside_stack_bytes_);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(tsan_outside_, 0);
  if (sanitized()) {
    swapcontext(&context_inside_, &context_outside_);
  } else if (_setjmp(inside_) == 0) {
    _longjmp(outside_, 1);
  }
}

}  // namespace fake
