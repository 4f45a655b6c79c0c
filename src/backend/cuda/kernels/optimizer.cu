// Bytes to move: sum_of_squares 1 tensor, sgd 3, adamw 7 (reads 4, writes 3); half a tensor more for a rounded copy,
// half a tensor less of a bf16 gradient.

#include "backend/cuda/kernels/launchers.h"

#include <cmath>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/map.cuh"
#include "backend/cuda/kernels/reductions.cuh"

namespace fsdpbench::backend::cuda {
namespace {

/// Packs are those of fp32 whatever T is, so that the order is the same.
template <class T>
struct Squares {
  const T* x;
  std::int64_t count;
  bool vector;

  __device__ double add(std::int64_t i) const {
    const Floats<kPack<float>> v = load_part<kPack<float>>(x, i, count, vector);
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < kPack<float>; ++k) sum += static_cast<double>(v[k]) * static_cast<double>(v[k]);
    return sum;
  }
};

/// One block.
__global__ void finish_squares_kernel(const double* parts, std::int64_t count, double factor, double* sum,
                                      bool overwrite) {
  const double squares = sum_of_parts(parts, count);
  if (threadIdx.x == 0) *sum = factor * squares + (overwrite ? 0.0 : *sum);
}

/// One thread.
__global__ void clip_factor_kernel(const double* sums, std::int64_t count, double max_norm, float* factor) {
  double total = 0.0;
  for (std::int64_t i = 0; i < count; ++i) total += sums[i];
  const double limit = max_norm / (sqrt(total) + 1e-6);
  *factor = static_cast<float>(limit > 1.0 ? 1.0 : limit);  // a NaN norm gives a NaN
}

__device__ float scale_of(const float* gradient_scale) { return gradient_scale != nullptr ? *gradient_scale : 1.0F; }

template <class G>
struct Sgd {
  float* parameter;
  const G* gradient;
  float learning_rate, weight_decay;
  const float* gradient_scale;

  /// The new parameters.
  template <int N>
  __device__ Floats<N> update(std::int64_t i) const {
    const float scale = scale_of(gradient_scale);
    Floats<N> p = load<N>(parameter + i);
    const Floats<N> g = load<N>(gradient + i);
#pragma unroll
    for (int k = 0; k < N; ++k) p[k] = p[k] - learning_rate * (scale * g[k] + weight_decay * p[k]);
    store(parameter + i, p);
    return p;
  }
  template <int N>
  __device__ void run(std::int64_t i) const {
    update<N>(i);
  }
};

template <class G>
struct AdamW {
  float* parameter;
  const G* gradient;
  float* first_moment;
  float* second_moment;
  const float* gradient_scale;
  float step_size;
  float root;  // of the second moment's correction
  float decay, weight1, weight2, keep2, epsilon;

  /// The new parameters.
  template <int N>
  __device__ Floats<N> update(std::int64_t i) const {
    const float scale = scale_of(gradient_scale);
    Floats<N> p = load<N>(parameter + i);
    const Floats<N> g = load<N>(gradient + i);
    Floats<N> m = load<N>(first_moment + i);
    Floats<N> v = load<N>(second_moment + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float gk = scale * g[k];
      m[k] = m[k] + weight1 * (gk - m[k]);
      v[k] = keep2 * v[k] + weight2 * gk * gk;
      p[k] = p[k] * decay - step_size * (m[k] / (sqrtf(v[k]) / root + epsilon));
    }
    store(first_moment + i, m);
    store(second_moment + i, v);
    store(parameter + i, p);
    return p;
  }
  template <int N>
  __device__ void run(std::int64_t i) const {
    update<N>(i);
  }
};

/// An update whose result is also stored as bf16.
template <class Update>
struct Rounding {
  Update update;
  __nv_bfloat16* rounded;

  template <int N>
  __device__ void run(std::int64_t i) const {
    store(rounded + i, update.template update<N>(i));
  }
};

/// `body` does `update`, of a gradient of G. `moments`: what it touches beside parameter and gradient.
template <class G, class Body, class... T>
void map_update(cudaStream_t stream, const char* name, const ParameterUpdate& update, const Body& body,
                const T*... moments) {
  if (update.rounded == nullptr) {
    return map<kPackOf<float, G>>(stream, name, body, update.count, body.parameter, body.gradient, moments...);
  }
  const Rounding<Body> rounding{body, elements<__nv_bfloat16>(update.rounded)};
  map<kPackOf<float, __nv_bfloat16>>(stream, name, rounding, update.count, rounding.rounded, body.parameter,
                                     body.gradient, moments...);
}

}  // namespace

void sum_of_squares(cudaStream_t stream, const ConstElements& x, std::int64_t count, double factor, double* sum,
                    bool overwrite, Scratch& scratch) {
  const std::int64_t parts = sum_parts(count, kPack<float>);
  auto* const sums = reinterpret_cast<double*>(scratch.get(parts * 8));
  with_element_type(x.dtype, [&]<class T>(T) {
    const Squares<T> squares{elements<T>(x.memory), count, aligned(x.memory)};
    partial_sums<kPack<float>>(stream, "sum_of_squares", squares, count, sums);
  });
  launch(stream, "sum_of_squares", 1, row_threads(parts, 1, kSumThreads), finish_squares_kernel, sums, parts, factor,
         sum, overwrite);
}

void clip_factor(cudaStream_t stream, const double* sums, std::int64_t count, double max_norm, float* factor) {
  launch(stream, "clip_factor", 1, 1, clip_factor_kernel, sums, count, max_norm, factor);
}

void sgd(cudaStream_t stream, const ParameterUpdate& update, const SgdStep& step) {
  with_element_type(update.gradient.dtype, [&]<class G>(G) {
    const Sgd<G> body{.parameter = update.parameter,
                      .gradient = elements<G>(update.gradient.memory),
                      .learning_rate = step.learning_rate,
                      .weight_decay = step.weight_decay,
                      .gradient_scale = step.gradient_scale};
    map_update<G>(stream, "sgd", update, body);
  });
}

void adamw(cudaStream_t stream, const ParameterUpdate& update, const AdamWStep& step) {
  // The scalars in double, as torch has them.
  const double beta1 = step.beta1;
  const double beta2 = step.beta2;
  const auto t = static_cast<double>(step.step);
  with_element_type(update.gradient.dtype, [&]<class G>(G) {
    const AdamW<G> body{
        .parameter = update.parameter,
        .gradient = elements<G>(update.gradient.memory),
        .first_moment = update.first_moment,
        .second_moment = update.second_moment,
        .gradient_scale = step.gradient_scale,
        .step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(beta1, t))),
        .root = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, t))),
        .decay = static_cast<float>(1.0 - static_cast<double>(step.learning_rate) * step.weight_decay),
        .weight1 = static_cast<float>(1.0 - beta1),
        .weight2 = static_cast<float>(1.0 - beta2),
        .keep2 = step.beta2,
        .epsilon = step.epsilon,
    };
    map_update<G>(stream, "adamw", update, body, body.first_moment, body.second_moment);
  });
}

}  // namespace fsdpbench::backend::cuda
