// Python's view of the core (kvext.pool._core). Batches in, batches out; the GIL is released around
// everything that touches shared memory.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "bindings.hpp"
#include "bytes.hpp"
#include "chain.hpp"
#include "fault.hpp"

namespace nb = nanobind;
using namespace kvext;

namespace {

nb::object fault_type;

Pages make_pages(const std::vector<u64>& addresses, const std::vector<u64>& piece_bytes, u64 num_blocks) {
  if (addresses.size() != piece_bytes.size() || addresses.empty()) throw nb::value_error("need one address and one piece size a layer");
  Pages pages;
  pages.num_blocks = num_blocks;
  pages.piece_bytes = piece_bytes;
  for (u64 address : addresses) pages.base.push_back(reinterpret_cast<u8*>(address));
  for (u64 bytes : piece_bytes) {
    if (bytes == 0) throw nb::value_error("a piece must have at least one byte");
    pages.record_bytes += bytes;
  }
  if (pages.record_bytes > 0xffffffffULL) throw nb::value_error("a record is limited to 4 GiB");
  return pages;
}

u32 token_at(PyObject** items, u64 i) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(items[i]);
  if ((value == static_cast<unsigned long long>(-1) && PyErr_Occurred()) || value > 0xffffffffULL) {
    PyErr_Clear();
    throw Fault("token_range", "token at position " + std::to_string(i) + " is no integer in 0..2**32-1");
  }
  return static_cast<u32>(value);
}

// Reading an integer runs no Python code (what is none is refused), so the list cannot shrink meanwhile.
void copy_tokens(const nb::list& tokens, u64 start, u64 stop, u32* out) {
  if (tokens.size() < stop) throw nb::value_error("the list of tokens has become shorter meanwhile");
  PyObject** items = reinterpret_cast<PyListObject*>(tokens.ptr())->ob_item;
  for (u64 at = start; at < stop; ++at) *out++ = token_at(items, at);
}

// Fresh bytes to be filled in place.
nb::bytes bytes_of(u64 n) {
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n));
  if (made == nullptr) throw nb::python_error();
  return nb::steal<nb::bytes>(made);
}

u8* writable(const nb::bytes& fresh) { return reinterpret_cast<u8*>(PyBytes_AS_STRING(fresh.ptr())); }

nb::bytes extend_chain(nb::bytes parent, nb::list tokens, u64 start, u64 stop) {
  Chain chain(digest_of(parent));
  if (stop > tokens.size() || start > stop || (stop - start) % kChainTokens != 0)
    throw nb::value_error(("tokens[" + std::to_string(start) + ":" + std::to_string(stop) + "] are no whole links of 16 of the " + std::to_string(tokens.size()) + " tokens").c_str());
  nb::bytes links = bytes_of((stop - start) / kChainTokens * 32);
  u8* out = writable(links);
  for (u64 at = start; at < stop; at += kChainTokens, out += 32) {
    u32 next[kChainTokens];
    copy_tokens(tokens, at, at + kChainTokens, next);
    std::memcpy(out, chain.advance(next).data(), 32);
  }
  return links;
}

nb::bytes block_keys(nb::bytes name_space, nb::bytes links, u64 links_per_block) {
  const auto ns = digest_of(name_space);
  if (links.size() % 32 != 0 || links_per_block == 0) throw nb::value_error("links come as whole 32-byte digests, at least one a block");
  const u64 num_blocks = links.size() / 32 / links_per_block;
  const u8* link = reinterpret_cast<const u8*>(links.c_str());
  return filled<Digest>(num_blocks, [&](Digest* out) {
    for (u64 b = 0; b < num_blocks; ++b) out[b] = Chain::block_key(ns, link + 32 * ((b + 1) * links_per_block - 1));
    return num_blocks;
  });
}

// So few links that giving the GIL away would cost more than they do.
constexpr u64 kQuickLinks = 512;

// Both in one call: the keys of whole blocks, and behind them the last link, to go on from.
nb::bytes extend_keys(nb::bytes parent, nb::bytes name_space, nb::list tokens, u64 links_per_block) {
  Chain chain(digest_of(parent));
  const auto ns = digest_of(name_space);
  const u64 num_links = tokens.size() / kChainTokens;
  if (links_per_block == 0 || tokens.size() % kChainTokens != 0 || num_links % links_per_block != 0)
    throw nb::value_error((std::to_string(tokens.size()) + " tokens are no whole blocks of " + std::to_string(links_per_block) + " links of 16").c_str());
  nb::bytes keys = bytes_of((num_links / links_per_block + 1) * 32);
  u8* out = writable(keys);
  u64 link = 0;
  const auto advance = [&](const u32* token, u64 stop) {
    for (; link < stop; ++link, token += kChainTokens) {
      chain.advance(*reinterpret_cast<const u32(*)[kChainTokens]>(token));
      if ((link + 1) % links_per_block != 0) continue;
      std::memcpy(out, chain.key(ns).data(), 32);
      out += 32;
    }
  };
  std::vector<u32> next(std::min(num_links, kQuickLinks) * kChainTokens);
  while (link < num_links) {
    const u64 stop = std::min(num_links, link + kQuickLinks);
    copy_tokens(tokens, link * kChainTokens, stop * kChainTokens, next.data());
    if (num_links <= kQuickLinks) {
      advance(next.data(), stop);
    } else {
      nb::gil_scoped_release release;
      advance(next.data(), stop);
    }
  }
  std::memcpy(out, chain.link().data(), 32);
  return keys;
}

// Few enough lookups that giving the GIL away would cost more than they do.
constexpr u64 kQuickMatch = 64;

nb::tuple match(Pool& pool, nb::bytes keys, u32 shape) {
  const auto [key, n] = items<Key>(keys, "keys");
  u64 epoch = 0;
  if (n > kQuickMatch) {
    const nb::bytes found = filled<BlockRef>(n, [&, key = key, n = n](BlockRef* out) { return pool.match(key, n, shape, out, epoch); });
    return nb::make_tuple(found, epoch);
  }
  BlockRef refs[kQuickMatch];
  const u64 matched = pool.match(key, n, shape, refs, epoch);
  return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(refs), matched * sizeof(BlockRef)), epoch);
}

void raise_fault(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const Fault& fault) {
    if (fault.kind == "value") return PyErr_SetString(PyExc_ValueError, fault.what());
    PyErr_SetObject(fault_type.ptr(), nb::make_tuple(fault.kind, fault.what()).ptr());
  }
}

const BlockRef& one_ref(const nb::bytes& ref) {
  if (ref.size() != sizeof(BlockRef)) throw nb::value_error("a block reference has 16 bytes");
  return *reinterpret_cast<const BlockRef*>(ref.c_str());
}

}  // namespace

NB_MODULE(_core, m) {
  fault_type = nb::steal(PyErr_NewException("kvext.pool._core.Fault", PyExc_Exception, nullptr));
  m.attr("Fault") = fault_type;
  nb::register_exception_translator(raise_fault);

  m.def("initialise", &Region::initialise, nb::call_guard<nb::gil_scoped_release>());
  m.def("extend_chain", &extend_chain);
  m.def("block_keys", &block_keys);
  m.def("extend_keys", &extend_keys);
  m.def("instruction_sets", [] { return nb::make_tuple(byte_ops().name, sha256_name()); });
  m.def("hash64", [](nb::bytes data) { return hash64(data.c_str(), data.size()); });
  m.attr("FORMAT_VERSION") = kFormatVersion;

  nb::class_<Space::Reservation>(m, "Reservation")
      .def_prop_ro("outcome", [](const Space::Reservation& r) { return static_cast<int>(r.outcome); })
      .def_prop_ro("ref", [](const Space::Reservation& r) { return nb::bytes(reinterpret_cast<const char*>(&r.ref), sizeof r.ref); });

  nb::class_<Pages>(m, "Pages")
      .def("__init__", [](Pages* self, const std::vector<u64>& addresses, const std::vector<u64>& piece_bytes, u64 num_blocks) {
        new (self) Pages(make_pages(addresses, piece_bytes, num_blocks)); })
      .def_ro("record_bytes", &Pages::record_bytes)
      .def_ro("num_blocks", &Pages::num_blocks);

  nb::class_<Pool> pool_class(m, "Pool");
  pool_class
      .def("__init__", [](Pool* self, const std::string& path, std::optional<u64> extent_bytes, const std::string& label, double lock_wait_s) {
        nb::gil_scoped_release release;
        new (self) Pool(path, extent_bytes, label, Seconds(lock_wait_s)); })
      .def("match", &match)
      .def("unpin", [](Pool& pool, nb::bytes refs, u64 epoch) {
        const auto [ref, n] = items<BlockRef>(refs, "refs");
        pool.unpin(ref, n, epoch); })
      .def("lookup", [](Pool& pool, nb::bytes keys, u32 shape) {
        const auto [key, n] = items<Key>(keys, "keys");
        return filled<u8>(n, [&](u8* out) { pool.lookup(key, n, shape, out); return n; }); })
      .def("store", [](Pool& pool, nb::bytes keys, u32 shape, nb::bytes name_space, const Pages& pages, const std::vector<u64>& blocks) {
        const auto [key, n] = items<Key>(keys, "keys");
        check_blocks(blocks, n, pages);
        const auto ns = digest_of(name_space);
        return filled<StoreOutcome>(n, [&](StoreOutcome* out) { pool.store(key, n, shape, ns, pages, blocks.data(), out); return n; }); })
      .def("load", [](Pool& pool, nb::bytes refs, const Pages& pages, const std::vector<u64>& blocks, bool verify) {
        const auto [ref, n] = items<BlockRef>(refs, "refs");
        check_blocks(blocks, n, pages);
        return filled<LoadOutcome>(n, [&](LoadOutcome* out) { pool.load(ref, n, pages, blocks.data(), verify, out); return n; }); })
      .def("set_pace", [](Pool& pool, double bytes_per_s, double latency_s) { pool.set_pace({bytes_per_s, latency_s}); })
      .def("reserve", [](Pool& pool, nb::bytes key, u32 shape, u32 length, nb::bytes name_space) {
        if (key.size() != kKeyBytes) throw nb::value_error("a key has 32 bytes");
        const auto ns = digest_of(name_space);
        const Key& k = *items<Key>(key, "key").first;
        nb::gil_scoped_release release;
        return pool.reserve(k, shape, length, ns); })
      .def("fill", [](Pool& pool, nb::bytes ref, nb::bytes record) {
        const std::span<const u8> bytes(reinterpret_cast<const u8*>(record.c_str()), record.size());
        const BlockRef& r = one_ref(ref);
        nb::gil_scoped_release release;
        return pool.fill(r, bytes); })
      .def("commit", [](Pool& pool, nb::bytes ref, u64 checksum) { return static_cast<int>(pool.commit(one_ref(ref), checksum)); })
      .def("abort", [](Pool& pool, nb::bytes ref) {
        const BlockRef& r = one_ref(ref);
        nb::gil_scoped_release release;
        return pool.abort(r); })
      .def("record", [](Pool& pool, nb::bytes ref) {
        const auto bytes = pool.record(one_ref(ref));
        return nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE)); })
      .def("set_bypass", &Pool::set_bypass)
      .def_prop_ro("bypassed", &Pool::bypassed)
      .def("close", &Pool::close, nb::call_guard<nb::gil_scoped_release>())
      .def("abandon_after_fork", &Pool::abandon_after_fork)
      .def_prop_ro("closed", &Pool::closed)
      .def_prop_ro("extent_bytes", &Pool::extent_bytes)
      .def_prop_ro("capacity_bytes", &Pool::capacity_bytes)
      .def_prop_ro("uuid", &Pool::uuid_hex);
  bind_layered(m);
  bind_administration(m, pool_class);
}
