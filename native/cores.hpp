// Where a copying thread may run.
#pragma once

namespace kvext {

// Lets the calling thread run wherever any thread of the process may. Engines bind the threads that
// compute, and those that these begin, to a core each; a copy on such a core would hide nothing.
void roam();

}  // namespace kvext
