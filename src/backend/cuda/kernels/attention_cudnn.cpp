#include "backend/cuda/kernels/attention_cudnn.h"

#include <cudnn.h>

#include <map>
#include <tuple>
#include <type_traits>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/cudnn_graph.h"
#include "backend/cuda/kernels/scratch.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw BackendError(std::string(what) + ": " + cudnnGetErrorString(status) + ".");
}

struct DestroyHandle {
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
};

/// Of the current device, times 10.
int compute_capability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return major * 10 + minor;
}

}  // namespace

class CudnnAttention::Plans {
 public:
  Plans(cudaStream_t stream, bool deterministic) : stream_(stream), deterministic_(deterministic), workspace_(stream) {}

  int capability() {
    if (capability_ == 0) capability_ = compute_capability();
    return capability_;
  }

  /// `samples` of the shape's batch are attended to in one call of the graph.
  struct Plan {
    CudnnGraph graph;
    std::int64_t samples = 0;
  };

  Plan& forward(const AttentionShape& shape) {
    return find(forward_, shape, [&] { return Plan{built(CudnnGraph::forward(shape, capability())), shape.batch}; });
  }

  Plan& backward(const AttentionShape& shape) {
    return find(backward_, shape, [&] {
      // For reproducible sums cuDNN writes all scores down, [batch, heads, seq, seq]: so not all samples at once.
      AttentionShape part = shape;
      for (;;) {
        Plan plan{built(CudnnGraph::backward(part, capability(), deterministic_)), part.batch};
        if (plan.graph.workspace_bytes() <= kMostWorkspace || part.batch == 1) return plan;
        do --part.batch;
        while (shape.batch % part.batch != 0);
      }
    });
  }

  void execute(Plan& plan, const std::vector<AttentionArgument>& arguments) {
    plan.graph.execute(handle_.get(), arguments, workspace_.get(plan.graph.workspace_bytes()));
  }

  std::int64_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  /// Beyond this the backward takes the batch in parts, down to single samples. 4 x 2048 tokens in 32 heads need 1.07
  /// GiB in a fixed order (docs/gpu.md).
  static constexpr std::int64_t kMostWorkspace = std::int64_t{5} << 28;
  using Key =
      std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

  CudnnGraph built(CudnnGraph graph) {
    if (handle_ == nullptr) {
      cudnnHandle_t handle = nullptr;
      check_cudnn(cudnnCreate(&handle), "cudnnCreate");
      handle_.reset(handle);
      check_cudnn(cudnnSetStream(handle, stream_), "cudnnSetStream");
    }
    graph.build(handle_.get());
    return graph;
  }

  template <class Make>
  static Plan& find(std::map<Key, Plan>& plans, const AttentionShape& s, Make&& make) {
    const Key key{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.query_row(), s.key_row()};
    const auto found = plans.find(key);
    return found != plans.end() ? found->second : plans.emplace(key, make()).first->second;
  }

  cudaStream_t stream_;
  bool deterministic_;
  Scratch workspace_;
  int capability_ = 0;
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, DestroyHandle> handle_;
  std::map<Key, Plan> forward_, backward_;
};

CudnnAttention::CudnnAttention(cudaStream_t stream, bool deterministic)
    : plans_(std::make_unique<Plans>(stream, deterministic)) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::takes(const AttentionShape& shape) const { return cudnn_takes(shape, plans_->capability() / 10); }

void CudnnAttention::forward(const AttentionCall& call) {
  plans_->execute(plans_->forward(call.shape), {{AttentionTensor::q, call.q},
                                                {AttentionTensor::k, call.k},
                                                {AttentionTensor::v, call.v},
                                                {AttentionTensor::out, call.out},
                                                {AttentionTensor::log_sum_exp, call.log_sum_exp}});
}

void CudnnAttention::backward(const AttentionBackwardCall& call) {
  const AttentionShape& shape = call.shape;
  Plans::Plan& plan = plans_->backward(shape);
  const std::int64_t tokens = shape.seq * size_of(shape.dtype);
  for (std::int64_t sample = 0; sample < shape.batch; sample += plan.samples) {
    const std::int64_t query = sample * tokens * shape.query_row();
    const std::int64_t key = sample * tokens * shape.key_row();
    const std::int64_t output = sample * tokens * shape.width();
    plans_->execute(plan, {{AttentionTensor::q, call.q + query},
                           {AttentionTensor::k, call.k + key},
                           {AttentionTensor::v, call.v + key},
                           {AttentionTensor::out, call.out + output},
                           {AttentionTensor::log_sum_exp, call.log_sum_exp + sample * shape.heads * shape.seq},
                           {AttentionTensor::d_out, call.d_out + output},
                           {AttentionTensor::d_q, call.d_q + query},
                           {AttentionTensor::d_k, call.d_k + key},
                           {AttentionTensor::d_v, call.d_v + key}});
  }
}

std::int64_t CudnnAttention::workspace_bytes() const { return plans_->workspace_bytes(); }

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();  // 91900 is 9.19.0
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace fsdpbench::backend::cuda
