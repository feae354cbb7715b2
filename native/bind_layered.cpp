#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "cores.hpp"
#include "layered.hpp"

namespace kvext {

void bind_layered(nb::module_& m) {
  nb::class_<LayeredLoad>(m, "LayeredLoad")
      .def("__init__", [](LayeredLoad* self, Pool& pool, nb::bytes refs, const Pages& pages, std::vector<u64> blocks) {
        const auto [ref, n] = items<BlockRef>(refs, "refs");
        check_blocks(blocks, n, pages);
        new (self) LayeredLoad(pool, std::vector<BlockRef>(ref, ref + n), pages, std::move(blocks)); }, nb::keep_alive<1, 2>())
      .def("wait", [](LayeredLoad& load, u64 num_layers, double wait_s) {
        if (load.is_in_place(num_layers)) return true;
        nb::gil_scoped_release release;
        return load.wait(num_layers, Seconds(wait_s)); })
      .def("finish", [](LayeredLoad& load, double wait_s) {
        nb::gil_scoped_release release;
        return load.finish(Seconds(wait_s)); })
      .def("cancel", &LayeredLoad::cancel, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("outcomes", [](const LayeredLoad& load) {
        const auto& outcomes = load.outcomes();
        return nb::bytes(reinterpret_cast<const char*>(outcomes.data()), outcomes.size()); })
      .def_prop_ro("seconds", &LayeredLoad::seconds);
  m.def("roam", &roam);
}

}  // namespace kvext
