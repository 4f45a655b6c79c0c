#include "backend/cpu/kernels/cpu_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/layers.h"
#include "backend/cpu/kernels/matmul.h"
#include "backend/cpu/kernels/optimizer.h"
#include "base/bytes.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Work of one core in some 20 us: less is not worth waking another.
constexpr std::int64_t kLeastPart = 16 * Crew::kGrain;

/// Gathers the kernels of this folder, with what they keep between calls: prepared products, tables, scratch.
class CpuKernels : public Kernels {
 public:
  void gemm(const Gemm& gemm) override {
    const Gemm g = gemm.with_strides();
    if (g.m == 0 || g.n == 0) return;
    const bool add = g.beta != 0.0F;
    if (add ? g.addend != nullptr : g.k == 0) {  // oneDNN adds to what lies in c
      const std::int64_t element = size_of(g.output_dtype);
      for (std::int64_t row = 0; row < g.m; ++row) {
        std::byte* const target = g.c + row * g.c_stride * element;
        const std::size_t bytes = g.n * element;
        add ? std::memcpy(target, g.addend + row * g.c_stride * element, bytes) : std::memset(target, 0, bytes);
      }
    }
    if (g.k == 0) return;
    matmul_(matmul_shape(g), g.a, g.b, g.c);
  }

  void rms_norm(const RmsNormCall& call) override { cpu::rms_norm(call); }
  void rms_norm_backward(const RmsNormBackwardCall& call) override { cpu::rms_norm_backward(call, scratch_); }
  void rotary(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) override {
    rotary_(q, shape.batch, shape.seq, shape.heads, shape.head_dim, theta, inverse, shape.dtype);
    rotary_(k, shape.batch, shape.seq, shape.kv_heads, shape.head_dim, theta, inverse, shape.dtype);
  }
  void attention(const AttentionCall& call) override { cpu::attention(matmul_, call); }
  void attention_backward(const AttentionBackwardCall& call) override { cpu::attention_backward(matmul_, call); }
  void swiglu(const SwigluCall& call) override { cpu::swiglu(call); }
  void swiglu_backward(const SwigluBackwardCall& call) override { cpu::swiglu_backward(call); }
  void embedding(const EmbeddingCall& call) override { embedding_.forward(call); }
  void embedding_backward(const EmbeddingBackwardCall& call) override { embedding_.backward(call); }
  void cross_entropy(const CrossEntropyCall& call) override { cpu::cross_entropy(call, scratch_); }
  void cross_entropy_terms(const CrossEntropyCall& call, float* terms) override {
    cpu::cross_entropy_terms(call, terms);
  }
  void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts) override {
    cpu::cross_entropy_of_terms(call, terms, parts);
  }
  void mean_squared_error(const MeanSquaredErrorCall& call) override { cpu::mean_squared_error(call); }
  void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias) override { cpu::add_bias(shape, y, bias); }
  void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias) override {
    cpu::bias_backward(shape, d_y, d_bias, scratch_);
  }
  void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) override {
    cpu::relu(x, y, count, dtype);
  }
  void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                     DType dtype) override {
    cpu::relu_backward(d_y, y, d_x, count, dtype);
  }
  void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) override {
    cpu::add(x, residual, y, count, dtype);
  }
  void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) override {
    cpu::cast(source, target, count, factor);
  }
  void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor) override {
    cpu::accumulate(source, target, count, factor);
  }
  void copy_runs(const ConstElements& source, const Elements& target, std::span<const CopyRun> runs) override {
    cpu::copy_runs(source, target, runs);
  }
  void fill_zero(std::byte* target, std::int64_t bytes) override {
    if (bytes > 0) std::memset(target, 0, bytes);
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void download(const std::byte* source, void* target, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void sum_of_squares(const ConstElements& x, std::int64_t count, double factor, double* sum, bool overwrite) override {
    cpu::sum_of_squares(x, count, factor, sum, overwrite);
  }
  void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) override {
    cpu::clip_factor(sums, count, max_norm, factor);
  }
  void sgd(const ParameterUpdate& update, const SgdStep& step) override { cpu::sgd(update, step); }
  void adamw(const ParameterUpdate& update, const AdamWStep& step) override { cpu::adamw(update, step); }
  void delay(std::int64_t nanoseconds) override { std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds)); }

 private:
  Matmul matmul_;
  Rotary rotary_;
  Embedding embedding_;
  std::vector<float> scratch_;
};

/// Kernels for single elements are shared by a crew. Sums of squares are not: their order is that of one thread.
class SharedCpuKernels final : public CpuKernels {
 public:
  explicit SharedCpuKernels(int threads) : crew_(threads) {}

  void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) override {
    crew_.share(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::cast(source.after(begin), target.after(begin), end - begin, factor);
    });
  }
  void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor) override {
    crew_.share(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::accumulate(source.after(begin), target + begin, end - begin, factor);
    });
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void download(const std::byte* source, void* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void sgd(const ParameterUpdate& update, const SgdStep& step) override {
    share(update, [&](const ParameterUpdate& part) { cpu::sgd(part, step); });
  }
  void adamw(const ParameterUpdate& update, const AdamWStep& step) override {
    share(update, [&](const ParameterUpdate& part) { cpu::adamw(part, step); });
  }

 private:
  template <class Work>
  void share(const ParameterUpdate& all, const Work& work) {
    crew_.share(all.count, [&](std::int64_t begin, std::int64_t end) {
      const auto from_begin = [&](auto* array, std::int64_t element = 1) {
        return array == nullptr ? nullptr : array + begin * element;
      };
      work({.count = end - begin,
            .parameter = all.parameter + begin,
            .gradient = all.gradient.after(begin),
            .first_moment = from_begin(all.first_moment),
            .second_moment = from_begin(all.second_moment),
            .rounded = from_begin(all.rounded, size_of(DType::bf16))});
    });
  }
  void copy(const void* source, void* target, std::int64_t bytes) {
    crew_.share(bytes, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(static_cast<std::byte*>(target) + begin, static_cast<const std::byte*>(source) + begin, end - begin);
    });
  }

  Crew crew_;
};

}  // namespace

Crew::Crew(int threads) {
  for (int member = 1; member < threads; ++member) members_.emplace_back([this, member] { run(member); });
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& member : members_) member.join();
}

void Crew::share(std::int64_t count, const Work& work) {
  const auto threads = static_cast<std::int64_t>(members_.size()) + 1;
  const std::int64_t part = std::max(kLeastPart, round_up(ceil_div(count, threads), kGrain));
  if (count <= part) return work(0, count);
  {
    const std::lock_guard lock(mutex_);
    count_ = count;
    part_ = part;
    work_ = &work;
    busy_ = static_cast<int>(members_.size());
    ++round_;
  }
  changed_.notify_all();
  perform(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Crew::perform(int part) noexcept {
  const std::int64_t begin = std::min(count_, part * part_), end = std::min(count_, begin + part_);
  if (begin == end) return;
  try {
    (*work_)(begin, end);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void Crew::run(int member) {
  for (std::int64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || round_ != seen; });
      if (closing_) return;
      seen = round_;
    }
    perform(member);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

std::unique_ptr<Kernels> make_cpu_kernels() { return std::make_unique<CpuKernels>(); }

std::unique_ptr<Kernels> make_shared_cpu_kernels(int threads) { return std::make_unique<SharedCpuKernels>(threads); }

}  // namespace fsdpbench::backend::cpu
