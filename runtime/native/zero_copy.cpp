// Memory over TCP without a copy, where the kernel and the device can (MSG_ZEROCOPY).
//
// What such a call takes is sent from the pages themselves, again too where a segment is lost: the memory is in use
// until the kernel has said, in the socket's error queue, that it is done with each call. The kernel copies after all
// where it must (loopback, veth, a device without scatter-gather) and says that as well: then a copy at once is
// cheaper. So one piece of a connection is sent so, and the others by copies, until the word on that piece is there.

#include "memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <tuple>

#include <nanobind/stl/tuple.h>

using namespace nb::literals;

namespace {

constexpr size_t PIECE = size_t{1} << 20;
constexpr size_t FIRST = size_t{64} << 10;
constexpr double RESET_S = 5.0; // until what is queued in devices is gone too

enum Verdict { UNTRIED, WORKS, IS_COPIED };

class Sender {
  public:
    Sender(int fd, int verdict) : fd_(fd), verdict_(verdict) {}

    int verdict() const { return verdict_; }

    Outcome send(const char *begin, size_t length, double idle, double deadline) {
        Outcome how = queue(begin, length, idle, deadline);
        if (how.status == DONE)
            how = settle(idle, deadline);
        if (how.status != DONE && pending_ > 0) {
            reset();
            settle(RESET_S, now() + RESET_S);
        }
        return how;
    }

  private:
    Outcome queue(const char *begin, size_t length, double idle, double deadline) {
        for (size_t at = 0; at < length;) {
            if (now() > deadline)
                return {LATE, 0};
            collect();
            const bool first = verdict_ == UNTRIED && pending_ == 0;
            const bool shared = refused_ ? false : first || verdict_ == WORKS;
            const ssize_t count = ::send(fd_, begin + at, std::min(first && shared ? FIRST : PIECE, length - at),
                                         MSG_DONTWAIT | MSG_NOSIGNAL | (shared ? MSG_ZEROCOPY : 0));
            if (count > 0) {
                at += static_cast<size_t>(count);
                pending_ += shared;
                refused_ = false;
                continue;
            }
            if (errno == EINTR)
                continue;
            if (shared && errno == ENOBUFS) { // too many calls, or pinned pages, of this user are under way
                refused_ = true;
                if (pending_ == 0)
                    verdict_ = IS_COPIED;
                continue;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                return {FAILED, errno};
            // The error queue is always "ready": it is emptied before each wait.
            collect();
            if (const Outcome how = wait_for(fd_, POLLOUT, idle, deadline); how.status != DONE)
                return how;
        }
        return {};
    }

    // Waits until the kernel is done with all that it took.
    Outcome settle(double idle, double deadline) {
        for (double since = now(); pending_ > 0;) {
            const uint32_t before = pending_;
            if (!collect())
                return {FAILED, errno};
            if (pending_ < before) {
                since = now();
                continue;
            }
            if (now() > std::min(deadline, since + idle))
                return {LATE, 0};
            pollfd entry = {fd_, 0, 0};
            const bool found = poll(&entry, 1, 100) > 0;
            if (found && !collect())
                return {FAILED, errno};
            if (found && pending_ == before) { // of a connection that has ended: that is told at once, again and again
                const timespec pause = {0, 1'000'000};
                nanosleep(&pause, nullptr);
            }
        }
        return {};
    }

    // Takes what the kernel says of calls that it is done with.
    bool collect() {
        while (pending_ > 0) {
            alignas(cmsghdr) char control[CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];
            msghdr message = {};
            message.msg_control = control, message.msg_controllen = sizeof control;
            if (recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
                if (errno == EINTR)
                    continue;
                return errno == EAGAIN || errno == EWOULDBLOCK;
            }
            for (cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
                take(part);
        }
        return true;
    }

    void take(const cmsghdr *part) {
        const bool is_error = (part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
                              (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR);
        if (!is_error)
            return;
        sock_extended_err said;
        memcpy(&said, CMSG_DATA(part), sizeof said);
        if (said.ee_origin != SO_EE_ORIGIN_ZEROCOPY || said.ee_errno != 0)
            return;
        pending_ -= std::min(pending_, said.ee_data - said.ee_info + 1); // a range of calls
        verdict_ = said.ee_code & SO_EE_CODE_ZEROCOPY_COPIED ? IS_COPIED : WORKS;
    }

    // Has the kernel forget what it has not sent yet, and what it would send again.
    void reset() {
        sockaddr none = {};
        none.sa_family = AF_UNSPEC;
        connect(fd_, &none, sizeof none);
    }

    const int fd_;
    int verdict_;
    uint32_t pending_ = 0;
    bool refused_ = false;
};

std::tuple<int, int, int> send_from(int fd, uint64_t address, uint64_t length, int verdict, double idle,
                                    double deadline) {
    nb::gil_scoped_release release;
    const int on = 1;
    if (verdict == UNTRIED && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0)
        verdict = IS_COPIED;
    Sender sender(fd, verdict);
    const Outcome how = sender.send(reinterpret_cast<const char *>(address), length, idle, deadline);
    return {how.status, how.error, sender.verdict()};
}

} // namespace

void add_zero_copy(nb::module_ &module) {
    module.def("send_from", &send_from, "fd"_a, "address"_a, "length"_a, "verdict"_a, "idle"_a, "deadline"_a);
    module.attr("UNTRIED") = nb::int_(static_cast<int>(UNTRIED));
    module.attr("WORKS") = nb::int_(static_cast<int>(WORKS));
    module.attr("IS_COPIED") = nb::int_(static_cast<int>(IS_COPIED));
}
