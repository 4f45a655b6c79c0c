#include "backend/cpu/kernels/layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "backend/cpu/kernels/element.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {

void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias) {
  with_element_type(shape.dtype, [&]<class T>(T) {
    const T* const b = elements<T>(bias);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      T* const target = elements<T>(y) + row * shape.width;
      for (std::int64_t j = 0; j < shape.width; ++j) store(target[j], load(target[j]) + load(b[j]));
    }
  });
}

void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias, std::vector<float>& memory) {
  ColumnSums sums(memory, shape.width);
  with_element_type(shape.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const T* const source = elements<T>(d_y) + row * shape.width;
      float* const sum = sums.next_row();
      for (std::int64_t j = 0; j < shape.width; ++j) sum[j] += load(source[j]);
    }
    with_gradient_type<T>(d_bias.dtype, [&]<class G>(G) { sums.store_to(elements<G>(d_bias.memory)); });
  });
}

void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const source = elements<T>(x);
    T* const target = elements<T>(y);
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = load(source[i]);
      store(target[i], v < 0.0F ? 0.0F : v);  // a NaN stays visible
    }
  });
}

void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const gradient = elements<T>(d_y);
    const T* const output = elements<T>(y);
    T* const target = elements<T>(d_x);
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = load(gradient[i]);
      store(target[i], load(output[i]) > 0.0F ? d : 0.0F);
    }
  });
}

void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const a = elements<T>(x);
    const T* const b = elements<T>(residual);
    T* const target = elements<T>(y);
    for (std::int64_t i = 0; i < count; ++i) store(target[i], load(a[i]) + load(b[i]));
  });
}

namespace {

void check_tokens(const std::int32_t* tokens, std::int64_t count, std::int64_t vocab) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      throw BackendError("Token " + std::to_string(tokens[i]) + " at position " + std::to_string(i) +
                         " is outside the vocabulary of " + std::to_string(vocab) + ".");
    }
  }
}

template <class T>
void scale_row(const T* x, const T* weight, float r, T* __restrict y, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) store(y[j], load(x[j]) * r * load(weight[j]));
}

template <class T>
void forward_row(const T* x, const T* weight, T* __restrict y, float* rstd, std::int64_t width, float epsilon) {
  const float squares = lane_sum<float>(width, [x](std::int64_t j) {
    const float v = load(x[j]);
    return v * v;
  });
  const float r = 1.0F / std::sqrt(squares / static_cast<float>(width) + epsilon);
  *rstd = r;
  scale_row(x, weight, r, y, width);
}

template <class T>
void backward_row(const T* d_y, const T* x, const T* weight, float r, T* __restrict d_x, float* __restrict d_weight,
                  std::int64_t width) {
  const float dot = lane_sum<float>(width, [=](std::int64_t j) { return load(d_y[j]) * load(weight[j]) * load(x[j]); });
  const float along_x = dot * r * r / static_cast<float>(width);
  for (std::int64_t j = 0; j < width; ++j) {
    const float dy = load(d_y[j]);
    const float xj = load(x[j]);
    store(d_x[j], load(d_x[j]) + r * (dy * load(weight[j]) - xj * along_x));
  }
  for (std::int64_t j = 0; j < width; ++j) d_weight[j] += load(d_y[j]) * load(x[j]) * r;
}

/// (first, second) turned by the angle of (cosine, sign * sine); one head of one token.
template <class T>
void rotate(T* first, T* second, const float* __restrict cosine, const float* __restrict sine, float sign,
            std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = load(first[i]);
    const float b = load(second[i]);
    const float s = sign * sine[i];
    store(first[i], a * cosine[i] - b * s);
    store(second[i], b * cosine[i] + a * s);
  }
}

template <class T>
void forward(const T* __restrict gate, const T* __restrict up, T* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(gate[i]);
    store(y[i], g * sigmoid(g) * load(up[i]));
  }
}

/// Place where backward puts the product: nowhere, apart, or in d_y's place.
enum class Product : std::uint8_t { none, apart, in_place };

template <Product kProduct, class T>
void backward(T* __restrict d_y, const T* __restrict gate, const T* __restrict up, T* __restrict d_gate,
              T* __restrict d_up, T* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(gate[i]);
    const float u = load(up[i]);
    const float d = load(d_y[i]);
    const float s = sigmoid(g);
    store(d_up[i], d * g * s);
    store(d_gate[i], d * u * s * (1.0F + g * (1.0F - s)));
    if constexpr (kProduct == Product::apart) store(y[i], g * s * u);
    if constexpr (kProduct == Product::in_place) store(d_y[i], g * s * u);
  }
}

/// Loss of one row; its logits become scale * (softmax - one_hot(target)).
template <class T>
double cross_entropy_row(T* row, std::int32_t target, std::int64_t vocab, float scale, float* __restrict exponentials) {
  const float largest = lane_max(vocab, [row](std::int64_t j) { return load(row[j]); });
  for (std::int64_t j = 0; j < vocab; ++j) exponentials[j] = fast_exp(load(row[j]) - largest);
  const float sum = lane_sum<float>(vocab, [exponentials](std::int64_t j) { return exponentials[j]; });
  const double loss = std::log(static_cast<double>(sum)) - (static_cast<double>(load(row[target])) - largest);
  const float factor = scale / sum;
  for (std::int64_t j = 0; j < vocab; ++j) store(row[j], exponentials[j] * factor);
  store(row[target], exponentials[target] * factor - scale);
  return loss;
}

void check_target(const std::int32_t* targets, std::int64_t row, std::int64_t vocab) {
  if (targets[row] >= 0 && targets[row] < vocab) return;
  throw BackendError("Target " + std::to_string(targets[row]) + " at position " + std::to_string(row) +
                     " is outside the vocabulary of " + std::to_string(vocab) + ".");
}

}  // namespace

void Embedding::forward(const EmbeddingCall& call) {
  const auto& [shape, part, table, tokens, y] = call;
  check_tokens(tokens, shape.rows, part.whole);
  const std::int64_t row = shape.width * size_of(shape.dtype);
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    if (part.holds(tokens[i])) {
      std::memcpy(y + i * row, table + (tokens[i] - part.first) * row, row);
    } else {
      std::memset(y + i * row, 0, row);
    }
  }
}

void Embedding::sort_by_token(const std::int32_t* tokens, std::int64_t count, const VocabularyPart& part) {
  check_tokens(tokens, count, part.whole);
  first_.assign(part.count + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (part.holds(tokens[i])) ++first_[tokens[i] - part.first + 1];
  }
  for (std::size_t id = 1; id < first_.size(); ++id) first_[id] += first_[id - 1];
  positions_.resize(count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (part.holds(tokens[i])) positions_[first_[tokens[i] - part.first]++] = i;
  }
  // first_[id] has moved to the end of id's positions, which is where the next id starts.
  std::rotate(first_.begin(), first_.end() - 1, first_.end());
  first_[0] = 0;
}

void Embedding::backward(const EmbeddingBackwardCall& call) {
  const VocabularyPart& part = call.part;
  const std::int64_t width = call.shape.width;
  std::byte* const d_table = call.d_table.memory;
  // By token id, so that a bf16 table is rounded once a row and not once an occurrence.
  sort_by_token(call.tokens, call.shape.rows, part);
  row_.resize(width);
  chunk_.resize(width);
  if (call.overwrite) {
    std::memset(d_table, 0, part.count * width * size_of(call.d_table.dtype));
  }
  const auto add_rows = [&]<class T, class G>(T, G) {
    float* const sum = row_.data();
    for (std::int64_t id = 0; id < part.count; ++id) {
      const std::int64_t begin = first_[id];
      const std::int64_t end = first_[id + 1];
      if (begin == end) continue;
      G* const target = elements<G>(d_table) + id * width;
      std::fill_n(sum, width, 0.0F);
      for (std::int64_t first = begin; first < end; first += kEmbeddingChunk) {
        const bool whole = end - begin <= kEmbeddingChunk;
        float* const of_chunk = whole ? sum : chunk_.data();
        if (!whole) std::fill_n(of_chunk, width, 0.0F);
        for (std::int64_t p = first; p < std::min(first + kEmbeddingChunk, end); ++p) {
          const T* const source = elements<T>(call.d_y) + positions_[p] * width;
          for (std::int64_t j = 0; j < width; ++j) of_chunk[j] += load(source[j]);
        }
        for (std::int64_t j = 0; !whole && j < width; ++j) sum[j] += of_chunk[j];
      }
      for (std::int64_t j = 0; j < width; ++j) store(target[j], load(target[j]) + sum[j]);
    }
  };
  with_element_type(call.shape.dtype, [&]<class T>(T of_rows) {
    with_gradient_type<T>(call.d_table.dtype, [&]<class G>(G of_table) { add_rows(of_rows, of_table); });
  });
}

void rms_norm(const RmsNormCall& call) {
  const std::int64_t width = call.shape.width;
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < call.shape.rows; ++row) {
      forward_row(elements<T>(call.x) + row * width, elements<T>(call.weight), elements<T>(call.y) + row * width,
                  call.rstd + row, width, call.epsilon);
    }
  });
}

void rms_norm_backward(const RmsNormBackwardCall& call, std::vector<float>& memory) {
  const std::int64_t width = call.shape.width;
  ColumnSums sums(memory, width);
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    const T* const weight = elements<T>(call.weight);
    for (std::int64_t row = 0; row < call.shape.rows; ++row) {
      const std::int64_t at = row * width;
      const T* const x = elements<T>(call.x) + at;
      backward_row(elements<T>(call.d_y) + at, x, weight, call.rstd[row], elements<T>(call.d_x) + at, sums.next_row(),
                   width);
      if (call.y != nullptr) scale_row(x, weight, call.rstd[row], elements<T>(call.y) + at, width);
    }
    with_gradient_type<T>(call.d_weight.dtype, [&]<class G>(G) { sums.store_to(elements<G>(call.d_weight.memory)); });
  });
}

void Rotary::prepare(std::int64_t seq, std::int64_t half, float theta) {
  if (seq <= seq_ && half == half_ && theta == theta_) return;
  seq_ = seq;
  half_ = half;
  theta_ = theta;
  cosine_.resize(seq * half);
  sine_.resize(cosine_.size());
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(static_cast<double>(theta), -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t position = 0; position < seq; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      cosine_[position * half + i] = static_cast<float>(std::cos(angle));
      sine_[position * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rotary::operator()(std::byte* x, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                        float theta, bool inverse, DType dtype) {
  const std::int64_t half = head_dim / 2;
  prepare(seq, half, theta);
  const float sign = inverse ? -1.0F : 1.0F;
  with_element_type(dtype, [&]<class T>(T) {
    for (std::int64_t token = 0; token < batch * seq; ++token) {
      const std::int64_t at = token % seq * half;
      T* head = elements<T>(x) + token * heads * head_dim;
      for (std::int64_t h = 0; h < heads; ++h, head += head_dim) {
        rotate(head, head + half, cosine_.data() + at, sine_.data() + at, sign, half);
      }
    }
  });
}

void swiglu(const SwigluCall& call) {
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    forward(elements<T>(call.gate), elements<T>(call.up), elements<T>(call.y), call.shape.rows * call.shape.width);
  });
}

void swiglu_backward(const SwigluBackwardCall& call) {
  // Only written if the product takes its place.
  auto* const d_y = const_cast<std::byte*>(call.d_y);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    const auto work = call.y == nullptr    ? backward<Product::none, T>
                      : call.y == call.d_y ? backward<Product::in_place, T>
                                           : backward<Product::apart, T>;
    T* const product = call.y == nullptr ? nullptr : elements<T>(call.y);
    work(elements<T>(d_y), elements<T>(call.gate), elements<T>(call.up), elements<T>(call.d_gate),
         elements<T>(call.d_up), product, call.shape.rows * call.shape.width);
  });
}

void cross_entropy(const CrossEntropyCall& call, std::vector<float>& exponentials) {
  const std::int64_t vocab = call.part.count, stride = call.stride > 0 ? call.stride : vocab;
  exponentials.resize(vocab);
  const float scale = call.loss_scale / static_cast<float>(call.rows);
  double sum = 0;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < call.rows; ++row) {
      check_target(call.targets, row, vocab);
      sum += cross_entropy_row(elements<T>(call.logits) + row * stride, call.targets[row], vocab, scale,
                               exponentials.data());
    }
  });
  *call.loss = static_cast<float>(sum / static_cast<double>(call.rows));
}

void cross_entropy_terms(const CrossEntropyCall& call, float* terms) {
  const VocabularyPart& part = call.part;
  const std::int64_t rows = call.rows;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t r = 0; r < rows; ++r) {
      check_target(call.targets, r, part.whole);
      const T* const row = elements<T>(call.logits) + r * part.count;
      const float largest = lane_max(part.count, [row](std::int64_t j) { return load(row[j]); });
      terms[r] = largest;
      terms[rows + r] =
          lane_sum<float>(part.count, [row, largest](std::int64_t j) { return fast_exp(load(row[j]) - largest); });
      terms[2 * rows + r] = part.holds(call.targets[r]) ? load(row[call.targets[r] - part.first]) : 0.0F;
    }
  });
}

void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts) {
  const VocabularyPart& part = call.part;
  const std::int64_t rows = call.rows;
  const std::int32_t* const targets = call.targets;
  const float scale = call.loss_scale / static_cast<float>(rows);
  double losses = 0;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float largest = terms[r], target = 0, sum = 0;
      for (int p = 1; p < parts; ++p) largest = std::max(largest, terms[3 * p * rows + r]);
      for (int p = 0; p < parts; ++p) {  // in the order of the parts, so that all ranks have the same bits
        const float* const of_part = terms + 3 * p * rows;
        sum += of_part[rows + r] * std::exp(of_part[r] - largest);
        target += of_part[2 * rows + r];
      }
      losses += std::log(static_cast<double>(sum)) - (static_cast<double>(target) - largest);
      T* const row = elements<T>(call.logits) + r * part.count;
      const float factor = scale / sum;
      const bool mine = part.holds(targets[r]);
      const std::int64_t at = targets[r] - part.first;
      const float of_target = mine ? fast_exp(load(row[at]) - largest) * factor - scale : 0;
      for (std::int64_t j = 0; j < part.count; ++j) store(row[j], fast_exp(load(row[j]) - largest) * factor);
      if (mine) store(row[at], of_target);
    }
  });
  *call.loss = static_cast<float>(losses / static_cast<double>(rows));
}

void mean_squared_error(const MeanSquaredErrorCall& call) {
  const std::int64_t count = call.count;
  const float scale = 2.0F * call.loss_scale / static_cast<float>(count);
  with_element_type(call.dtype, [&, target = call.target]<class T>(T) {
    const T* const p = elements<T>(call.prediction);
    T* const d = elements<T>(call.d_prediction);
    const double sum = lane_sum<double>(count, [=](std::int64_t i) {
      const double difference = static_cast<double>(load(p[i])) - static_cast<double>(target[i]);
      return difference * difference;
    });
    for (std::int64_t i = 0; i < count; ++i) store(d[i], scale * (load(p[i]) - target[i]));
    *call.loss = static_cast<float>(sum / static_cast<double>(count));
  });
}

}  // namespace fsdpbench::backend::cpu
