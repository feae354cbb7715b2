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

namespace kvext {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kLongestWait{24 * 3600.0};
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
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(wait, kLongestWait));
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
    nap = std::min(nap * 2, std::chrono::microseconds(1000));
  }
  threads.release();  // Held unlocks it
  Held held(this);
  held.needs_recovery = load_relaxed(region_.super().lock_holder) != 0;
  store_release(region_.super().lock_holder, holder);
  return held;
}

void AllocationLock::release(bool needs_recovery) {
  store_release(region_.super().lock_holder, needs_recovery ? kUnrepaired : u64{0});
  byte_.unlock();
  threads_.unlock();
}

void Membership::enter(const std::string& label) {
  Process& row = region_.process(index_);
  epoch_ = add_ordered(region_.super().epoch, u64{1}) + 1;
  row.pid = static_cast<u32>(::getpid());
  row.pid_namespace = own_pid_namespace();
  std::memset(row.label, 0, sizeof row.label);
  std::memcpy(row.label, label.data(), std::min(label.size(), sizeof row.label - 1));
  store_release(row.epoch, epoch_);
  beat();
}

void Membership::leave() {
  if (in_force()) store_release(region_.process(index_).epoch, u64{0});
  byte_.unlock();
}

void Membership::beat() { store_relaxed(region_.process(index_).heartbeat_ms, boottime_ms()); }

bool Membership::in_force() const { return load_acquire(region_.process(index_).epoch) == epoch_; }

bool process_alive(const Region& region, u32 index) {
  return ByteLock(region.fd(), kProcessLockAt + index).held_elsewhere();
}

}  // namespace kvext
