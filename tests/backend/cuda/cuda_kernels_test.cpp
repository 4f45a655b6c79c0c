// The kernels' conformance suite on CUDA, and what is promised of the CUDA kernels alone. Compiled twice: for the fakes
// of CUDA's libraries, and for a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/cuda/beside_the_cpu.h"
#include "base/dtype.h"

namespace fsdpbench::backend {
namespace {

using cuda::CudaHost;

std::string dtype_name(const testing::TestParamInfo<KernelsConformance::ParamType>& test) {
  return std::string(to_string(std::get<1>(test.param)));
}
INSTANTIATE_TEST_SUITE_P(Cuda, KernelsConformance,
                         testing::Combine(testing::Values(&CudaHost::make), testing::Values(DType::f32, DType::bf16)),
                         dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, MasterKernelsConformance,
                         testing::Combine(testing::Values(&CudaHost::make), testing::Values(DType::f32)), dtype_name);

const float* floats(const std::byte* memory) { return reinterpret_cast<const float*>(memory); }
float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

const std::vector<std::int64_t> kElementCounts{1, 7, 8, 31, 203, 3001};

TEST_F(CudaKernels, ConvertAsTheCpuDoesWhereverTheyWork) {
  for (const DType from : {DType::f32, DType::bf16}) {
    for (const DType to : {DType::f32, DType::bf16}) {
      for (const std::int64_t count : kElementCounts) {
        const std::vector<Array> arrays{{random_elements(count, from, 1)}, {random_elements(count, to, 2)}};
        for (const float factor : {1.0F, 0.3F}) {
          expect_the_cpus_bits(arrays, {size_of(from), size_of(to)}, [&](Kernels& kernels, const auto& a) {
            kernels.cast({a[0], from}, {a[1], to}, count, factor);
          });
        }
        if (to == DType::bf16) continue;
        for (const float factor : {1.0F, 0.3F}) {
          expect_the_cpus_bits(arrays, {size_of(from), 4}, [&](Kernels& kernels, const auto& a) {
            kernels.accumulate({a[0], from}, floats(a[1]), count, factor);
          });
        }
      }
    }
  }
}

TEST_F(CudaKernels, AddAndRectifyAsTheCpuDoesWhereverTheyWork) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::int64_t size = size_of(dtype);
    for (const std::int64_t count : kElementCounts) {
      const std::vector<Array> arrays{
          {random_elements(count, dtype, 1)}, {random_elements(count, dtype, 2)}, {random_elements(count, dtype, 3)}};
      expect_the_cpus_bits(arrays, {size, size, size}, [&](Kernels& kernels, const auto& a) {
        kernels.add(a[0], a[1], a[2], count, dtype);
        kernels.relu_backward(a[2], a[0], a[2], count, dtype);
        kernels.relu(a[0], a[1], count, dtype);
        kernels.fill_zero(a[0], count / 2 * size);
      });
    }
    for (const std::int64_t width : {1, 8, 100, 2056}) {
      const std::vector<Array> arrays{{random_elements(5 * width, dtype, 1)}, {random_elements(width, dtype, 2)}};
      expect_the_cpus_bits(arrays, {size, size}, [&](Kernels& kernels, const auto& a) {
        kernels.add_bias({5, width, dtype}, a[0], a[1]);
      });
    }
  }
}

TEST_F(CudaKernels, OptimizeAsTheCpuDoesWhereverTheyWork) {
  const AdamWStep step{
      .learning_rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F, .weight_decay = 0.1F, .step = 3};
  const SgdStep sgd{.learning_rate = 0.1F, .weight_decay = 0.01F};
  for (const std::int64_t count : kElementCounts) {
    const auto update = [&](const auto& a, const ConstElements& gradient, std::byte* rounded = nullptr) {
      return ParameterUpdate{.count = count,
                             .parameter = floats(a[0]),
                             .gradient = gradient,
                             .first_moment = floats(a[2]),
                             .second_moment = floats(a[3]),
                             .rounded = rounded};
    };
    Bytes squares = random_elements(count, DType::f32, 4);
    for (std::int64_t i = 0; i < count; ++i) floats(squares.data())[i] = std::abs(floats(squares.data())[i]);
    const std::vector<Array> arrays{{random_elements(count, DType::f32, 1)}, {random_elements(count, DType::f32, 2)},
                                    {random_elements(count, DType::f32, 3)}, {squares},
                                    {random_elements(1, DType::f32, 5)},     {random_elements(count, DType::bf16, 6)},
                                    {random_elements(count, DType::bf16, 7)}};
    expect_the_cpus_bits(arrays, {4, 4, 4, 4, 4, 2, 2}, [&](Kernels& kernels, const auto& a) {
      AdamWStep scaled = step;
      SgdStep scaled_sgd = sgd;
      scaled.gradient_scale = scaled_sgd.gradient_scale = floats(a[4]);
      kernels.adamw(update(a, floats(a[1])), step);
      kernels.adamw(update(a, floats(a[1])), scaled);
      kernels.sgd(update(a, floats(a[1])), sgd);
      kernels.sgd(update(a, floats(a[2])), scaled_sgd);
      kernels.adamw(update(a, floats(a[1]), a[5]), scaled);
      kernels.sgd(update(a, floats(a[1]), a[6]), scaled_sgd);
    });
    expect_the_cpus_bits(arrays, {4, 4, 4, 4, 4, 2, 2}, [&](Kernels& kernels, const auto& a) {
      const ConstElements gradient(a[5], DType::bf16);
      SgdStep scaled_sgd = sgd;
      scaled_sgd.gradient_scale = floats(a[4]);
      kernels.adamw(update(a, gradient), step);
      kernels.sgd(update(a, gradient), scaled_sgd);
      kernels.adamw(update(a, gradient, a[6]), step);
      kernels.sgd({.count = count, .parameter = floats(a[1]), .gradient = gradient, .rounded = a[6]}, sgd);
    });
  }
}

TEST_F(CudaKernels, GiveAnElementTheSameBitsInAnyShard) {
  constexpr std::int64_t kCount = 203;
  const AdamWStep step{.learning_rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F, .weight_decay = 0.1F};
  const auto update = [&](Kernels& kernels, const std::vector<std::byte*>& a, std::int64_t first, std::int64_t count) {
    const ParameterUpdate of_shard{.count = count,
                                   .parameter = floats(a[0]) + first,
                                   .gradient = floats(a[1]) + first,
                                   .first_moment = floats(a[2]) + first,
                                   .second_moment = floats(a[3]) + first};
    const Elements low{a[5] + 2 * first, DType::bf16};
    kernels.adamw(of_shard, step);
    kernels.sgd(of_shard, {.learning_rate = 0.1F, .weight_decay = 0.01F});
    kernels.swiglu(
        {.shape = {1, count, DType::f32}, .gate = a[0] + 4 * first, .up = a[1] + 4 * first, .y = a[4] + 4 * first});
    kernels.cast(floats(a[4]) + first, low, count, 0.7F);
    kernels.accumulate(low, floats(a[4]) + first, count, 0.3F);
  };
  std::vector<Array> arrays{{random_elements(kCount, DType::f32, 1)}, {random_elements(kCount, DType::f32, 2)}};
  for (const std::size_t size : {4, 4, 4, 2}) arrays.push_back({Bytes(kCount * size)});
  const std::vector<Bytes> whole =
      on_cuda(arrays, [&](Kernels& kernels, const auto& a) { update(kernels, a, 0, kCount); });
  const std::vector<Bytes> pieces = on_cuda(arrays, [&](Kernels& kernels, const auto& a) {
    for (std::int64_t first = 0, length = 1; first < kCount; first += length, length += 3) {
      update(kernels, a, first, std::min(length, kCount - first));
    }
  });
  EXPECT_EQ(pieces, whole);
}

/// a[1] = rms_norm of a[0], and then the gradients of that; a[3] is the weight, a[5] has a float a row.
void normalize(Kernels& kernels, const RowShape& shape, const std::vector<std::byte*>& a) {
  kernels.rms_norm({.shape = shape, .x = a[0], .weight = a[3], .y = a[1], .rstd = floats(a[5]), .epsilon = 1e-5F});
  kernels.rms_norm_backward({.shape = shape,
                             .d_y = a[1],
                             .x = a[0],
                             .weight = a[3],
                             .rstd = floats(a[5]),
                             .d_x = a[2],
                             .d_weight = {a[4], shape.dtype}});
}

TEST_F(CudaKernels, GiveTheSameBitsAtAnyAlignment) {
  constexpr std::int64_t kRows = 20;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::int64_t size = size_of(dtype);
    for (const std::int64_t width : {8, 1000, 2056}) {
      std::vector<std::int32_t> ids(kRows);
      for (std::int64_t i = 0; i < kRows; ++i)
        ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7 % width);
      const auto* const first = reinterpret_cast<const std::byte*>(ids.data());
      const std::vector<Array> arrays{{random_elements(kRows * width, dtype, 1)},
                                      {random_elements(kRows * width, dtype, 2)},
                                      {random_elements(kRows * width, dtype, 3)},
                                      {random_elements(width, dtype, 4)},
                                      {Bytes(static_cast<std::size_t>(width * size))},
                                      {Bytes(kRows * 4)},
                                      {Bytes(4)},
                                      {Bytes(first, first + kRows * 4)},
                                      {Bytes(static_cast<std::size_t>(kRows * width * size))}};
      expect_the_same_bits(arrays, {size, size, size, size, size, 4, 4, 4, size}, [&](Kernels& kernels, const auto& a) {
        const RowShape shape{kRows, width, dtype};
        normalize(kernels, shape, a);
        kernels.swiglu_backward(
            {.shape = shape, .d_y = a[0], .gate = a[1], .up = a[2], .d_gate = a[1], .d_up = a[2], .y = a[8]});
        kernels.rotary({2, kRows / 2, width / 8, width / 8, 8, dtype}, a[0], a[1], 1e4F, false);
        kernels.cross_entropy({.part = VocabularyPart::all(width),
                               .rows = kRows,
                               .dtype = dtype,
                               .logits = a[2],
                               .targets = reinterpret_cast<const std::int32_t*>(a[7]),
                               .loss = floats(a[6])});
        kernels.bias_backward(shape, a[2], {a[3], dtype});
      });
    }
  }
  const std::vector<Array> arrays{
      {random_elements(5003, DType::f32, 1)}, {random_elements(5003, DType::f32, 2)}, {Bytes(5003 * 4)}, {Bytes(4)}};
  expect_the_same_bits(arrays, {4, 4, 4, 4}, [&](Kernels& kernels, const auto& a) {
    kernels.mean_squared_error(
        {.count = 5003, .prediction = a[0], .target = floats(a[1]), .d_prediction = a[2], .loss = floats(a[3])});
  });
  Bytes sums[2];
  for (const std::int64_t shift : {0, 4}) {
    sums[shift / 4] =
        on_cuda({{random_elements(5003, DType::f32, 1), shift}, {Bytes(8)}}, [&](Kernels& kernels, const auto& a) {
          kernels.sum_of_squares(floats(a[0]), 5003, 1.0, reinterpret_cast<double*>(a[1]), true);
        })[1];
  }
  EXPECT_EQ(sums[0], sums[1]);
}

/// Runs that fill a target of `size` elements without overlapping.
std::vector<CopyRun> random_runs(std::mt19937& generator, std::int64_t source_size, std::int64_t size) {
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(generator() % static_cast<unsigned>(n)); };
  std::vector<CopyRun> runs;
  for (std::int64_t at = below(9); at < size;) {
    CopyRun run{
        .target = at, .rows = below(5), .run = below(below(3) == 0 ? 6000 : 40), .zero_fill = below(3) * below(20)};
    const std::int64_t gap = below(2) * below(9);
    run.target_stride = run.run + gap;
    run.source_stride = run.run + below(2) * 8;
    run.source = below(64);
    const std::int64_t end = run.rows > 0 ? at + (run.rows - 1) * run.target_stride + run.run : at;
    const std::int64_t source_end = run.source + run.rows * (run.source_stride + run.run);
    if (source_end > source_size || end + run.zero_fill > size) break;
    runs.push_back(run);
    at = end + run.zero_fill + below(4);
  }
  return runs;
}

TEST_F(CudaKernels, CopyRunsOfAllKindsAsTheCpuDoes) {
  std::mt19937 generator(7);
  for (int round = 0; round < 12; ++round) {
    constexpr std::int64_t kSource = 60000, kTarget = 100000;
    const std::vector<CopyRun> runs = random_runs(generator, kSource, kTarget);
    for (const DType from : {DType::f32, DType::bf16}) {
      for (const DType to : {DType::f32, DType::bf16}) {
        const Work copy = [&](Kernels& kernels, const auto& a) { kernels.copy_runs({a[0], from}, {a[1], to}, runs); };
        std::vector<Array> arrays{{random_elements(kSource, from, 1), round % 3 * size_of(from)},
                                  {random_elements(kTarget, to, 2), round % 4 * size_of(to)}};
        EXPECT_EQ(on_cuda(arrays, copy), on_cpu(arrays, copy)) << "round " << round << ", " << runs.size() << " runs";
      }
    }
  }
}

TEST_F(CudaKernels, CopyMoreRunsThanOneLaunchTakes) {
  std::vector<CopyRun> runs;
  for (std::int64_t i = 0; i < 300; ++i)
    runs.push_back({.source = i * 5, .target = (299 - i) * 7, .run = 5, .zero_fill = 2});
  const Work copy = [&](Kernels& kernels, const auto& a) {
    kernels.copy_runs({a[0], DType::f32}, {a[1], DType::f32}, runs);
  };
  const std::vector<Array> arrays{{random_elements(1500, DType::f32, 1)}, {random_elements(2100, DType::f32, 2)}};
  EXPECT_EQ(on_cuda(arrays, copy), on_cpu(arrays, copy));
}

TEST_F(CudaKernels, EmbedAsTheCpuDoes) {
  struct Table {
    std::int64_t count, vocab, width;
  };
  // Tokens are put in order by one, two and three digits, in one tile of positions and in several.
  for (const auto& [kCount, kVocab, width] : {Table{700, 900, 3},
                                              {700, 900, 64},
                                              {700, 900, 1100},
                                              {3000, 70000, 3},
                                              {1500, 6, 3},
                                              {513, 200, 1},
                                              {31, 6, 5}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(kCount));
      std::mt19937 generator(3);
      // One token fills half of the batch; others occur once, or again far behind.
      for (std::int32_t& id : ids) id = generator() % 2 == 0 ? 5 : static_cast<std::int32_t>(generator() % kVocab);
      ids.front() = ids.back() = static_cast<std::int32_t>(kVocab - 1);
      const auto* const raw = reinterpret_cast<const std::byte*>(ids.data());
      const std::vector<Array> arrays{{random_elements(kVocab * width, dtype, 1)},
                                      {random_elements(kCount * width, dtype, 2)},
                                      {Bytes(raw, raw + kCount * 4)}};
      for (const bool overwrite : {false, true}) {
        const Work embed = [&](Kernels& kernels, const auto& a) {
          const auto* const tokens = reinterpret_cast<const std::int32_t*>(a[2]);
          const RowShape rows{kCount, width, dtype};
          const auto all = VocabularyPart::all(kVocab);
          kernels.embedding_backward({.shape = rows,
                                      .part = all,
                                      .d_y = a[1],
                                      .tokens = tokens,
                                      .d_table = {a[0], dtype},
                                      .overwrite = overwrite});
          kernels.embedding({.shape = rows, .part = all, .table = a[0], .tokens = tokens, .y = a[1]});
        };
        EXPECT_EQ(on_cuda(arrays, embed), on_cpu(arrays, embed)) << "width " << width;
      }
    }
  }
}

TEST_F(CudaKernels, ShowTokensOutsideTheVocabularyAsNaN) {
  const std::vector<std::int32_t> ids{1, 3, -1, 0};
  const auto* const raw = reinterpret_cast<const std::byte*>(ids.data());
  const Array tokens{Bytes(raw, raw + 16)};
  const std::vector<Array> arrays{{random_elements(6, DType::f32, 1)}, {random_elements(8, DType::f32, 2)}, tokens};
  const RowShape rows{4, 2, DType::f32};
  const auto all = VocabularyPart::all(3);
  const auto integers = [](const std::byte* memory) { return reinterpret_cast<const std::int32_t*>(memory); };
  const Bytes y = on_cuda(arrays, [&](Kernels& kernels, const auto& a) {
    kernels.embedding({.shape = rows, .part = all, .table = a[0], .tokens = integers(a[2]), .y = a[1]});
  })[1];
  for (int i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(floats(y.data())[i]), i / 2 == 1 || i / 2 == 2) << i;

  const Bytes d_table = on_cuda(arrays, [&](Kernels& kernels, const auto& a) {
    kernels.embedding_backward({.shape = rows,
                                .part = all,
                                .d_y = a[1],
                                .tokens = integers(a[2]),
                                .d_table = {a[0], DType::f32},
                                .overwrite = true});
  })[0];
  for (int i = 0; i < 6; ++i) EXPECT_EQ(floats(d_table.data())[i] != 0.0F, i / 2 < 2) << i;

  const std::vector<Array> losses{{random_elements(12, DType::f32, 1)}, {Bytes(4)}, tokens};
  const std::vector<Bytes> result = on_cuda(losses, [&](Kernels& kernels, const auto& a) {
    kernels.cross_entropy({.part = all, .rows = 4, .logits = a[0], .targets = integers(a[2]), .loss = floats(a[1])});
  });
  EXPECT_TRUE(std::isnan(floats(result[1].data())[0]));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(floats(result[0].data())[i]), i / 3 == 1 || i / 3 == 2) << i;
}

TEST_F(CudaKernels, NormalizeRowsWiderThanABlockHolds) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    constexpr std::int64_t kRows = 3, kWidth = 20001;
    const std::vector<Array> arrays{{random_elements(kRows * kWidth, dtype, 1)},
                                    {random_elements(kRows * kWidth, dtype, 2)},
                                    {random_elements(kRows * kWidth, dtype, 3)},
                                    {random_elements(kWidth, dtype, 4)},
                                    {Bytes(static_cast<std::size_t>(kWidth * size_of(dtype)))},
                                    {Bytes(kRows * 4)}};
    const Work work = [&](Kernels& kernels, const auto& a) { normalize(kernels, {kRows, kWidth, dtype}, a); };
    const std::vector<Bytes> actual = on_cuda(arrays, work);
    const std::vector<Bytes> expected = on_cpu(arrays, work);
    for (const std::size_t i : {1U, 2U, 4U}) {
      for (std::size_t at = 0; at < actual[i].size(); at += static_cast<std::size_t>(size_of(dtype))) {
        const auto value = [&](const Bytes& bytes) {
          float f = 0;
          std::uint16_t low = 0;
          std::memcpy(&f, bytes.data() + at, dtype == DType::f32 ? 4 : 0);
          std::memcpy(&low, bytes.data() + at, dtype == DType::f32 ? 0 : 2);
          return dtype == DType::f32 ? f : bf16_to_float(low);
        };
        ASSERT_NEAR(value(actual[i]), value(expected[i]), dtype == DType::f32 ? 1e-4 : 0.25) << i << " at " << at;
      }
    }
  }
}

TEST_F(CudaKernels, MoveMoreThanAllPinnedSlotsHold) {
  constexpr std::size_t kBytes = (80 << 20) + 3;
  Bytes source(kBytes), target(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 2654435761U >> 20);
  std::byte* const memory = host_->allocate(kBytes);
  host_->run([&](Kernels& kernels) {
    kernels.upload(source.data(), memory, kBytes);
    kernels.download(memory, target.data(), kBytes);
  });
  EXPECT_TRUE(source == target);
}

TEST_F(CudaKernels, UploadsLeaveTheirSourceAndDownloadsTheirTargetAlone) {
  auto& host = static_cast<CudaHost&>(*host_);
  std::byte* const memory = host.allocate(4);
  int value = 1, result = -1;
  host.kernels().delay(20'000'000);
  host.kernels().upload(&value, memory, 4);
  value = 2;  // the upload has not run yet
  host.kernels().download(memory, &result, 4);
  EXPECT_EQ(cudaStreamSynchronize(host.stream()), cudaSuccess);
  EXPECT_EQ(result, -1);  // nobody was told that the stream was waited for
  host.kernels().deliver_downloads();
  EXPECT_EQ(result, 1);
}

TEST_F(CudaKernels, SayHowMuchMemoryTheyHold) {
  auto& host = static_cast<CudaHost&>(*host_);
  const std::int64_t before = host.kernels().workspace_bytes();
  const std::vector<Array> arrays{{random_elements(64 * 4096, DType::f32, 1)}, {Bytes(4096 * 4)}};
  on_cuda(arrays, [](Kernels& kernels, const auto& a) {
    kernels.bias_backward({64, 4096, DType::f32}, a[0], {a[1], DType::f32});
    kernels.rotary({1, 64, 4, 0, 1024, DType::f32}, a[0], nullptr, 1e4F, false);
  });
  EXPECT_GE(host.kernels().workspace_bytes(), before + 4096 * 4 + 64 * 512 * 2 * 4);
}

}  // namespace
}  // namespace fsdpbench::backend
