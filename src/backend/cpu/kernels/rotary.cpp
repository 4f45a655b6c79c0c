#include "backend/cpu/kernels/rotary.h"

#include <cmath>

#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {
namespace {

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

}  // namespace

void Rotary::prepare(std::int64_t seq, std::int64_t half, float theta) {
  if (seq <= seq_ && half == half_ && theta == theta_) return;
  seq_ = seq;
  half_ = half;
  theta_ = theta;
  cosine_.resize(static_cast<std::size_t>(seq * half));
  sine_.resize(cosine_.size());
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(static_cast<double>(theta), -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t position = 0; position < seq; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      cosine_[static_cast<std::size_t>(position * half + i)] = static_cast<float>(std::cos(angle));
      sine_[static_cast<std::size_t>(position * half + i)] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rotary::operator()(std::byte* x, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                        std::int64_t stride, float theta, bool inverse, DType dtype) {
  const std::int64_t half = head_dim / 2;
  prepare(seq, half, theta);
  const float sign = inverse ? -1.0F : 1.0F;
  with_element_type(dtype, [&]<class T>(T) {
    for (std::int64_t token = 0; token < batch * seq; ++token) {
      const std::int64_t at = token % seq * half;
      T* head = elements<T>(x) + token * stride;
      for (std::int64_t h = 0; h < heads; ++h, head += head_dim) {
        rotate(head, head + half, cosine_.data() + at, sine_.data() + at, sign, half);
      }
    }
  });
}

}  // namespace fsdpbench::backend::cpu
