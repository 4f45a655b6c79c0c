#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/kernels.h"
#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {
namespace {

using Values = std::vector<double>;

/// Attention in float64, straight from its definition, with the gradients of sum(d_out * out).
struct Reference {
  AttentionShape s;
  Values out, log_sum_exp, d_q, d_k, d_v;

  std::int64_t query_at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * s.seq + t) * s.heads + h) * s.head_dim;
  }
  std::int64_t key_at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * s.seq + t) * s.kv_heads + h / (s.heads / s.kv_heads)) * s.head_dim;
  }
  double dot(const Values& x, std::int64_t i, const Values& y, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) sum += x[i + d] * y[j + d];
    return sum;
  }
  static void add(Values& x, std::int64_t i, double factor, const Values& y, std::int64_t j, std::int64_t n) {
    for (std::int64_t d = 0; d < n; ++d) x[i + d] += factor * y[j + d];
  }

  Reference(const AttentionShape& shape, const Values& q, const Values& k, const Values& v, const Values& d_out)
      : s(shape), out(q.size()), log_sum_exp(s.batch * s.heads * s.seq), d_q(q.size()), d_k(k.size()), d_v(v.size()) {
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t t = 0; t < s.seq; ++t) row(b, h, t, q, k, v, d_out);
      }
    }
  }
  void row(std::int64_t b, std::int64_t h, std::int64_t t, const Values& q, const Values& k, const Values& v,
           const Values& d_out) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
    const std::int64_t at = query_at(b, t, h);
    Values p(static_cast<std::size_t>(t + 1));
    for (std::int64_t j = 0; j <= t; ++j) p[j] = scale * dot(q, at, k, key_at(b, j, h));
    const double largest = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - largest);
    log_sum_exp[(b * s.heads + h) * s.seq + t] = largest + std::log(sum);
    for (double& x : p) x /= sum;
    for (std::int64_t j = 0; j <= t; ++j) add(out, at, p[j], v, key_at(b, j, h), s.head_dim);
    const double delta = dot(d_out, at, out, at);
    for (std::int64_t j = 0; j <= t; ++j) {
      const std::int64_t key = key_at(b, j, h);
      const double d_score = p[j] * (dot(d_out, at, v, key) - delta) * scale;
      add(d_v, key, p[j], d_out, at, s.head_dim);
      add(d_q, at, d_score, k, key, s.head_dim);
      add(d_k, key, d_score, q, at, s.head_dim);
    }
  }
};

}  // namespace

TEST_P(KernelsConformance, AttentionForwardAndBackward) {
  const std::vector<AttentionShape> shapes{
      {1, 1, 1, 1, 2, dtype_},    {2, 5, 2, 2, 3, dtype_},    {1, 17, 4, 2, 8, dtype_},  {2, 33, 6, 2, 10, dtype_},
      {1, 128, 2, 1, 16, dtype_}, {1, 129, 3, 1, 16, dtype_}, {1, 300, 2, 2, 64, dtype_}};
  for (const AttentionShape& s : shapes) {
    SCOPED_TRACE(testing::Message() << s.batch << " samples of " << s.seq << ", heads " << s.heads << " of "
                                    << s.kv_heads << ", size " << s.head_dim);
    const std::int64_t rows = s.batch * s.seq;
    const Tensor q = random(rows * s.heads * s.head_dim);
    const Tensor k = random(rows * s.kv_heads * s.head_dim);
    const Tensor v = random(rows * s.kv_heads * s.head_dim);
    const Tensor d_out = random(q.count());
    const Tensor out = tensor(q.count());
    const Tensor d_q = tensor(q.count());
    const Tensor d_k = tensor(k.count());
    const Tensor d_v = tensor(v.count());
    const Tensor log_sum_exp = floats(rows * s.heads);
    const Reference expected(s, q.get(), k.get(), v.get(), d_out.get());

    const Tensor scratch(*host_, (attention_scratch_bytes(s) + 3) / 4, DType::f32);
    run([&](Kernels& kernels) {
      kernels.attention({.shape = s,
                         .q = q.data(),
                         .k = k.data(),
                         .v = v.data(),
                         .out = out.data(),
                         .log_sum_exp = log_sum_exp.floats(),
                         .scratch = scratch.data()});
    });
    scratch.get();  // its fences
    expect_near(out, expected.out);
    expect_near(log_sum_exp, expected.log_sum_exp);

    const Tensor backward_scratch(*host_, (attention_backward_scratch_bytes(s) + 3) / 4, DType::f32);
    run([&](Kernels& kernels) {
      kernels.attention_backward({.shape = s,
                                  .d_out = d_out.data(),
                                  .q = q.data(),
                                  .k = k.data(),
                                  .v = v.data(),
                                  .out = out.data(),
                                  .log_sum_exp = log_sum_exp.floats(),
                                  .d_q = d_q.data(),
                                  .d_k = d_k.data(),
                                  .d_v = d_v.data(),
                                  .scratch = backward_scratch.data()});
    });
    backward_scratch.get();
    if (s.seq > 1) {  // one key: its probability is 1 whatever the score
      expect_near(d_q, expected.d_q, 1e-5, 2e-2);
      expect_near(d_k, expected.d_k, 1e-5, 2e-2);
    }
    expect_near(d_v, expected.d_v);
  }
}

TEST_P(KernelsConformance, AttentionLooksAtNoLaterToken) {
  const AttentionShape s{1, 150, 2, 1, 8, dtype_};
  const Tensor q = random(s.seq * s.heads * s.head_dim);
  Tensor k = random(s.seq * s.kv_heads * s.head_dim);
  Tensor v = random(s.seq * s.kv_heads * s.head_dim);
  const Tensor log_sum_exp = floats(s.seq * s.heads);
  const Tensor scratch(*host_, (attention_scratch_bytes(s) + 3) / 4, DType::f32);
  const auto attend = [&] {
    const Tensor out = tensor(q.count());
    run([&](Kernels& kernels) {
      kernels.attention({.shape = s,
                         .q = q.data(),
                         .k = k.data(),
                         .v = v.data(),
                         .out = out.data(),
                         .log_sum_exp = log_sum_exp.floats(),
                         .scratch = scratch.data()});
    });
    return out.get();
  };
  const std::vector<double> before = attend();
  constexpr std::int64_t kChanged = 130;  // inside the second block of rows
  for (Tensor* t : {&k, &v}) {
    std::vector<double> values = t->get();
    std::fill(values.begin() + kChanged * s.kv_heads * s.head_dim, values.end(), 50.0);
    t->set(values);
  }
  const std::vector<double> after = attend();
  const std::int64_t same = kChanged * s.heads * s.head_dim;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + same, after.begin()));
  EXPECT_NE(before[same], after[same]);
}

TEST_P(KernelsConformance, AttentionOfLargeScoresStaysFinite) {
  const AttentionShape s{1, 20, 1, 1, 4, dtype_};
  const Tensor q = random(s.seq * s.head_dim, 60.0);
  const Tensor v = random(s.seq * s.head_dim);
  const Tensor out = tensor(q.count());
  const Tensor log_sum_exp = floats(s.seq);
  const Tensor scratch(*host_, (attention_scratch_bytes(s) + 3) / 4, DType::f32);
  run([&](Kernels& kernels) {
    kernels.attention({.shape = s,
                       .q = q.data(),
                       .k = q.data(),
                       .v = v.data(),
                       .out = out.data(),
                       .log_sum_exp = log_sum_exp.floats(),
                       .scratch = scratch.data()});
  });
  for (const double value : out.get()) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace fsdpbench::backend
