// What the core's own tests share: an engine's paged memory whose contents follow from a seed.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pool.hpp"

namespace kvext {

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);  \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)

inline constexpr u64 kLayers = 3, kPiece = 5000, kBlocks = 8, kRecord = kLayers * kPiece;
inline constexpr u32 kShape = 32u << 16 | 1;
inline constexpr u8 kNamespace[32] = {1};

inline Key key_of(u64 n) { return {{n, n * 7, 3, 4}}; }

// Paged memory of one engine; block contents follow from a seed.
struct Memory {
  std::vector<std::vector<u8>> layers{kLayers, std::vector<u8>(kPiece * kBlocks)};
  Pages pages;
  Memory() {
    for (auto& layer : layers) pages.base.push_back(layer.data());
    pages.piece_bytes.assign(kLayers, kPiece);
    pages.num_blocks = kBlocks;
    pages.record_bytes = kRecord;
  }
  void write(u64 block, u64 seed) {
    for (u64 l = 0; l < kLayers; ++l)
      for (u64 i = 0; i < kPiece; ++i) layers[l][block * kPiece + i] = static_cast<u8>(seed * 131 + l * 17 + i * (seed | 1));
  }
  bool holds(u64 block, u64 seed) const {
    for (u64 l = 0; l < kLayers; ++l)
      for (u64 i = 0; i < kPiece; ++i)
        if (layers[l][block * kPiece + i] != static_cast<u8>(seed * 131 + l * 17 + i * (seed | 1))) return false;
    return true;
  }
};

}  // namespace kvext
