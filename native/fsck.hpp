// Checks every invariant of a region's tables, and can mend what is broken. What concerns a record that
// cannot be trusted is mended by dropping the record: it will be computed again.
#pragma once
#include <string>
#include <vector>

#include "space.hpp"

namespace kvext {

// Values are those of kvext.pool.ProblemKind.
enum class ProblemKind : u8 {
  bad_state,         // a slot's state is none
  bad_extent,        // a slot names an extent that does not exist, or that another slot has
  bad_length,        // a record is longer than its extent
  bad_namespace,     // a slot and its extent disagree, or the entry is unused
  back_reference,    // an extent does not name its slot
  unreachable,       // a lookup of its key does not come by
  duplicate,         // a second readable record of one key and shape
  orphan,            // reserved or in limbo for nobody who lives
  leaked,            // an extent that is neither free nor in use
  free_list,         // it names what is in use, what does not exist, or itself
  count,             // a count that differs from what it counts
  void_pins,         // pins of a row without a process
  epoch,             // an epoch greater than the region's
  checksum,          // bytes that do not match their checksum
};

struct Problem {
  ProblemKind kind;
  std::string place, detail;
};

struct FsckReport {
  std::vector<Problem> problems;
  u64 num_records = 0, num_repaired = 0;
};

class Fsck {
 public:
  Fsck(Region& region, Space& space) : region_(region), space_(space) {}
  // Needs the allocation lock. With `repair`, mends what it names.
  FsckReport check(bool repair);
  // Compares all committed records with their checksums, without the lock: it takes as long as reading
  // the pool. With `repair`, quarantines those that do not match.
  void verify(FsckReport& report, bool repair) const;

 private:
  FsckReport find();
  void check_slot(u64 at);
  void check_extents();
  void check_free_list();
  void check_counts();
  void check_processes();
  void tell(ProblemKind kind, std::string place, std::string detail) { report_.problems.push_back({kind, std::move(place), std::move(detail)}); }
  void drop_bad_records();

  Region& region_;
  Space& space_;
  FsckReport report_;
  std::vector<u64> slot_of_;     // extent -> slot + 1
  std::vector<u64> bad_slots_;
  std::vector<u64> uses_;        // records by namespace
  u64 num_limbo_ = 0;
};

}  // namespace kvext
