// What tracing costs on a GPU: a training step of a decoder of 0.3 billion parameters with every op stamped (and, with
// CUPTI, every kernel recorded) over one without, taken in turns (at most 1.02).
#include "backend/cuda/backend.h"
#include "base/error.h"
#include "tracing_cost.h"

namespace fsdpbench {
namespace {

void cuda_step_with_recording_over_without(benchmark::State& state) {
  config::RunConfig c;
  c.model.layers = 12;
  c.model.width = 1024;
  c.model.heads = 16;
  c.model.kv_heads = 16;
  c.model.ffn_width = 4096;
  c.model.vocab = 32768;
  c.fsdp.strategy = config::Strategy::no_shard;
  c.fsdp.param_dtype = DType::bf16;
  c.train.seq_len = 1024;
  c.train.batch_per_rank = 8;
  c.mesh = {1, 1, 1};
  try {
    bench::step_with_recording_over_without(state, *backend::cuda::make_cuda_backend(), c, 60);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}
BENCHMARK(cuda_step_with_recording_over_without)->Iterations(1)->Unit(benchmark::kSecond)->UseRealTime();

}  // namespace
}  // namespace fsdpbench
