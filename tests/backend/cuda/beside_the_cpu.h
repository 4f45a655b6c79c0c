#pragma once

// Kernels of CUDA and of the CPU on the same memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/cuda/cuda_kernel_host.h"
#include "base/dtype.h"

namespace fsdpbench::backend {

using Bytes = std::vector<std::byte>;

/// Host memory that starts on a 16-byte boundary. Its bytes are the element's value rounded to `dtype`.
inline Bytes random_elements(std::int64_t count, DType dtype, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Bytes bytes(static_cast<std::size_t>(count * size_of(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = normal(generator);
    const std::uint16_t low = float_to_bf16(value);
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + i * 4, &value, 4);
    } else {
      std::memcpy(bytes.data() + i * 2, &low, 2);
    }
  }
  return bytes;
}

/// Array of a kernel, which may read and write all of it.
struct Array {
  Bytes content;
  std::int64_t shift = 0;  ///< bytes behind a 16-byte boundary
};
using Work = std::function<void(Kernels&, const std::vector<std::byte*>&)>;

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    host_ = cuda::CudaHost::make();
    if (host_ == nullptr) GTEST_SKIP() << no_kernel_host;
  }

  /// The arrays after `work` on the GPU. Whatever lies around them must be as it was.
  std::vector<Bytes> on_cuda(std::vector<Array> arrays, const Work& work) {
    constexpr std::size_t kFence = 64;
    constexpr std::byte kFenceByte{0xA5};
    std::vector<std::byte*> memory, views;
    std::vector<Bytes> images;
    for (const Array& array : arrays) {
      const std::size_t begin = kFence + static_cast<std::size_t>(array.shift);
      Bytes image(begin + array.content.size() + kFence, kFenceByte);
      std::copy(array.content.begin(), array.content.end(), image.begin() + static_cast<std::ptrdiff_t>(begin));
      memory.push_back(host_->allocate(static_cast<std::int64_t>(image.size())));
      views.push_back(memory.back() + begin);
      images.push_back(std::move(image));
    }
    host_->run([&](Kernels& kernels) {
      for (std::size_t i = 0; i < images.size(); ++i) {
        kernels.upload(images[i].data(), memory[i], static_cast<std::int64_t>(images[i].size()));
      }
      work(kernels, views);
      for (std::size_t i = 0; i < images.size(); ++i) {
        kernels.download(memory[i], images[i].data(), static_cast<std::int64_t>(images[i].size()));
      }
    });
    std::vector<Bytes> results;
    for (std::size_t i = 0; i < images.size(); ++i) {
      const auto begin = images[i].begin() + static_cast<std::ptrdiff_t>(kFence) + arrays[i].shift;
      const auto end = begin + static_cast<std::ptrdiff_t>(arrays[i].content.size());
      const auto is_fence = [](std::byte b) { return b == kFenceByte; };
      EXPECT_TRUE(std::all_of(images[i].begin(), begin, is_fence)) << "written before array " << i;
      EXPECT_TRUE(std::all_of(end, images[i].end(), is_fence)) << "written behind array " << i;
      results.emplace_back(begin, end);
    }
    return results;
  }

  static std::vector<Bytes> on_cpu(const std::vector<Array>& arrays, const Work& work) {
    std::vector<Bytes> results;
    std::vector<std::byte*> views;
    for (const Array& array : arrays) results.push_back(array.content);
    for (Bytes& bytes : results) views.push_back(bytes.data());
    work(*cpu::make_cpu_kernels(), views);
    return results;
  }

  /// `work` gives the CPU's bits wherever its arrays, whose elements have `sizes` bytes, begin.
  void expect_the_cpus_bits(std::vector<Array> arrays, const std::vector<std::int64_t>& sizes, const Work& work) {
    const std::vector<Bytes> expected = on_cpu(arrays, work);
    for (const std::vector<std::int64_t>& elements : kPlaces) {
      for (std::size_t i = 0; i < arrays.size(); ++i) arrays[i].shift = elements[i % elements.size()] * sizes[i];
      EXPECT_EQ(on_cuda(arrays, work), expected) << testing::PrintToString(elements);
    }
  }

  /// `work` gives the same bits wherever its arrays begin.
  void expect_the_same_bits(std::vector<Array> arrays, const std::vector<std::int64_t>& sizes, const Work& work) {
    std::vector<Bytes> first;
    for (const std::vector<std::int64_t>& elements : kPlaces) {
      for (std::size_t i = 0; i < arrays.size(); ++i) arrays[i].shift = elements[i % elements.size()] * sizes[i];
      std::vector<Bytes> result = on_cuda(arrays, work);
      if (first.empty())
        first = std::move(result);
      else
        EXPECT_EQ(result, first) << testing::PrintToString(elements);
    }
  }

  /// Elements behind a 16-byte boundary, array by array: all on one, all a few behind one, each elsewhere.
  const std::vector<std::vector<std::int64_t>> kPlaces{{0}, {1}, {3}, {7}, {0, 1}, {1, 0}, {0, 0, 2}, {4, 3, 2, 1}};

  std::unique_ptr<KernelHost> host_;
};

}  // namespace fsdpbench::backend
