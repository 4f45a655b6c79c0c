#pragma once

#include "app/export/export_target.h"

/// One function a file: the systems that export_targets() lists.
namespace fsdpbench::app {

ExportTarget pytorch_fsdp2();
ExportTarget pytorch_fsdp1();
ExportTarget deepspeed();
ExportTarget megatron_fsdp();
ExportTarget torchtitan();
ExportTarget accelerate();
ExportTarget hf_trainer();
ExportTarget maxtext();

}  // namespace fsdpbench::app
