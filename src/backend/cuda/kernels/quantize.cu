// Quantised numbers (base/quantization.h), with the bits that the CPU's kernels give. Bytes to move: to quantise reads
// a block twice, the second time from a cache, and writes half a byte or one a number; the way back reads those and
// writes the elements.

#include "backend/cuda/kernels/quantize.h"

#include <cuda_fp8.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/copy_runs.cuh"
#include "backend/cuda/kernels/element.h"

namespace fsdpbench::backend::cuda {
namespace {

/// What a thread takes at once; blocks are multiples of it.
constexpr int kUnit = 8;

// ------------------------------------------------------------------------------- a number of 8 or 4 bits, and its
// value

/// The nearest integer to `value`, below 2^22 in magnitude, halves to even.
__device__ inline std::int32_t rounded(float value) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: the sum's last bit is worth 1
  return std::bit_cast<std::int32_t>(value + kShift) - std::bit_cast<std::int32_t>(kShift);
}

struct Int8 {
  static constexpr int kBits = 8;
  __device__ static std::uint32_t encode(float value) { return static_cast<std::uint32_t>(rounded(value)) & 0xFFU; }
  __device__ static float decode(std::uint32_t number) { return static_cast<float>(static_cast<std::int8_t>(number)); }
};

struct Int4 {
  static constexpr int kBits = 4;
  __device__ static std::uint32_t encode(float value) { return static_cast<std::uint32_t>(rounded(value)) & 0xFU; }
  __device__ static float decode(std::uint32_t number) {
    return static_cast<float>(static_cast<std::int8_t>(number << 4) >> 4);
  }
};

/// By the GPU's own instructions where it has them (compute capability 8.9 and above).
struct Fp8 {
  static constexpr int kBits = 8;
  __device__ static std::uint32_t encode(float value) {
    return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
  }
  __device__ static float decode(std::uint32_t number) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(number), __NV_E4M3)));
  }
};

template <class Work>
void with_coding(Quantization format, Work&& work) {
  if (format.fp8) return work(Fp8{});
  if (format.bits == 8) return work(Int8{});
  work(Int4{});
}

// ----------------------------------------------------------------------------------------------------------- a message

/// Parts in memory: QuantizedParts as kernels take it.
template <class Coding>
struct Parts {
  const std::byte* first;
  std::int64_t count;
  std::int64_t stride;
  std::int64_t block;
  std::int64_t payload;

  explicit Parts(const QuantizedParts& parts)
      : first(parts.first),
        count(parts.count),
        stride(parts.stride),
        block(parts.format.block),
        payload(parts.format.payload_bytes(parts.count)) {}

  __device__ std::int64_t block_of(std::int64_t number) const { return quotient(number, block); }
  /// Numbers [at, at + N) of a part, all of block `b`; N is 1, or kUnit with `at` a multiple of it and no number beyond
  /// the payload.
  template <int N>
  __device__ Floats<N> load(std::int64_t part, std::int64_t at, std::int64_t b) const {
    const std::byte* const memory = first + part * stride + at * Coding::kBits / 8;
    const float scale = *reinterpret_cast<const float*>(first + part * stride + payload + b * 4);
    Floats<N> values;
    if constexpr (N == 1) {
      const auto byte = static_cast<std::uint32_t>(*memory);
      values[0] = Coding::decode(byte >> (Coding::kBits == 4 ? 4 * (at % 2) : 0)) * scale;
    } else {
#pragma unroll
      for (int word = 0; word < N * Coding::kBits / 32; ++word) {
        const std::uint32_t bits = reinterpret_cast<const std::uint32_t*>(memory)[word];
#pragma unroll
        for (int i = 0; i < 32 / Coding::kBits; ++i) {
          values[word * 32 / Coding::kBits + i] = Coding::decode(bits >> (i * Coding::kBits)) * scale;
        }
      }
    }
    return values;
  }
  /// a / b; the GPU divides 32 bits several times as fast.
  __device__ static std::int64_t quotient(std::int64_t a, std::int64_t b) {
    const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
    if ((ua | ub) >> 32 == 0) return static_cast<std::uint32_t>(ua) / static_cast<std::uint32_t>(ub);
    return static_cast<std::int64_t>(ua / ub);
  }
};

// ---------------------------------------------------------------------------------------------------------- to numbers

struct Largest {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a < b ? b : a; }
};

/// What is quantised: load() gives the unit at `at` of `count` numbers, of block `b`, zeros behind the last.

/// factor * source.
template <class From>
struct Numbers {
  const From* source;
  float factor;
  bool vector;

  __device__ Floats<kUnit> load(std::int64_t at, std::int64_t count, std::int64_t /*b*/) const {
    Floats<kUnit> values = load_part<kUnit>(source, at, count, vector);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) values[i] = factor * values[i];
    return values;
  }
};

/// The sum of parts, in their order.
template <class Coding>
struct SumOfParts {
  Parts<Coding> parts;
  int sources;

  __device__ Floats<kUnit> load(std::int64_t at, std::int64_t count, std::int64_t b) const {
    Floats<kUnit> sum{};
    for (int s = 0; s < sources; ++s) {
      const Floats<kUnit> values = of_part(s, at, count, b);
#pragma unroll
      for (int i = 0; i < kUnit; ++i) sum[i] = s == 0 ? values[i] : sum[i] + values[i];
    }
    return sum;
  }
  __device__ Floats<kUnit> of_part(int part, std::int64_t at, std::int64_t count, std::int64_t b) const {
    if (at + kUnit <= count) return parts.template load<kUnit>(part, at, b);
    Floats<kUnit> values{};
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      if (at + i < count) values[i] = parts.template load<1>(part, at + i, b)[0];
    }
    return values;
  }
};

constexpr int kMostThreads = 256;

/// A thread block takes a block of numbers at a time.
template <class Coding, class Source>
__global__ void __launch_bounds__(kMostThreads)
    quantize_kernel(const Source source, std::byte* part, std::int64_t count, std::int64_t block, std::int64_t payload,
                    float levels) {
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kUnit;
  for (std::int64_t b = blockIdx.x; b * block < count; b += gridDim.x) {
    const std::int64_t first = b * block;
    const std::int64_t end = std::min(count, first + block);
    std::uint32_t most = 0;  // as integers magnitudes compare as they are, infinities and NaNs above all
    for (std::int64_t at = first + static_cast<std::int64_t>(threadIdx.x) * kUnit; at < end; at += step) {
      const Floats<kUnit> x = source.load(at, count, b);
#pragma unroll
      for (int i = 0; i < kUnit; ++i) most = Largest{}(most, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU);
    }
    most = block_reduce(most, 0U, Largest{});
    const float m = std::bit_cast<float>(most);
    const float to_number = levels / m;
    const bool finite = most < 0x7F800000U;
    const bool usable = finite && to_number <= std::numeric_limits<float>::max();
    for (std::int64_t at = first + static_cast<std::int64_t>(threadIdx.x) * kUnit; at < end; at += step) {
      const Floats<kUnit> x = source.load(at, count, b);
      auto* const words = reinterpret_cast<std::uint32_t*>(part + at * Coding::kBits / 8);
#pragma unroll
      for (int word = 0; word < kUnit * Coding::kBits / 32; ++word) {
        std::uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < 32 / Coding::kBits; ++i) {
          const float value = x[word * 32 / Coding::kBits + i];
          bits |= (usable ? Coding::encode(value * to_number) : 0U) << (i * Coding::kBits);
        }
        if (at + word * 32 / Coding::kBits < end) words[word] = bits;
      }
    }
    if (threadIdx.x == 0) {
      *reinterpret_cast<float*>(part + payload + b * 4) = usable   ? m / levels
                                                          : finite ? 0.0F
                                                                   : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

template <class Coding, class Source>
void write_part(cudaStream_t stream, const char* name, const Source& source, std::byte* part, std::int64_t count,
                Quantization format) {
  launch(stream, name, blocks_for(format.blocks(count)),
         row_threads(std::min(count, format.block), kUnit, kMostThreads), quantize_kernel<Coding, Source>, source, part,
         count, format.block, format.payload_bytes(count), format.levels());
}

// -------------------------------------------------------------------------------------------------------- from numbers

/// Numbers of all parts, one after another, to elements.
template <class Coding, class To>
struct Dequantize {
  Parts<Coding> parts;
  To* target;

  template <int N>
  __device__ void move(std::int64_t from, std::int64_t to) const {
    const std::int64_t part = Parts<Coding>::quotient(from, parts.count);
    const std::int64_t at = from - part * parts.count;
    store(target + to, parts.template load<N>(part, at, parts.block_of(at)));
  }
  template <int N>
  __device__ void clear(std::int64_t to) const {
    store(target + to, Floats<N>{});
  }
};

template <class Coding, class To>
__global__ void __launch_bounds__(kMostThreads)
    sum_quantized_kernel(const SumOfParts<Coding> sum, float scale, To* target, bool vector) {
  const std::int64_t count = sum.parts.count;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMostThreads * kUnit;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kMostThreads + threadIdx.x) * kUnit; at < count;
       at += step) {
    Floats<kUnit> values = sum.load(at, count, sum.parts.block_of(at));
#pragma unroll
    for (int i = 0; i < kUnit; ++i) values[i] = scale * values[i];
    store_part<kUnit>(target, at, count, vector, values);
  }
}

}  // namespace

void quantize(cudaStream_t stream, const ConstElements& source, std::byte* part, std::int64_t count, float factor,
              Quantization format) {
  with_element_type(source.dtype, [&]<class From>(From) {
    with_coding(format, [&]<class Coding>(Coding) {
      const Numbers<From> from{elements<From>(source.memory), factor, aligned(source.memory)};
      write_part<Coding>(stream, "quantize", from, part, count, format);
    });
  });
}

void dequantize(cudaStream_t stream, const QuantizedParts& parts, const Elements& target,
                std::span<const CopyRun> runs) {
  // Where parts are no multiples of a unit, units would begin elsewhere in each.
  const Boundaries source{.period = kUnit, .first = parts.count % kUnit == 0 ? 0 : -1};
  with_element_type(target.dtype, [&]<class To>(To) {
    with_coding(parts.format, [&]<class Coding>(Coding) {
      const Dequantize<Coding, To> body{Parts<Coding>(parts), elements<To>(target.memory)};
      copy<kUnit>(stream, "dequantize", body, runs, source, boundaries(target.memory, sizeof(To)));
    });
  });
}

void sum_quantized(cudaStream_t stream, const QuantizedParts& parts, int sources, float scale, const Elements& target) {
  with_element_type(target.dtype, [&]<class To>(To) {
    with_coding(parts.format, [&]<class Coding>(Coding) {
      launch(stream, "sum_quantized", blocks_for(ceil_div(parts.count, kMostThreads * kUnit)), kMostThreads,
             sum_quantized_kernel<Coding, To>, SumOfParts<Coding>{Parts<Coding>(parts), sources}, scale,
             elements<To>(target.memory), aligned(target.memory));
    });
  });
}

void requantize_sum(cudaStream_t stream, const QuantizedParts& parts, int sources, std::byte* part) {
  with_coding(parts.format, [&]<class Coding>(Coding) {
    const SumOfParts<Coding> sum{Parts<Coding>(parts), sources};
    write_part<Coding>(stream, "requantize_sum", sum, part, parts.count, parts.format);
  });
}

}  // namespace fsdpbench::backend::cuda
