// A mapped region file: validation, geometry and typed access. Knows the format, not the policy.
#pragma once
#include <string>

#include "atomics.hpp"
#include "format.hpp"

namespace kvext {

// Sizes and offsets of the tables for a region of that many bytes. Throws Fault("geometry").
Geometry plan_geometry(u64 region_bytes, u64 extent_bytes);

class Region {
 public:
  // Writes the header of a fresh region into an existing, sized file.
  static void initialise(const std::string& path, u64 lease_ms);

  explicit Region(const std::string& path);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Lays the tables out; the caller holds the allocation lock and nobody uses the payload.
  void format(u64 extent_bytes);
  bool formatted() const;
  void unformat();
  // Another boot may have written these tables: unless somebody holds them now, they may be torn.
  bool from_another_boot() const;
  void stamp_boot();

  // Where the payload lies, for Prefault.
  u8* payload_base() const { return base_ + geometry_.payload_at; }
  u64 payload_bytes() const { return geometry_.num_extents * geometry_.extent_bytes; }

  int fd() const { return fd_; }
  Superblock& super() const { return *reinterpret_cast<Superblock*>(base_); }
  const Geometry& geometry() const { return geometry_; }
  Process& process(u32 i) const { return at<Process>(kProcessesAt)[i]; }
  NamespaceEntry& name_space(u32 i) const { return at<NamespaceEntry>(kNamespacesAt)[i]; }
  // Indexes come out of shared memory: a damaged one must not lead outside the tables.
  Slot& slot(u64 i) const { return slots_[i & (geometry_.num_slots - 1)]; }
  bool has_extent(u64 i) const { return i < geometry_.num_extents; }
  Extent& extent(u64 i) const { return extents_[i]; }
  // For walks over the slots, whose extents lie anywhere.
  void prefetch_extent_of(u64 i) const {
    const u64 named = load_relaxed(slot(i).extent);
    if (has_extent(named)) __builtin_prefetch(extents_ + named);
  }
  u16& pin(u32 process, u64 extent) const;
  // The same row as words of four extents each, for whoever looks at all of it.
  u64 num_pin_words() const { return geometry_.pin_row_bytes / sizeof(u64); }
  u64& pin_word(u32 process, u64 i) const { return at<u64>(geometry_.pins_at + process * geometry_.pin_row_bytes)[i]; }
  u64 count_pins(u32 process) const;
  u8* payload(u64 extent) const { return base_ + geometry_.payload_at + extent * geometry_.extent_bytes; }
  // Reads the geometry that another process may have fixed since; throws Fault("damaged").
  void adopt_geometry();

 private:
  template <class T> T* at(u64 offset) const { return reinterpret_cast<T*>(base_ + offset); }
  void validate(const std::string& path, u64 file_bytes) const;

  int fd_ = -1;
  u8* base_ = nullptr;
  u64 mapped_bytes_ = 0;
  Geometry geometry_{};
  Slot* slots_ = nullptr;
  Extent* extents_ = nullptr;
};

}  // namespace kvext
