// What the parts of the module have in common.
#pragma once

#include <chrono>

#include <nanobind/nanobind.h>

namespace nb = nanobind;

enum Status { DONE, DROPPED, WRONG_KEY, OUT_OF_RANGE, FORBIDDEN, OWNER_LOST, STOPPED, LATE, FAILED };

struct Outcome {
    Status status = DONE;
    int error = 0;
};

// On the clock of Python's time.monotonic.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void add_streams(nb::module_ &module);
