#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

// A label may have been cut in the middle of a character.
nb::object text(const std::string& utf8) {
  return nb::steal(PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "replace"));
}

template <class T> nb::bytes column(const std::vector<T>& values) {
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

nb::dict counters_dict(const std::vector<u64>& values) {
  static constexpr const char* kNames[kNumCounters] = {
      "lookups", "hits", "stores", "exists", "rejected_no_space", "rejected_lock_timeout", "rejected_index_full", "rejected_fenced",
      "rejected_too_large", "rejected_bypassed", "rejected_namespaces_full", "loads", "stale_loads", "corrupt_loads", "evictions",
      "reclaims", "cleared", "reaped_reservations", "fenced_processes", "fenced_records", "recoveries", "bypassed_lookups"};
  nb::dict counters;
  for (u32 c = 0; c < kNumCounters; ++c) counters[kNames[c]] = values[c];
  return counters;
}

nb::list process_rows(const PoolStat& stat) {
  nb::list processes;
  for (const auto& p : stat.processes) {
    nb::dict row;
    row["pid"] = p.pid;
    row["pid_namespace"] = p.pid_namespace;
    row["heartbeat_age_ms"] = p.heartbeat_age_ms;
    row["num_pins"] = p.num_pins;
    row["label"] = text(p.label);
    processes.append(row);
  }
  return processes;
}

nb::dict stat_dict(Pool& pool) {
  PoolStat s;
  {
    nb::gil_scoped_release release;
    s = pool.stat();
  }
  nb::dict out;
  out["region_bytes"] = s.region_bytes;
  out["extent_bytes"] = s.extent_bytes;
  out["num_extents"] = s.num_extents;
  out["num_free"] = s.num_free;
  out["num_committed"] = s.num_committed;
  out["num_reserved"] = s.num_reserved;
  out["num_quarantined"] = s.num_quarantined;
  out["num_limbo"] = s.num_limbo;
  out["num_pinned"] = s.num_pinned;
  out["committed_bytes"] = s.committed_bytes;
  out["bypassed"] = s.bypassed;
  out["lease_s"] = static_cast<double>(s.lease_ms) / 1000;
  out["agent_label"] = text(s.agent_label);
  out["agent_age_ms"] = s.agent_age_ms;
  out["counters"] = counters_dict(s.counters);
  out["processes"] = process_rows(s);
  return out;
}

nb::list namespace_rows(Pool& pool) {
  std::vector<NamespaceUse> uses;
  {
    nb::gil_scoped_release release;
    uses = pool.namespaces();
  }
  nb::list out;
  for (const auto& use : uses) out.append(nb::make_tuple(use.digest, text(use.label), use.num_extents, use.model, static_cast<int>(use.state)));
  return out;
}

nb::tuple record_columns(Pool& pool, u32 since_tenths) {
  RecordTable t;
  {
    nb::gil_scoped_release release;
    t = pool.records(since_tenths);
  }
  return nb::make_tuple(column(t.refs), column(t.keys), column(t.lengths), column(t.last_access), column(t.previous_access), column(t.hits),
                        column(t.namespaces), column(t.owners));
}

nb::tuple fsck(Pool& pool, bool repair, bool verify_data) {
  FsckReport report;
  {
    nb::gil_scoped_release release;
    report = pool.fsck(repair, verify_data);
  }
  nb::list problems;
  for (const Problem& p : report.problems) problems.append(nb::make_tuple(static_cast<int>(p.kind), p.place, p.detail));
  return nb::make_tuple(problems, report.num_records, report.num_repaired);
}

nb::tuple step_labels() {
  nb::list labels;
  for (const auto label : kStepLabels) labels.append(nb::str(label.data(), label.size()));
  return nb::tuple(labels);
}

void bind_steps(nb::module_& m) {
  m.def("step_labels", &step_labels);
  m.def("arm_step", [](const std::string& label, u32 countdown, int signal) {
    if (!steps::arm(label, countdown, signal)) throw nb::value_error(("no step is called " + label + "; see step_labels()").c_str());
  });
}

}  // namespace

void bind_administration(nb::module_& m, nb::class_<Pool>& pool_class) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  bind_steps(m);
  pool_class
      .def("describe_namespace", [](Pool& pool, nb::bytes digest, const std::string& label, std::optional<nb::bytes> model) {
        const auto ns = digest_of(digest);
        const u8* weights = model ? digest_of(*model).data() : nullptr;
        nb::gil_scoped_release release;
        pool.describe_namespace(ns, label, weights); }, nb::arg("digest"), nb::arg("label"), nb::arg("model").none())
      .def("namespaces", &namespace_rows)
      .def("fence", [](Pool& pool, nb::bytes model, bool all_but) {
        const auto digest = digest_of(model);
        nb::gil_scoped_release release;
        const auto done = pool.fence(digest, all_but);
        return std::pair(done.num_namespaces, done.num_records); })
      .def("set_quarantine", [](Pool& pool, nb::bytes name_space, bool on) {
        const auto digest = digest_of(name_space);
        nb::gil_scoped_release release;
        return pool.set_quarantine(digest, on); }, nb::arg("digest"), nb::kw_only(), nb::arg("on"))
      .def("stat", &stat_dict)
      .def("records", &record_columns)
      .def("evict", [](Pool& pool, nb::bytes refs) {
        const auto [ref, n] = items<BlockRef>(refs, "refs");
        nb::gil_scoped_release release;
        return pool.evict(ref, n); })
      .def("clear", [](Pool& pool, std::optional<nb::bytes> name_space) {
        const u8* digest = name_space ? digest_of(*name_space).data() : nullptr;
        nb::gil_scoped_release release;
        return pool.clear(digest); }, nb::arg("name_space").none())
      .def("reap", [](Pool& pool) {
        Reaped reaped;
        {
          nb::gil_scoped_release release;
          reaped = pool.reap();
        }
        return nb::make_tuple(reaped.num_dead, reaped.num_hung, reaped.num_freed); })
      .def("fsck", &fsck)
      .def("claim_agent_role", &Pool::claim_agent_role, Unlocked())
      .def("release_agent_role", &Pool::release_agent_role, Unlocked())
      .def_prop_ro("holds_agent_role", &Pool::holds_agent_role)
      .def_prop_ro("num_extents", &Pool::num_extents)
      .def_prop_ro("num_free", &Pool::num_free)
      .def_prop_ro("num_limbo", &Pool::num_limbo)
      .def_prop_ro("lease_ms", &Pool::lease_ms)
      .def_prop_ro("now_tenths", &Pool::now_tenths);
}

}  // namespace kvext
