// Fills this process's page tables for the region in the background: the pages exist already, but the
// first touch of each costs a fault of about a microsecond, which would land in somebody's store.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <stop_token>
#include <thread>

#include "format.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older kernels answer EINVAL and fault on touch
#endif

namespace kvext {

class Prefault {
 public:
  Prefault(u8* base, u64 bytes) : worker_([=](std::stop_token stop) { run(base, bytes, stop); }) {}

 private:
  static void run(u8* base, u64 bytes, const std::stop_token& stop) {
    constexpr u64 kStep = 16 << 20;
    for (u64 at = 0; at < bytes && !stop.stop_requested(); at += kStep)
      if (::madvise(base + at, std::min(kStep, bytes - at), MADV_POPULATE_WRITE) != 0) return;
  }
  std::jthread worker_;
};

}  // namespace kvext
