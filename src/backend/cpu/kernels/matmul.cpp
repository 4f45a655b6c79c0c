#include "backend/cpu/kernels/matmul.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

struct ShapeHash {
  std::size_t operator()(const MatmulShape& s) const {
    std::size_t hash = 0;
    const auto mix = [&hash](std::int64_t value) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    };
    for (const std::int64_t value : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride}) mix(value);
    mix(static_cast<std::int64_t>(s.transpose_a) | static_cast<std::int64_t>(s.transpose_b) << 1 |
        static_cast<std::int64_t>(s.input) << 2 | static_cast<std::int64_t>(s.output) << 4);
    mix(static_cast<std::int64_t>(std::hash<float>{}(s.alpha)));
    mix(static_cast<std::int64_t>(std::hash<float>{}(s.beta)));
    return hash;
  }
};

dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// A rows x columns operand; transposed means stored columns x rows.
dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, std::int64_t stride, bool transposed, DType dtype) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, data_type(dtype), strides};
}

/// A primitive with its memory objects, whose pointers are set at each call.
struct Prepared {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratchpad;
  std::unordered_map<int, dnnl::memory> arguments;
  std::size_t scratchpad_bytes = 0;
};

}  // namespace

class Matmul::Primitives {
 public:
  Primitives() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void run(const MatmulShape& shape, const void* a, const void* b, void* c) {
    Prepared& prepared = find(shape);
    prepared.a.set_data_handle(const_cast<void*>(a), stream_);  // oneDNN has no view of constant memory
    prepared.b.set_data_handle(const_cast<void*>(b), stream_);
    prepared.c.set_data_handle(c, stream_);
    if (prepared.scratchpad_bytes > 0) {
      if (scratchpad_.size() < prepared.scratchpad_bytes) scratchpad_.resize(prepared.scratchpad_bytes);
      prepared.scratchpad.set_data_handle(scratchpad_.data(), stream_);
    }
    prepared.primitive.execute(stream_, prepared.arguments);
  }

 private:
  Prepared& find(const MatmulShape& shape) {
    const auto found = prepared_.find(shape);
    if (found != prepared_.end()) return found->second;
    return prepared_.emplace(shape, prepare(shape)).first->second;
  }

  Prepared prepare(const MatmulShape& s) const {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.alpha != 1.0F) attributes.set_output_scales(0, {s.alpha});
    if (s.beta != 0.0F) {
      dnnl::post_ops sum;
      sum.append_sum(s.beta);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc description(matrix(s.m, s.k, s.a_stride, s.transpose_a, s.input),
                                         matrix(s.k, s.n, s.b_stride, s.transpose_b, s.input),
                                         matrix(s.m, s.n, s.c_stride, false, s.output));
    const dnnl::matmul::primitive_desc primitive(description, attributes, engine_);
    Prepared p;
    p.primitive = dnnl::matmul(primitive);
    p.a = dnnl::memory(primitive.src_desc(), engine_, nullptr);
    p.b = dnnl::memory(primitive.weights_desc(), engine_, nullptr);
    p.c = dnnl::memory(primitive.dst_desc(), engine_, nullptr);
    p.scratchpad = dnnl::memory(primitive.scratchpad_desc(), engine_, nullptr);
    p.scratchpad_bytes = primitive.scratchpad_desc().get_size();
    p.arguments = {
        {DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}, {DNNL_ARG_SCRATCHPAD, p.scratchpad}};
    return p;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<MatmulShape, Prepared, ShapeHash> prepared_;
  std::vector<std::byte> scratchpad_;  // one for all: a lane runs one primitive at a time
};

/// Products of bf16 operands through fp32 copies of them, which are as large as a few panels at most.
class Matmul::Widened {
 public:
  void run(Primitives& primitives, const MatmulShape& s, const void* a, const void* b, void* c) {
    const std::int64_t most = std::max(kLeastPanel, kPanelNumel / s.k);
    const std::int64_t rows = std::min(s.m, most);
    const std::int64_t columns = std::min(s.n, most);
    const auto* const a_bits = static_cast<const std::uint16_t*>(a);
    const auto* const b_bits = static_cast<const std::uint16_t*>(b);
    for (std::int64_t n = 0; n < s.n; n += columns) {
      const std::int64_t width = std::min(columns, s.n - n);
      widen(b_bits + (s.transpose_b ? n * s.b_stride : n), s.b_stride, s.transpose_b ? width : s.k,
            s.transpose_b ? s.k : width, b_);
      for (std::int64_t m = 0; m < s.m; m += rows) {
        const std::int64_t height = std::min(rows, s.m - m);
        if (n == 0 || rows < s.m) {
          widen(a_bits + (s.transpose_a ? m : m * s.a_stride), s.a_stride, s.transpose_a ? s.k : height,
                s.transpose_a ? height : s.k, a_);
        }
        multiply(primitives, s, height, width, static_cast<std::byte*>(c) + (m * s.c_stride + n) * size_of(s.output));
      }
    }
  }

 private:
  static constexpr std::int64_t kPanelNumel = std::int64_t{1} << 22;
  static constexpr std::int64_t kLeastPanel =
      64;  // rows or columns: fewer would not pay for widening the other operand

  void multiply(Primitives& primitives, const MatmulShape& whole, std::int64_t m, std::int64_t n, std::byte* c) {
    MatmulShape s = whole;
    s.m = m;
    s.n = n;
    s.a_stride = s.transpose_a ? m : s.k;
    s.b_stride = s.transpose_b ? s.k : n;
    s.input = s.output = DType::f32;
    if (whole.output == DType::f32) {
      primitives.run(s, a_.data(), b_.data(), c);
      return;
    }
    auto* const bits = reinterpret_cast<std::uint16_t*>(c);
    if (s.beta != 0.0F) {
      widen(bits, whole.c_stride, m, n, c_);
    } else if (c_.size() < static_cast<std::size_t>(m * n)) {
      c_.resize(m * n);
    }
    s.c_stride = n;
    primitives.run(s, a_.data(), b_.data(), c_.data());
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t i = 0; i < n; ++i) {
        bits[row * whole.c_stride + i] = float_to_bf16(c_[row * n + i]);
      }
    }
  }

  static void widen(const std::uint16_t* bits, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                    std::vector<float>& to) {
    if (to.size() < static_cast<std::size_t>(rows * columns)) to.resize(rows * columns);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const target = to.data() + row * columns;
      for (std::int64_t i = 0; i < columns; ++i) target[i] = bf16_to_float(bits[row * stride + i]);
    }
  }

  std::vector<float> a_, b_, c_;
};

Matmul::Bf16 Matmul::faster() {
  constexpr auto kMultiplies = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);  // newer ones have its bits, too
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & kMultiplies) == kMultiplies ? Bf16::multiplied : Bf16::widened;
}

Matmul::Matmul(Bf16 bf16) {
  omp_set_num_threads(1);  // of this thread only; each lane computes alone
  primitives_ = std::make_unique<Primitives>();
  if (bf16 == Bf16::widened) widened_ = std::make_unique<Widened>();
}

Matmul::~Matmul() = default;

void Matmul::operator()(const MatmulShape& shape, const void* a, const void* b, void* c) {
  try {
    if (widened_ && shape.input == DType::bf16) {
      widened_->run(*primitives_, shape, a, b, c);
    } else {
      primitives_->run(shape, a, b, c);
    }
  } catch (const dnnl::error& failure) {
    throw BackendError("oneDNN cannot multiply " + std::to_string(shape.m) + " x " + std::to_string(shape.k) + " by " +
                       std::to_string(shape.k) + " x " + std::to_string(shape.n) + ": " + failure.what() + ".");
  }
}

}  // namespace fsdpbench::backend::cpu
