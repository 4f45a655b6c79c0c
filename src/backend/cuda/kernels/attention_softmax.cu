#include "backend/cuda/kernels/attention_softmax.h"

#include <cmath>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/reductions.cuh"

namespace fsdpbench::backend::cuda {
namespace {

constexpr unsigned kThreads = 128;

struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// A block of threads takes a row; each thread meets the same elements in every pass.
template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(float* scores, T* probabilities, float* log_sum_exp, std::int64_t begin, std::int64_t keys,
                   std::int64_t seq, float scale) {
  const std::int64_t visible = begin + blockIdx.x + 1;
  float* const row = scores + blockIdx.x * seq;
  T* const target = probabilities + blockIdx.x * seq;
  float largest = row[0];
  for (std::int64_t j = threadIdx.x; j < visible; j += blockDim.x) largest = fmaxf(largest, row[j]);
  largest = block_reduce(largest, row[0], Largest{});
  float sum = 0.0F;
  for (std::int64_t j = threadIdx.x; j < visible; j += blockDim.x) {
    const float e = expf((row[j] - largest) * scale);
    row[j] = e;
    sum += e;
  }
  sum = block_sum(sum);
  const float inverse = 1.0F / sum;
  for (std::int64_t j = threadIdx.x; j < keys; j += blockDim.x) set(target[j], j < visible ? row[j] * inverse : 0.0F);
  if (threadIdx.x == 0) log_sum_exp[blockIdx.x] = largest * scale + logf(sum);
}

template <class T>
struct Backward {
  const float* scores;
  const float* d_probabilities;
  T* probabilities;
  T* d_scores;
  const T* d_out;
  const T* out;
  const float* log_sum_exp;
  std::int64_t begin, keys, seq, row_stride, head_dim;
  float scale;
};

template <class T>
__global__ void __launch_bounds__(kThreads) softmax_backward_kernel(const Backward<T> b) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t visible = b.begin + row + 1;
  float delta = 0.0F;
  for (std::int64_t j = threadIdx.x; j < b.head_dim; j += blockDim.x) {
    delta += to_float(b.d_out[row * b.row_stride + j]) * to_float(b.out[row * b.row_stride + j]);
  }
  delta = block_sum(delta);
  const float log_sum_exp = b.log_sum_exp[row];
  for (std::int64_t j = threadIdx.x; j < b.keys; j += blockDim.x) {
    const std::int64_t at = row * b.seq + j;
    const float p = j < visible ? expf(b.scores[at] * b.scale - log_sum_exp) : 0.0F;
    const float d = j < visible ? p * (b.d_probabilities[at] - delta) * b.scale : 0.0F;
    set(b.probabilities[at], p);
    set(b.d_scores[at], d);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_head_kernel(const float* sums, T* head, std::int64_t seq, std::int64_t head_dim, std::int64_t row_stride) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < seq * head_dim; i += step) {
    set(head[i / head_dim * row_stride + i % head_dim], sums[i]);
  }
}

float softmax_scale(const AttentionShape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

}  // namespace

void attention_softmax(cudaStream_t stream, const AttentionShape& shape, const AttentionBlock& block, float* scores,
                       std::byte* probabilities, float* log_sum_exp) {
  with_element_type(shape.dtype, [&]<class T>(T) {
    launch(stream, "attention_softmax", blocks_for(block.rows), kThreads, softmax_kernel<T>, scores,
           elements<T>(probabilities), log_sum_exp, block.begin, block.keys, shape.seq, softmax_scale(shape));
  });
}

void attention_softmax_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionBlock& block,
                                const AttentionGradientTiles& tiles, const std::byte* d_out, const std::byte* out,
                                const float* log_sum_exp) {
  with_element_type(shape.dtype, [&]<class T>(T) {
    const Backward<T> b{tiles.scores,
                        tiles.d_probabilities,
                        elements<T>(tiles.probabilities),
                        elements<T>(tiles.d_scores),
                        elements<T>(d_out),
                        elements<T>(out),
                        log_sum_exp,
                        block.begin,
                        block.keys,
                        shape.seq,
                        shape.width(),
                        shape.head_dim,
                        softmax_scale(shape)};
    launch(stream, "attention_softmax_backward", blocks_for(block.rows), kThreads, softmax_backward_kernel<T>, b);
  });
}

void store_head(cudaStream_t stream, const AttentionShape& shape, const float* sums, std::byte* head) {
  with_element_type(shape.dtype, [&]<class T>(T) {
    launch(stream, "attention_store_head", blocks_for((shape.seq * shape.head_dim + kThreads - 1) / kThreads), kThreads,
           store_head_kernel<T>, sums, elements<T>(head), shape.seq, shape.head_dim, shape.key_width());
  });
}

}  // namespace fsdpbench::backend::cuda
