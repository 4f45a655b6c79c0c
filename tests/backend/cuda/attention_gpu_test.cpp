// cuDNN's attention against the one of matrix products, on a GPU.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend {

/// For messages of the tests; their bytes would do, but some of those are padding.
static void PrintTo(const AttentionShape& s, std::ostream* out) {
  *out << s.batch << " samples of " << s.seq << ", heads " << s.heads << " of " << s.kv_heads << ", size "
       << s.head_dim;
}

}  // namespace fsdpbench::backend

namespace fsdpbench::backend::cuda {
namespace {

/// Device memory with a copy on the host.
template <class T>
class Array {
 public:
  explicit Array(std::int64_t count) : values(static_cast<std::size_t>(count)) {
    check(cudaMalloc(&memory_, values.size() * sizeof(T)), "memory of the test");
  }
  ~Array() { cudaFree(memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  void upload() { check(cudaMemcpy(memory_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault), "upload"); }
  const std::vector<T>& download() {
    check(cudaMemcpy(values.data(), memory_, values.size() * sizeof(T), cudaMemcpyDefault), "download");
    return values;
  }

  std::vector<T> values;

 private:
  void* memory_ = nullptr;
};
using Bf16 = Array<std::uint16_t>;

double number(std::uint16_t bits) { return bf16_to_float(bits); }
double number(float value) { return value; }

/// bf16 values between -2 and 2.
void fill(Bf16& array, std::uint32_t seed) {
  std::uint32_t x = seed * 2654435761U + 1U;
  for (std::uint16_t& value : array.values) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    value = float_to_bf16(static_cast<float>(x >> 8) / 4194304.0F - 2.0F);
  }
  array.upload();
}

template <class T>
void expect_near(Array<T>& actual, Array<T>& expected, double allowed, const char* what) {
  actual.download();
  expected.download();
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    const double e = number(expected.values[i]);
    const double difference = std::abs(number(actual.values[i]) - e);
    largest = std::max(largest, std::abs(e));
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  EXPECT_LE(error, allowed * largest) << what << ", of which the largest is " << largest;
}

struct Results {
  explicit Results(const AttentionShape& s)
      : out(queries(s)),
        d_q(queries(s)),
        d_k(keys(s)),
        d_v(keys(s)),
        log_sum_exp(s.batch * s.heads * s.seq),
        scratch(AttentionScratch::backward(s).bytes) {}
  static std::int64_t queries(const AttentionShape& s) { return s.batch * s.seq * s.heads * s.head_dim; }
  static std::int64_t keys(const AttentionShape& s) { return s.batch * s.seq * s.kv_heads * s.head_dim; }
  float* statistics() const { return reinterpret_cast<float*>(log_sum_exp.data()); }

  Bf16 out, d_q, d_k, d_v;
  Array<float> log_sum_exp;
  Array<std::byte> scratch;
};

class GpuAttention : public testing::TestWithParam<AttentionShape> {
 protected:
  void SetUp() override {
    int gpus = 0;
    const cudaError_t status = cudaGetDeviceCount(&gpus);
    if (status != cudaSuccess || gpus == 0) {
      GTEST_SKIP() << "no GPU: " << (status == cudaSuccess ? "none was found" : cudaGetErrorString(status));
    }
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream of the test");
    std::uint32_t seed = 0;
    for (Bf16** tensor : {&q_, &k_, &v_, &d_out_}) {
      const bool is_key = tensor == &k_ || tensor == &v_;
      owned_.push_back(std::make_unique<Bf16>(is_key ? Results::keys(shape_) : Results::queries(shape_)));
      *tensor = owned_.back().get();
      fill(**tensor, ++seed);
    }
    // A copy from pageable memory may return before it is done, and the stream waits for nobody.
    check(cudaDeviceSynchronize(), "upload");
  }
  void TearDown() override {
    if (stream_ != nullptr) check(cudaStreamDestroy(stream_), "stream of the test");
  }

  void attend(Attention& attention, Results& r) {
    attention.forward(forward_to(r));
    attention.backward(backward_to(r));
    check(cudaStreamSynchronize(stream_), "stream of the test");
  }
  AttentionCall forward_to(Results& r) const {
    return {.shape = shape_,
            .q = q_->data(),
            .k = k_->data(),
            .v = v_->data(),
            .out = r.out.data(),
            .log_sum_exp = r.statistics(),
            .scratch = r.scratch.data()};
  }
  AttentionBackwardCall backward_to(Results& r) const {
    return {.shape = shape_,
            .d_out = d_out_->data(),
            .q = q_->data(),
            .k = k_->data(),
            .v = v_->data(),
            .out = r.out.data(),
            .log_sum_exp = r.statistics(),
            .d_q = r.d_q.data(),
            .d_k = r.d_k.data(),
            .d_v = r.d_v.data(),
            .scratch = r.scratch.data()};
  }

  AttentionShape shape_ = GetParam();
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Bf16>> owned_;
  Bf16 *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *d_out_ = nullptr;
};

TEST_P(GpuAttention, OfCudnnAgreesWithMatrixProductsAndRepeatsItsBits) {
  Gemms gemms(stream_);
  Attention attention(stream_, gemms, true);
  Results fused(shape_), blocks(shape_), again(shape_);
  attend(attention, fused);
  ASSERT_GT(attention.workspace_bytes(), 0) << "cuDNN was not asked";
  EXPECT_LE(attention.workspace_bytes(), (std::int64_t{5} << 28) + (std::int64_t{64} << 10));

  attention_fallback(stream_, gemms, forward_to(blocks));
  attention_fallback_backward(stream_, gemms, backward_to(blocks));
  check(cudaStreamSynchronize(stream_), "stream of the test");
  expect_near(fused.log_sum_exp, blocks.log_sum_exp, 1e-4, "log_sum_exp");
  expect_near(fused.out, blocks.out, 1e-2, "out");
  expect_near(fused.d_q, blocks.d_q, 2e-2, "d_q");
  expect_near(fused.d_k, blocks.d_k, 2e-2, "d_k");
  expect_near(fused.d_v, blocks.d_v, 2e-2, "d_v");

  attend(attention, again);
  EXPECT_EQ(again.out.download(), fused.out.download());
  EXPECT_EQ(again.d_q.download(), fused.d_q.download());
  EXPECT_EQ(again.d_k.download(), fused.d_k.download());
  EXPECT_EQ(again.d_v.download(), fused.d_v.download());
}

TEST_P(GpuAttention, InAnyOrderAgreesWithTheFixedOneAndNeedsLessMemory) {
  Gemms gemms(stream_);
  Attention ordered(stream_, gemms, true), free(stream_, gemms, false);
  Results a(shape_), b(shape_);
  attend(ordered, a);
  attend(free, b);
  EXPECT_EQ(b.out.download(), a.out.download());
  expect_near(b.d_q, a.d_q, 2e-2, "d_q");
  expect_near(b.d_k, a.d_k, 2e-2, "d_k");
  expect_near(b.d_v, a.d_v, 2e-2, "d_v");
  EXPECT_LE(free.workspace_bytes(), ordered.workspace_bytes());
}

// The last one's backward takes the batch in parts.
INSTANTIATE_TEST_SUITE_P(Shapes, GpuAttention,
                         testing::Values(AttentionShape{3, 200, 4, 2, 64, DType::bf16},
                                         AttentionShape{2, 512, 8, 8, 128, DType::bf16},
                                         AttentionShape{4, 1024, 12, 12, 64, DType::bf16},
                                         AttentionShape{6, 4096, 16, 4, 64, DType::bf16}),
                         [](const auto& test) {
                           const AttentionShape& s = test.param;
                           return std::to_string(s.batch) + "x" + std::to_string(s.seq) + "_heads_" +
                                  std::to_string(s.heads) + "_of_" + std::to_string(s.kv_heads) + "_size_" +
                                  std::to_string(s.head_dim);
                         });

}  // namespace
}  // namespace fsdpbench::backend::cuda
