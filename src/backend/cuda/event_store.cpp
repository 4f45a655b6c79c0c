#include "backend/cuda/event_store.h"

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {

EventStore::~EventStore() {
  for (cudaEvent_t event : all_) cudaEventDestroy(event);
}

cudaEvent_t EventStore::take() {
  if (free_.empty()) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, flags_), "creating an event");
    all_.push_back(made);
    return made;
  }
  cudaEvent_t event = free_.back();
  free_.pop_back();
  return event;
}

}  // namespace fsdpbench::backend::cuda
