// Reuse as a survival problem: time since the last access falls into bins, a model says for each
// bin how probable a hit is there if none came before, and the index says what a block is worth.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace kvext::eviction {

inline constexpr std::size_t num_bins = 19;
inline constexpr std::array<std::int64_t, num_bins + 1> bin_edges_ms = {
    0,      2000,   4000,   8000,   12000,  16000,  24000,   32000,   48000,   64000,
    96000, 128000, 192000, 256000, 384000, 512000, 768000, 1024000, 1536000, 2560000};

using Hazards = std::array<double, num_bins>;

// The last bin has no end.
inline std::size_t bin_of(std::int64_t age_ms) {
  const auto* end = bin_edges_ms.data() + num_bins;
  return std::upper_bound(bin_edges_ms.data() + 1, end, age_ms) - (bin_edges_ms.data() + 1);
}

// Gittins index of a block that has reached bin `first`: the most hits per millisecond of residence
// that any rule "keep it until the end of bin J" can expect (Gittins, 1979).
inline double gittins(const Hazards& hazards, std::size_t first) {
  double index = 0, hits = 0, residence_ms = 0, survival = 1;
  for (std::size_t bin = first; bin < num_bins; ++bin) {
    const double width_ms = static_cast<double>(bin_edges_ms[bin + 1] - bin_edges_ms[bin]);
    hits += survival * hazards[bin];
    residence_ms += survival * width_ms * (1 - hazards[bin] / 2);
    survival *= 1 - hazards[bin];
    index = std::max(index, hits / residence_ms);
  }
  return index;
}

}  // namespace kvext::eviction
