// What the files of the Python module share.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "pool.hpp"

namespace kvext {

namespace nb = nanobind;

template <class T> std::pair<const T*, u64> items(const nb::bytes& bytes, const char* what) {
  if (bytes.size() % sizeof(T) != 0)
    throw nb::value_error((std::string(what) + " has " + std::to_string(bytes.size()) + " bytes, no multiple of " + std::to_string(sizeof(T))).c_str());
  return {reinterpret_cast<const T*>(bytes.c_str()), bytes.size() / sizeof(T)};
}

// Runs `fill(out)` without the GIL on n fresh items and returns them as bytes.
template <class T, class Fill> nb::bytes filled(u64 n, Fill fill) {
  std::vector<T> out(n);
  u64 used = n;
  {
    nb::gil_scoped_release release;
    used = fill(out.data());
  }
  return nb::bytes(reinterpret_cast<const char*>(out.data()), used * sizeof(T));
}

inline DigestView digest_of(const nb::bytes& bytes) {
  if (bytes.size() != 32) throw nb::value_error("a digest has 32 bytes");
  return DigestView(reinterpret_cast<const u8*>(bytes.c_str()), 32);
}

inline void check_blocks(const std::vector<u64>& blocks, u64 n, const Pages& pages) {
  if (blocks.size() != n) throw nb::value_error(("got " + std::to_string(blocks.size()) + " block ids for " + std::to_string(n) + " blocks").c_str());
  for (u64 block : blocks)
    if (block >= pages.num_blocks)
      throw nb::value_error(("block id " + std::to_string(block) + " is outside the engine's " + std::to_string(pages.num_blocks) + " blocks").c_str());
}

// LayeredLoad (bind_layered.cpp).
void bind_layered(nb::module_& m);

// The part of Pool that people and the agent use (bind_administration.cpp).
void bind_administration(nb::module_& m, nb::class_<Pool>& pool_class);

}  // namespace kvext
