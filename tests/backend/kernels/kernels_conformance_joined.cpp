// Tensors that lie side by side in the rows of one, as a joined product leaves them (model.fused_projections): the same
// numbers as where each has rows of its own, and nothing else of the rows is read or written.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "backend/kernels.h"
#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {
namespace {

using Values = std::vector<double>;
constexpr double kUntouched = std::numeric_limits<double>::quiet_NaN();

/// Rows of several tensors side by side, and NaN behind each row.
class Rows {
 public:
  Rows(std::int64_t rows, std::vector<std::int64_t> widths, std::int64_t gap)
      : rows_(rows), widths_(std::move(widths)), stride_(gap) {
    for (const std::int64_t width : widths_) stride_ += width;
  }

  std::int64_t stride() const { return stride_; }
  std::int64_t count() const { return rows_ * stride_; }
  std::byte* at(const Tensor& joined, std::size_t part) const {
    return joined.data() + first(part) * size_of(joined.dtype());
  }
  Values joined(const std::vector<Values>& parts) const {
    Values all(static_cast<std::size_t>(count()), kUntouched);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      for (std::int64_t i = 0; i < rows_ * widths_[part]; ++i) all[index(part, i)] = parts[part][i];
    }
    return all;
  }
  Values part(const Values& all, std::size_t part) const {
    Values own(static_cast<std::size_t>(rows_ * widths_[part]));
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = all[index(part, static_cast<std::int64_t>(i))];
    return own;
  }
  void expect_gaps_untouched(const Values& all) const {
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t i = first(widths_.size()); i < stride_; ++i) {
        ASSERT_TRUE(std::isnan(all[static_cast<std::size_t>(row * stride_ + i)])) << "row " << row << ", element " << i;
      }
    }
  }

 private:
  std::int64_t first(std::size_t part) const {
    std::int64_t at = 0;
    for (std::size_t before = 0; before < part; ++before) at += widths_[before];
    return at;
  }
  std::size_t index(std::size_t part, std::int64_t i) const {
    return static_cast<std::size_t>(i / widths_[part] * stride_ + first(part) + i % widths_[part]);
  }

  std::int64_t rows_;
  std::vector<std::int64_t> widths_;
  std::int64_t stride_;
};

}  // namespace

TEST_P(KernelsConformance, RotaryAndAttentionOfJoinedRows) {
  const std::vector<AttentionShape> shapes{
      {1, 1, 1, 1, 2, dtype_}, {2, 5, 2, 2, 6, dtype_}, {2, 33, 6, 2, 8, dtype_}, {1, 129, 2, 1, 64, dtype_}};
  for (const AttentionShape& apart : shapes) {
    for (const std::int64_t gap : {0, 3, 16}) {
      SCOPED_TRACE(testing::Message() << apart.batch << " samples of " << apart.seq << ", heads " << apart.heads
                                      << " of " << apart.kv_heads << ", size " << apart.head_dim << ", gap " << gap);
      const std::int64_t tokens = apart.batch * apart.seq;
      const std::int64_t query = apart.heads * apart.head_dim, key = apart.kv_heads * apart.head_dim;
      const Rows rows(tokens, {query, key, key}, gap);
      AttentionShape side_by_side = apart;
      side_by_side.query_stride = side_by_side.key_stride = rows.stride();

      const std::vector<Tensor> qkv{random(tokens * query), random(tokens * key), random(tokens * key)};
      const Tensor joined = filled(rows.joined({qkv[0].get(), qkv[1].get(), qkv[2].get()}));
      const Tensor d_out = random(tokens * query);
      const std::vector<Tensor> d_qkv{tensor(tokens * query), tensor(tokens * key), tensor(tokens * key)};
      const Tensor d_joined = filled(Values(static_cast<std::size_t>(rows.count()), kUntouched));
      const Tensor out = tensor(tokens * query), out_of_joined = tensor(tokens * query);
      const Tensor lse = floats(tokens * apart.heads), lse_of_joined = floats(tokens * apart.heads);
      const Tensor scratch(*host_, (attention_backward_scratch_bytes(apart) + 3) / 4, DType::f32);
      using Three = std::array<std::byte*, 3>;
      const auto attend = [&](const AttentionShape& shape, const Three& x, const Three& d_x, const Tensor& to,
                              const Tensor& statistics) {
        run([&](Kernels& kernels) {
          const auto& [q, k, v] = x;
          kernels.rotary(shape, q, k, 500.0F, false);
          kernels.attention({.shape = shape,
                             .q = q,
                             .k = k,
                             .v = v,
                             .out = to.data(),
                             .log_sum_exp = statistics.floats(),
                             .scratch = scratch.data()});
          kernels.attention_backward({.shape = shape,
                                      .d_out = d_out.data(),
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .out = to.data(),
                                      .log_sum_exp = statistics.floats(),
                                      .d_q = d_x[0],
                                      .d_k = d_x[1],
                                      .d_v = d_x[2],
                                      .scratch = scratch.data()});
          kernels.rotary(shape, d_x[0], d_x[1], 500.0F, true);
        });
      };
      const auto each = [](const std::vector<Tensor>& t) { return Three{t[0].data(), t[1].data(), t[2].data()}; };
      const auto all = [&](const Tensor& t) { return Three{rows.at(t, 0), rows.at(t, 1), rows.at(t, 2)}; };
      attend(apart, each(qkv), each(d_qkv), out, lse);
      attend(side_by_side, all(joined), all(d_joined), out_of_joined, lse_of_joined);
      EXPECT_EQ(rows.part(joined.get(), 0), qkv[0].get());
      EXPECT_EQ(rows.part(joined.get(), 1), qkv[1].get());
      EXPECT_EQ(rows.part(joined.get(), 2), qkv[2].get());
      expect_near(out_of_joined, out.get());
      expect_near(lse_of_joined, lse.get());
      const Values d_all = d_joined.get();
      for (std::size_t part = 0; part < 3; ++part) {
        if (apart.seq == 1 && part < 2) continue;  // one key: its probability is 1 whatever the score
        expect_near(filled(rows.part(d_all, part)), d_qkv[part].get(), 1e-5, 2e-2);
      }
      rows.expect_gaps_untouched(joined.get());
      rows.expect_gaps_untouched(d_all);
    }
  }
}

TEST_P(KernelsConformance, SwiGluOfJoinedRows) {
  for (const std::int64_t width : {1, 7, 8, 96, 2056}) {
    for (const std::int64_t gap : {0, 3, 16}) {
      SCOPED_TRACE(testing::Message() << "width " << width << ", gap " << gap);
      constexpr std::int64_t kRows = 5;
      const Rows rows(kRows, {width, width}, gap);
      const Tensor gate = random(kRows * width, 4.0), up = random(kRows * width), d_y = random(kRows * width);
      const Tensor y = tensor(kRows * width), d_gate = tensor(kRows * width), d_up = tensor(kRows * width);
      const Tensor joined = filled(rows.joined({gate.get(), up.get()}));
      const Tensor d_joined = filled(Values(static_cast<std::size_t>(rows.count()), kUntouched));
      const Tensor y_of_joined = tensor(kRows * width);
      const RowShape shape{kRows, width, dtype_};
      const auto both_passes = [&](std::int64_t stride, const std::array<std::byte*, 2>& x,
                                   const std::array<std::byte*, 2>& d_x, const Tensor& to) {
        run([&](Kernels& kernels) {
          kernels.swiglu({.shape = shape, .stride = stride, .gate = x[0], .up = x[1], .y = to.data()});
          kernels.swiglu_backward({.shape = shape,
                                   .stride = stride,
                                   .d_y = d_y.data(),
                                   .gate = x[0],
                                   .up = x[1],
                                   .d_gate = d_x[0],
                                   .d_up = d_x[1]});
        });
      };
      both_passes(width, {gate.data(), up.data()}, {d_gate.data(), d_up.data()}, y);
      both_passes(rows.stride(), {rows.at(joined, 0), rows.at(joined, 1)}, {rows.at(d_joined, 0), rows.at(d_joined, 1)},
                  y_of_joined);
      EXPECT_EQ(y_of_joined.get(), y.get());
      EXPECT_EQ(rows.part(d_joined.get(), 0), d_gate.get());
      EXPECT_EQ(rows.part(d_joined.get(), 1), d_up.get());
      rows.expect_gaps_untouched(joined.get());
      rows.expect_gaps_untouched(d_joined.get());
    }
  }
}

}  // namespace fsdpbench::backend
