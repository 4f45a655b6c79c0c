#include "backend/cpu/kernels/embedding.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backend/cpu/kernels/element.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

void check_tokens(const std::int32_t* tokens, std::int64_t count, std::int64_t vocab) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      throw BackendError("Token " + std::to_string(tokens[i]) + " at position " + std::to_string(i) +
                         " is outside the vocabulary of " + std::to_string(vocab) + ".");
    }
  }
}

}  // namespace

void Embedding::forward(const EmbeddingCall& call) {
  const auto& [shape, part, table, tokens, y] = call;
  check_tokens(tokens, shape.rows, part.whole);
  const std::int64_t row = shape.width * size_of(shape.dtype);
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    if (part.holds(tokens[i])) {
      std::memcpy(y + i * row, table + (tokens[i] - part.first) * row, static_cast<std::size_t>(row));
    } else {
      std::memset(y + i * row, 0, static_cast<std::size_t>(row));
    }
  }
}

void Embedding::sort_by_token(const std::int32_t* tokens, std::int64_t count, const VocabularyPart& part) {
  check_tokens(tokens, count, part.whole);
  first_.assign(static_cast<std::size_t>(part.count + 1), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (part.holds(tokens[i])) ++first_[static_cast<std::size_t>(tokens[i] - part.first) + 1];
  }
  for (std::size_t id = 1; id < first_.size(); ++id) first_[id] += first_[id - 1];
  positions_.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if (part.holds(tokens[i])) positions_[first_[static_cast<std::size_t>(tokens[i] - part.first)]++] = i;
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
  row_.resize(static_cast<std::size_t>(width));
  chunk_.resize(static_cast<std::size_t>(width));
  if (call.overwrite) {
    std::memset(d_table, 0, static_cast<std::size_t>(part.count * width * size_of(call.d_table.dtype)));
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

}  // namespace fsdpbench::backend::cpu
