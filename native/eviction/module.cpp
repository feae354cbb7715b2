// Python's view of the native policies (kvext.tenancy.policies._native).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <string>

#include "arc.hpp"
#include "duel.hpp"
#include "hazard.hpp"
#include "lru.hpp"
#include "lru2.hpp"
#include "optimal.hpp"
#include "s3fifo.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace kvext::eviction;

namespace {

using Keys = nb::ndarray<const Key, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Lengths = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::unique_ptr<Policy> make(const std::string& name, std::uint64_t capacity, std::uint64_t seed,
                             bool by_seconds, std::uint64_t largest_shadow) {
  const Currency currency = by_seconds ? Currency::seconds : Currency::hits;
  if (name == "lru") return std::make_unique<Lru>(capacity);
  if (name == "lru2") return std::make_unique<Lru2>(capacity);
  if (name == "arc") return std::make_unique<Arc>(capacity);
  if (name == "s3fifo") return std::make_unique<S3Fifo>(capacity);
  if (name == "hazard-table")
    return std::make_unique<Hazard<TableModel>>(capacity, seed, currency);
  if (name == "hazard-logit")
    return std::make_unique<Hazard<LogitModel>>(capacity, seed, currency);
  if (name == "duel")
    return std::make_unique<Duel>(capacity, seed, currency, largest_shadow);
  throw nb::value_error(("unknown policy " + name).c_str());
}

nb::bytes packed(const Victims& victims) {
  return nb::bytes(victims.data(), victims.size() * sizeof(Key));
}

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<Policy>(m, "Policy")
      .def_prop_ro("capacity", &Policy::capacity)
      .def_prop_ro("size", &Policy::size)
      .def(
          "access",
          [](Policy& policy, std::int64_t now_ms, const Keys& keys, std::int64_t input_tokens,
             std::int64_t output_tokens, bool partial_tail, std::uint32_t block_size,
             double first_cost_s, double cost_step_s, int session, std::int64_t return_ms) {
            if (block_size == 0) throw nb::value_error("block_size is 0");
            if (session < 0 || session > 2) throw nb::value_error("unknown session state");
            Victims victims;
            const std::size_t hits = policy.access(
                {now_ms, {keys.data(), keys.size()}, input_tokens, output_tokens, partial_tail,
                 block_size, first_cost_s, cost_step_s, static_cast<Session>(session), return_ms},
                victims);
            return nb::make_tuple(hits, packed(victims));
          })
      .def("evict",
           [](Policy& policy, std::uint64_t size) {
             Victims victims;
             policy.evict(size, victims);
             return packed(victims);
           })
      .def("resize",
           [](Policy& policy, std::uint64_t capacity) {
             Victims victims;
             policy.resize(capacity, victims);
             return packed(victims);
           })
      .def("remove", &Policy::remove)
      .def("contains", &Policy::contains);

  m.def("make", &make, "name"_a, "capacity"_a, "seed"_a, "by_seconds"_a,
        "largest_shadow"_a = Duel::usual_shadow);
  m.def("optimal_hits", [](const Keys& keys, const Lengths& lengths, std::uint64_t capacity) {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) total += lengths.data()[i];
    if (total != keys.size()) throw nb::value_error("the lengths do not add up to the keys");
    std::vector<std::uint32_t> hits;
    {
      nb::gil_scoped_release release;
      hits = optimal_hits({keys.data(), keys.size()}, {lengths.data(), lengths.size()}, capacity);
    }
    return nb::bytes(hits.data(), hits.size() * sizeof(std::uint32_t));
  });
}
