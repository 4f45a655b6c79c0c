#include "backend/cuda/cupti/decode.h"

#include <fmt/format.h>

#include <array>

#include "backend/cuda/cupti/cupti_generation.h"

namespace fsdpbench::backend::cuda {
namespace {

std::string_view direction(std::uint8_t kind) {
  constexpr std::array<std::string_view, 11> kNames{"?",    "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                    "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < kNames.size() ? kNames[kind] : kNames[0];
}

std::string_view memory(std::uint32_t kind) {
  constexpr std::array<std::string_view, 8> kNames{"Unknown", "Pageable", "Pinned",        "Device",
                                                   "Array",   "Managed",  "Device Static", "Managed Static"};
  return kind < kNames.size() ? kNames[kind] : kNames[0];
}

template <typename Record>
Work work_of(const Record& record, Activity::Kind kind) {
  Work work;
  work.kind = kind;
  work.correlation = record.correlationId;
  work.device = record.deviceId;
  work.stream = record.streamId;
  work.begin_ns = static_cast<std::int64_t>(record.start);
  work.end_ns = static_cast<std::int64_t>(record.end);
  return work;
}

template <typename Record>
Work copy_of(const Record& record) {
  Work work = work_of(record, Activity::Kind::copy);
  work.bytes = static_cast<std::int64_t>(record.bytes);
  work.name =
      fmt::format("Memcpy {} ({} -> {})", direction(record.copyKind), memory(record.srcKind), memory(record.dstKind));
  return work;
}

/// Walks over one buffer.
class Reader {
 public:
  Reader(const std::uint8_t* begin, std::size_t bytes, Decoded& out) : end_(begin + bytes), out_(out) {}

  void record(const CUpti_Activity* activity) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return read<KernelRecord>(activity, [this](const KernelRecord& r) {
          Work work = work_of(r, Activity::Kind::kernel);
          work.name = r.name != nullptr ? r.name : "unknown kernel";
          out_.works.push_back(std::move(work));
        });
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        return read<CopyRecord>(activity, [this](const CopyRecord& r) { out_.works.push_back(copy_of(r)); });
      case CUPTI_ACTIVITY_KIND_MEMCPY2:
        return read<PeerCopyRecord>(activity, [this](const PeerCopyRecord& r) { out_.works.push_back(copy_of(r)); });
      case CUPTI_ACTIVITY_KIND_MEMSET:
        return read<FillRecord>(activity, [this](const FillRecord& r) {
          Work work = work_of(r, Activity::Kind::fill);
          work.bytes = static_cast<std::int64_t>(r.bytes);
          work.name = fmt::format("Memset ({})", memory(r.memoryKind));
          out_.works.push_back(std::move(work));
        });
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER: return read<CallRecord>(activity, [this](const CallRecord& r) { call(r); });
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return read<OwnerRecord>(activity, [this](const OwnerRecord& r) {
          if (r.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
            out_.owners.push_back({r.correlationId, r.externalId});
          }
        });
      default: ++out_.unknown;
    }
  }

 private:
  template <typename Record, typename Use>
  void read(const CUpti_Activity* activity, const Use& use) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(activity);
    if (static_cast<std::size_t>(end_ - begin) < sizeof(Record)) {
      out_.damaged = true;
      return;
    }
    use(*reinterpret_cast<const Record*>(activity));
  }

  void call(const CallRecord& r) {
    const KnownCall* what = find_call(r.kind, r.cbid);
    if (what == nullptr) return;  // where CUPTI cannot filter, it records every call
    out_.calls.push_back({r.correlationId, r.threadId, static_cast<std::int64_t>(r.start),
                          static_cast<std::int64_t>(r.end), what, r.returnValue != 0});
  }

  const std::uint8_t* end_;
  Decoded& out_;
};

}  // namespace

Decoded decode(std::uint8_t* buffer, std::size_t bytes, decltype(CuptiApi::get_next_record) next) {
  Decoded out;
  Reader reader(buffer, bytes, out);
  CUpti_Activity* record = nullptr;
  while (bytes > 0 && !out.damaged) {
    const CUptiResult status = next(buffer, bytes, &record);
    if (status == CUPTI_ERROR_MAX_LIMIT_REACHED) break;
    if (status != CUPTI_SUCCESS) {
      out.damaged = true;
    } else {
      reader.record(record);
    }
  }
  return out;
}

}  // namespace fsdpbench::backend::cuda
