#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/kernels.h"
#include "model/initialize.h"
#include "model/model.h"
#include "plan/model_shapes.h"
#include "support/guarded_buffer.h"

namespace fsdpbench::testing {

/// Runs a whole model on one rank through Model and Kernels alone: no engine, no schedule. Every buffer has exactly
/// the size that the model asks for, is fenced, and is full of NaN before it is first written.
class SingleRank {
 public:
  SingleRank(const config::Model& model, model::BatchShape batch, backend::Kernels& kernels, std::uint64_t seed = 1)
      : shapes_(plan::model_shapes(model)),
        batch_(batch),
        model_(model::make_model(model, shapes_, batch)),
        kernels_(kernels),
        sizes_(model_->sizes()),
        loss_(sizeof(float)) {
    for (std::size_t i = 0; i < shapes_.parameters.size(); ++i) {
      const std::int64_t numel = shapes_.parameters[i].numel();
      std::vector<float> values(static_cast<std::size_t>(numel));
      model::initialize_parameter(shapes_.parameters[i], seed, 0, numel, values.data());
      parameters_.push_back(GuardedBuffer::of(values, batch.dtype));
      gradients_.emplace_back(numel * size_of(batch.gradient_dtype));
    }
    std::int64_t widest = 0;
    for (const plan::ModuleSizes& size : sizes_) {
      saved_.emplace_back(size.saved_bytes);
      outputs_.emplace_back(size.output_bytes);
      widest = std::max(widest, size.output_bytes);
    }
    d_stream_ = GuardedBuffer(widest);
    inputs_ = GuardedBuffer(sizes_.front().batch_input_bytes);
    targets_ = GuardedBuffer(sizes_.front().batch_target_bytes);
  }

  const plan::ModelShapes& shapes() const { return shapes_; }
  const std::vector<plan::ModuleSizes>& sizes() const { return sizes_; }
  std::size_t parameter_count() const { return parameters_.size(); }
  std::vector<float> parameter(std::size_t i) const { return parameters_[i].get(batch_.dtype); }
  void set_parameter(std::size_t i, const std::vector<float>& values) { parameters_[i].set(values, batch_.dtype); }
  std::vector<float> gradient(std::size_t i) const { return gradients_[i].get(batch_.gradient_dtype); }
  float loss() const { return loss_.get().front(); }
  std::vector<std::byte> saved(std::size_t module) const { return saved_[module].contents(); }

  template <class T>
  void set_batch(const std::vector<T>& inputs, const std::vector<T>& targets) {
    std::memcpy(inputs_.data(), inputs.data(), static_cast<std::size_t>(inputs_.size()));
    std::memcpy(targets_.data(), targets.data(), static_cast<std::size_t>(targets_.size()));
  }

  void forward(float loss_scale = 1.0F) {
    for (std::size_t m = 0; m < sizes_.size(); ++m) forward_module(m, loss_scale, false);
  }
  /// Forward of one module without its output, into poisoned saved memory.
  void recompute(std::size_t module) {
    saved_[module].poison();
    forward_module(module, 1.0F, true);
  }
  void backward() {
    d_stream_.poison();
    for (GuardedBuffer& gradient : gradients_) gradient.poison();
    for (std::size_t m = sizes_.size(); m-- > static_cast<std::size_t>(shapes_.first_trained());) {
      GuardedBuffer workspace(sizes_[m].backward_workspace_bytes);
      Views views(*this, m);
      model::ModuleCall call = call_of(m, views, workspace);
      call.gradients = views.gradients;
      call.d_stream = d_stream_.data();
      model_->backward(static_cast<int>(m), kernels_, call);
      fences_hold_ = fences_hold_ && workspace.intact();
    }
  }

  /// Nothing was written outside any buffer so far.
  bool intact() const {
    const auto whole = [](const std::vector<GuardedBuffer>& buffers) {
      return std::all_of(buffers.begin(), buffers.end(), [](const GuardedBuffer& b) { return b.intact(); });
    };
    return fences_hold_ && whole(parameters_) && whole(gradients_) && whole(saved_) && whole(outputs_) &&
           d_stream_.intact() && inputs_.intact() && targets_.intact() && loss_.intact();
  }

 private:
  /// Pointers to one module's parameters and gradients.
  struct Views {
    Views(SingleRank& rank, std::size_t module) {
      for (const int index : rank.shapes_.modules[module].parameters) {
        parameters.push_back(rank.parameters_[static_cast<std::size_t>(index)].data());
        const bool frozen = rank.shapes_.parameters[static_cast<std::size_t>(index)].frozen;
        gradients.push_back(frozen ? nullptr : rank.gradients_[static_cast<std::size_t>(index)].data());
      }
    }
    std::vector<const std::byte*> parameters;
    std::vector<std::byte*> gradients;
  };

  model::ModuleCall call_of(std::size_t m, const Views& views, GuardedBuffer& workspace) {
    model::ModuleCall call;
    call.parameters = views.parameters;
    call.batch = {inputs_.data(), targets_.data()};
    call.input = m == 0 ? nullptr : outputs_[m - 1].data();
    call.saved = saved_[m].data();
    call.workspace = workspace.data();
    return call;
  }
  void forward_module(std::size_t m, float loss_scale, bool recomputation) {
    GuardedBuffer workspace(sizes_[m].forward_workspace_bytes);
    const Views views(*this, m);
    model::ModuleCall call = call_of(m, views, workspace);
    const bool is_loss = m + 1 == sizes_.size();
    call.output = is_loss || recomputation ? nullptr : outputs_[m].data();
    call.loss = is_loss ? loss_.floats() : nullptr;
    call.loss_scale = loss_scale;
    model_->forward(static_cast<int>(m), kernels_, call);
    fences_hold_ = fences_hold_ && workspace.intact();
  }

  plan::ModelShapes shapes_;
  model::BatchShape batch_;
  std::unique_ptr<model::Model> model_;
  backend::Kernels& kernels_;
  std::vector<plan::ModuleSizes> sizes_;
  std::vector<GuardedBuffer> parameters_, gradients_, saved_, outputs_;
  GuardedBuffer d_stream_, inputs_, targets_, loss_;
  bool fences_hold_ = true;
};

}  // namespace fsdpbench::testing
