#include "backend/cpu/thread_setup.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace fsdpbench::backend::cpu {
namespace {

/// The kernel's struct sched_attr, first version; glibc 2.36 has no declaration of it.
struct SchedAttributes {
  std::uint32_t size = sizeof(SchedAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

thread_local bool runs_fifo = false;

bool request_fifo() {
  sched_param parameters{};
  parameters.sched_priority = 1;
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters) == 0;
}

bool request_short_slice() {
  SchedAttributes attributes;
  attributes.runtime_ns = 100'000;
  return syscall(SYS_sched_setattr, 0, &attributes, 0U) == 0;
}

}  // namespace

void setup_lane_thread(const std::string& name, Urgency urgency) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  omp_set_num_threads(1);
  if (urgency == Urgency::normal) return;
  runs_fifo = request_fifo();
  if (!runs_fifo) request_short_slice();
}

void yield_to_prompt_lanes() {
  if (runs_fifo) sched_yield();
}

std::string describe_prompt_scheduling() {
  std::string text;
  std::thread([&text] {  // on a thread of its own: the caller's scheduling stays as it is
    if (request_fifo()) {
      text = "SCHED_FIFO";
    } else {
      text = request_short_slice() ? "default policy with a 100 us slice (SCHED_FIFO is not permitted)"
                                   : "default policy (SCHED_FIFO is not permitted)";
    }
  })
      .join();
  return text;
}

}  // namespace fsdpbench::backend::cpu
