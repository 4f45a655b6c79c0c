#include "backend/cpu/kernels/experts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Keeps weights finite where the sigmoids of all visited experts are 0, as DeepSeek-V3 does; nothing to a softmax.
constexpr float kLeastSum = 1e-20F;

/// Softmax of one token's logits.
template <class T>
void softmax(const T* logits, std::int64_t experts, float* scores) {
  const float most = lane_max(experts, [&](std::int64_t e) { return load(logits[e]); });
  for (std::int64_t e = 0; e < experts; ++e) scores[e] = fast_exp(load(logits[e]) - most);
  const float sum = lane_sum<float>(experts, [&](std::int64_t e) { return scores[e]; });
  for (std::int64_t e = 0; e < experts; ++e) scores[e] /= sum;
}

/// Scores of experts from a token's logits.
template <class T>
void score(const Routing& routing, const T* logits, float* scores) {
  if (!routing.sigmoid) return softmax(logits, routing.experts, scores);
  for (std::int64_t e = 0; e < routing.experts; ++e) scores[e] = sigmoid(load(logits[e]));
}

/// The experts of one token into chosen[0, active). A sort needs an order of all numbers, which NaN is not in.
void choose(const std::vector<float>& scores, std::vector<std::int32_t>& order, std::int64_t active,
            std::int32_t* chosen) {
  const auto rank = [&](std::int32_t e) {
    const float s = scores[e];
    return std::isnan(s) ? -std::numeric_limits<float>::infinity() : s;
  };
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + active, order.end(), [&](std::int32_t a, std::int32_t b) {
    const float of_a = rank(a), of_b = rank(b);
    return of_a > of_b || (of_a == of_b && a < b);
  });
  std::copy_n(order.begin(), active, chosen);
}

/// Sorts the visits by expert, those of an expert by token.
void place(const Routing& routing) {
  const std::int64_t visits = routing.rows * routing.active;
  std::fill_n(routing.first, routing.experts + 1, 0);
  for (std::int64_t i = 0; i < visits; ++i) ++routing.first[routing.expert[i] + 1];
  std::partial_sum(routing.first, routing.first + routing.experts + 1, routing.first);
  std::vector<std::int32_t> next(routing.first, routing.first + routing.experts);
  for (std::int64_t i = 0; i < visits; ++i) {
    routing.place[i] = next[routing.expert[i]]++;
  }
}

void count_visits(const Routing& routing, std::int32_t* visits) {
  if (visits != nullptr) std::adjacent_difference(routing.first + 1, routing.first + routing.experts + 1, visits);
}

}  // namespace

void route(const RouteCall& call) {
  const Routing& r = call.routing;
  std::vector<float> scores(r.experts);
  std::vector<std::int32_t> order(scores.size());
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
      score(r, elements<T>(call.logits) + row * r.experts, scores.data());
      std::int32_t* const expert = r.expert + row * r.active;
      float* const weight = r.weight + row * r.active;
      choose(scores, order, r.active, expert);
      float sum = kLeastSum;
      for (std::int64_t i = 0; i < r.active; ++i) sum += weight[i] = scores[expert[i]];
      if (!r.normalized) continue;
      for (std::int64_t i = 0; i < r.active; ++i) weight[i] /= sum;
    }
  });
  place(r);
}

void route_backward(const RouteBackwardCall& call) {
  const Routing& r = call.routing;
  std::vector<float> scores(r.experts), d_scores(scores.size()), balance(scores.size());
  const double of_all = static_cast<double>(call.balance) * static_cast<double>(r.experts) /
                        (static_cast<double>(r.rows) * static_cast<double>(r.rows));
  for (std::size_t e = 0; e < balance.size(); ++e) {
    const std::int64_t visits = r.first[e + 1] - r.first[e];
    balance[e] = static_cast<float>(of_all * static_cast<double>(visits));
  }
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
      const T* const logits = elements<T>(call.logits) + row * r.experts;
      T* const d_logits = elements<T>(call.d_logits) + row * r.experts;
      const std::int32_t* const expert = r.expert + row * r.active;
      const float* const weight = r.weight + row * r.active;
      const float* const d_weight = call.d_weight + row * r.active;
      score(r, logits, scores.data());
      float sum = kLeastSum, along = 0;  // along: of the weights' gradient, what their common sum takes away
      for (std::int64_t i = 0; i < r.active; ++i) {
        sum += scores[expert[i]];
        along += d_weight[i] * weight[i];
      }
      std::copy(balance.begin(), balance.end(), d_scores.begin());
      for (std::int64_t i = 0; i < r.active; ++i) {
        d_scores[expert[i]] += r.normalized ? (d_weight[i] - along) / sum : d_weight[i];
      }
      const std::size_t count = r.experts;
      if (r.sigmoid) {
        for (std::size_t e = 0; e < count; ++e) store(d_logits[e], d_scores[e] * scores[e] * (1.0F - scores[e]));
        continue;
      }
      const float mean = lane_sum<float>(r.experts, [&](std::int64_t e) { return d_scores[e] * scores[e]; });
      for (std::size_t e = 0; e < count; ++e) store(d_logits[e], scores[e] * (d_scores[e] - mean));
    }
  });
}

void dispatch(const DispatchCall& call) {
  const Routing& r = call.routing;
  const std::int64_t bytes = call.width * size_of(call.dtype);
  for (std::int64_t i = 0; i < r.rows * r.active; ++i) {
    std::memcpy(call.y + r.place[i] * bytes, call.x + i / r.active * bytes, bytes);
  }
  count_visits(r, call.visits);
}

void combine(const CombineCall& call) {
  const Routing& r = call.routing;
  std::vector<float> sum(call.width);
  const std::size_t width = call.width;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (std::int64_t i = row * r.active; i < (row + 1) * r.active; ++i) {
        const T* const x = elements<T>(call.x) + r.place[i] * call.width;
        const float weight = call.weighted ? r.weight[i] : 1.0F;
        for (std::size_t j = 0; j < width; ++j) sum[j] += weight * load(x[j]);
      }
      T* const y = elements<T>(call.y) + row * call.width;
      if (call.residual != nullptr) {
        const T* const residual = elements<T>(call.residual) + row * call.width;
        for (std::size_t j = 0; j < width; ++j) sum[j] += load(residual[j]);
      }
      for (std::size_t j = 0; j < width; ++j) store(y[j], sum[j]);
    }
  });
}

void combine_backward(const CombineBackwardCall& call) {
  const Routing& r = call.routing;
  const std::size_t width = call.width;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t i = 0; i < r.rows * r.active; ++i) {
      const T* const d_y = elements<T>(call.d_y) + i / r.active * call.width;
      const T* const x = elements<T>(call.x) + r.place[i] * call.width;
      T* const d_x = elements<T>(call.d_x) + r.place[i] * call.width;
      call.d_weight[i] = lane_sum<float>(call.width, [&](std::int64_t j) { return load(d_y[j]) * load(x[j]); });
      for (std::size_t j = 0; j < width; ++j) store(d_x[j], r.weight[i] * load(d_y[j]));
    }
  });
  count_visits(r, call.visits);
}

void regroup(const RegroupCall& call) {
  const std::int64_t row = call.width * size_of(call.dtype);
  call.first[0] = 0;
  for (std::int64_t e = 0; e < call.experts; ++e) {
    std::int32_t rows = 0;
    for (std::int64_t rank = 0; rank < call.ranks; ++rank) rows += call.visits[rank * call.experts + e];
    call.first[e + 1] = call.first[e] + rows;
  }
  std::vector<std::int32_t> next(call.first, call.first + call.experts);
  std::byte* piece = call.by_rank;
  for (std::int64_t i = 0; i < call.ranks * call.experts; ++i) {
    const std::int64_t bytes = call.visits[i] * row;
    std::int32_t& begin = next[i % call.experts];
    std::byte* const place = call.by_expert + begin * row;
    if (bytes > 0) std::memcpy(call.back ? piece : place, call.back ? place : piece, bytes);
    begin += call.visits[i];
    piece += bytes;
  }
}

/// The rows of an expert differ from step to step, and Matmul prepares each shape that it meets. So rows are multiplied
/// in pieces of a power of two, of which there are few.
void grouped_gemm(Matmul& matmul, const GroupedGemm& grouped, std::vector<float>& sums) {
  constexpr std::int64_t kMostRows = 1024;
  const Gemm g = grouped.all.with_strides();
  const bool of_weights = g.transpose_a;  // sums over rows
  const std::int64_t in = size_of(g.input_dtype), out = size_of(g.output_dtype),
                     matrix = g.n * (of_weights ? g.m : g.k);
  const bool rounded = of_weights && g.output_dtype != DType::f32;  // once: pieces are added up in fp32
  if (rounded) sums.resize(matrix);
  MatmulShape shape = matmul_shape(g);
  if (rounded) shape.output = DType::f32;
  for (std::int64_t e = 0; e < grouped.experts; ++e) {
    const std::byte* const b = of_weights ? g.b : g.b + e * matrix * in;
    std::byte* const c = of_weights ? g.c + e * matrix * out : g.c;
    std::byte* const sum = rounded ? reinterpret_cast<std::byte*>(sums.data()) : c;
    const std::int64_t first = grouped.first[e], last = grouped.first[e + 1];
    if (of_weights && first == last) std::memset(c, 0, matrix * out);
    for (std::int64_t row = first; row < last;) {
      const auto left = static_cast<std::uint64_t>(last - row);
      const std::int64_t piece = std::min(kMostRows, static_cast<std::int64_t>(std::bit_floor(left)));
      (of_weights ? shape.k : shape.m) = piece;
      if (of_weights) shape.beta = row > first ? 1.0F : 0.0F;
      matmul(shape, g.a + row * g.a_stride * in, of_weights ? b + row * g.b_stride * in : b,
             of_weights ? sum : c + row * g.c_stride * out);
      row += piece;
    }
    if (!rounded || first == last) continue;
    auto* const bits = elements<Bf16>(c);
    for (std::int64_t i = 0; i < matrix; ++i) store(bits[i], sums[i]);
  }
}

}  // namespace fsdpbench::backend::cpu
