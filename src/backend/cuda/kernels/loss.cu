// Bytes to move: cross_entropy the logits twice (they are read twice, the second time from the cache while the rows in
// flight fit there: 2 x 100 KB a multiprocessor at 50,000 tokens in bf16), of a part of them once for the terms and
// twice for the gradients; mean_squared_error its 3 tensors.

#include "backend/cuda/kernels/launchers.h"

#include <limits>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/reductions.cuh"

namespace fsdpbench::backend::cuda {
namespace {

/// e^x. Rounding x * log2(e) costs a relative error of about |x| * 2^-24, which is nothing where e^x is small beside 1.
__device__ float exponential(float x) { return exp2f(x * 1.44269504F); }

/// Softmax of some logits: the largest, and the sum of e^(logit - largest).
struct Softmax {
  float largest;
  float sum;
};
/// Finite, so that a logit of minus infinity adds 0.
constexpr Softmax kEmpty{std::numeric_limits<float>::lowest(), 0.0F};

__device__ Softmax shuffle_xor(const Softmax& value, int mask) {
  return {__shfl_xor_sync(kAllLanes, value.largest, mask), __shfl_xor_sync(kAllLanes, value.sum, mask)};
}

struct Join {
  __device__ Softmax operator()(const Softmax& a, const Softmax& b) const {
    const float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * exponential(a.largest - largest) + b.sum * exponential(b.largest - largest)};
  }
};

/// Two such blocks fit a multiprocessor's registers, so that one loads while the other waits for its threads.
constexpr unsigned kRowThreads = 512;
constexpr int kRowBlocks = 2;
/// A thread has so many packs of a row on their way at once: 64 KB a multiprocessor, where 25 KB cover the time that
/// the memory of an H200 takes to answer.
constexpr int kPacksAtOnce = 4;
constexpr unsigned kMeanThreads = 1024;

/// Calls use(at, pack) for this thread's packs of a row of `count` elements, in order. Where they can be loaded whole,
/// kPacksAtOnce of them are before the first is used, as they lie in memory: as fp32 they would take twice the
/// registers. What `use` stores is its pack.
template <int N, class T, class Use>
__device__ void for_packs(const T* x, std::int64_t count, bool vector, float missing, const Use& use) {
  const std::int64_t step = std::int64_t{blockDim.x} * N;
  std::int64_t at = std::int64_t{threadIdx.x} * N;
  for (; vector && at + (kPacksAtOnce - 1) * step + N <= count; at += kPacksAtOnce * step) {
    Pack<T, N> packs[kPacksAtOnce];
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) packs[p] = *reinterpret_cast<const Pack<T, N>*>(x + at + p * step);
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) use(at + p * step, load<N>(packs[p].values));
  }
  for (; at < count; at += step) use(at, load_part<N>(x, at, count, vector, missing));
}

/// Softmax of a row's `count` logits; all threads of the block call it and get it.
template <class T>
__device__ Softmax softmax_of(const T* x, std::int64_t count, bool vector) {
  constexpr int N = kPack<T>;
  Softmax softmax = kEmpty;
  for_packs<N>(x, count, vector, -std::numeric_limits<float>::infinity(), [&](std::int64_t, const Floats<N>& v) {
    float largest = softmax.largest;
#pragma unroll
    for (int k = 0; k < N; ++k) largest = fmaxf(largest, v[k]);
    softmax.sum *= exponential(softmax.largest - largest);
    softmax.largest = largest;
#pragma unroll
    for (int k = 0; k < N; ++k) softmax.sum += exponential(v[k] - largest);
  });
  return block_reduce(softmax, kEmpty, Join{});
}

/// The gradients take the place of a row's logits; `target` may be none of them.
template <class T>
__device__ void write_gradients(T* x, std::int64_t count, const Softmax& softmax, std::int64_t target, float factor,
                                float scale, bool vector) {
  constexpr int N = kPack<T>;
  for_packs<N>(x, count, vector, 0.0F, [&](std::int64_t at, Floats<N> v) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      v[k] = exponential(v[k] - softmax.largest) * factor;
      if (at + k == target) v[k] = v[k] - scale;
    }
    store_part(x, at, count, vector, v);
  });
}

__device__ double loss_of(const Softmax& softmax, float of_target) {
  return log(static_cast<double>(softmax.sum)) - (static_cast<double>(of_target) - softmax.largest);
}

/// A block takes a row at a time: one pass for largest and sum, one that writes the gradients. row_losses: [rows].
template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    cross_entropy_kernel(T* logits, const std::int32_t* targets, double* row_losses, std::int64_t rows,
                         std::int64_t vocab, std::int64_t stride, float scale, bool vector) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const x = logits + row * stride;
    const std::int32_t target = targets[row];
    const bool known = target >= 0 && target < vocab;
    // Read by all before block_reduce, overwritten by one after it.
    const float of_target = known ? to_float(x[target]) : std::numeric_limits<float>::quiet_NaN();
    const Softmax softmax = softmax_of(x, vocab, vector);
    if (threadIdx.x == 0) row_losses[row] = loss_of(softmax, of_target);
    const float factor = known ? scale / softmax.sum : std::numeric_limits<float>::quiet_NaN();
    write_gradients(x, vocab, softmax, target, factor, scale, vector);
  }
}

/// A block takes a row at a time. terms: [3, rows].
template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    terms_kernel(const T* logits, const std::int32_t* targets, float* terms, std::int64_t rows, VocabularyPart part,
                 bool vector) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x = logits + row * part.count;
    const Softmax softmax = softmax_of(x, part.count, vector);
    if (threadIdx.x != 0) continue;
    const std::int32_t target = targets[row];
    terms[row] = softmax.largest;
    terms[rows + row] = softmax.sum;
    terms[2 * rows + row] = part.holds(target)   ? to_float(x[target - part.first])
                            : part.knows(target) ? 0.0F
                                                 : std::numeric_limits<float>::quiet_NaN();
  }
}

/// A block takes a row at a time. terms: [parts, 3, rows].
template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    of_terms_kernel(T* logits, const std::int32_t* targets, const float* terms, int parts, double* row_losses,
                    std::int64_t rows, VocabularyPart part, float scale, bool vector) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    Softmax softmax = kEmpty;
    for (int p = 0; p < parts; ++p) softmax.largest = fmaxf(softmax.largest, terms[3 * p * rows + row]);
    float of_target = 0;
    for (int p = 0; p < parts; ++p) {  // in the order of the parts, so that all ranks have the same bits
      const float* const of_part = terms + 3 * p * rows + row;
      softmax.sum += of_part[rows] * exponential(of_part[0] - softmax.largest);
      of_target += of_part[2 * rows];
    }
    if (threadIdx.x == 0) row_losses[row] = loss_of(softmax, of_target);
    const std::int32_t target = targets[row];
    const float factor = part.knows(target) ? scale / softmax.sum : std::numeric_limits<float>::quiet_NaN();
    write_gradients(logits + row * part.count, part.count, softmax, target - part.first, factor, scale, vector);
  }
}

/// One block. loss = sum of parts / count.
__global__ void __launch_bounds__(kMeanThreads)
    mean_kernel(const double* parts, std::int64_t part_count, double count, float* loss) {
  const double sum = sum_of_parts(parts, part_count);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / count);
}

void mean(cudaStream_t stream, const char* name, const double* parts, std::int64_t part_count, std::int64_t count,
          float* loss) {
  launch(stream, name, 1, row_threads(part_count, 1, kMeanThreads), mean_kernel, parts, part_count,
         static_cast<double>(count), loss);
}

template <class T>
struct SquaredError {
  const T* prediction;
  const float* target;
  T* d_prediction;
  std::int64_t count;
  float scale;
  bool vector;

  __device__ double add(std::int64_t i) const {
    constexpr int N = kPackOf<T, float>;
    const Floats<N> p = load_part<N>(prediction, i, count, vector);
    const Floats<N> t = load_part<N>(target, i, count, vector);
    Floats<N> d;
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const double difference = static_cast<double>(p[k]) - static_cast<double>(t[k]);
      sum += difference * difference;
      d[k] = scale * (p[k] - t[k]);
    }
    store_part(d_prediction, i, count, vector, d);
    return sum;
  }
};

}  // namespace

void cross_entropy(cudaStream_t stream, const CrossEntropyCall& call, Scratch& scratch) {
  const std::int64_t rows = call.rows, vocab = call.part.count, stride = call.stride > 0 ? call.stride : vocab;
  auto* const row_losses = reinterpret_cast<double*>(scratch.get(rows * 8));
  with_element_type(call.dtype, [&]<class T>(T) {
    T* const x = elements<T>(call.logits);
    launch(stream, "cross_entropy", blocks_for(rows), row_threads(vocab, kPack<T>, kRowThreads),
           cross_entropy_kernel<T>, x, call.targets, row_losses, rows, vocab, stride,
           call.loss_scale / static_cast<float>(rows), rows_aligned(x, stride));
  });
  mean(stream, "cross_entropy", row_losses, rows, rows, call.loss);
}

void cross_entropy_terms(cudaStream_t stream, const CrossEntropyCall& call, float* terms) {
  const std::int64_t count = call.part.count;
  with_element_type(call.dtype, [&]<class T>(T) {
    const T* const x = elements<T>(call.logits);
    launch(stream, "cross_entropy_terms", blocks_for(call.rows), row_threads(count, kPack<T>, kRowThreads),
           terms_kernel<T>, x, call.targets, terms, call.rows, call.part, rows_aligned(x, count));
  });
}

void cross_entropy_of_terms(cudaStream_t stream, const CrossEntropyCall& call, const float* terms, int parts,
                            Scratch& scratch) {
  const std::int64_t rows = call.rows, count = call.part.count;
  auto* const row_losses = reinterpret_cast<double*>(scratch.get(rows * 8));
  with_element_type(call.dtype, [&]<class T>(T) {
    T* const x = elements<T>(call.logits);
    launch(stream, "cross_entropy_of_terms", blocks_for(rows), row_threads(count, kPack<T>, kRowThreads),
           of_terms_kernel<T>, x, call.targets, terms, parts, row_losses, rows, call.part,
           call.loss_scale / static_cast<float>(rows), rows_aligned(x, count));
  });
  mean(stream, "cross_entropy_of_terms", row_losses, rows, rows, call.loss);
}

void mean_squared_error(cudaStream_t stream, const MeanSquaredErrorCall& call, Scratch& scratch) {
  const std::int64_t count = call.count;
  with_element_type(call.dtype, [&]<class T>(T) {
    constexpr int N = kPackOf<T, float>;
    const std::int64_t parts = sum_parts(count, N);
    auto* const sums = reinterpret_cast<double*>(scratch.get(parts * 8));
    const SquaredError<T> term{
        .prediction = elements<T>(call.prediction),
        .target = call.target,
        .d_prediction = elements<T>(call.d_prediction),
        .count = count,
        .scale = 2.0F * call.loss_scale / static_cast<float>(count),
        .vector = aligned(call.prediction) && aligned(call.target) && aligned(call.d_prediction)};
    partial_sums<N>(stream, "mean_squared_error", term, count, sums);
    mean(stream, "mean_squared_error", sums, parts, count, call.loss);
  });
}

}  // namespace fsdpbench::backend::cuda
