#include "backend/cuda/kernels/attention.h"

#include <algorithm>

#include "backend/cuda/kernels/attention_softmax.h"
#include "backend/cuda/kernels/cudnn_graph.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {
namespace {

float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
std::byte* bytes(float* memory) { return reinterpret_cast<std::byte*>(memory); }

/// Places of the parts of a call's tensors: bytes from their start.
class Places {
 public:
  explicit Places(const AttentionShape& shape) : shape_(shape), size_(size_of(shape.dtype)) {}

  /// In queries and the output.
  std::int64_t query(std::int64_t sample, std::int64_t head) const {
    return (sample * shape_.seq * shape_.width() + head * shape_.head_dim) * size_;
  }
  std::int64_t key(std::int64_t sample, std::int64_t kv_head) const {
    return (sample * shape_.seq * shape_.key_width() + kv_head * shape_.head_dim) * size_;
  }
  std::int64_t query_row(std::int64_t row) const { return row * shape_.width() * size_; }
  std::int64_t statistic(std::int64_t sample, std::int64_t head) const {
    return (sample * shape_.heads + head) * shape_.seq;  // in floats
  }

 private:
  const AttentionShape& shape_;
  std::int64_t size_;
};

/// The matrix products of one call. "rows" are blocks of rows of one head in queries or the output, "key" matrices all
/// rows of one head in keys or values, or in the gradients of each; "tiles" are [rows, keys].
class Products {
 public:
  Products(Gemms& gemms, const AttentionShape& shape) : gemms_(gemms), shape_(shape) {}

  /// tile (f32) = rows * key^T.
  void by_key(const AttentionBlock& b, const std::byte* rows, const std::byte* key, float* tile) {
    gemms_.run({.a = rows,
                .b = key,
                .c = bytes(tile),
                .m = b.rows,
                .n = b.keys,
                .k = shape_.head_dim,
                .transpose_b = true,
                .input_dtype = shape_.dtype,
                .output_dtype = DType::f32,
                .a_stride = shape_.width(),
                .b_stride = shape_.key_width(),
                .c_stride = shape_.seq});
  }
  /// rows = tile * key.
  void from_tile(const AttentionBlock& b, const std::byte* tile, const std::byte* key, std::byte* rows) {
    gemms_.run({.a = tile,
                .b = key,
                .c = rows,
                .m = b.rows,
                .n = shape_.head_dim,
                .k = b.keys,
                .input_dtype = shape_.dtype,
                .output_dtype = shape_.dtype,
                .a_stride = shape_.seq,
                .b_stride = shape_.key_width(),
                .c_stride = shape_.width()});
  }
  /// sum (f32, rows of head_dim) = tile^T * rows, or += if `add`.
  void by_tile(const AttentionBlock& b, const std::byte* tile, const std::byte* rows, float* sum, bool add) {
    gemms_.run({.a = tile,
                .b = rows,
                .c = bytes(sum),
                .m = b.keys,
                .n = shape_.head_dim,
                .k = b.rows,
                .transpose_a = true,
                .input_dtype = shape_.dtype,
                .output_dtype = DType::f32,
                .beta = add ? 1.0F : 0.0F,
                .a_stride = shape_.seq,
                .b_stride = shape_.width()});
  }

 private:
  Gemms& gemms_;
  const AttentionShape& shape_;
};

AttentionBlock block_at(const AttentionShape& shape, std::int64_t begin, std::int64_t rows) {
  const std::int64_t end = std::min(begin + rows, shape.seq);
  return {begin, end - begin, end};
}

/// One query head of the backward; pointers are to the head's first row.
struct BackwardHead {
  const std::byte* d_out;
  const std::byte* q;
  const std::byte* k;
  const std::byte* v;
  const std::byte* out;
  const float* log_sum_exp;
  std::byte* d_q;
};

class Backward {
 public:
  Backward(cudaStream_t stream, Gemms& gemms, const AttentionShape& shape, std::byte* scratch)
      : stream_(stream),
        shape_(shape),
        places_(shape),
        products_(gemms, shape),
        block_rows_(AttentionScratch::backward(shape).block_rows) {
    const AttentionScratch layout = AttentionScratch::backward(shape);
    tiles_ = {floats(scratch + layout.scores), scratch + layout.probabilities, floats(scratch + layout.d_scores),
              scratch + layout.d_scores_low};
    d_key_ = floats(scratch + layout.d_key);
    d_value_ = floats(scratch + layout.d_value);
  }

  /// Adds one query head to the sums of its key/value head, which the `first` one overwrites.
  void head(const BackwardHead& h, bool first) {
    const std::int64_t last = (shape_.seq - 1) / block_rows_ * block_rows_;
    // From the last block, which reaches all keys: its product overwrites the sums, the others add.
    for (std::int64_t begin = last; begin >= 0; begin -= block_rows_) {
      const AttentionBlock b = block_at(shape_, begin, block_rows_);
      const std::int64_t at = places_.query_row(begin);
      products_.by_key(b, h.q + at, h.k, tiles_.scores);
      products_.by_key(b, h.d_out + at, h.v, tiles_.d_probabilities);
      attention_softmax_backward(stream_, shape_, b, tiles_, h.d_out + at, h.out + at, h.log_sum_exp + begin);
      const bool add = !first || begin != last;
      products_.by_tile(b, tiles_.probabilities, h.d_out + at, d_value_, add);
      products_.from_tile(b, tiles_.d_scores, h.k, h.d_q + at);
      products_.by_tile(b, tiles_.d_scores, h.q + at, d_key_, add);
    }
  }

  void store_sums(std::byte* d_k, std::byte* d_v) {
    store_head(stream_, shape_, d_key_, d_k);
    store_head(stream_, shape_, d_value_, d_v);
  }

 private:
  cudaStream_t stream_;
  const AttentionShape& shape_;
  Places places_;
  Products products_;
  std::int64_t block_rows_;
  AttentionGradientTiles tiles_;
  float* d_key_;
  float* d_value_;
};

}  // namespace

void attention_fallback(cudaStream_t stream, Gemms& gemms, const AttentionCall& call) {
  const AttentionShape& shape = call.shape;
  const AttentionScratch layout = AttentionScratch::forward(shape);
  const Places places(shape);
  Products products(gemms, shape);
  float* const scores = floats(call.scratch + layout.scores);
  std::byte* const probabilities = call.scratch + layout.probabilities;
  for (std::int64_t sample = 0; sample < shape.batch; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t key_at = places.key(sample, head * shape.kv_heads / shape.heads);
      for (std::int64_t begin = 0; begin < shape.seq; begin += layout.block_rows) {
        const AttentionBlock b = block_at(shape, begin, layout.block_rows);
        const std::int64_t at = places.query(sample, head) + places.query_row(begin);
        products.by_key(b, call.q + at, call.k + key_at, scores);
        attention_softmax(stream, shape, b, scores, probabilities,
                          call.log_sum_exp + places.statistic(sample, head) + begin);
        products.from_tile(b, probabilities, call.v + key_at, call.out + at);
      }
    }
  }
}

void attention_fallback_backward(cudaStream_t stream, Gemms& gemms, const AttentionBackwardCall& call) {
  const AttentionShape& shape = call.shape;
  const Places places(shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  Backward backward(stream, gemms, shape, call.scratch);
  for (std::int64_t sample = 0; sample < shape.batch; ++sample) {
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      const std::int64_t key_at = places.key(sample, kv_head);
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const std::int64_t at = places.query(sample, head);
        backward.head({call.d_out + at, call.q + at, call.k + key_at, call.v + key_at, call.out + at,
                       call.log_sum_exp + places.statistic(sample, head), call.d_q + at},
                      head == kv_head * group);
      }
      backward.store_sums(call.d_k + key_at, call.d_v + key_at);
    }
  }
}

class Attention::Paths {
 public:
  Paths(cudaStream_t stream, Gemms& gemms, bool deterministic)
      : stream_(stream), gemms_(gemms), cudnn_(stream, deterministic) {}

  cudaStream_t stream_;
  Gemms& gemms_;
  CudnnAttention cudnn_;
};

Attention::Attention(cudaStream_t stream, Gemms& gemms, bool deterministic)
    : paths_(std::make_unique<Paths>(stream, gemms, deterministic)) {}
Attention::~Attention() = default;

void Attention::forward(const AttentionCall& call) {
  if (paths_->cudnn_.takes(call.shape)) {
    paths_->cudnn_.forward(call);
  } else {
    attention_fallback(paths_->stream_, paths_->gemms_, call);
  }
}

void Attention::backward(const AttentionBackwardCall& call) {
  if (paths_->cudnn_.takes(call.shape)) {
    paths_->cudnn_.backward(call);
  } else {
    attention_fallback_backward(paths_->stream_, paths_->gemms_, call);
  }
}

std::int64_t Attention::workspace_bytes() const { return paths_->cudnn_.workspace_bytes(); }

}  // namespace fsdpbench::backend::cuda
