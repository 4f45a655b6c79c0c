#include "backend/kernels/kernels_conformance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"

namespace fsdpbench::backend {
namespace {

constexpr std::byte kFenceByte{0xA5};

}  // namespace

Tensor::Tensor(KernelHost& host, std::int64_t count, DType dtype)
    : host_(host), count_(count), dtype_(dtype), memory_(host.allocate(count * size_of(dtype) + 2 * kFence)) {
  std::vector<std::byte> image(static_cast<std::size_t>(bytes() + 2 * kFence), kFenceByte);
  std::fill_n(image.data() + kFence, bytes(), std::byte{0xFF});
  host_.run([&](Kernels& kernels) { kernels.upload(image.data(), memory_, static_cast<std::int64_t>(image.size())); });
}

void Tensor::set(const std::vector<double>& values) {
  std::vector<std::byte> image(static_cast<std::size_t>(bytes()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (dtype_ == DType::bf16) {
      const std::uint16_t bits = float_to_bf16(value);
      std::memcpy(image.data() + i * 2, &bits, 2);
    } else {
      std::memcpy(image.data() + i * 4, &value, 4);
    }
  }
  host_.run([&](Kernels& kernels) { kernels.upload(image.data(), data(), bytes()); });
}

void Tensor::set_integers(const std::vector<std::int32_t>& values) {
  host_.run([&](Kernels& kernels) { kernels.upload(values.data(), data(), bytes()); });
}

std::vector<double> Tensor::get() const {
  std::vector<std::byte> image(static_cast<std::size_t>(bytes() + 2 * kFence));
  host_.run(
      [&](Kernels& kernels) { kernels.download(memory_, image.data(), static_cast<std::int64_t>(image.size())); });
  const auto is_fence = [](std::byte b) { return b == kFenceByte; };
  EXPECT_TRUE(std::all_of(image.begin(), image.begin() + kFence, is_fence)) << "written before the tensor";
  EXPECT_TRUE(std::all_of(image.end() - kFence, image.end(), is_fence)) << "written behind the tensor";
  std::vector<double> values(static_cast<std::size_t>(count_));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* const at = image.data() + kFence + i * static_cast<std::size_t>(size_of(dtype_));
    if (dtype_ == DType::bf16) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, 2);
      values[i] = bf16_to_float(bits);
    } else {
      float value = 0;
      std::memcpy(&value, at, 4);
      values[i] = value;
    }
  }
  return values;
}

Tensor KernelsConformance::filled(const std::vector<double>& values, DType dtype) {
  Tensor t(*host_, static_cast<std::int64_t>(values.size()), dtype);
  t.set(values);
  return t;
}

Tensor KernelsConformance::integers(const std::vector<std::int32_t>& values) {
  Tensor t(*host_, static_cast<std::int64_t>(values.size()), DType::i32);
  t.set_integers(values);
  return t;
}

Tensor KernelsConformance::random(std::int64_t count, DType dtype, double deviation) {
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = normal(generator_);
  return filled(values, dtype);
}

std::vector<std::int32_t> KernelsConformance::random_tokens(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(generator_() % static_cast<std::uint32_t>(vocab));
  return tokens;
}

void KernelsConformance::expect_near(const Tensor& actual, const std::vector<double>& expected, double f32,
                                     double bf16) {
  const std::vector<double> values = actual.get();
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  const double allowed = tolerance(f32, bf16) * largest;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(std::abs(values[i] - expected[i]) <= allowed)
        << "element " << i << " is " << values[i] << ", expected " << expected[i] << " +- " << allowed;
  }
}

}  // namespace fsdpbench::backend
