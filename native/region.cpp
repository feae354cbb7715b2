#include "region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "atomics.hpp"
#include "bytes.hpp"
#include "fault.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

constexpr u64 round_up(u64 n, u64 unit) { return (n + unit - 1) / unit * unit; }

std::string reason() { return std::strerror(errno); }

int open_file(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0) return fd;
  const char* kind = errno == ENOENT ? "missing" : errno == EACCES || errno == EPERM || errno == EROFS ? "permission" : "io";
  throw Fault(kind, "cannot open " + path + ": " + reason());
}

u64 file_bytes(int fd) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) throw Fault("io", "fstat: " + reason());
  return static_cast<u64>(st.st_size);
}

u8* map_file(int fd, u64 bytes, const std::string& path) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) throw Fault("io", "cannot map " + path + ": " + reason());
  return static_cast<u8*>(p);
}

void read_boot_id(char (&out)[40]) {
  std::memset(out, 0, sizeof out);
  int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (::read(fd, out, 36) != 36) std::memset(out, 0, sizeof out);
  ::close(fd);
}

u64 checksum(const Geometry& g) { return hash64(&g, sizeof g); }

}  // namespace

Geometry plan_geometry(u64 region_bytes, u64 extent_bytes) {
  Geometry g{};
  const auto no_room = [&] {
    return Fault("geometry", "a region of " + std::to_string(region_bytes) + " bytes has no room for one record of " +
                                 std::to_string(extent_bytes) + " bytes; create a larger pool");
  };
  if (extent_bytes == 0 || extent_bytes > region_bytes) throw no_room();
  g.extent_bytes = round_up(extent_bytes, kPage);
  for (g.num_extents = std::min(region_bytes / g.extent_bytes, kMaxExtents); g.num_extents > 0; --g.num_extents) {
    g.num_slots = std::bit_ceil(2 * g.num_extents);
    g.pins_at = kTablesAt;
    g.pin_row_bytes = round_up(g.num_extents * sizeof(u16), 64);
    g.slots_at = round_up(g.pins_at + kMaxProcesses * g.pin_row_bytes, kPage);
    g.extents_at = g.slots_at + g.num_slots * sizeof(Slot);
    g.payload_at = round_up(g.extents_at + g.num_extents * sizeof(Extent), kPage);
    if (g.payload_at >= region_bytes) continue;
    const u64 room = (region_bytes - g.payload_at) / g.extent_bytes;
    if (room >= g.num_extents) return g;
    // The tables shrink with the extents, so jumping to the room left cannot overshoot by more than a few.
    if (room + 1 < g.num_extents) g.num_extents = room + 1;
  }
  throw no_room();
}

void Region::initialise(const std::string& path, u64 lease_ms) {
  int fd = open_file(path);
  Superblock s{};
  s.magic = kMagic;
  s.format_version = kFormatVersion;
  if (::getrandom(s.uuid, sizeof s.uuid, 0) != sizeof s.uuid) {
    ::close(fd);
    throw Fault("io", "getrandom: " + reason());
  }
  s.region_bytes = file_bytes(fd);
  s.created_s = static_cast<u64>(::time(nullptr));
  s.lease_ms = lease_ms;
  read_boot_id(s.boot_id);
  const bool written = s.region_bytes >= kTablesAt && ::pwrite(fd, &s, sizeof s, 0) == sizeof s;
  ::close(fd);
  if (!written) throw Fault("io", "cannot write the header of " + path);
}

Region::Region(const std::string& path) : fd_(open_file(path)) {
  try {
    mapped_bytes_ = file_bytes(fd_);
    if (mapped_bytes_ < kPage) throw Fault("damaged", path + " is no pool: it has only " + std::to_string(mapped_bytes_) + " bytes");
    base_ = map_file(fd_, mapped_bytes_, path);
    validate(path, mapped_bytes_);
    if (formatted()) adopt_geometry();
  } catch (...) {
    if (base_) ::munmap(base_, mapped_bytes_);
    ::close(fd_);
    throw;
  }
}

Region::~Region() {
  ::munmap(base_, mapped_bytes_);
  ::close(fd_);
}

void Region::validate(const std::string& path, u64 file_bytes) const {
  const Superblock& s = super();
  if (s.magic != kMagic) throw Fault("damaged", path + " is no kvext pool (wrong magic)");
  if (s.format_version != kFormatVersion)
    throw Fault("version", path + " has format version " + std::to_string(s.format_version) + ", this kvext reads version " + std::to_string(kFormatVersion));
  if (s.region_bytes != file_bytes || file_bytes < kTablesAt)
    throw Fault("damaged", path + " is truncated: " + std::to_string(file_bytes) + " of " + std::to_string(s.region_bytes) + " bytes");
}

bool Region::formatted() const { return load_acquire(super().formatted) != 0; }

void Region::unformat() { store_release(super().formatted, 0u); }

void Region::adopt_geometry() {
  const Superblock& s = super();
  const Geometry g = s.geometry;
  // Nothing in it is free to choose but the extent size, so everything else can be checked.
  const auto expected = [&] { return checksum(plan_geometry(mapped_bytes_, g.extent_bytes)); };
  if (s.geometry_checksum != checksum(g) || s.geometry_checksum != expected())
    throw Fault("damaged", "its geometry does not match its checksum");
  geometry_ = g;
  slots_ = at<Slot>(g.slots_at);
  extents_ = at<Extent>(g.extents_at);
}

void Region::format(u64 extent_bytes) {
  Superblock& s = super();
  unformat();
  step(Step::format_unformatted);
  s.geometry = plan_geometry(s.region_bytes, extent_bytes);
  s.geometry_checksum = checksum(s.geometry);
  adopt_geometry();
  step(Step::format_geometry_written);
  std::memset(base_ + kNamespacesAt, 0, kTablesAt - kNamespacesAt);
  std::memset(base_ + geometry_.pins_at, 0, geometry_.payload_at - geometry_.pins_at);
  s.free_head = 1;
  s.num_free = geometry_.num_extents;
  s.num_limbo = 0;
  s.clock_hand = 0;
  for (u64 i = 0; i < geometry_.num_extents; ++i) extent(i).next_free = i + 1 < geometry_.num_extents ? static_cast<u32>(i + 2) : 0;
  step(Step::format_tables_written);
  store_release(s.formatted, 1u);
}

bool Region::from_another_boot() const {
  char now[40];
  read_boot_id(now);
  return now[0] == 0 || std::memcmp(now, super().boot_id, sizeof now) != 0;
}

void Region::stamp_boot() { read_boot_id(super().boot_id); }

u16& Region::pin(u32 process, u64 extent) const {
  return at<u16>(geometry_.pins_at + process * geometry_.pin_row_bytes)[extent];
}

u64 Region::count_pins(u32 process) const {
  u64 pins = 0;
  for (u64 i = 0; i < num_pin_words(); ++i)
    for (u64 word = load_relaxed(pin_word(process, i)); word != 0; word >>= 16) pins += word & 0xffff;
  return pins;
}

}  // namespace kvext
