#include "trace/event_stream.h"

namespace fsdpbench::trace {

void EventStream::key(const Field& field) {
  const bool opens_args = field.place == Place::args && !in_args_;
  json_.key(opens_args ? std::string_view(",\"args\":{\"") : std::string_view(",\""), field.name);
  in_args_ = in_args_ || opens_args;
}

void EventStream::head(char ph, std::string_view category, std::string_view name, Track track, std::int64_t time_ns) {
  json_.raw(first_ ? std::string_view("\n{\"ph\":\"") : std::string_view(",\n{\"ph\":\""));
  first_ = false;
  json_.raw(ph);
  json_.raw('"');
  if (!category.empty()) member(field::kCat, category);
  member(field::kName, name);
  member(field::kPid, track.pid);
  member(field::kTid, track.tid);
  key(field::kTs);
  json_.microseconds(time_ns - origin_ns_);
}

void EventStream::duration(std::int64_t ns) {
  key(field::kDur);
  json_.microseconds(ns);
}

void EventStream::member(const Field& field, std::int64_t value) {
  key(field);
  json_.integer(value);
}

void EventStream::member(const Field& field, std::string_view value) {
  key(field);
  json_.text(value);
}

void EventStream::arg(const Field& field, std::int64_t value) { member(field, value); }
void EventStream::arg(const Field& field, std::string_view value) { member(field, value); }

void EventStream::arg_number(const Field& field, double value) {
  key(field);
  json_.number(value);
}

void EventStream::arg_duration(const Field& field, std::int64_t ns) {
  key(field);
  json_.microseconds(ns);
}

void EventStream::end() {
  json_.raw(in_args_ ? std::string_view("}}") : std::string_view("}"));
  in_args_ = false;
}

void EventStream::name_track(std::string_view what, Track track, std::string_view name) {
  head('M', "", what, track, origin_ns_);
  arg(field::kTrackName, name);
  end();
}

void EventStream::sort_track(std::string_view what, Track track, int index) {
  head('M', "", what, track, origin_ns_);
  arg(field::kSortIndex, index);
  end();
}

void EventStream::flow(std::string_view category, std::int64_t id, Track from, std::int64_t from_ns, Track to,
                       std::int64_t to_ns) {
  head('s', category, category, from, from_ns);
  member(field::kId, id);
  end();
  head('f', category, category, to, to_ns);
  member(field::kId, id);
  member(field::kBp, "e");  // else it would end at the next slice
  end();
}

}  // namespace fsdpbench::trace
