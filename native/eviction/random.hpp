// SplitMix64 (Steele, Lea, Flood, 2014): small, seedable, the same everywhere.
#pragma once

#include <cstdint>

namespace kvext::eviction {

inline std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9E3779B97F4A7C15;
    return mixed(state_) % bound;
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvext::eviction
