#include "trace/nvtx_range.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <array>
#include <cstddef>

namespace fsdpbench::trace {
namespace {

void register_schema(nvtxDomainHandle_t domain) {
  static const std::array<nvtxPayloadSchemaEntry_t, 3> kEntries = [] {
    std::array<nvtxPayloadSchemaEntry_t, 3> entries{};
    constexpr std::array<const char*, 3> kNames{"unit", "step", "bytes"};
    constexpr std::array<std::size_t, 3> kOffsets{offsetof(NvtxPayload, unit), offsetof(NvtxPayload, step),
                                                  offsetof(NvtxPayload, bytes)};
    for (std::size_t i = 0; i < entries.size(); ++i) {
      entries[i].type = NVTX_PAYLOAD_ENTRY_TYPE_INT64;
      entries[i].name = kNames[i];
      entries[i].offset = kOffsets[i];
    }
    return entries;
  }();
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
  schema.name = "fsdpbench op";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = kEntries.data();
  schema.numEntries = kEntries.size();
  schema.payloadStaticSize = sizeof(NvtxPayload);
  schema.schemaId = kNvtxPayloadSchema;
  nvtxPayloadSchemaRegister(domain, &schema);
}

/// Null without a tool.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t kDomain = [] {
    const nvtxDomainHandle_t made = nvtxDomainCreateA("fsdpbench");
    if (made == nullptr) return made;
    nvtxDomainNameCategoryA(made, kNvtxHostCategory, "host");
    for (Lane lane : kLanes) nvtxDomainNameCategoryA(made, nvtx_category(lane), to_string(lane).data());
    register_schema(made);
    return made;
  }();
  return kDomain;
}

}  // namespace

bool nvtx_listens() { return domain() != nullptr; }

std::string nvtx_note() {
  return nvtx_listens() ? "a tool listens" : "no tool listens (NVTX_INJECTION64_PATH names none)";
}

NvtxName::NvtxName(const std::string& name) {
  if (nvtx_listens()) handle_ = nvtxDomainRegisterStringA(domain(), name.c_str());
}

void nvtx_push(const NvtxName& name, std::uint32_t category, const NvtxPayload& payload) {
  if (name.handle_ == nullptr) return;
  const nvtxPayloadData_t data{kNvtxPayloadSchema, sizeof payload, &payload};
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = category;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(name.handle_);
  attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  attributes.reserved0 = 1;  // one extended payload
  attributes.payload.ullValue = reinterpret_cast<std::uintptr_t>(&data);
  nvtxDomainRangePushEx(domain(), &attributes);
}

void nvtx_pop() {
  if (nvtx_listens()) nvtxDomainRangePop(domain());
}

}  // namespace fsdpbench::trace
