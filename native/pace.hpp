// A model of slower memory: no load through a handle is done before memory of this speed would have done it.
#pragma once
#include <chrono>

#include "format.hpp"

namespace kvext {

using SteadyTime = std::chrono::steady_clock::time_point;

struct Pace {
  double bytes_per_s = 0;  // 0: as fast as it goes
  double latency_s = 0;    // before the first byte
  SteadyTime due(SteadyTime begun, u64 num_bytes) const {
    if (bytes_per_s <= 0) return begun;
    return begun + std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(latency_s + static_cast<double>(num_bytes) / bytes_per_s));
  }
};

}  // namespace kvext
