#include "backend/cuda/nccl/ops_in_flight.h"

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {
namespace {

bool is_done(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery after a collective");
  return true;
}

}  // namespace

OpsInFlight::~OpsInFlight() {
  for (const Op& op : ops_) {
    cudaEventDestroy(op.began);
    cudaEventDestroy(op.ended);
  }
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
}

cudaEvent_t OpsInFlight::take_event() {
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  return event;
}

void OpsInFlight::follow(Lane lane, cudaStream_t stream) {
  if (ops_.empty() || ops_.back().lane == lane) return;
  check(cudaStreamWaitEvent(stream, ops_.back().ended, 0), "cudaStreamWaitEvent before a collective");
}

void OpsInFlight::begin(Collective kind, Lane lane, cudaStream_t stream) {
  oldest();
  ops_.push_back({.number = ++issued_, .kind = kind, .lane = lane, .began = take_event(), .ended = take_event()});
  check(cudaEventRecord(ops_.back().began, stream), "cudaEventRecord before a collective");
}

void OpsInFlight::end(cudaStream_t stream) {
  check(cudaEventRecord(ops_.back().ended, stream), "cudaEventRecord after a collective");
  ops_.back().launched = true;
}

const OpsInFlight::Op* OpsInFlight::oldest() {
  while (!ops_.empty() && ops_.front().launched && is_done(ops_.front().ended)) {
    free_events_.push_back(ops_.front().began);
    free_events_.push_back(ops_.front().ended);
    ops_.pop_front();
  }
  if (ops_.empty()) return nullptr;
  Op& op = ops_.front();
  if (!op.running && is_done(op.began)) {
    op.running = true;
    op.running_since = Clock::now();
  }
  return &op;
}

}  // namespace fsdpbench::backend::cuda
