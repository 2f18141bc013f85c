// Memory over stream sockets: all of it, without the GIL and without a copy in this process.

#include "memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <nanobind/stl/pair.h>

using namespace nb::literals;

Outcome wait_for(int fd, short events, double idle, double deadline) {
    for (;;) {
        const double left = std::min(idle, deadline - now());
        if (left <= 0)
            return {LATE, 0};
        pollfd entry = {fd, events, 0};
        const int found = poll(&entry, 1, static_cast<int>(std::min(std::ceil(left * 1000), 1e9)));
        if (found > 0)
            return {};
        if (found == 0)
            return {LATE, 0};
        if (errno != EINTR)
            return {FAILED, errno};
    }
}

namespace {

constexpr size_t PIECE = size_t{4} << 20; // of one call: it ends now and then

template <typename Call> Outcome whole(int fd, short events, size_t length, double idle, double deadline, Call call) {
    for (size_t at = 0; at < length;) {
        if (now() > deadline)
            return {LATE, 0};
        const ssize_t count = call(at);
        if (count > 0) {
            at += static_cast<size_t>(count);
            continue;
        }
        if (count == 0)
            return {OWNER_LOST, 0}; // the peer has closed
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return {FAILED, errno};
        if (const Outcome how = wait_for(fd, events, idle, deadline); how.status != DONE)
            return how;
    }
    return {};
}

std::pair<int, int> receive(int fd, uint64_t address, uint64_t length, double idle, double deadline) {
    nb::gil_scoped_release release;
    auto *begin = reinterpret_cast<char *>(address);
    const Outcome how = whole(fd, POLLIN, length, idle, deadline, [&](size_t at) {
        return recv(fd, begin + at, std::min<size_t>(PIECE, length - at), MSG_DONTWAIT);
    });
    return {how.status, how.error};
}

std::pair<int, int> send_all(int fd, const nb::bytes &head, uint64_t address, uint64_t length, double idle,
                             double deadline) {
    auto *first = static_cast<char *>(const_cast<void *>(head.data()));
    const size_t before = head.size();
    nb::gil_scoped_release release;
    auto *begin = reinterpret_cast<char *>(address);
    const Outcome how = whole(fd, POLLOUT, before + length, idle, deadline, [&](size_t at) {
        iovec parts[2];
        int count = 0;
        if (at < before)
            parts[count++] = {first + at, before - at};
        const size_t done = at < before ? 0 : at - before;
        if (length > done)
            parts[count++] = {begin + done, std::min<size_t>(PIECE, length - done)};
        msghdr message = {};
        message.msg_iov = parts, message.msg_iovlen = static_cast<size_t>(count);
        return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
    return {how.status, how.error};
}

} // namespace

void add_streams(nb::module_ &module) {
    module.def("receive", &receive, "fd"_a, "address"_a, "length"_a, "idle"_a, "deadline"_a);
    module.def("send", &send_all, "fd"_a, "head"_a, "address"_a, "length"_a, "idle"_a, "deadline"_a);
}
