#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "base/dtype.h"

/// Layers around the matrix products: bias, ReLU, residual.
namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias);
/// `sums` is scratch kept by the caller.
void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias, std::vector<float>& sums);
void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype);
void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count, DType dtype);
void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype);

/// Rows of a table by token. Throws BackendError at a token outside [0, whole).
class Embedding {
 public:
  /// Kernels::embedding and embedding_backward; the latter sums in the order of the tokens, whatever their ids.
  void forward(const EmbeddingCall& call);
  void backward(const EmbeddingBackwardCall& call);

 private:
  void sort_by_token(const std::int32_t* tokens, std::int64_t count, const VocabularyPart& part);

  // Scratch, kept for its allocation.
  std::vector<std::int64_t> first_;      // per token id: where its positions start in positions_; one more at the end
  std::vector<std::int64_t> positions_;  // positions of all tokens, by id, in order within an id
  std::vector<float> row_, chunk_;
};

/// Each as the function of its name in backend::Kernels, on the calling thread.
void rms_norm(const RmsNormCall& call);
/// `sums` is scratch kept by the caller.
void rms_norm_backward(const RmsNormBackwardCall& call, std::vector<float>& sums);

/// Rotates tokens by angles position / theta^(2i / head_dim), with the table of the last geometry kept.
class Rotary {
 public:
  void operator()(std::byte* x, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                  float theta, bool inverse, DType dtype);

 private:
  void prepare(std::int64_t seq, std::int64_t half, float theta);

  std::int64_t seq_ = 0;
  std::int64_t half_ = 0;
  float theta_ = 0;
  std::vector<float> cosine_;  // [seq_, half_]
  std::vector<float> sine_;
};

/// Each as the function of its name in backend::Kernels, on the calling thread.
void swiglu(const SwigluCall& call);
void swiglu_backward(const SwigluBackwardCall& call);

/// Each as the function of its name in backend::Kernels, on the calling thread. Those of cross-entropy throw
/// BackendError at a target outside the whole vocabulary. `exponentials` is scratch kept by the caller.
void cross_entropy(const CrossEntropyCall& call, std::vector<float>& exponentials);
void cross_entropy_terms(const CrossEntropyCall& call, float* terms);
void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts);
void mean_squared_error(const MeanSquaredErrorCall& call);

}  // namespace fsdpbench::backend::cpu
