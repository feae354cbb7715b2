#include "liveness.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>

#include "atomics.hpp"
#include "fault.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kLongestWait{24 * 3600.0};
constexpr Seconds kWaitWhileStuck{0.002};
constexpr std::chrono::microseconds kLongestNap{250};
constexpr std::chrono::microseconds kTurn{350};  // a nap, and what the kernel adds to it
constexpr u64 kShortestLease_ms = 20, kLongestLease_ms = 24 * 3600 * 1000;
constexpr u64 kUnrepaired = ~u64{0};

struct flock byte_range(short type, long long at) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = at;
  range.l_len = 1;
  return range;
}

u64 own_pid_namespace() {
  struct stat st{};
  return ::stat("/proc/self/ns/pid", &st) == 0 ? static_cast<u64>(st.st_ino) : 0;
}

}  // namespace

u64 boottime_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<u64>(t.tv_sec) * 1000 + static_cast<u64>(t.tv_nsec) / 1000000;
}

bool ByteLock::try_lock() const {
  struct flock range = byte_range(F_WRLCK, at_);
  if (::fcntl(fd_, F_OFD_SETLK, &range) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  throw Fault("io", std::string("this filesystem refuses byte-range locks: ") + std::strerror(errno));
}

void ByteLock::unlock() const {
  struct flock range = byte_range(F_UNLCK, at_);
  ::fcntl(fd_, F_OFD_SETLK, &range);
}

bool ByteLock::held_elsewhere() const {
  struct flock range = byte_range(F_WRLCK, at_);
  // An error is no proof of death.
  return ::fcntl(fd_, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

std::optional<AllocationLock::Held> AllocationLock::acquire(u64 holder, Seconds wait) {
  if (is_stuck_.load(std::memory_order_relaxed)) wait = std::min(wait, kWaitWhileStuck);
  auto held = try_until(holder, Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(wait, kLongestWait)));
  is_stuck_.store(!held, std::memory_order_relaxed);
  return held;
}

std::optional<AllocationLock::Held> AllocationLock::try_until(u64 holder, Clock::time_point deadline) {
  std::unique_lock threads(threads_, deadline);
  if (!threads) return std::nullopt;
  // Holders keep it for microseconds: yield a few times, then sleep a little longer each time.
  auto nap = std::chrono::microseconds(20);
  for (int tries = 0; !byte_.try_lock(); ++tries) {
    if (Clock::now() >= deadline) return std::nullopt;
    if (tries < 16) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, kLongestNap);
  }
  threads.release();  // Held unlocks it
  step(Step::lock_taken);
  Held held(this);
  held.needs_recovery = load_relaxed(region_.super().lock_holder) != 0;
  store_release(region_.super().lock_holder, holder);
  step(Step::lock_marked);
  return held;
}

void AllocationLock::give_others_a_turn() { std::this_thread::sleep_for(kTurn); }

void AllocationLock::release(bool needs_recovery) {
  store_release(region_.super().lock_holder, needs_recovery ? kUnrepaired : u64{0});
  step(Step::lock_unmarked);
  byte_.unlock();
  threads_.unlock();
}

void Membership::enter(const std::string& label) {
  Process& row = region_.process(index_);
  u64 newest = load_relaxed(region_.super().epoch);
  // A damaged counter must not hand out an epoch that somebody has.
  for (u32 i = 0; i < kMaxProcesses; ++i) newest = std::max(newest, load_relaxed(region_.process(i).epoch));
  const u64 epoch = newest + 1;
  store_release(region_.super().epoch, epoch);
  store_relaxed(row.pid, static_cast<u32>(::getpid()));
  store_relaxed(row.pid_namespace, own_pid_namespace());
  std::memset(row.label, 0, sizeof row.label);
  std::memcpy(row.label, label.data(), std::min(label.size(), sizeof row.label - 1));
  beat();
  epoch_.store(epoch, std::memory_order_relaxed);
  store_release(row.epoch, epoch);
}

void Membership::leave() {
  if (in_force()) store_release(region_.process(index_).epoch, u64{0});
  byte_.unlock();
}

void Membership::beat() {
  Process& row = region_.process(index_);
  store_release(row.beat, load_relaxed(row.beat) + 1);
  store_relaxed(row.beat_ms, boottime_ms());
}

bool Membership::in_force() const {
  const u64 own = epoch();
  return own != 0 && load_acquire(region_.process(index_).epoch) == own;
}

bool process_alive(const Region& region, u32 index) {
  return ByteLock(region.fd(), kProcessLockAt + index).held_elsewhere();
}

u64 lease_ms(const Region& region) { return std::clamp(load_relaxed(region.super().lease_ms), kShortestLease_ms, kLongestLease_ms); }

}  // namespace kvext
