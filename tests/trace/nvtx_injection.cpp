// A tool as NVTX loads it (NVTX_INJECTION64_PATH): writes down what it is told, one line an event, into the file that
// FSDPBENCH_NVTX_LOG names, when the process ends.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

/// Payload of our ranges as their schema says it.
struct Payload {
  std::int64_t unit, step, bytes;
};

class Log {
 public:
  ~Log() {
    const char* path = std::getenv("FSDPBENCH_NVTX_LOG");
    if (path == nullptr) return;
    std::ofstream file(path);
    for (const std::string& line : lines_) file << line << '\n';
  }
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  /// Registered strings and domains: their text, alive to the end.
  std::string* keep(const char* text) {
    const std::lock_guard lock(mutex_);
    return texts_.emplace_back(std::make_unique<std::string>(text)).get();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

Log& log() {
  static Log the_log;
  return the_log;
}

std::string thread_text() { return std::to_string(std::hash<std::thread::id>{}(std::this_thread::get_id())); }
const std::string& domain_text(nvtxDomainHandle_t domain) { return *reinterpret_cast<const std::string*>(domain); }

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  log().add(std::string("domain\t") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(log().keep(name));
}

nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(log().keep(text));
}

void NVTX_API name_category(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  log().add("category\t" + domain_text(domain) + '\t' + std::to_string(category) + '\t' + name);
}

int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const auto* name = reinterpret_cast<const std::string*>(attributes->message.registered);
  std::string line = "push\t" + domain_text(domain) + '\t' + thread_text() + '\t' +
                     std::to_string(attributes->category) + '\t' + *name;
  if (attributes->payloadType == NVTX_PAYLOAD_TYPE_EXT) {
    const auto* data = reinterpret_cast<const nvtxPayloadData_t*>(attributes->payload.ullValue);
    const auto* payload = static_cast<const Payload*>(data->payload);
    line += '\t' + std::to_string(data->schemaId) + '\t' + std::to_string(data->size) + '\t' +
            std::to_string(payload->unit) + '\t' + std::to_string(payload->step) + '\t' +
            std::to_string(payload->bytes);
  }
  log().add(std::move(line));
  return 0;
}

int NVTX_API pop(nvtxDomainHandle_t domain) {
  log().add("pop\t" + domain_text(domain) + '\t' + thread_text());
  return 0;
}

std::uint64_t NVTX_API register_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* schema) {
  std::string line = "schema\t" + domain_text(domain) + '\t' + std::to_string(schema->schemaId) + '\t' +
                     std::to_string(schema->payloadStaticSize);
  for (std::size_t i = 0; i < schema->numEntries; ++i) line += std::string("\t") + schema->entries[i].name;
  log().add(std::move(line));
  return schema->schemaId;
}

template <typename Function>
void set(NvtxFunctionTable table, int id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  log();  // outlives what is written at exit
  set(table, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  set(table, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(table, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount == 0) return 0;
  module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
      reinterpret_cast<std::intptr_t>(&register_schema);
  return 1;
}
