#include "backend/cpu/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/element.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Query rows [begin, begin + rows), which see the keys [0, keys).
struct Block {
  std::int64_t begin = 0, rows = 0, keys = 0;
};

/// The products of one attention call: sizes and strides said once. "rows" are blocks of rows of one head in queries or
/// the output, "key" matrices are of one head in keys or values, or in the gradients of each; "tiles" are [rows, keys]
/// with rows of seq elements.
class Products {
 public:
  Products(Matmul& matmul, const AttentionShape& shape) : matmul_(matmul), shape_(shape) {}

  /// tile (f32) = rows * key^T.
  void by_key(const Block& b, const void* rows, const void* key, float* tile) {
    matmul_({.m = b.rows,
             .n = b.keys,
             .k = shape_.head_dim,
             .a_stride = shape_.width(),
             .b_stride = shape_.key_width(),
             .c_stride = shape_.seq,
             .transpose_b = true,
             .input = shape_.dtype,
             .output = DType::f32},
            rows, key, tile);
  }
  /// rows = tile * key.
  void from_tile(const Block& b, const void* tile, const void* key, void* rows) {
    matmul_({.m = b.rows,
             .n = shape_.head_dim,
             .k = b.keys,
             .a_stride = shape_.seq,
             .b_stride = shape_.key_width(),
             .c_stride = shape_.width(),
             .input = shape_.dtype,
             .output = shape_.dtype},
            tile, key, rows);
  }
  /// sum (f32, rows of head_dim) = tile^T * rows, or += if `add`.
  void by_tile(const Block& b, const void* tile, const void* rows, float* sum, bool add) {
    matmul_({.m = b.keys,
             .n = shape_.head_dim,
             .k = b.rows,
             .a_stride = shape_.seq,
             .b_stride = shape_.width(),
             .c_stride = shape_.head_dim,
             .transpose_a = true,
             .input = shape_.dtype,
             .output = DType::f32,
             .beta = add ? 1.0F : 0.0F},
            tile, rows, sum);
  }

 private:
  Matmul& matmul_;
  const AttentionShape& shape_;
};

/// Softmax of a row's first `visible` scores into probabilities, 0 from there to `keys`; returns its log-sum-exp.
template <class T>
float softmax_row(float* scores, T* probabilities, std::int64_t visible, std::int64_t keys, float scale) {
  const float largest = lane_max(visible, [scores](std::int64_t j) { return scores[j]; });
  for (std::int64_t j = 0; j < visible; ++j) scores[j] = fast_exp((scores[j] - largest) * scale);
  const float sum = lane_sum<float>(visible, [scores](std::int64_t j) { return scores[j]; });
  const float inverse = 1.0F / sum;
  for (std::int64_t j = 0; j < visible; ++j) store(probabilities[j], scores[j] * inverse);
  for (std::int64_t j = visible; j < keys; ++j) store(probabilities[j], 0.0F);
  return largest * scale + std::log(sum);
}

/// One row of the backward: scores become probabilities, d_probabilities become d_scores.
template <class T>
void softmax_row_backward(float* scores, T* probabilities, float* d_probabilities, T* d_scores, float log_sum_exp,
                          float delta, std::int64_t visible, std::int64_t keys, float scale) {
  for (std::int64_t j = 0; j < visible; ++j) {
    const float p = fast_exp(scores[j] * scale - log_sum_exp);
    const float d = p * (d_probabilities[j] - delta) * scale;
    store(probabilities[j], p);
    store(d_scores[j], d);
  }
  for (std::int64_t j = visible; j < keys; ++j) {
    store(probabilities[j], 0.0F);
    store(d_scores[j], 0.0F);
  }
}

/// Rows of head_dim summed in fp32 to rows of one head of keys or values.
template <class T>
void store_rows(const float* source, T* target, const AttentionShape& shape) {
  const std::int64_t stride = shape.key_width();
  for (std::int64_t row = 0; row < shape.seq; ++row) {
    for (std::int64_t j = 0; j < shape.head_dim; ++j) {
      store(target[row * stride + j], source[row * shape.head_dim + j]);
    }
  }
}

template <class T>
class Backward {
 public:
  Backward(Matmul& matmul, const AttentionShape& shape, std::byte* scratch)
      : shape_(shape),
        products_(matmul, shape),
        layout_(AttentionScratch::backward(shape)),
        scores_(elements<float>(scratch + layout_.scores)),
        probabilities_(elements<T>(scratch + layout_.probabilities)),
        d_scores_(elements<float>(scratch + layout_.d_scores)),
        d_scores_low_(elements<T>(scratch + layout_.d_scores_low)),
        d_key_(elements<float>(scratch + layout_.d_key)),
        d_value_(elements<float>(scratch + layout_.d_value)),
        scale_(1.0F / std::sqrt(static_cast<float>(shape.head_dim))) {}

  /// Adds one query head to the sums of its key/value head; pointers are to the head's first row.
  void head(const T* d_out, const T* q, const T* k, const T* v, const T* out, const float* log_sum_exp, T* d_q,
            bool first) {
    const std::int64_t last = (shape_.seq - 1) / layout_.block_rows * layout_.block_rows;
    // From the last block, which reaches all keys: its product overwrites the sums, the others add.
    for (std::int64_t begin = last; begin >= 0; begin -= layout_.block_rows) {
      const std::int64_t end = std::min(begin + layout_.block_rows, shape_.seq);
      const Block b{begin, end - begin, end};
      const std::int64_t at = begin * shape_.width();
      products_.by_key(b, q + at, k, scores_);
      products_.by_key(b, d_out + at, v, d_scores_);
      softmax(b, d_out + at, out + at, log_sum_exp);
      const bool add = !first || begin != last;
      products_.by_tile(b, probabilities_, d_out + at, d_value_, add);
      products_.from_tile(b, d_scores_low_, k, d_q + at);
      products_.by_tile(b, d_scores_low_, q + at, d_key_, add);
    }
  }

  void store_sums(T* d_k, T* d_v) const {
    store_rows(d_key_, d_k, shape_);
    store_rows(d_value_, d_v, shape_);
  }

 private:
  void softmax(const Block& b, const T* d_out, const T* out, const float* log_sum_exp) {
    for (std::int64_t row = 0; row < b.rows; ++row) {
      const T* const d = d_out + row * shape_.width();
      const T* const o = out + row * shape_.width();
      const float delta = lane_sum<float>(shape_.head_dim, [d, o](std::int64_t j) { return load(d[j]) * load(o[j]); });
      const std::int64_t tile = row * shape_.seq;
      softmax_row_backward(scores_ + tile, probabilities_ + tile, d_scores_ + tile, d_scores_low_ + tile,
                           log_sum_exp[b.begin + row], delta, b.begin + row + 1, b.keys, scale_);
    }
  }

  const AttentionShape& shape_;
  Products products_;
  AttentionScratch layout_;
  float* scores_;
  T* probabilities_;
  float* d_scores_;
  T* d_scores_low_;
  float* d_key_;
  float* d_value_;
  float scale_;
};

}  // namespace

void attention(Matmul& matmul, const AttentionCall& call) {
  const AttentionShape& shape = call.shape;
  const AttentionScratch layout = AttentionScratch::forward(shape);
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  Products products(matmul, shape);
  float* const scores = elements<float>(call.scratch + layout.scores);
  with_element_type(shape.dtype, [&]<class T>(T) {
    T* const probabilities = elements<T>(call.scratch + layout.probabilities);
    for (std::int64_t i = 0; i < shape.batch * shape.heads; ++i) {
      const std::int64_t sample = i / shape.heads;
      const std::int64_t head = i % shape.heads;
      const std::int64_t query_at = sample * shape.seq * shape.width() + head * shape.head_dim;
      const std::int64_t key_at =
          sample * shape.seq * shape.key_width() + head * shape.kv_heads / shape.heads * shape.head_dim;
      for (std::int64_t begin = 0; begin < shape.seq; begin += layout.block_rows) {
        const std::int64_t end = std::min(begin + layout.block_rows, shape.seq);
        const Block b{begin, end - begin, end};
        products.by_key(b, elements<T>(call.q) + query_at + begin * shape.width(), elements<T>(call.k) + key_at,
                        scores);
        for (std::int64_t row = 0; row < b.rows; ++row) {
          call.log_sum_exp[i * shape.seq + begin + row] =
              softmax_row(scores + row * shape.seq, probabilities + row * shape.seq, begin + row + 1, b.keys, scale);
        }
        products.from_tile(b, probabilities, elements<T>(call.v) + key_at,
                           elements<T>(call.out) + query_at + begin * shape.width());
      }
    }
  });
}

void attention_backward(Matmul& matmul, const AttentionBackwardCall& call) {
  const AttentionShape& shape = call.shape;
  const std::int64_t group = shape.heads / shape.kv_heads;
  with_element_type(shape.dtype, [&]<class T>(T) {
    Backward<T> backward(matmul, shape, call.scratch);
    for (std::int64_t sample = 0; sample < shape.batch; ++sample) {
      for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
        const std::int64_t key_at = sample * shape.seq * shape.key_width() + kv_head * shape.head_dim;
        for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const std::int64_t at = sample * shape.seq * shape.width() + head * shape.head_dim;
          backward.head(elements<T>(call.d_out) + at, elements<T>(call.q) + at, elements<T>(call.k) + key_at,
                        elements<T>(call.v) + key_at, elements<T>(call.out) + at,
                        call.log_sum_exp + (sample * shape.heads + head) * shape.seq, elements<T>(call.d_q) + at,
                        head == kv_head * group);
        }
        backward.store_sums(elements<T>(call.d_k) + key_at, elements<T>(call.d_v) + key_at);
      }
    }
  });
}

}  // namespace fsdpbench::backend::cpu
