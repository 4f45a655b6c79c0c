#include "backend/cuda/kernels/cudnn_graph.h"

#include <cudnn.h>
#include <cudnn_frontend.h>
#include <array>
#include <cmath>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/scratch.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

std::string cannot_compute(const AttentionShape& s, const char* pass) {
  return std::string("cuDNN cannot compute the ") + pass + " of attention over " + std::to_string(s.batch) +
         " samples of " + std::to_string(s.seq) + " tokens with " + std::to_string(s.heads) + " query and " +
         std::to_string(s.kv_heads) + " key heads of size " + std::to_string(s.head_dim);
}

/// Dimensions in cuDNN's order (batch, head, token, element) of tensors in ours (batch, token, head, element).
void set_heads(fe::graph::Tensor_attributes& tensor, const AttentionShape& s, std::int64_t heads) {
  tensor.set_dim({s.batch, heads, s.seq, s.head_dim})
      .set_stride({s.seq * heads * s.head_dim, s.head_dim, heads * s.head_dim, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

/// [batch, heads, seq] in either order.
void set_statistics(fe::graph::Tensor_attributes& tensor, const AttentionShape& s) {
  tensor.set_dim({s.batch, s.heads, s.seq, 1})
      .set_stride({s.heads * s.seq, s.seq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void set_identity(fe::graph::Tensor_attributes& tensor, AttentionTensor which, const char* name) {
  tensor.set_uid(static_cast<std::int64_t>(which)).set_name(name);
}

float softmax_scale(const AttentionShape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw BackendError(std::string(what) + ": " + cudnnGetErrorString(status) + ".");
}

struct DestroyHandle {
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
};

/// Compute capability of the current device, times 10.
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

struct CudnnGraph::State {
  State(const AttentionShape& s, int capability, const char* p) : shape(s), pass(p) {
    graph.set_sm_version(capability);  // before any operation is added: each copies it
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  Tensor input(AttentionTensor which, const char* name, std::int64_t heads) {
    fe::graph::Tensor_attributes tensor;
    set_identity(tensor, which, name);
    set_heads(tensor, shape, heads);
    return graph.tensor(tensor);
  }
  Tensor input_statistics() {
    fe::graph::Tensor_attributes tensor;
    set_identity(tensor, AttentionTensor::log_sum_exp, "log_sum_exp");
    set_statistics(tensor, shape);
    return graph.tensor(tensor);
  }
  void output(const Tensor& tensor, AttentionTensor which, const char* name, std::int64_t heads) const {
    set_identity(*tensor, which, name);
    set_heads(*tensor, shape, heads);
    tensor->set_output(true);
  }

  /// Calls `work`, which gives cuDNN's error or throws one.
  template <class Work>
  void require(Work&& work) const {
    std::string words;
    try {
      fe::error_t error = work();
      if (error.is_good()) return;
      words = error.get_message();
    } catch (const std::exception& error) {
      words = error.what();
    }
    throw BackendError(cannot_compute(shape, pass) + ": " + words);
  }

  AttentionShape shape;
  const char* pass;
  fe::graph::Graph graph;
};

CudnnGraph::CudnnGraph(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudnnGraph::CudnnGraph(CudnnGraph&&) noexcept = default;
CudnnGraph::~CudnnGraph() = default;

CudnnGraph CudnnGraph::forward(const AttentionShape& shape, int capability) {
  auto state = std::make_unique<State>(shape, capability, "forward");
  const Tensor q = state->input(AttentionTensor::q, "q", shape.heads);
  const Tensor k = state->input(AttentionTensor::k, "k", shape.kv_heads);
  const Tensor v = state->input(AttentionTensor::v, "v", shape.kv_heads);
  const auto [out, log_sum_exp] = state->graph.sdpa(q, k, v,
                                                    fe::graph::SDPA_attributes()
                                                        .set_name("attention")
                                                        .set_generate_stats(true)
                                                        .set_attn_scale(softmax_scale(shape))
                                                        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                                                        .set_diagonal_band_right_bound(0));
  state->output(out, AttentionTensor::out, "out", shape.heads);
  set_identity(*log_sum_exp, AttentionTensor::log_sum_exp, "log_sum_exp");
  set_statistics(*log_sum_exp, shape);
  log_sum_exp->set_output(true);
  return CudnnGraph(std::move(state));
}

CudnnGraph CudnnGraph::backward(const AttentionShape& shape, int capability, bool deterministic) {
  auto state = std::make_unique<State>(shape, capability, "backward");
  const Tensor q = state->input(AttentionTensor::q, "q", shape.heads);
  const Tensor k = state->input(AttentionTensor::k, "k", shape.kv_heads);
  const Tensor v = state->input(AttentionTensor::v, "v", shape.kv_heads);
  const Tensor out = state->input(AttentionTensor::out, "out", shape.heads);
  const Tensor d_out = state->input(AttentionTensor::d_out, "d_out", shape.heads);
  const auto [d_q, d_k, d_v] = state->graph.sdpa_backward(q, k, v, out, d_out, state->input_statistics(),
                                                          fe::graph::SDPA_backward_attributes()
                                                              .set_name("attention_backward")
                                                              .set_attn_scale(softmax_scale(shape))
                                                              .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                                                              .set_diagonal_band_right_bound(0)
                                                              .set_deterministic_algorithm(deterministic));
  state->output(d_q, AttentionTensor::d_q, "d_q", shape.heads);
  state->output(d_k, AttentionTensor::d_k, "d_k", shape.kv_heads);
  state->output(d_v, AttentionTensor::d_v, "d_v", shape.kv_heads);
  return CudnnGraph(std::move(state));
}

void CudnnGraph::build(cudnnHandle_t handle) {
  state_->require([&] { return state_->graph.build(handle, {fe::HeurMode_t::A}); });
}

std::int64_t CudnnGraph::workspace_bytes() const {
  std::int64_t bytes = 0;
  state_->require([&] { return state_->graph.get_workspace_size(bytes); });
  return bytes;
}

void CudnnGraph::execute(cudnnHandle_t handle, const std::vector<AttentionArgument>& arguments,
                         std::byte* workspace) const {
  std::unordered_map<std::int64_t, void*> memory;
  for (const AttentionArgument& argument : arguments) {
    memory[static_cast<std::int64_t>(argument.tensor)] = const_cast<void*>(argument.memory);  // cuDNN has no const
  }
  state_->require([&] { return state_->graph.execute(handle, memory, workspace); });
}

std::string CudnnGraph::text() const { return state_->graph.print(); }

void CudnnGraph::check_support(const std::string& device_properties) {
  fe::graph::Graph& graph = state_->graph;
  const auto device = std::make_shared<fe::DeviceProperties>();
  state_->require([&] { return device->deserialize({device_properties.begin(), device_properties.end()}); });
  graph.set_device_properties(device);
  state_->require([&] { return graph.validate(); });
  state_->require([&] { return graph.build_operation_graph(); });
  state_->require([&] { return graph.create_execution_plans({fe::HeurMode_t::A}); });
  state_->require([&] { return graph.check_support(); });
}

void CudnnGraph::build_for(const std::string& device_properties) {
  check_support(device_properties);
  state_->require([&] { return state_->graph.build_plans(); });
}

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
  /// GiB in a fixed order (cuDNN 9.19, an H200).
  static constexpr std::int64_t kMostWorkspace = std::int64_t{5} << 28;
  using Key = std::array<std::int64_t, 5>;

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
    const Key key{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim};
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
    const std::int64_t query = sample * tokens * shape.width();
    const std::int64_t key = sample * tokens * shape.key_width();
    plans_->execute(plan, {{AttentionTensor::q, call.q + query},
                           {AttentionTensor::k, call.k + key},
                           {AttentionTensor::v, call.v + key},
                           {AttentionTensor::out, call.out + query},
                           {AttentionTensor::log_sum_exp, call.log_sum_exp + sample * shape.heads * shape.seq},
                           {AttentionTensor::d_out, call.d_out + query},
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
